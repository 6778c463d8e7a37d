"""What is wrong with a command line: a finding, and a change that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """error: it does not start, or does something else than it says. warning: it may. note: good to know.

    `flag` is what it is about, such as --speculative-config disable_by_batch_size; `why` says what happens
    and in which versions; `replacement` what to write instead, where there is something.
    """

    level: Level
    flag: str
    why: str
    replacement: str | None = None
