"""One question to many at once, and one that must be answered in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

_Of = TypeVar("_Of")
_Answer = TypeVar("_Answer")


def within(seconds: float, do: Callable[[], _Answer]) -> _Answer:
    """What `do` returns or raises. TimeoutError where it takes longer: then it is left to itself.

    A socket's own time limit begins anew with every byte, and there is none for looking a name up.
    """
    done: SimpleQueue[_Answer | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            done.put(do())
        except BaseException as error:  # raised again where it was asked
            done.put(error)

    Thread(target=run, daemon=True).start()
    try:
        found = done.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"it did not answer within {seconds:g} s") from None
    if isinstance(found, BaseException):
        raise found
    return found


def each(question: Callable[[_Of], _Answer], of: Sequence[_Of]) -> list[_Answer]:
    """The answers in order: one that does not answer must not hold up the others."""
    if len(of) < 2:
        return [question(one) for one in of]
    with ThreadPoolExecutor(len(of)) as threads:
        return list(threads.map(question, of))
