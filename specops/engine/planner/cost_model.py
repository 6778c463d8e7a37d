"""The time of a step by its batch size and trees: measured once, corrected by every step. Pure.

The first measurement (warm_up.py) gives the form: the target's pass by its tokens at a few batch sizes, the
draft's passes by their nodes. Each later step gives a ratio of observed to expected time. The median of the
last few ratios, for each batch and number of tokens, corrects the form; a median ignores a step that was
delayed. Where nothing was observed, the nearest number of tokens is used, and then the nearest batch.

A machine that slows down slows down every tree, but only the tree in use shows it. So ratios are divided by
the slowness of the machine, the median over the last steps of any kind. Otherwise the planner would leave a
tree in every busy minute for one that it remembers from a quiet one.

The slowness must not be inferred from a tree that was first observed while the machine was wrongly considered
slow: all other trees would look slower for ever. So where the machine is considered much slower, or faster,
and the plain ratio is nearer to the expected one, the plain ratio is stored.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Curve:
    """Seconds by a count, linear between the measured counts. Beyond the last count the slope of the last
    two applies; before the first, its value does."""

    points: tuple[tuple[int, float], ...]
    """(count, seconds), at least two, by ascending count."""

    @staticmethod
    def rising(times: Mapping[int, Sequence[float]]) -> Curve:
        """Return a curve through the mean at each count that never falls: more tokens take no less time, and
        where they seem to, the machine was disturbed. Neighbours that fall are pooled (isotonic
        regression)."""
        pools: list[tuple[list[int], list[float]]] = []
        for count, seconds in sorted(times.items()):
            pools.append(([count], list(seconds)))
            while len(pools) > 1 and statistics.fmean(pools[-2][1]) > statistics.fmean(pools[-1][1]):
                counts, pooled = pools.pop()
                pools[-1][0].extend(counts)
                pools[-1][1].extend(pooled)
        return Curve(tuple((count, statistics.fmean(pooled)) for counts, pooled in pools for count in counts))

    def seconds(self, count: float) -> float:
        counts = [point[0] for point in self.points]
        right = min(max(bisect_right(counts, count), 1), len(counts) - 1)
        (low, below), (high, above) = self.points[right - 1], self.points[right]
        return below + max(count - low, 0) / (high - low) * (above - below)

    def towards(self, end: Curve, share: float) -> Curve:
        pairs = zip(self.points, end.points, strict=True)
        return Curve(tuple((count, a + share * (b - a)) for (count, a), (_, b) in pairs))


REMEMBERED = 9
"""Number of ratios that are stored for each kind of step."""

KNOWN = 3
"""Number of ratios from which a kind of step shows the slowness of the machine."""

SLOW = 1.25
"""Slowness, or its inverse, above which a ratio is checked."""

UNSEEN = 0.03
"""Relative error of the expected time of steps that were rarely observed, or never."""

MOST_KINDS = 512
"""Number of kinds of steps that are stored; the one not observed for longest is dropped."""


@dataclass(frozen=True)
class _Form:
    """Seconds at one batch size, by the nodes of each tree (verify) or of its level."""

    verify: tuple[float, ...]
    first: float
    level: tuple[float, ...]
    rest: float


@dataclass(frozen=True)
class BaseCosts:
    """The first measurement, in seconds."""

    target: dict[int, Curve]
    """Time of the target's pass and the verification, by batch size and by the tokens of all trees, roots
    included."""

    first: Curve
    """Time of the draft's first pass, by batch size."""

    level: Curve
    """Time of a further pass of the draft, by its nodes in all trees."""

    rest: Curve
    """Time of committing, by batch size."""

    def form(self, batch: int, nodes: int) -> _Form:
        """The measurement at one batch size, for trees of up to `nodes` nodes."""
        if (batch, nodes) not in self._forms:
            self._forms[batch, nodes] = _Form(
                verify=tuple(self.verify(batch, batch * (1 + count)) for count in range(nodes + 1)),
                first=self.first.seconds(batch),
                level=tuple(self.level.seconds(batch * count) for count in range(nodes + 1)),
                rest=self.rest.seconds(batch),
            )
        return self._forms[batch, nodes]

    @cached_property
    def _forms(self) -> dict[tuple[int, int], _Form]:
        return {}

    def verify(self, batch: int, tokens: float) -> float:
        below = max((size for size in self.target if size <= batch), default=min(self.target))
        above = min((size for size in self.target if size >= batch), default=max(self.target))
        low = self.target[below].seconds(tokens)
        if above == below:
            return low
        return low + (batch - below) / (above - below) * (self.target[above].seconds(tokens) - low)


ROUGH = BaseCosts(
    target={1: Curve(((1, 1.0), (17, 2.0)))},
    first=Curve(((1, 0.15), (17, 0.3))),
    level=Curve(((1, 0.15), (17, 0.3))),
    rest=Curve(((1, 0.05), (17, 0.2))),
)
"""The form that is used without a first measurement; the steps correct it."""


@dataclass(frozen=True)
class BatchCosts:
    """Seconds at one batch size, as tables that `tree_choice.ranked` reads a few hundred times."""

    batch: int
    plain: float
    verify: tuple[float, ...]
    """Time of verification, by the nodes of each tree without the root."""

    first: float
    level: tuple[float, ...]
    """Time of a draft pass, by the nodes of each tree on the level; [0] is not used."""

    rest: float
    look_up: float
    copied: tuple[float, ...]
    """Time of verification of copies, whose trees have different lengths and need several calls; indexed
    as `verify`."""

    def step(self, levels: Sequence[int], batch: int = 1) -> float:
        """Seconds of a step at this batch size with `levels` nodes on each level. `batch` is ignored."""
        if not levels:
            return self.plain
        drafted = self.first + sum(self.level[nodes] for nodes in levels[:-1])
        return drafted + self.verify[sum(levels)] + self.rest

    def copying(self, drafted: float, lengths: Sequence[float]) -> float:
        """Seconds of a step with copies. drafted: the mean number of copied tokens per tree. lengths[n]:
        the share of trees with n tokens; for one sequence, each length is counted by its own time."""
        if self.batch == 1:
            passes = sum(share * verify for share, verify in zip(lengths, self.verify, strict=False))
            return self.look_up + passes + self.rest
        low = min(int(drafted), len(self.copied) - 2)
        share = drafted - low
        verify = self.copied[low] + share * (self.copied[low + 1] - self.copied[low])
        return self.look_up + verify + self.rest


class _Ratios:
    """Ratios of observed to expected time, by batch size and a count."""

    def __init__(self) -> None:
        self._observed: dict[tuple[int, int], deque[float]] = {}

    def add(self, batch: int, count: float, ratio: float) -> None:
        key = batch, _bucket(count)
        ratios = self._observed.pop(key, None) or deque(maxlen=REMEMBERED)
        ratios.append(ratio)
        self._observed[key] = ratios  # the last one is the one observed last
        if len(self._observed) > MOST_KINDS:
            del self._observed[next(iter(self._observed))]

    def error(self, batch: int, count: float) -> float:
        """Relative error of the median ratio, from the median deviation; `UNSEEN` with too few
        observations."""
        ratios = self._observed.get((batch, _bucket(count)), ())
        if len(ratios) < KNOWN:
            return UNSEEN
        middle = statistics.median(ratios)
        spread = statistics.median(abs(ratio - middle) for ratio in ratios)
        return 1.86 * spread / middle / math.sqrt(len(ratios))  # 1.48 to a deviation, 1.25 for a median

    def settled(self, batch: int, count: float) -> float | None:
        ratios = self._observed.get((batch, _bucket(count)), ())
        return statistics.median(ratios) if len(ratios) >= KNOWN else None

    def at_batch(self, batch: int) -> _BatchRatios:
        """The median ratios of this batch size, or of the nearest one that was observed."""
        sizes = {size for size, _ in self._observed}
        if not sizes:
            return _BatchRatios(())
        nearest = min(sizes, key=lambda size: abs(math.log(size / batch)))
        medians = ((b, statistics.median(r)) for (size, b), r in self._observed.items() if size == nearest)
        return _BatchRatios(tuple(sorted(medians)))

    def __len__(self) -> int:
        return len(self._observed)


@dataclass(frozen=True)
class _BatchRatios:
    points: tuple[tuple[int, float], ...]

    def __call__(self, count: float) -> float:
        """The ratio at `count`: linear between observed counts, that of the nearest beyond them; 1 without
        any."""
        if not self.points:
            return 1.0
        place = _bucket(count)
        before = self.points[0]
        for point in self.points:
            if point[0] >= place:
                span = point[0] - before[0]
                share = (place - before[0]) / span if span > 0 else 1.0
                return before[1] + share * (point[1] - before[1])
            before = point
        return before[1]


def _bucket(count: float) -> int:
    """The bucket of a count: each count up to 8 has its own; larger buckets span about an eighth of the
    count."""
    return round(count) if count <= 8 else round(8 * math.log2(count)) - 16


class CostModel:
    def __init__(self, base: BaseCosts = ROUGH) -> None:
        self.base = base
        self._verify, self._copied = _Ratios(), _Ratios()
        self._draft, self._read = _Ratios(), _Ratios()
        self._look_up, self._rest = _Ratios(), _Ratios()
        self._recent: deque[float] = deque(maxlen=REMEMBERED)
        self.slowness = 1.0
        """Slowness of the machine over the last steps, as a ratio; 1 is its state during most
        observations."""

    def verified(self, batch: int, tokens: int, seconds: float, *, ragged: bool) -> None:
        """Record a pass over `tokens` tokens of `batch` trees. ragged: the trees have different shapes."""
        ratios = self._copied if ragged else self._verify
        ratio = seconds / self.base.verify(batch, tokens)
        usual = ratios.settled(batch, tokens)
        if usual is not None:
            self._recent.append(ratio / usual)
            self.slowness = statistics.median(self._recent)
        expected = usual or ratios.at_batch(batch)(tokens)
        now = ratio / self.slowness
        mistaken = abs(math.log(self.slowness)) > math.log(SLOW) and (
            abs(math.log(ratio / expected)) < abs(math.log(now / expected))
        )
        ratios.add(batch, tokens, ratio if mistaken else now)

    def grew(self, batch: int, levels: Sequence[int], seconds: float) -> None:
        """Record that trees with `levels` nodes on each level were drafted for a batch."""
        self._draft.add(batch, 1, seconds / self._grow(batch, levels) / self.slowness)

    def caught_up(self, batch: int, levels: Sequence[int], tokens: int, seconds: float) -> None:
        """Record a step that drafted trees and read `tokens` tokens to catch up; the time beyond the
        trees' own counts as reading."""
        growing = self._grow(batch, levels) * self._draft.at_batch(batch)(1)
        reading = max(0.0, seconds / self.slowness - growing)
        self._read.add(1, tokens, reading / self.base.level.seconds(tokens))

    def looked_up(self, batch: int, seconds: float) -> None:
        self._look_up.add(batch, 1, seconds / batch / self.slowness)

    def committed(self, batch: int, seconds: float) -> None:
        self._rest.add(batch, 1, seconds / self.base.rest.seconds(batch) / self.slowness)

    @property
    def observed_kinds(self) -> int:
        """Number of kinds of steps with observations."""
        return sum(map(len, (self._verify, self._copied, self._draft, self._read, self._look_up, self._rest)))

    def batch_costs(self, batch: int, nodes: int) -> BatchCosts:
        """The expected times of steps with trees of up to `nodes` nodes."""
        verify, copied, slow = self._verify.at_batch(batch), self._copied.at_batch(batch), self.slowness
        form = self.base.form(batch, nodes)
        draft, rest = slow * self._draft.at_batch(batch)(1), slow * form.rest * self._rest.at_batch(batch)(1)
        counts = [batch * (1 + more) for more in range(nodes + 1)]
        even = tuple(slow * passed * verify(count) for passed, count in zip(form.verify, counts, strict=True))
        uneven = even
        if copied.points and batch > 1:  # one sequence's copies are a chain like any
            passes = zip(even, form.verify, counts, strict=True)
            # Never less than even trees take: what was observed of short copies says little of long ones.
            uneven = tuple(max(least, slow * passed * copied(count)) for least, passed, count in passes)
        return BatchCosts(
            batch=batch,
            plain=even[0] + rest,
            verify=even,
            first=form.first * draft,
            level=tuple(seconds * draft for seconds in form.level),
            rest=rest,
            look_up=slow * batch * self._look_up.at_batch(batch)(1) if len(self._look_up) else 0.0,
            copied=(even[0], *uneven[1:]),
        )

    def read(self, tokens: int) -> float:
        """Seconds of the draft's pass over `tokens` tokens of a sequence that it catches up with."""
        ratio = self._read.at_batch(1)(tokens) if len(self._read) else self._draft.at_batch(1)(1)
        return self.slowness * self.base.level.seconds(tokens) * ratio

    def error(self, batch: int, tokens: int) -> float:
        """Relative error of the expected time of a pass over `tokens` tokens of `batch` trees."""
        return self._verify.error(batch, tokens)

    def _grow(self, batch: int, levels: Sequence[int]) -> float:
        further = sum(self.base.level.seconds(batch * nodes) for nodes in levels[:-1])
        return self.base.first.seconds(batch) + further
