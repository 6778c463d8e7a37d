"""How buffers are laid out that compiled loops and Python both know."""

from __future__ import annotations

SPAN = 5
"""Of each span: row, first slot, tokens, how many of the last slots its mask is over, and where that is."""

ROWS = 64
"""Rows of a quantised matrix that are multiplied at once, and lie together."""
