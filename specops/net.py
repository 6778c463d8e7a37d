"""Addresses of this machine, and waiting for another machine no longer than a limit."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar
from urllib.parse import urlsplit

_Answer = TypeVar("_Answer")


def is_loopback(url: str) -> bool:
    """Return whether `url` names the loopback interface, which no proxy of the environment can reach for
    us."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def within(seconds: float, do: Callable[[], _Answer]) -> _Answer:
    """Return what `do` returns or raises. Raises TimeoutError where it takes longer; its thread is then
    abandoned.

    A socket's own time limit begins anew with every byte, and it does not cover looking a name up.
    """
    done: SimpleQueue[_Answer | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            done.put(do())
        except BaseException as error:  # raised again in the caller's thread
            done.put(error)

    Thread(target=run, daemon=True).start()
    try:
        found = done.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"it did not answer within {seconds:g} s") from None
    if isinstance(found, BaseException):
        raise found
    return found
