"""A week's figures from its samples alone, by the definitions and nothing cleverer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from a_week import BEFORE, END, HOUR, START, Samples, Week

Series = Iterator[tuple[dict[str, str], Samples]]


class Recount:
    def __init__(self, week: Week) -> None:
        self.week = week

    def series(self, name: str, **labels: str) -> Series:
        for key, samples in self.week.series.items():
            own = dict(key)
            if own["__name__"] == name and labels.items() <= own.items():
                yield own, samples

    def hourly(self, name: str, start: int = START, end: int = END, **labels: str) -> list[float]:
        """What all series grew by in each hour; NaN where none has a sample."""
        found = [math.nan] * ((end - start) // HOUR)
        for _, samples in self.series(name, **labels):
            previous = None
            for at, value in zip(samples.at, samples.values, strict=True):
                hour = math.ceil((at - start) / HOUR) - 1
                if 0 <= hour < len(found):
                    grew = 0.0 if previous is None else value - previous if value >= previous else value
                    found[hour] = grew + (0.0 if math.isnan(found[hour]) else found[hour])
                previous = value
        return found

    def total(self, name: str, start: int = START, end: int = END, **labels: str) -> float:
        return total(self.hourly(name, start, end, **labels))

    def load(self, pool: str) -> list[float]:
        """Σn²/Σn of every hour, and at least 1; where no scrape caught a request, by how long they took."""
        waiting = {own["instance"]: samples for own, samples in
                   self.series("vllm:num_requests_waiting", specops_pool=pool)}  # fmt: skip
        hours = (END - START) // HOUR
        squares, firsts, servers = [0.0] * hours, [0.0] * hours, [0] * hours
        for own, samples in self.series("vllm:num_requests_running", specops_pool=pool):
            queue = waiting[own["instance"]]
            seen = {math.ceil((at - START) / HOUR) - 1 for at in samples.at}
            servers = [count + (hour in seen) for hour, count in enumerate(servers)]
            for at, running, queued in zip(samples.at, samples.values, queue.values, strict=True):
                hour = math.ceil((at - START) / HOUR) - 1
                if 0 <= hour < hours:
                    squares[hour] += (running + queued) ** 2
                    firsts[hour] += running + queued
        took, n = (
            self.hourly(f"vllm:e2e_request_latency_seconds_{part}", specops_pool=pool)
            for part in ("sum", "count")
        )
        littles = [s / HOUR / k if c > 0 else math.nan for s, c, k in zip(took, n, servers, strict=True)]
        return [
            max(a / b if b else little, 1.0) if b or little == little else math.nan
            for a, b, little in zip(squares, firsts, littles, strict=True)
        ]


def total(values: Sequence[float]) -> float:
    return math.fsum(value for value in values if not math.isnan(value))


def line(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Straight between `points`; NaN outside of them."""

    def at(x: float) -> float:
        for (left, low), (right, high) in itertools.pairwise(points):
            if left <= x <= right:
                return low + (high - low) * (x - left) / (right - left)
        return math.nan

    return at


__all__ = ["BEFORE", "END", "START", "Recount", "line", "total"]
