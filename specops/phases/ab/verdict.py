"""The decision on one traffic class at one load: deploy, do not deploy, or undecided, and why. Pure.

A class pays at a load where the interval of its speed-up lies above 1. The speed-up is the end-to-end one
where the answers of both arms are shown to be equally long; otherwise it is that of the time per output
token. What takes a yes away: TTFT that surely grows, requests that fail or take far too long, answers that
are surely longer or shorter, stumps of answers, one answer to several prompts, and a client that limited the
load.

Loads are tested from the lightest upwards until one does not surely pay, a fixed sequence, which costs no
confidence. The intervals of all classes and challengers hold together (Bonferroni), at all looks
(specops.stats.sequential). challengers.py decides over classes and loads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from specops import stats
from specops.load.arrivals import Level
from specops.phases.ab.confounders import Lengths, RequestCounts, Requests, compare_lengths, pairs_of
from specops.phases.ab.speedups import Pairs, Ratio, levels_of
from specops.phases.ab.visits import AbSettings, VisitRecord
from specops.render.figures import times
from specops.results import Verdict
from specops.section import Frozen

Basis = Literal["e2e", "tpot", "per_character"]
"""What a load was decided on: the end-to-end time, the time per output token, or, where tokens are not known,
the time per character."""


LEAST_GAIN = 1.01
"""A smaller gain is not deployed. The interval has the noise of requests, and not the client's own error,
which differs between servers that keep and close their connections."""


class Decision(Frozen):
    verdict: Verdict
    reason: str
    speedup: Ratio = None
    """Speed-up in `basis`; None where something else decided."""

    basis: Basis = "e2e"
    more_prompts: int | None = None
    """Number of prompts that would decide what is undecided; None where no number, or over a hundred times as
    many, would."""


@dataclass(frozen=True)
class InterimLook:
    """The result of an interim look at the evidence, between two stages."""

    decided: bool
    """Of every challenger, every class and all classes together, from the lightest load to the first that
    does not pay."""


@dataclass(frozen=True)
class Checks:
    """Counts of requests of all classes at one load, which limit the decision on each class there."""

    failures: RequestCounts | None = None
    refused: RequestCounts | None = None
    slow: RequestCounts | None = None
    late: RequestCounts | None = None
    stock: RequestCounts | None = None
    stumps: RequestCounts | None = None
    looped: RequestCounts | None = None
    unanswered: RequestCounts | None = None
    filtered: RequestCounts | None = None
    client_bound: str | None = None

    @classmethod
    def of(
        cls, visits: Sequence[VisitRecord], standard: str, challenger: str, level: Level, confidence: float
    ) -> Checks:
        requests = Requests.of(visits, standard, challenger, level)
        bound = (
            visit.cell.client_bound
            for visit in visits
            if visit.arm in (standard, challenger) and visit.cell.level == level and visit.cell.client_bound
        )
        return cls.counted(requests, confidence, next(bound, None))

    @classmethod
    def counted(cls, requests: Requests, confidence: float, client_bound: str | None) -> Checks:
        return cls(
            failures=requests.counted("failed", confidence),
            refused=requests.counted("refused", confidence),
            slow=requests.counted("slow", confidence),
            late=requests.counted("late", confidence),
            stock=requests.counted("stock", confidence),
            stumps=requests.counted("stump", confidence),
            looped=requests.counted("looped", confidence),
            unanswered=requests.counted("unanswered", confidence),
            filtered=requests.counted("filtered", confidence),
            client_bound=client_bound,
        )

    def limit(self, decision: Decision, settings: AbSettings) -> Decision:
        """Return `decision`, unless requests of the challenger failed, were too slow or were hardly answered,
        or the client was too slow."""
        margin = settings.failure_margin
        stumps = None if settings.accept_length_change else self.stumps
        of_answers = (self.stock, stumps, self.looped, self.unanswered, self.filtered)
        for counted in (self.failures, self.slow, self.refused, self.late, *of_answers):
            if counted is not None and counted.surely_more(margin):
                return Decision(verdict="no", reason=str(counted))
        if self.client_bound is not None:
            return Decision(verdict="undecided", reason=self.client_bound)
        for counted in (self.failures, self.slow, self.refused):
            if decision.verdict != "no" and counted is not None and counted.possibly_more(margin):
                more: int | None = counted.more_prompts(margin)
                reason = f"{counted}; about {more} more prompts without such a request would decide"
                if decision.verdict == "undecided":
                    more = most_prompts(
                        [decision, Decision(verdict="undecided", reason="", more_prompts=more)]
                    )
                return Decision(verdict="undecided", reason=reason, more_prompts=more)
        for counted in (self.stock, self.unanswered, self.filtered):
            alone = counted is not None and counted.challenger and not counted.standard
            if decision.verdict == "yes" and alone:
                return Decision(verdict="undecided", reason=str(counted))
        return decision


@dataclass(frozen=True)
class Cell:
    """One class, or all together, at one load."""

    level: Level
    decision: Decision
    lengths: Lengths | None


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on one challenger, by class and load."""

    classes: Mapping[str, tuple[Cell, ...]]
    """Decisions by class, from the lightest load to the heaviest, as in `together`."""

    together: tuple[Cell, ...]
    """Decisions on all classes together."""

    checks: tuple[Checks, ...]
    """Checks at each load."""

    @property
    def deploy(self) -> list[tuple[str, Level]]:
        return [
            (name, cell.level)
            for name, cells in sorted(self.classes.items())
            for cell in cells
            if cell.decision.verdict == "yes"
        ]

    @property
    def decided(self) -> bool:
        """Return whether no more prompts are needed: up to the first load that does not pay, nothing is
        open."""
        rows = [*self.classes.values(), self.together]
        return bool(self.classes) and all(_settled([cell.decision for cell in cells]) for cells in rows)


def look(
    visits: Sequence[VisitRecord],
    arms: Sequence[str],
    settings: AbSettings,
    done: int,
    looks: int,
    sent_before: Collection[str] = (),
) -> InterimLook:
    """Return whether nothing is open after `done` of `looks` looks, so that the comparison may end.

    `arms` are those that work, the standard first; `visits` those of the stages so far; `sent_before` are
    prompts that were sent before the first visit.
    """
    for challenger in arms[1:]:
        pairs = pairs_of(visits, arms[0], challenger, settings, sent_before)
        if not pairs.all:
            return InterimLook(decided=False)
        confidences = Confidences.at(settings, pairs.classes, len(arms) - 1, done, looks)
        if not of_each(visits, pairs, arms[0], challenger, confidences, settings).decided:
            return InterimLook(decided=False)
    return InterimLook(decided=True)


@dataclass(frozen=True)
class Confidences:
    """The confidence of one interval of each kind, such that all of that kind hold together at every look."""

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
    """Return the confidence of each of `among` intervals at look `done` of `looks` evenly spaced ones."""
    share = 1 - (1 - confidence) / among
    return stats.sequential.levels([(k + 1) / looks for k in range(looks)], share)[done - 1]


def of_each(
    visits: Sequence[VisitRecord],
    pairs: Pairs,
    standard: str,
    challenger: str,
    confidences: Confidences,
    settings: AbSettings,
    sustained: Sequence[VisitRecord] = (),
) -> Verdicts:
    """The decision on each traffic class, and on all together, at each load of `visits`.

    `sustained` are the requests without a pause, as a round of their own: their times are not compared, but
    those that failed, hung or were hardly answered count.
    """
    levels = levels_of(visits)
    sent = [*visits, *sustained]
    checks = tuple(Checks.of(sent, standard, challenger, level, confidences.of_levels) for level in levels)

    def cells(ours: Pairs, confidence: float) -> tuple[Cell, ...]:
        found = []
        for level, check in zip(levels, checks, strict=True):
            cell = of_cell(ours.at(level), level, confidence, settings)
            found.append(replace(cell, decision=check.limit(cell.decision, settings)))
        return in_sequence(found)

    return Verdicts(
        {name: cells(pairs.of(name), confidences.of_classes) for name in pairs.classes},
        cells(pairs, confidences.of_levels),
        checks,
    )


def of_cell(pairs: Pairs, level: Level, confidence: float, settings: AbSettings) -> Cell:
    """The decision on pairs at one level, by their speed and their lengths, and the lengths it rests on."""
    lengths = compare_lengths(pairs.all, settings.length_margin, confidence)
    if lengths is None or lengths.finding == "equal":
        basis: Basis = "e2e"
    else:
        basis = "tpot" if lengths.unit == "tokens" else "per_character"
    decision = _ttft_veto(pairs, confidence, settings) or _decided(pairs, basis, confidence)
    if lengths is not None:
        decision = _as_long(decision, lengths, settings)
    return Cell(level, decision, lengths)


def in_sequence(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """A load counts as paying only where every lighter one does; `cells` from the lightest."""
    first = paying([cell.decision for cell in cells])
    return tuple(
        replace(cell, decision=_not_reached(cell.decision)) if number > first else cell
        for number, cell in enumerate(cells)
    )


def paying(decisions: Sequence[Decision]) -> int:
    """Return how many loads pay, from the lightest to the first that does not."""
    count = 0
    for decision in decisions:
        if decision.verdict != "yes":
            break
        count += 1
    return count


def pays_up_to(cells: Sequence[Cell]) -> Level | None:
    """The heaviest load at which it pays; None where it does not surely pay at the lightest."""
    count = paying([cell.decision for cell in cells])
    return cells[count - 1].level if count else None


def _ttft_veto(pairs: Pairs, confidence: float, settings: AbSettings) -> Decision | None:
    change, ttft = pairs.change_ms("ttft"), pairs.ratio("ttft", confidence)
    if ttft is None or change is None:
        return None
    if ttft.high < 1 / settings.ttft_veto_ratio and change >= settings.ttft_veto_ms:
        reason = f"TTFT grows by {change:.0f} ms, to {1 / ttft.estimate:.2f} times as much"
        return Decision(verdict="no", reason=reason)
    return None


def _decided(pairs: Pairs, basis: Basis, confidence: float) -> Decision:
    speedup = pairs.ratio(basis, confidence)
    if speedup is None:
        sent = len(pairs.all)
        if sent < stats.MIN_PAIRS:
            short = f"{sent} prompts were sent to both arms; an interval needs {stats.MIN_PAIRS}"
            return Decision(
                verdict="undecided", reason=short, basis=basis, more_prompts=max(stats.MIN_PAIRS - sent, 1)
            )
        short = f"no interval for {_FIGURES[basis]}: a few prompts dominate the mean"
        return Decision(verdict="undecided", reason=short, basis=basis, more_prompts=sent)
    shown = f"{times(speedup)}{PER[basis]}"

    def decision(verdict: Verdict, reason: str, more: int | None = None) -> Decision:
        return Decision(verdict=verdict, reason=reason, speedup=speedup, basis=basis, more_prompts=more)

    if speedup.high < 1:
        return decision("no", f"{shown}: slower")
    if speedup.low > 1:
        answered = pairs.ratio("answered", confidence) if basis == "e2e" else speedup
        if answered is None or answered.low <= 1:
            rest = f" ({times(answered)} without them)" if answered else ""
            return decision(
                "undecided", f"{shown}, but only because of requests that failed or were refused{rest}"
            )
        equal = pairs.ratio("equal_length", confidence) if basis != "e2e" else None
        if equal is not None and equal.low <= 1:
            reason = f"{shown}, but {times(equal)} end to end at equal length"
            return decision("no" if equal.high < 1 else "undecided", reason)
        tpot = pairs.ratio("tpot", confidence) if basis == "e2e" else None
        if tpot is not None and tpot.estimate - 1 < (speedup.estimate - 1) / 2:
            found = _decided(pairs, "tpot", confidence)
            if found.verdict == "yes":  # what speculation gains, and no more
                reason = f"{found.reason}; end to end it is {times(speedup)}: {_beside(pairs)}"
                return found.model_copy(update={"reason": reason})
            return decision("undecided", f"{shown}, but {times(tpot)} per output token: {_beside(pairs)}")
        if speedup.estimate < LEAST_GAIN:
            small = f"a gain below {LEAST_GAIN - 1:.0%} may be the client's error"
            return decision("undecided", f"{shown}: {small}")
        return decision("yes", shown)
    if speedup.high < LEAST_GAIN:
        return decision("undecided", f"{shown}: a gain of {LEAST_GAIN - 1:.0%} is excluded")
    more = stats.pairs_needed(speedup)
    takes = (
        f"about {more} more prompts would decide"
        if more
        else "even 100 times as many prompts would not decide"
    )
    return decision("undecided", f"{shown} includes 1 ({takes})", more)


def _beside(pairs: Pairs) -> str:
    """Return where a gain lies that is not in the time per output token."""
    ttft, e2e = pairs.change_ms("ttft"), pairs.change_ms("e2e")
    if ttft is not None and e2e is not None and ttft < e2e / 2 < 0:
        return (
            "first tokens come earlier (the standard may limit requests, open new connections, or lack a "
            "prefix cache)"
        )
    return "the gain lies between the last token and the end of the answer"


PER: Mapping[Basis, str] = {"e2e": "", "tpot": " per output token", "per_character": " per character"}
_FIGURES: Mapping[Basis, str] = {
    "e2e": "the end-to-end time",
    "tpot": "the time per output token",
    "per_character": "the time per character",
}


def _as_long(decision: Decision, lengths: Lengths, settings: AbSettings) -> Decision:
    """Return `decision`, on the time per token, unless the answers are not the standard's in length."""
    reason = f"{lengths}; {decision.reason}"
    if lengths.differ:
        if settings.accept_length_change:
            reason = f"{lengths}, which is accepted; {decision.reason}"
        if decision.verdict == "no" or settings.accept_length_change:
            return decision.model_copy(update={"reason": reason})
        if lengths.finding == "shorter":
            return decision.model_copy(update={"verdict": "no", "reason": reason, "more_prompts": None})
        why = "the standard may truncate its answers, or the other arm may not stop"
        if lengths.standard_cut:
            cut = lengths.standard_cut
            why = f"the standard truncates: {cut} of its answers end at the length limit before the other's"
        changed = {"verdict": "undecided", "reason": f"{lengths} ({why}); {decision.reason}"}
        return decision.model_copy(update=changed | {"more_prompts": None})
    if lengths.finding == "open" and decision.verdict == "yes" and lengths.more_prompts != 0:
        more = lengths.more_prompts
        takes = f"about {more} more prompts would decide" if more else "more prompts would hardly decide"
        changed = {"verdict": "undecided", "reason": f"{lengths} ({takes}); {decision.reason}"}
        return decision.model_copy(update=changed | {"more_prompts": more})
    return decision


def _not_reached(decision: Decision) -> Decision:
    if decision.verdict != "yes":
        return decision
    reason = f"{decision.reason}, but a lighter load does not surely pay"
    return decision.model_copy(update={"verdict": "undecided", "reason": reason})


def _settled(decisions: Sequence[Decision]) -> bool:
    """Return whether all pay, or the first that does not is a no."""
    count = paying(decisions)
    return count == len(decisions) or decisions[count].verdict == "no"


def most_prompts(undecided: Iterable[Decision]) -> int | None:
    needed = [decision.more_prompts for decision in undecided]
    known = [more for more in needed if more is not None]
    return max(known) if known and len(known) == len(needed) else None
