"""Deploy, do not deploy, or undecided, and why: by class, by challenger and in all. Pure.

A class deploys where the interval of its end-to-end speed-up, at the lightest load measured, lies above 1,
and TTFT does not veto. A challenger deploys where some class does, its greedy answers are the standard's,
and nothing that drifted on the way could have made its gain. The intervals of all classes and challengers
hold together (Bonferroni), at all looks (specops.stats.sequential). Levels of load are tested from the
lightest upwards until one does not surely pay, a fixed sequence, which costs no confidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.load.arrivals import Level
from specops.phases.ab.drift import Drift
from specops.phases.ab.parity import Parity
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.settings import AbSettings
from specops.phases.ab.speedups import Pairs, Shown, levels_of, pair_up
from specops.results import Verdict
from specops.stats import Interval


class Decision(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: Verdict
    reason: str
    speedup: Shown | None = None
    """What it was decided on, where it was that."""

    more_prompts: int | None = None
    """That it would take to decide what is undecided; None where more than a hundred times as many would."""


@dataclass(frozen=True)
class Look:
    """What the evidence says between two stages."""

    decided: bool
    """Every class of every challenger at the lightest load, and at every other load all classes together."""


@dataclass(frozen=True)
class Load:
    """Up to which load a challenger pays, all classes together."""

    pays_up_to: Level | None
    """None where it does not surely pay at the lightest."""

    levels: tuple[tuple[Level, Decision], ...]

    def __str__(self) -> str:
        """One sentence on what is beyond the lightest load; empty where there is nothing."""
        if len(self.levels) < 2:
            return ""
        if self.pays_up_to == self.levels[-1][0]:
            return f"All classes together, it pays at every load measured, up to {self.pays_up_to}."
        rest = [(level, decision) for level, decision in self.levels if decision.verdict != "yes"]
        found = [
            *_at("slower at", [(level, d) for level, d in rest if d.verdict == "no"]),
            *_at("not shown to pay at", [(level, d) for level, d in rest if d.verdict == "undecided"]),
        ]
        start = f"it pays up to {self.pays_up_to}; " if self.pays_up_to else "it is "
        return f"All classes together, {start}{'; '.join(found)}."


def look(
    visits: Sequence[VisitRecord], arms: Sequence[str], settings: AbSettings, done: int, looks: int
) -> Look:
    """Whether what is undecided after `done` of `looks` looks is nothing, so that the comparison may end.

    `arms` are those that work, the standard first; `visits` those of the stages so far.
    """
    for challenger in arms[1:]:
        pairs = pair_up(visits, arms[0], challenger, settings.design)
        if not pairs.all:
            return Look(decided=False)
        first, *heavier = levels_of(visits)
        confidences = Confidences.at(settings, pairs.classes, len(arms) - 1, done, looks)
        verdicts = [d.verdict for d in by_class(pairs, first, confidences.of_classes, settings).values()]
        verdicts += [of_level(pairs, level, confidences.of_levels).verdict for level in heavier]
        if "undecided" in verdicts:
            return Look(decided=False)
    return Look(decided=True)


@dataclass(frozen=True)
class Confidences:
    """Of one interval of a kind, such that all of that kind hold together at every look."""

    of_classes: float
    of_levels: float

    @classmethod
    def at(
        cls, settings: AbSettings, classes: Collection[str], challengers: int, done: int, looks: int
    ) -> Confidences:
        return cls(
            of_look(settings.confidence, done, looks, among=max(1, len(classes) * challengers)),
            of_look(settings.confidence, done, looks, among=max(1, challengers)),
        )


@cache
def of_look(confidence: float, done: int, looks: int, *, among: int = 1) -> float:
    """Of each of `among` intervals at look `done` of `looks` evenly spaced ones."""
    share = 1 - (1 - confidence) / among
    return stats.sequential.levels([(k + 1) / looks for k in range(looks)], share)[done - 1]


def by_class(pairs: Pairs, level: Level, confidence: float, settings: AbSettings) -> dict[str, Decision]:
    """The decision on each traffic class, at `level`."""
    return {name: of_class(pairs.at(level).of(name), confidence, settings) for name in pairs.classes}


def of_class(pairs: Pairs, confidence: float, settings: AbSettings) -> Decision:
    """The decision on the pairs of one class at one level."""
    change, ttft = pairs.ttft_change_ms(), pairs.ratio("ttft", confidence)
    if (
        ttft is not None
        and change is not None
        and ttft.high < 1 / settings.ttft_veto_ratio
        and change >= settings.ttft_veto_ms
    ):
        reason = f"TTFT grows by {change:.0f} ms, to {1 / ttft.estimate:.2f} times as much"
        return Decision(verdict="no", reason=reason)
    return _decided(pairs, confidence)


def of_level(pairs: Pairs, level: Level, confidence: float) -> Decision:
    """Whether it pays at `level`, all classes together."""
    return _decided(pairs.at(level), confidence)


def load(pairs: Pairs, levels: Sequence[Level], confidence: float) -> Load:
    """Where it stops paying; `levels` from the lightest."""
    decisions = tuple((level, of_level(pairs, level, confidence)) for level in levels)
    best = None
    for level, decision in decisions:
        if decision.verdict != "yes":
            break
        best = level
    return Load(best, decisions)


def of_challenger(
    classes: Mapping[str, Decision], parities: Sequence[Parity], parity_confidence: float
) -> Decision:
    """From its classes, unless it changes what is said: speed bought with other answers is none."""
    decision = _of_classes(classes)
    lost = [parity for parity in parities if parity.shows_a_fault(parity_confidence)]
    if lost:
        told = "; ".join(_lost(parity) for parity in lost)
        return Decision(verdict="no", reason=f"do not deploy: {told}; by speed alone: {decision.reason}")
    for parity in parities:
        if decision.verdict == "yes" and parity.control is None and parity.arms.surely_unlike:
            return Decision(
                verdict="undecided",
                reason=f"{_same(parity)}, and one repeat cannot tell whether the standard differs from "
                f"itself; by speed alone: {decision.reason}",
            )
    return decision


def unless_drifted(
    decision: Decision, drift: Drift | None, halves: tuple[Interval | None, Interval | None]
) -> Decision:
    """A gain in a run in which one of the arms changed and the other did not stands only if each half of
    the run shows it: a server that slows down is deployed for what it is at the end, and a standard that
    did is no measure at all. `halves` are the speed-ups in them."""
    if drift is None:
        return decision
    told = f"it drifted: {drift.told}"
    if decision.verdict != "yes":
        return decision.model_copy(update={"reason": f"{decision.reason}; {told}"})
    if all(half is not None and half.low > 1 for half in halves):
        reason = f"{decision.reason}; it drifted, and both halves of the run show the gain"
        return decision.model_copy(update={"reason": reason})  # the drift's own line has the figures
    each = " then ".join("too few prompts" if half is None else times(half) for half in halves)
    return Decision(
        verdict="undecided",
        reason=f"{told}, and the halves of the run do not both show the gain: {each}; "
        f"over the whole run: {decision.reason}",
    )


def deployed(classes: Mapping[str, Decision]) -> list[str]:
    return [name for name, decision in classes.items() if decision.verdict == "yes"]


def overall(decisions: Mapping[str, Decision], fastest: str | None) -> Decision:
    """Of all challengers; `fastest` is the `best` of them."""
    if len(decisions) == 1:
        return next(iter(decisions.values()))
    told = ". ".join(f"{name}: {decision.reason}" for name, decision in decisions.items())
    if fastest is not None:
        return Decision(verdict="yes", reason=f"the fastest that may be deployed is {fastest}. {told}")
    undecided = [decision for decision in decisions.values() if decision.verdict == "undecided"]
    if undecided:
        return Decision(verdict="undecided", reason=told, more_prompts=_most(undecided))
    return Decision(verdict="no", reason=told)


def best(decisions: Mapping[str, Decision], speedups: Mapping[str, Interval | None]) -> str | None:
    """The fastest of those that deploy, by its estimate; None where none does."""
    paying = [name for name, decision in decisions.items() if decision.verdict == "yes"]

    def estimate(name: str) -> float:
        interval = speedups.get(name)
        return interval.estimate if interval is not None else 0.0

    return max(paying, key=estimate, default=None)


def times(interval: Interval) -> str:
    """Such as `1.31× [1.22, 1.40]`."""
    return f"{interval.estimate:.2f}× [{interval.low:.2f}, {interval.high:.2f}]"


def _decided(pairs: Pairs, confidence: float) -> Decision:
    speedup = pairs.ratio("e2e", confidence)
    if speedup is None:
        answered = len(pairs.all)
        missing = stats.MIN_PAIRS - answered
        short = f"{answered} prompts were answered by both arms, an interval needs {stats.MIN_PAIRS}"
        return Decision(verdict="undecided", reason=short, more_prompts=max(missing, 1))
    if speedup.low > 1:
        return Decision(verdict="yes", reason=times(speedup), speedup=speedup)
    if speedup.high < 1:
        return Decision(verdict="no", reason=f"{times(speedup)}: slower", speedup=speedup)
    more = stats.pairs_needed(speedup)
    takes = f"about {more} more prompts would tell" if more else "a hundred times as many would not tell"
    reason = f"{times(speedup)} includes 1 ({takes})"
    return Decision(verdict="undecided", reason=reason, speedup=speedup, more_prompts=more)


def _of_classes(classes: Mapping[str, Decision]) -> Decision:
    deploy = deployed(classes)
    no = [f"not for {name}: {d.reason}" for name, d in classes.items() if d.verdict == "no"]
    undecided = [
        f"undecided for {name}: {d.reason}" for name, d in classes.items() if d.verdict == "undecided"
    ]
    if deploy:
        return Decision(verdict="yes", reason="; ".join([f"deploy for {', '.join(deploy)}", *no, *undecided]))
    if classes and not undecided:
        return Decision(verdict="no", reason=f"do not deploy: {'; '.join(no)}")
    if not classes:
        return Decision(verdict="undecided", reason="no prompt was answered by both arms")
    return Decision(
        verdict="undecided",
        reason=f"not enough evidence: {'; '.join([*undecided, *no])}",
        more_prompts=_most([d for d in classes.values() if d.verdict == "undecided"]),
    )


def _most(undecided: Iterable[Decision]) -> int | None:
    needed = [decision.more_prompts for decision in undecided]
    known = [more for more in needed if more is not None]
    return max(known) if known and len(known) == len(needed) else None


def _lost(parity: Parity) -> str:
    if parity.breaks:
        return (
            f"greedy requests fail when sampled requests share the batch: {len(parity.failures)}, all of "
            f"which the standard answered, such as: {parity.failures[0]}"
        )
    what = "greedy answers change when sampled requests share the batch: " if parity.mixed else ""
    return f"{what}{_same(parity)}, and {parity.control} when the standard is asked again"


def _same(parity: Parity) -> str:
    return f"{parity.arms} greedy answers are the same in both arms at {parity.level}"


def _at(what: str, levels: Sequence[tuple[Level, Decision]]) -> list[str]:
    told = [f"{level}: {times(d.speedup) if d.speedup else d.reason}" for level, d in levels]
    return [f"{what} {', '.join(told)}"] if told else []
