"""One question to many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Of = TypeVar("_Of")
_Answer = TypeVar("_Answer")


def each(question: Callable[[_Of], _Answer], of: Sequence[_Of]) -> list[_Answer]:
    """The answers in order: one that does not answer must not hold up the others."""
    if len(of) < 2:
        return [question(one) for one in of]
    with ThreadPoolExecutor(len(of)) as threads:
        return list(threads.map(question, of))
