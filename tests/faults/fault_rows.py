"""What the rows of the fault table are made of: servers, options, and a row for each command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fault_runs import Row
from zoo_knobs import Fault, Server

STANDARD = Server()
EQUAL = Server()
FASTER = Server(ttft_ms=6.5, token_ms=4.2)
"""1.55 times as fast."""

SLOWER = Server(ttft_ms=15.0, token_ms=9.4)
LATE = Server(ttft_ms=60.0)
LATE_FASTER = Server(ttft_ms=35.0, token_ms=4.2)
"""Requests that are sent together meet: their first tokens come later than the last request."""

SAMPLED = ("--temperature=0.7",)
LOADED = ("--concurrency=8",)
BOTH_LOADS = ("--concurrency=1,8",)
DRIFTED = (
    r"drifted|not steady|[1-9]\d* of \d+ found drift|drift of|(slow(s|ed)|sped) (down|up)"
    r"|changed during the run"
)
OTHER_ANSWERS = r"answers (are|differ|change)|other answers|same answers|answers[^\n]*(differ|same)"
MANY = 64
BETTER = replace(STANDARD, ttft_ms=8.5, token_ms=5.5)
"""1.18 times as fast."""

EVERY = ("--concurrency=4",)
TWELVE = replace(STANDARD, tokens=(12, 12), ttft_ms=60.0, token_ms=10.0)
"""Slow enough that the loop's millisecond is small beside a token, and a busy machine's beside the first."""


def slowed(server: Server, times: float = 3.0) -> Server:
    """The same server with times so long that the machine's own delays, a few milliseconds, are small."""
    return replace(server, ttft_ms=times * server.ttft_ms, token_ms=times * server.token_ms)


def failing(kind: Any, share: float, base: Server = FASTER, **more: Any) -> Server:
    return replace(base, faults=(Fault(kind, share, **more),))


def ab(
    name: str,
    fault: str,
    challenger: Server,
    right: Any,
    *says: str,
    standard: Server = STANDARD,
    **more: Any,
) -> Row:
    return Row(name, fault, "ab", (standard, challenger), right, says, **more)


def sweep(name: str, fault: str, candidates: Sequence[Server], right: Any, *says: str, **more: Any) -> Row:
    standard = more.pop("standard", STANDARD)
    return Row(name, fault, "sweep", (standard, *candidates), right, says, **more)


def baseline(name: str, fault: str, server: Server, right: Any, *says: str, **more: Any) -> Row:
    return Row(name, fault, "baseline", (server,), right, says, **more)
