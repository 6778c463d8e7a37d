"""What was measured before the rollout, as recorded series, and what it lets one expect at today's load.

A baseline is a few loads, each with its latencies. Between two of them a mean is interpolated in a straight
line, by the requests that a server has at a time; below the lightest and above the heaviest nothing is
expected, and nothing is compared. A load of 1 is the lightest there is: a request sees at least itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from specops.prometheus import series
from specops.prometheus.promql import Latency, selector
from specops.prometheus.series import POOL, ROLLOUT
from specops.render.prometheus.rule_file import Record

Stat = Literal["mean", "p50", "p95"]


@dataclass(frozen=True)
class Load:
    """What was measured with `concurrency` requests at a time, in seconds. A figure that the samples were too
    few for is left out."""

    concurrency: int
    seconds: Mapping[tuple[Latency, Stat], float]
    token_s: float | None = None
    """Of a token after the first, over all tokens; TPOT is over requests."""


def constants(rollout: str, loads: Sequence[Load]) -> Iterator[Record]:
    """Every figure as a series that never changes."""
    where = {ROLLOUT: rollout, POOL: "standard"}
    for load in loads:
        at = where | {"concurrency": str(load.concurrency)}
        for (latency, stat), seconds in load.seconds.items():
            said = at | {"latency": latency, "stat": stat}
            yield Record(series.BASELINE_LATENCY, f"vector({_number(seconds)})", said)
        if ("e2e", "p95") in load.seconds:
            yield Record(series.BASELINE_E2E_P95, f"vector({_number(load.seconds['e2e', 'p95'])})", at)


def expected(labels: Mapping[str, str], loads: Sequence[Load]) -> Iterator[Record]:
    """The baseline's means at the load that each pool has now, and how many times as fast it is. `labels` are
    those of the recorded series that it reads.

    E2E is expected of answers as long as they are now: TTFT + time of a token × (tokens of an answer − 1).
    """
    ours = selector(labels)
    now = f"{series.CONCURRENCY}{ours}"
    ttft = _points(loads, lambda load: load.seconds.get(("ttft", "mean")))
    tpot = _points(loads, lambda load: load.seconds.get(("tpot", "mean")))
    token = _points(loads, lambda load: load.token_s)
    lines: dict[Latency, str] = {}
    if ttft:
        lines["ttft"] = interpolated(now, ttft)
    if tpot:
        lines["tpot"] = interpolated(now, tpot)
    if ttft and token:
        gaps = f"clamp_min({series.ANSWER_TOKENS}{ours} - 1, 0)"
        lines["e2e"] = f"{series.EXPECTED['ttft']}{ours} + ({interpolated(now, token)}) * {gaps}"
    for latency, line in lines.items():
        yield Record(series.EXPECTED[latency], line)
        ratio = f"{series.EXPECTED[latency]}{ours} / ({series.MEAN[latency]}{ours} > 0)"
        yield Record(series.SPEEDUP, ratio, {"latency": latency})


def _points(loads: Sequence[Load], read: Callable[[Load], float | None]) -> list[tuple[float, float]]:
    found = ((load.concurrency, read(load)) for load in sorted(loads, key=lambda load: load.concurrency))
    return [(at, seconds) for at, seconds in found if seconds is not None]


def interpolated(x: str, points: Sequence[tuple[float, float]]) -> str:
    """The straight lines through `points`, sorted by their first, at `x`; no sample outside of them.

    >>> interpolated("x", [(1, 10), (3, 20)])
    '((x >= 1) <= 3) * 5 + 5'
    """
    if len(points) == 1:
        (at, value) = points[0]
        return f"({x} == {_number(at)}) * 0 + {_number(value)}"
    pieces = []
    for (left, low), (right, high) in pairwise(points):
        slope = (high - low) / (right - left)
        line = f"* {_number(slope)} {_signed(low - slope * left)}"
        pieces.append(f"(({x} >= {_number(left)}) <= {_number(right)}) {line}")
    return " or ".join(pieces)


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'} {_number(abs(value))}"


def _number(value: float) -> str:
    return f"{value:.9g}"
