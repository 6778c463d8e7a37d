"""Addresses in one spelling, those of this machine, and waiting for another one no longer than a limit."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
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


_PORTS = {"http": 80, "https": 443}
HERE = "127.0.0.1"
LOOK_UP_S = 1.0


def address(url: str) -> str:
    """`url` in one spelling: case, default port, slashes, and the names of the loopback interface."""
    parts = urlsplit(url.strip())
    scheme = parts.scheme.lower()
    port = f":{parts.port}" if parts.port and parts.port != _PORTS.get(scheme) else ""
    path = "/".join(part for part in parts.path.split("/") if part)
    return f"{scheme}://{_host(parts.hostname or '')}{port}" + (f"/{path}" if path else "")


def machine_address(url: str) -> str:
    """`url` as `address` spells it, with its host's name looked up: all names and interfaces of this machine
    are one, but for further loopback addresses. A name that is not known within a second stays."""
    spelled = address(url)
    parts = urlsplit(spelled)
    host = parts.hostname or ""
    if host == HERE:
        return spelled
    addresses: list[str] = [host]
    with suppress(OSError, UnicodeError):
        looked_up = within(LOOK_UP_S, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        addresses = sorted({str(entry[4][0]) for entry in looked_up})
    is_local = _host(addresses[0]) == HERE or any(
        _is_of_this_machine(looked_up_address) for looked_up_address in addresses
    )
    netloc = HERE if is_local else _host(addresses[0])
    port = f":{parts.port}" if parts.port else ""
    return parts._replace(netloc=f"{netloc}{port}").geturl()


def _is_of_this_machine(text: str) -> bool:
    """Return whether an interface has this address: only then can a socket be bound to it."""
    try:
        parsed = ip_address(text)
        family = socket.AF_INET6 if parsed.version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((text, 0))
    except (OSError, ValueError):
        return False
    return not parsed.is_loopback


def _host(name: str) -> str:
    name = name.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return HERE
    try:
        if name and name[-1].isdigit() and ":" not in name:
            name = socket.inet_ntoa(socket.inet_aton(name))  # 127.1 and 0x7f.1 are 127.0.0.1
        parsed = ip_address(name)
    except (OSError, ValueError):
        return name
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    # 127.0.0.2 may be another server; what listens on 0.0.0.0 answers on 127.0.0.1 too
    if str(parsed) in (HERE, "::1") or parsed.is_unspecified:
        return HERE
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)


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
        outcome = done.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"it did not answer within {seconds:g} s") from None
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
