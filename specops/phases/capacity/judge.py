"""The highest rates at the objective and their ratio, from blocks of probes. Pure.

Near the rate that is looked for, the logit of the share inside the objective falls about evenly with the
logarithm of the rate: logit p = a - b (log rate - centre). Both arms have a line of their own, fitted to
counts. The rate sought is where the line has the wanted share.

Requests of one probe are not independent: a queue that has grown makes many late. The four probes of a block
(both arms, below and above) have the same arrivals and prompts, so they are not independent either. So the
unit is the block, and the error is a jackknife over blocks: in the ratio, what a block's arrivals did to both
arms cancels. Noise that lasts over blocks widens the interval (stats/autocorrelation.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specops import stats
from specops.phases.capacity.records import ARMS, ArmName, Probe
from specops.stats.autocorrelation import widening

Floats = NDArray[np.float64]
Blocks = Mapping[int, Sequence[Probe]]

BLOCK_PROBES = 4
START_SLOPE = 10.0
"""Logits by which the share falls with the logarithm of the rate, before anything is known of it."""

LEAST_SLOPE = 1.0
"""A flatter line does not say where it crosses."""

FLAT = 3.0
"""Nothing is claimed of a flatter line: its share falls so little with the rate, as where some requests miss
at any rate, that chance decides where it crosses (benchmarks/capacity.py has slopes from 4)."""

SLOPE_PRIOR, SHARE_PRIOR = 20.0, 3.0
"""Standard deviations of a prior on slope and logit. It is weak: it only keeps a fit finite where all
requests, or none, met the objective."""

NEAR_LOGITS = 1.5
"""Blocks whose middle is further from the crossing do not count: the line is straight only near it."""

RATE_DOUBT = 0.03
"""Error of the logarithm of a rate that no block shows: the line is a little curved, and each probe begins
with an empty server. It is the same for both arms, so the ratio has none (benchmarks/capacity.py)."""

FEWEST = 4
"""Blocks from which an interval is computed at all."""

UNSTEADY_LEVEL = 0.99


def logit(share: float) -> float:
    return math.log(share / (1 - share))


@dataclass(frozen=True)
class Lines:
    """The fitted lines of both arms, in the order of ARMS."""

    log_rates: Floats
    """Where each has the wanted share, [2]; of a line that is too flat it is far from the truth."""

    slopes: Floats
    """[2]"""

    without: Floats
    """`log_rates` without each block in turn, [blocks, 2]."""

    def interval(self, weights: tuple[float, float], level: float) -> stats.Interval:
        """The exponential of a weighted sum of both logarithms, with its interval. Weights that add up to 0
        are those of a ratio."""
        number = len(self.without)
        estimate = float(self.log_rates @ np.array(weights))
        pulls = (self.without - self.log_rates) @ np.array(weights)
        error = math.sqrt((number - 1) / number * float((pulls**2).sum()))
        half = stats.t_quantile(level, max(1, number - 2)) * error
        if error > 0:
            half *= float(widening(pulls - pulls.mean(), level))
        half = math.hypot(half, 2 * RATE_DOUBT * abs(sum(weights)))
        low, high = (math.exp(estimate + sign * min(half, 50.0)) for sign in (-1, 1))
        return stats.Interval(math.exp(estimate), low, high, number, level)


RATIO = (-1.0, 1.0)
RATE: Mapping[ArmName, tuple[float, float]] = {"standard": (1.0, 0.0), "speculative": (0.0, 1.0)}


def attained_strictly(probe: Probe) -> float:
    """A request of which a figure is not known counts as outside."""
    return probe.attained


def fit(blocks: Blocks, attain: float, count: Callable[[Probe], float] = attained_strictly) -> Lines:
    """Fit both lines. `count` gives the requests of a probe that met the objective."""
    probes = [probe for block in blocks.values() for probe in block]
    arms = np.array([ARMS.index(probe.plan.arm) for probe in probes])
    logs = np.log([probe.plan.rate for probe in probes])
    sent = np.array([probe.plan.counted for probe in probes], dtype=np.float64)
    met = np.array([count(probe) for probe in probes])
    centres = np.array([logs[arms == arm].mean() for arm in range(len(ARMS))])
    design = np.zeros((len(probes), 4))  # two logits, two slopes
    rows = np.arange(len(probes))
    design[rows, arms] = 1.0
    design[rows, 2 + arms] = -(logs - centres[arms])
    prior = np.array([logit(attain)] * 2 + [START_SLOPE] * 2)
    weight = np.array([SHARE_PRIOR**-2] * 2 + [SLOPE_PRIOR**-2] * 2)
    line = prior.copy()

    def curvature(line: Floats) -> tuple[Floats, Floats, Floats]:
        share = 1 / (1 + np.exp(-(design @ line)))
        variance = sent * share * (1 - share)
        return (design * variance[:, None]).T @ design + np.diag(weight), variance, met - sent * share

    for _ in range(50):
        hessian, _, residual = curvature(line)
        step = np.linalg.solve(hessian, design.T @ residual - weight * (line - prior))
        # A long step of Newton's would leave the region in which the curvature holds.
        line = line + step * min(1.0, 1.5 / max(np.abs(step[:2]).max(), np.abs(step[2:]).max() / 6, 1e-12))
        if np.abs(step).max() < 1e-7:
            break
    hessian, variance, residual = curvature(line)

    def crossings(line: Floats) -> Floats:
        slopes = np.maximum(line[..., 2:], LEAST_SLOPE)
        crossed: Floats = centres + (line[..., :2] - logit(attain)) / slopes
        return crossed

    # One step of Newton's from the whole fit to that without a block, for all blocks at once.
    parts = design.reshape(len(blocks), BLOCK_PROBES, 4)
    rest = hessian - np.einsum("bpi,bp,bpj->bij", parts, variance.reshape(parts.shape[:2]), parts)
    pulled = np.einsum("bpi,bp->bi", parts, residual.reshape(parts.shape[:2]))
    without = line - np.linalg.solve(rest, pulled[:, :, None])[:, :, 0]
    return Lines(crossings(line), line[2:], crossings(without))


@dataclass(frozen=True)
class Judged:
    """Both rates and their ratio; the ends hold whatever the unknown figures were."""

    ratio: stats.Interval
    rates: Mapping[ArmName, stats.Interval]
    used: Blocks
    left_out: int

    @property
    def half_width(self) -> float:
        """Of the ratio, as a share of it."""
        return math.sqrt(self.ratio.high / self.ratio.low) - 1


def judge(probes: Sequence[Probe], attain: float, level: float = stats.LEVEL) -> Judged | None:
    """The answer of the whole blocks among `probes`; None where fewer than FEWEST are near the crossing, and
    where a line is flat."""
    whole = blocks_of(probes)
    used = near(whole, attain)
    if len(used) < FEWEST:
        return None
    lines = fit(used, attain)
    if (lines.slopes < FLAT).any():
        return None
    ratio, rates = lines.interval(RATIO, level), {arm: lines.interval(RATE[arm], level) for arm in ARMS}
    if any(probe.unknown for block in used.values() for probe in block):
        generous = {arm: fit(used, attain, _generous_to(arm)) for arm in ARMS}
        ends = [lines.interval(RATIO, level) for lines in generous.values()]
        ratio = _hull(ratio, ends)
        rates = {arm: _hull(rates[arm], [generous[arm].interval(RATE[arm], level)]) for arm in ARMS}
    return Judged(ratio, rates, used, len(whole) - len(used))


def flat(probes: Sequence[Probe], attain: float) -> ArmName | None:
    """The arm whose share inside the objective hardly falls with the rate, by blocks near the crossing."""
    used = near(blocks_of(probes), attain)
    if len(used) < FEWEST:
        return None
    slopes = fit(used, attain).slopes
    return next((arm for arm, slope in zip(ARMS, slopes, strict=True) if slope < FLAT), None)


def _generous_to(arm: ArmName) -> Callable[[Probe], float]:
    """The count in which the unknown requests of `arm` met the objective, and those of the other did not."""
    return lambda probe: probe.attained + (probe.unknown if probe.plan.arm == arm else 0)


def _hull(interval: stats.Interval, bounds: Sequence[stats.Interval]) -> stats.Interval:
    low = min(interval.low, *(bound.low for bound in bounds))
    high = max(interval.high, *(bound.high for bound in bounds))
    return stats.Interval(interval.estimate, low, high, interval.n, interval.level)


def blocks_of(probes: Sequence[Probe]) -> Blocks:
    """The whole blocks, in their order."""
    blocks: dict[int, list[Probe]] = defaultdict(list)
    for probe in probes:
        if probe.plan.place in ("low", "high"):
            blocks[probe.plan.number].append(probe)
    return {number: block for number, block in sorted(blocks.items()) if len(block) == BLOCK_PROBES}


def near(whole: Blocks, attain: float) -> Blocks:
    """The blocks that this client did not bound, and whose rates are near those at the objective. Rates are
    chosen before a block is measured, so this choice does not favour lucky blocks."""
    blocks = {
        number: block for number, block in whole.items() if not any(probe.client_bound for probe in block)
    }
    for _ in range(2):  # the line without far blocks says better which are far
        if len(blocks) < FEWEST:
            break
        lines = fit(blocks, attain)
        reach = NEAR_LOGITS / np.maximum(lines.slopes, LEAST_SLOPE)
        blocks = {
            number: block
            for number, block in blocks.items()
            if bool((np.abs(_middle(block) - lines.log_rates) <= reach).all())
        }
    return blocks


def _middle(block: Sequence[Probe]) -> Floats:
    """The mean logarithm of each arm's rates, [2]."""
    return np.array(
        [np.mean([math.log(probe.plan.rate) for probe in block if probe.plan.arm == arm]) for arm in ARMS]
    )


def unsteady(used: Blocks, attain: float) -> str | None:
    """The sentence that says that the ratio changed from the first half of the blocks to the second; None
    where it did not."""
    numbers = list(used)
    middle = len(numbers) // 2
    if middle < FEWEST:
        return None
    halves = [
        fit({number: used[number] for number in part}, attain).interval(RATIO, UNSTEADY_LEVEL)
        for part in (numbers[:middle], numbers[middle:])
    ]
    first, last = halves
    gap = abs(math.log(last.estimate / first.estimate))
    if gap <= math.hypot(*(math.log(half.high / half.low) / 2 for half in halves)):
        return None
    return (
        f"the ratio changed while it was measured, from {first.estimate:.2f} in the first half of the blocks"
        f" to {last.estimate:.2f} in the second"
    )
