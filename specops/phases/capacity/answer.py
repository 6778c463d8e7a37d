"""What a finished search says: rates, ratio, costs, and a verdict in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from specops import stats
from specops.config import Costs
from specops.economics import Prices, TokenTime
from specops.phases.capacity.judge import Judged, blocks_of, flat, judge, unsteady
from specops.phases.capacity.records import (
    ARMS,
    ArmCapacity,
    ArmName,
    CapacityAnswer,
    Estimate,
    Objective,
    Probe,
    Summary,
)
from specops.phases.capacity.search import (
    FEWEST_BLOCKS,
    MOST_LOCATE,
    Search,
    bound_by_client,
    unreadable,
)
from specops.results import Verdict, rounded


@dataclass(frozen=True)
class Conclusion:
    verdict: Verdict
    reason: str
    answer: CapacityAnswer
    summary: Summary


def conclude(
    probes: Sequence[Probe], search: Search, objective: Objective, costs: Costs | None
) -> Conclusion:
    """The answer of all probes. Pure.

    Yes: the lower end of the ratio's interval is above 1. No: the upper end is below 1, or only the standard
    meets the objective at all. A figure that was not read, a client that set the pace, and servers that
    changed leave it undecided.
    """
    judged = judge(probes, objective.attain)
    bound = sum(any(p.client_bound for p in block) for block in blocks_of(probes).values())
    changed = unsteady(judged.used, objective.attain) if judged is not None else None
    verdict, reason, claimed = _verdict(probes, search, judged, bound, changed)
    # A rate that the command makes no claim of is none that a gate or a router may go by.
    relied = judged if claimed else None
    arms = {arm: _arm(probes, arm, relied, costs) for arm in ARMS}
    ratio = None if judged is None else _estimate(judged.ratio)
    answer = CapacityAnswer(
        objective=objective,
        ratio=ratio,
        arms=arms,
        blocks=0 if judged is None else len(judged.used),
        left_out=len(blocks_of(probes)) - (0 if judged is None else len(judged.used)),
        currency=costs.currency if costs else None,
        cost_ratio=_cost_ratio(arms, relied, costs),
        unsteady=changed,
    )
    summary = Summary(
        ratio=ratio,
        standard_rate=_rate(arms["standard"]),
        speculative_rate=_rate(arms["speculative"]),
        objective=str(objective),
    )
    return Conclusion(verdict, reason, answer, summary)


def _verdict(
    probes: Sequence[Probe], search: Search, judged: Judged | None, bound: int, changed: str | None
) -> tuple[Verdict, str, bool]:
    """The verdict, its reason, and whether the rates of both arms are claimed."""
    for arm in ARMS:
        own = [probe for probe in probes if probe.plan.arm == arm]
        if (unknown := no_claim(own, arm)) is not None and (judged is None or unreadable(own)):
            return "undecided", unknown, False
    if search.misses_alone(probes, "standard"):
        return "undecided", _misses(probes, "standard"), False
    if search.misses_alone(probes, "speculative"):
        located = search.located(probes, "standard") is not None
        return ("no" if located else "undecided"), _misses(probes, "speculative"), False
    for arm in ARMS:
        if search.lost(probes, arm):
            return (
                "undecided",
                f"the rate of {arm} was not located in {MOST_LOCATE} probes: its share inside the objective"
                " does not fall evenly with the rate",
                False,
            )
    if bound_by_client(probes, fewest=1):
        why = next(probe.client_bound for probe in probes if probe.client_bound)
        return "undecided", f"{why}; this was so in {bound} blocks, which are left out", False
    if judged is None:
        if (arm_flat := flat(probes, search.attain)) is not None:
            return (
                "undecided",
                f"the share of {arm_flat} inside the objective hardly falls with the rate: about as many"
                " requests miss it at any rate as may, so no highest rate is known",
                False,
            )
        both_located = all(search.located(probes, arm) is not None for arm in ARMS)
        unmeasured = "the ratio of the rates" if both_located else "the rates that meet the objective"
        return "undecided", f"the time was over before {unmeasured} could be measured", False
    standard, speculative = (judged.rates[arm].estimate for arm in ARMS)
    moved = (
        f"the highest rate at the objective from {standard:.3g} to {speculative:.3g} requests/s:"
        f" {change(judged.ratio)}"
    )
    if changed is not None:
        return "undecided", f"{changed}; all blocks together: {change(judged.ratio)}", False
    if len(judged.used) < FEWEST_BLOCKS:
        few = f"{len(judged.used)} blocks of probes are too few to rely on: expected {FEWEST_BLOCKS}"
        return "undecided", f"{few}; so far, speculation moves {moved}", False
    if judged.ratio.low > 1:
        return "yes", f"speculation moves {moved}", True
    if judged.ratio.high < 1:
        return "no", f"speculation lowers {moved}", True
    return "undecided", f"whether speculation moves the highest rate is open: {moved}", True


def no_claim(own: Sequence[Probe], arm: ArmName) -> str | None:
    """Why a limited figure of the arm is not known, by its own probes; None where all are."""
    unknown, counted = sum(probe.unknown for probe in own), sum(probe.plan.counted for probe in own)
    if not unknown:
        return None
    reason = next(probe.missing for probe in own if probe.missing)
    return f"a limited figure of {unknown} of {counted} requests to {arm} is not known: {reason}"


def _misses(probes: Sequence[Probe], arm: ArmName) -> str:
    alone = next(probe for probe in probes if probe.plan.arm == arm and probe.plan.place == "alone")
    failed = f", such as: {alone.detail}" if alone.detail else ""
    return (
        f"{arm} meets the objective at no rate: {alone.attained} of {alone.plan.counted} requests did that"
        f" were sent one after the other{failed}"
    )


def change(ratio: stats.Interval | Estimate) -> str:
    """A ratio as a change with its interval: +22% [+12%, +31%]."""
    ends = ratio if isinstance(ratio, dict) else _estimate(ratio)
    estimate, low, high = (f"{100 * (ends[name] - 1):+.0f}%" for name in ("estimate", "low", "high"))
    return f"{estimate} [{low}, {high}]"


def _estimate(interval: stats.Interval) -> Estimate:
    return Estimate(
        estimate=rounded(interval.estimate), low=rounded(interval.low), high=rounded(interval.high)
    )


def _rate(arm: ArmCapacity) -> float | None:
    return None if arm["rate"] is None else arm["rate"]["estimate"]


def _arm(probes: Sequence[Probe], arm: ArmName, judged: Judged | None, costs: Costs | None) -> ArmCapacity:
    used = [
        probe
        for block in (judged.used.values() if judged is not None else ())
        for probe in block
        if probe.plan.arm == arm
    ]
    alone = next((p for p in probes if p.plan.arm == arm and p.plan.place == "alone"), None)
    counted = sum(probe.plan.counted for probe in used)
    tokens = _tokens(used)
    rate = None if judged is None else judged.rates[arm]
    cost = None
    if rate is not None and tokens and costs is not None:
        price = costs.standard_per_hour if arm == "standard" else costs.speculative
        ends = (
            # A thousand requests at that rate: the tokens that they have, and the server's time.
            TokenTime(round(1000 * tokens), 1000 / end, 0.0).per_million(Prices(price, 0.0))
            for end in (rate.estimate, rate.high, rate.low)
        )
        estimate, low, high = (rounded(end) if end is not None else 0.0 for end in ends)
        cost = Estimate(estimate=estimate, low=low, high=high)
    return ArmCapacity(
        rate=None if rate is None else _estimate(rate),
        in_flight=None if rate is None else rounded(rate.estimate * fmean(probe.mean_s for probe in used)),
        tokens_a_request=rounded(tokens),
        cost_per_million=cost,
        requests=counted,
        failed=sum(probe.failed for probe in used),
        attained=rounded(sum(probe.attained for probe in used) / counted) if counted else None,
        saturated=sum(p.ended_by is not None for p in probes if p.plan.arm == arm),
        at_the_lowest=None if alone is None else rounded(alone.attained / alone.plan.counted),
    )


def _tokens(used: Sequence[Probe]) -> float | None:
    """Output tokens of a request on average, none of one that failed; None where some are not known."""
    counts = [probe.tokens for probe in used if probe.tokens is not None]
    ended = sum(probe.answered + probe.failed for probe in used)
    return sum(counts) / ended if len(counts) == len(used) and ended else None


def _cost_ratio(
    arms: Mapping[ArmName, ArmCapacity], judged: Judged | None, costs: Costs | None
) -> Estimate | None:
    """What a token costs with speculation, over without: its interval is the ratio's, which is narrower than
    those of both costs."""
    tokens = [arms[arm]["tokens_a_request"] for arm in ARMS]
    if judged is None or costs is None or not all(tokens):
        return None
    standard, speculative = (number or 0.0 for number in tokens)
    factor = costs.speculative / costs.standard_per_hour * standard / speculative
    return _estimate(judged.ratio.inverse.times(factor))
