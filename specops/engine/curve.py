"""What something takes by a count of something, measured at a few counts."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """Seconds by a count, linear between the counts that were measured; beyond the last as between the last
    two, before the first as at the first."""

    points: tuple[tuple[int, float], ...]
    """At least two, ascending."""

    @staticmethod
    def rising(found: Mapping[int, Sequence[float]]) -> Curve:
        """Through the mean at each count, but never falling: more tokens take no less time, and where they
        seem to, the machine was disturbed. Neighbours that fall are pooled (isotonic regression)."""
        pools: list[tuple[list[int], list[float]]] = []
        for count, seconds in sorted(found.items()):
            pools.append(([count], list(seconds)))
            while len(pools) > 1 and statistics.fmean(pools[-2][1]) > statistics.fmean(pools[-1][1]):
                counts, pooled = pools.pop()
                pools[-1][0].extend(counts)
                pools[-1][1].extend(pooled)
        return Curve(tuple((count, statistics.fmean(pooled)) for counts, pooled in pools for count in counts))

    def at(self, count: float) -> float:
        counts = [point[0] for point in self.points]
        right = min(max(bisect_right(counts, count), 1), len(counts) - 1)
        (low, below), (high, above) = self.points[right - 1], self.points[right]
        return below + max(count - low, 0) / (high - low) * (above - below)

    def towards(self, other: Curve, share: float) -> Curve:
        pairs = zip(self.points, other.points, strict=True)
        return Curve(tuple((count, a + share * (b - a)) for (count, a), (_, b) in pairs))
