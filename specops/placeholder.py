"""ROLLOUT in a command or a sentence stands for the rollout file, where its path is not known."""

from __future__ import annotations

import re

ROLLOUT = "ROLLOUT"
_WORD = re.compile(rf"(?<![\w./-]){ROLLOUT}(?![\w/-]|\.\w)")
"""Not a part of a path, so that a file of this name is not replaced again."""


def named(text: str, place: str) -> str:
    """Return `text` with `place`, the arguments that name the rollout file in a shell, for each
    placeholder."""
    return _WORD.sub(lambda _: place, text)
