"""Which probes are next. Pure: it follows from the settings and the probes so far, so a run can be resumed.

First, each arm answers requests one after the other: an arm that misses the objective then meets it at no
rate. Next, its rate is doubled or halved until the share inside the objective crosses the wanted one, and the
span is halved a few times. Then come blocks of four probes, both arms below and above the rate that the
blocks so far expect to meet the objective. A block's probes have the same arrivals and prompts, and the arms
go first in turn. It ends once the ratio is known well enough, or the time is over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specops.phases.capacity.judge import (
    FEWEST,
    LEAST_SLOPE,
    START_SLOPE,
    Judged,
    blocks_of,
    fit,
    judge,
)
from specops.phases.capacity.records import ARMS, ArmName, Place, Probe, ProbePlan
from specops.stats import share_upper

ALONE_REQUESTS = 12
LOCATE_REQUESTS = 40
COUNTED_REQUESTS = 80
"""Counted requests of a block's probe; more where many must be sent before them."""

LOCATED = 1.2
"""Ratio of the rates between which an arm's rate lies once it is located."""

MOST_LOCATE = 24
FEWEST_BLOCKS = 16
"""Blocks before a look: an interval from fewer is too narrow where it ends a search."""

BALANCE = 5.0
"""Requests that are sent before the counted ones, as a multiple of those in flight on average."""

MOST_BEFORE = 500
APART_LOGITS, LEAST_APART, MOST_APART = 0.8, 0.015, 0.12
"""How far below and above the expected rate a block's probes are: in logits of the share, and the bounds in
logarithms of the rate."""

MOST_MOVE = 0.15
"""Largest change of the logarithm of an expected rate from one block to the next."""

RECENT = 12
"""Blocks from which the next rates are expected."""

SIDES: Mapping[Place, float] = {"low": -1.0, "high": 1.0}
LOOK_EVERY = 2
"""Blocks from one look at the interval to the next."""

SURELY = 0.99


@dataclass(frozen=True)
class Search:
    attain: float
    precision: float
    """Half of the width of the ratio's interval at which the search ends, as a share of the ratio."""

    budget_s: float
    """Seconds of probes after which it ends."""

    def next_probes(self, probes: Sequence[Probe]) -> Sequence[ProbePlan]:
        """The next probe, or the four of the next block, in their order; none where the search is over."""
        by_arm = {arm: [probe for probe in probes if probe.plan.arm == arm] for arm in ARMS}
        for arm in ARMS:
            if not by_arm[arm]:
                return [_plan(arm, "alone", 0, 0.0, 0, ALONE_REQUESTS)]
        hopeless = [arm for arm in ARMS if self.misses_alone(probes, arm)]
        if "standard" in hopeless or any(self.lost(probes, arm) for arm in ARMS):
            return []
        if any(map(unreadable, by_arm.values())) or bound_by_client(probes):
            return []
        if sum(probe.seconds for probe in probes) >= self.budget_s:
            return []
        open_arms = [arm for arm in ARMS if arm not in hopeless and self.located(probes, arm) is None]
        if open_arms:
            return [self._locate(by_arm[min(open_arms, key=lambda arm: len(by_arm[arm]))])]
        if hopeless:  # the standard has a rate, so it is a no
            return []
        number = len(blocks_of(probes))
        if number >= FEWEST_BLOCKS and number % LOOK_EVERY == 0:
            judged = judge(probes, self.attain)
            if judged is not None and len(judged.used) >= FEWEST_BLOCKS and self.enough(judged):
                return []
        middles, spans = self._expected(probes, number)
        rates = {
            (arm, place): math.exp(middles[arm] + side * spans[arm])
            for place, side in SIDES.items()
            for arm in ARMS
        }
        before = _before(
            max(
                rates[arm, "high"] * max(probe.mean_s for probe in by_arm[arm][-BALANCED_BY:]) for arm in ARMS
            )
        )
        return [
            _plan(arm, place, number, rates[arm, place], before, max(COUNTED_REQUESTS, 3 * before // 2))
            for arm, place in _turn(number)
        ]

    def enough(self, judged: Judged) -> bool:
        return judged.half_width <= self.precision

    def misses_alone(self, probes: Sequence[Probe], arm: ArmName) -> bool:
        """Whether the arm surely misses the objective where requests come one after the other."""
        alone = next((p for p in probes if p.plan.arm == arm and p.plan.place == "alone"), None)
        if alone is None:
            return False
        return share_upper(alone.attained + alone.unknown, alone.plan.counted, level=SURELY) < self.attain

    def lost(self, probes: Sequence[Probe], arm: ArmName) -> bool:
        """Whether the arm was not located by MOST_LOCATE probes."""
        number = sum(p.plan.arm == arm and p.plan.place == "locate" for p in probes)
        return number >= MOST_LOCATE and self.located(probes, arm) is None

    def located(self, probes: Sequence[Probe], arm: ArmName) -> float | None:
        """The logarithm of about the arm's rate; None while it is looked for."""
        low, high = self._bounds([p for p in probes if p.plan.arm == arm])
        if low is None or high is None or high / low > LOCATED:
            return None
        return math.log(low * high) / 2

    def _bounds(self, probes: Sequence[Probe]) -> tuple[float | None, float | None]:
        """The rates between which the share crossed, by the latest probes that locate."""
        low: float | None = None
        high: float | None = None
        for probe in (probe for probe in probes if probe.plan.place == "locate"):
            if probe.attained >= self.attain * probe.plan.counted:
                low = probe.plan.rate
                high = None if high is not None and high <= low else high
            else:
                high = probe.plan.rate
                low = None if low is not None and low >= high else low
        return low, high

    def _locate(self, probes: Sequence[Probe]) -> ProbePlan:
        low, high = self._bounds(probes)
        alone = probes[0]
        if low is None and high is None:
            rate = 1 / max(alone.mean_s, 1e-3)
        elif low is None or high is None:
            rate = 2 * low if low is not None else (high or 0.0) / 2
        else:
            rate = math.sqrt(low * high)
        before = _before(rate * max(probe.mean_s for probe in probes[-2:]))
        number = sum(probe.plan.place == "locate" for probe in probes)
        return _plan(alone.plan.arm, "locate", number, rate, before, LOCATE_REQUESTS)

    def _expected(
        self, probes: Sequence[Probe], number: int
    ) -> tuple[dict[ArmName, float], dict[ArmName, float]]:
        """The logarithm of the rate that is expected to meet the objective, and how far from it the block's
        probes are, by arm. They follow from the blocks before block `number`."""
        middles = {arm: self.located(probes, arm) or 0.0 for arm in ARMS}
        slopes = dict.fromkeys(ARMS, START_SLOPE)
        if number:
            whole = blocks_of(probes)
            lines = fit(
                {index: whole[index] for index in range(max(0, number - RECENT), number)}, self.attain
            )
            for index, arm in enumerate(ARMS):
                rates = [math.log(probe.plan.rate) for probe in whole[number - 1] if probe.plan.arm == arm]
                stood = sum(rates) / len(rates)
                moved = float(lines.log_rates[index]) - stood
                middles[arm] = stood + min(max(moved, -MOST_MOVE), MOST_MOVE)
                slopes[arm] = float(lines.slopes[index]) if number >= FEWEST else START_SLOPE
        spans = {
            arm: min(max(APART_LOGITS / max(slope, LEAST_SLOPE), LEAST_APART), MOST_APART)
            for arm, slope in slopes.items()
        }
        return middles, spans


def _before(in_flight: float) -> int:
    """Requests to send before the counted ones, where so many are in flight on average."""
    return min(MOST_BEFORE, max(4, math.ceil(BALANCE * in_flight)))


def _plan(arm: ArmName, place: Place, number: int, rate: float, before: int, counted: int) -> ProbePlan:
    return ProbePlan(
        arm=arm,
        place=place,
        number=number,
        rate=round(rate, 6),
        before=before,
        counted=counted,
        after=0 if place == "alone" else max(2, math.ceil(before / BALANCE)),
    )


BALANCED_BY = 4
"""Probes of an arm whose mean time says how many requests are in flight."""

UNREADABLE = 0.02
"""Share of the requests of an arm without a figure from which no more is measured: nothing can be said."""


CLIENT_SHARE = 0.2
"""Share of the blocks that this client may have bound."""


def bound_by_client(probes: Sequence[Probe], fewest: int = 2 * FEWEST) -> bool:
    """Whether this client set the pace in too many of the blocks, of which there are at least `fewest`."""
    blocks = blocks_of(probes).values()
    bound = sum(any(probe.client_bound for probe in block) for block in blocks)
    return len(blocks) >= fewest and bound > CLIENT_SHARE * len(blocks)


def unreadable(probes: Sequence[Probe]) -> bool:
    return sum(probe.unknown for probe in probes) > UNREADABLE * sum(probe.plan.counted for probe in probes)


def _turn(number: int) -> Sequence[tuple[ArmName, Place]]:
    """The block's probes in their order. Over four blocks each arm and each place is first equally often."""
    arms = ARMS if number % 2 == 0 else ARMS[::-1]
    places: tuple[Place, Place] = ("low", "high") if number // 2 % 2 == 0 else ("high", "low")
    return [(arms[0], places[0]), (arms[1], places[0]), (arms[1], places[1]), (arms[0], places[1])]
