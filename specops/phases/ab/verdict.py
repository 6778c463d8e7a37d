"""Deploy, do not deploy, or undecided, and why: by class and load, by challenger and in all. Pure.

A class pays at a load where the interval of its speed-up lies above 1. The speed-up is the end-to-end one
where the answers of both arms are shown to be equally long; otherwise it is that of the time per output
token. What takes a yes away: TTFT that surely grows, requests that fail or take far too long, answers that
are surely longer or shorter, one answer to several prompts, and a client that limited the load.

Loads are tested from the lightest upwards until one does not surely pay, a fixed sequence, which costs no
confidence. The intervals of all classes and challengers hold together (Bonferroni), at all looks
(specops.stats.sequential). A challenger deploys where some class does at some load, its greedy answers are
the standard's, and nothing that drifted during the run could have made its gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.load.arrivals import Level
from specops.phases.ab.drift import Drift
from specops.phases.ab.faults import Counted, Requests
from specops.phases.ab.lengths import Lengths, compare
from specops.phases.ab.parity import Parity
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.repeats import pairs_of
from specops.phases.ab.settings import AbSettings
from specops.phases.ab.speedups import Pairs, Ratio, levels_of
from specops.results import Verdict
from specops.stats import Interval

Basis = Literal["e2e", "tpot", "per_character"]
"""What a load was decided on: the end-to-end time, the time per output token, or, where tokens are not known,
the time per character."""


class Decision(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: Verdict
    reason: str
    speedup: Ratio = None
    """In `basis`; None where something else decided."""

    basis: Basis = "e2e"
    more_prompts: int | None = None
    """That would decide what is undecided; None where no number, or over a hundred times as many, would."""


@dataclass(frozen=True)
class Look:
    """What the evidence says between two stages."""

    decided: bool
    """Of every challenger, every class and all classes together, from the lightest load to the first that
    does not pay."""


@dataclass(frozen=True)
class Checks:
    """What is counted of all classes at one load, and limits what may be said of each class there."""

    failures: Counted | None = None
    slow: Counted | None = None
    late: Counted | None = None
    stock: Counted | None = None
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
        return cls(
            requests.counted("failed", confidence),
            requests.counted("slow", confidence),
            requests.counted("late", confidence),
            requests.counted("stock", confidence),
            next(bound, None),
        )

    def limit(self, decision: Decision, settings: AbSettings) -> Decision:
        """`decision`, unless requests of the challenger failed or were too slow, or the client was."""
        margin = settings.failure_margin
        for counted in (self.failures, self.slow, self.late, self.stock):
            if counted is not None and counted.surely_more(margin):
                return Decision(verdict="no", reason=str(counted))
        if self.client_bound is not None:
            return Decision(verdict="undecided", reason=self.client_bound)
        for counted in (self.failures, self.slow):
            if decision.verdict != "no" and counted is not None and counted.possibly_more(margin):
                more: int | None = counted.more_prompts(margin)
                reason = f"{counted}: about {more} more prompts without another would decide"
                if decision.verdict == "undecided":
                    more = _most([decision, Decision(verdict="undecided", reason="", more_prompts=more)])
                return Decision(verdict="undecided", reason=reason, more_prompts=more)
        stock = self.stock
        if decision.verdict == "yes" and stock is not None and stock.challenger and not stock.standard:
            return Decision(verdict="undecided", reason=str(stock))
        return decision


@dataclass(frozen=True)
class Cell:
    """One class, or all together, at one load."""

    level: Level
    decision: Decision
    lengths: Lengths | None


@dataclass(frozen=True)
class Verdicts:
    """Of one challenger, by class and load."""

    classes: Mapping[str, tuple[Cell, ...]]
    """From the lightest load to the heaviest, as in `together`."""

    together: tuple[Cell, ...]
    """All classes."""

    checks: tuple[Checks, ...]
    """At each load."""

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
        """Whether no more prompts are needed: up to the first load that does not pay, nothing is open."""
        rows = [*self.classes.values(), self.together]
        return bool(self.classes) and all(_settled([cell.decision for cell in cells]) for cells in rows)


def look(
    visits: Sequence[VisitRecord],
    arms: Sequence[str],
    settings: AbSettings,
    done: int,
    looks: int,
    sent_before: Collection[str] = (),
) -> Look:
    """Whether nothing is open after `done` of `looks` looks, so that the comparison may end.

    `arms` are those that work, the standard first; `visits` those of the stages so far; `sent_before` are
    prompts that were sent before the first visit.
    """
    for challenger in arms[1:]:
        pairs = pairs_of(visits, arms[0], challenger, settings, sent_before)
        if not pairs.all:
            return Look(decided=False)
        confidences = Confidences.at(settings, pairs.classes, len(arms) - 1, done, looks)
        if not of_each(visits, pairs, arms[0], challenger, confidences, settings).decided:
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


def of_each(
    visits: Sequence[VisitRecord],
    pairs: Pairs,
    standard: str,
    challenger: str,
    confidences: Confidences,
    settings: AbSettings,
) -> Verdicts:
    """The decision on each traffic class, and on all together, at each load of `visits`."""
    levels = levels_of(visits)
    checks = tuple(Checks.of(visits, standard, challenger, level, confidences.of_levels) for level in levels)

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


def of_class(pairs: Pairs, confidence: float, settings: AbSettings) -> Decision:
    """The decision on the pairs of one class at one level, by their speed and their lengths."""
    level = pairs.all[0].level if pairs.all else Level()
    return of_cell(pairs, level, confidence, settings).decision


def of_cell(pairs: Pairs, level: Level, confidence: float, settings: AbSettings) -> Cell:
    """The same, with the lengths that it rests on."""
    lengths = compare(pairs.all, settings.length_margin, confidence)
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
    """How many loads pay, from the lightest to the first that does not."""
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


def load_sentence(cells: Sequence[Cell]) -> str:
    """One sentence on the loads beyond the lightest, all classes together; empty where there is one load."""
    if len(cells) < 2:
        return ""
    best = pays_up_to(cells)
    if best == cells[-1].level:
        return f"All classes together, it pays at every load measured, up to {best}."
    rest = [cell for cell in cells if cell.decision.verdict != "yes"]
    against = [cell for cell in rest if cell.decision.verdict == "no"]
    slower = [cell for cell in against if cell.decision.speedup and cell.decision.speedup.high < 1]
    found = [
        *_at("slower at", slower),
        *_at("not to be deployed at", [cell for cell in against if cell not in slower]),
        *_at("not shown to pay at", [cell for cell in rest if cell.decision.verdict == "undecided"]),
    ]
    start = f"it pays up to {best}; " if best else "it is "
    return f"All classes together, {start}{'; '.join(found)}."


def over_loads(cells: Sequence[Cell]) -> Decision:
    """The decision on one class over all loads; its reason says at which."""
    yes = [cell for cell in cells if cell.decision.verdict == "yes"]
    if len(cells) == 1:
        return cells[0].decision
    rest = [f"at {cell.level} {_outcome(cell.decision)}" for cell in cells if cell not in yes]
    if yes:
        pays = [f"pays at {cell.level}: {cell.decision.reason}" for cell in yes]
        return yes[0].decision.model_copy(update={"reason": "; ".join([*pays, *rest])})
    return cells[0].decision.model_copy(update={"reason": "; ".join(rest)})


def of_challenger(verdicts: Verdicts, parities: Sequence[Parity], parity_confidence: float) -> Decision:
    """From its classes and loads, unless its answers are other ones than the standard's: a speed-up with
    different answers does not count."""
    decision = _of_loads(verdicts)
    lost = [parity for parity in parities if parity.shows_a_fault(parity_confidence)]
    if lost:
        faults = "; ".join(_lost(parity) for parity in lost)
        return Decision(verdict="no", reason=f"do not deploy: {faults}; by speed alone: {decision.reason}")
    for parity in sorted(
        parities, key=lambda parity: not parity.opening
    ):  # the reason that covers the others comes first
        if decision.verdict != "yes":
            break
        if parity.refused is not None:
            return Decision(
                verdict="undecided",
                reason=f"{parity.challenger} refuses requests at temperature 0, which the standard answers "
                f"({parity.refused}): whether its answers are the standard's is unchecked; by speed alone: "
                f"{decision.reason}",
            )
        if parity.control is None and parity.arms.surely_unlike:
            return Decision(
                verdict="undecided",
                reason=f"{_same(parity)}, and one repeat does not show whether the standard differs from "
                f"itself; by speed alone: {decision.reason}",
            )
        if parity.opening and parity.is_blind(parity_confidence):
            return Decision(
                verdict="undecided",
                reason=f"{_same(parity)}, and {parity.control} when the standard is sent them again: a "
                "standard that hardly repeats itself cannot show whether the answers are its own; turn its "
                "randomness off (a fixed seed, batch-invariant kernels, one stream) and compare again; by "
                f"speed alone: {decision.reason}",
            )
        if parity.possibly_lower():
            return Decision(
                verdict="undecided",
                reason=f"{_lost(parity)}: too few to decide, and the standard does not report how sure it "
                f"is of its tokens; by speed alone: {decision.reason}",
            )
    return decision


def unchecked(decision: Decision, why: str) -> Decision:
    """`decision`, which says where it is a yes that the answers could not be compared."""
    if decision.verdict != "yes":
        return decision
    reason = f"{decision.reason}; whether the answers are the standard's is unchecked: {why}"
    return decision.model_copy(update={"reason": reason})


def unless_answers_differ(
    verdicts: Verdicts, parities: Sequence[Parity], parity_confidence: float
) -> Verdicts:
    """`verdicts` with a no at each load at which the greedy answers are other ones than the standard's."""
    faults = {
        parity.level: _lost(parity)
        for parity in parities
        if not parity.mixed and parity.shows_a_fault(parity_confidence)
    }

    def limited(cells: Sequence[Cell]) -> tuple[Cell, ...]:
        found = [
            replace(cell, decision=Decision(verdict="no", reason=faults[cell.level]))
            if cell.level in faults
            else cell
            for cell in cells
        ]
        return in_sequence(found)

    if not faults:
        return verdicts
    classes = {name: limited(cells) for name, cells in verdicts.classes.items()}
    return replace(verdicts, classes=classes, together=limited(verdicts.together))


def unless_drifted(
    decision: Decision,
    drift: Drift | None,
    halves: tuple[Interval | None, Interval | None],
    lowest: Interval | None,
) -> Decision:
    """A gain in a run in which one of the arms changed and the other did not stands only where all of the run
    shows it: a server that slows down is deployed for what it is at the end, and a standard that slowed down
    made the gain itself. `halves` are the speed-ups in them, `lowest` is that at the worse end of the run, by
    its trend."""
    if drift is None:
        return decision
    told = f"it drifted: {drift.message}"
    if decision.verdict != "yes":
        return decision.model_copy(update={"reason": f"{decision.reason}; {told}"})
    if all(part is not None and part.low > 1 for part in (*halves, lowest)):
        reason = f"{decision.reason}; it drifted, and both halves of the run show the gain"
        return decision.model_copy(update={"reason": reason})  # the drift's own line has the figures
    each = " then ".join("too few prompts" if half is None else times(half) for half in halves)
    end = "" if lowest is None else f", and {times(lowest)} at the worse end"
    return Decision(
        verdict="undecided",
        reason=f"{told}, and the gain is not shown throughout the run: {each} in its halves{end}; "
        f"over the whole run: {decision.reason}",
    )


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


def _ttft_veto(pairs: Pairs, confidence: float, settings: AbSettings) -> Decision | None:
    change, ttft = pairs.ttft_change_ms(), pairs.ratio("ttft", confidence)
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
            short = f"{sent} prompts were sent to both arms, an interval needs {stats.MIN_PAIRS}"
            return Decision(
                verdict="undecided", reason=short, basis=basis, more_prompts=max(stats.MIN_PAIRS - sent, 1)
            )
        short = f"no interval of {_FIGURES[basis]}: a few prompts carry it all"
        return Decision(verdict="undecided", reason=short, basis=basis, more_prompts=sent)
    shown = f"{times(speedup)}{_PER[basis]}"

    def decision(verdict: Verdict, reason: str, more: int | None = None) -> Decision:
        return Decision(verdict=verdict, reason=reason, speedup=speedup, basis=basis, more_prompts=more)

    if speedup.high < 1:
        return decision("no", f"{shown}: slower")
    if speedup.low > 1:
        answered = pairs.ratio("answered", confidence) if basis == "e2e" else speedup
        if answered is None or answered.low <= 1:
            rest = f" ({times(answered)} without them)" if answered else ""
            return decision("undecided", f"{shown}, but only because of requests that failed{rest}")
        return decision("yes", shown)
    more = stats.pairs_needed(speedup)
    takes = f"about {more} more prompts would decide" if more else "a hundred times as many would not decide"
    return decision("undecided", f"{shown} includes 1 ({takes})", more)


_PER: Mapping[Basis, str] = {"e2e": "", "tpot": " per output token", "per_character": " per character"}
_FIGURES: Mapping[Basis, str] = {
    "e2e": "the end-to-end time",
    "tpot": "the time per output token",
    "per_character": "the time per character",
}


def _as_long(decision: Decision, lengths: Lengths, settings: AbSettings) -> Decision:
    """`decision`, on the time per token, unless the answers are not the standard's in length."""
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
    """Whether all pay, or the first that does not is a no."""
    count = paying(decisions)
    return count == len(decisions) or decisions[count].verdict == "no"


def _of_loads(verdicts: Verdicts) -> Decision:
    classes, loads = verdicts.classes, verdicts.together
    if not classes:
        return Decision(verdict="undecided", reason="no prompt was answered by both arms")
    deploy = verdicts.deploy
    at = {cell.level: [name for name, level in deploy if level == cell.level] for cell in loads}
    if deploy:
        words = [
            f"deploy for {', '.join(names)} at {' and '.join(str(level) for level, _ in group)}"
            for names, group in groupby(((level, names) for level, names in at.items() if names), _second)
        ]
        for number, cell in enumerate(loads):
            words += _others(classes, number, len(loads) > 1) if at[cell.level] else []
        words += [_load(cell) for cell in loads if not at[cell.level]]
        accepted = [cell for cell in loads if at[cell.level] and cell.lengths and cell.lengths.differ]
        words += [f"{cell.lengths} at {cell.level}, which is accepted" for cell in accepted]
        return Decision(verdict="yes", reason="; ".join(words))
    lightest = {name: cells[0].decision for name, cells in classes.items()}
    words = [*_others(classes, 0, named=False), *(_load(cell) for cell in loads[1:])]
    if all(decision.verdict == "no" for decision in lightest.values()):
        return Decision(verdict="no", reason=f"do not deploy: {'; '.join(words)}")
    return Decision(
        verdict="undecided",
        reason=f"not enough evidence: {'; '.join(words)}",
        more_prompts=_most([d for d in lightest.values() if d.verdict == "undecided"]),
    )


def _second(item: tuple[Level, list[str]]) -> list[str]:
    return item[1]


def _others(classes: Mapping[str, Sequence[Cell]], number: int, named: bool) -> list[str]:
    """Why the other classes do not deploy at a load: those that must not, then those that are open. Classes
    with the same reason, such as one that is of all requests, are named together."""
    found = []
    for verdict, word in (("no", "not"), ("undecided", "undecided")):
        by_reason: dict[str, list[str]] = defaultdict(list)
        for name, cells in classes.items():
            if cells[number].decision.verdict == verdict:
                by_reason[cells[number].decision.reason].append(name)
        level = next(iter(classes.values()))[number].level
        at = f" at {level}" if named else ""
        found += [f"{word} for {', '.join(names)}{at}: {reason}" for reason, names in by_reason.items()]
    return found


def _load(cell: Cell) -> str:
    return f"at {cell.level} {_outcome(cell.decision)}"


def _outcome(decision: Decision) -> str:
    shown = decision.reason
    if decision.speedup is not None and decision.speedup.low <= 1:
        shown = f"{times(decision.speedup)}{_PER[decision.basis]}"
    if decision.speedup is not None and decision.speedup.high < 1:
        return f"it is slower ({shown})"
    if decision.verdict == "no":
        return f"do not: {shown}"
    if decision.verdict == "yes":
        return f"it pays ({shown})"
    return f"no gain is shown ({shown})"


def _most(undecided: Iterable[Decision]) -> int | None:
    needed = [decision.more_prompts for decision in undecided]
    known = [more for more in needed if more is not None]
    return max(known) if known and len(known) == len(needed) else None


def _lost(parity: Parity) -> str:
    if parity.breaks:
        shared = " when sampled requests share the batch" if parity.mixed else ""
        return (
            f"greedy requests fail{shared}: {len(parity.failures)}, all of "
            f"which the standard answered, such as: {parity.failures[0]}"
        )
    if parity.repeated:
        return (
            f"greedy answers change where a prompt comes again: {_same(parity)}, and {parity.control} of the "
            "standard's"
        )
    what = "greedy answers change when sampled requests share the batch: " if parity.mixed else ""
    return f"{what}{_same(parity)}, and {parity.control} when the standard pool repeats them"


def _same(parity: Parity) -> str:
    if parity.repeated:
        return (
            f"{parity.arms} later answers of {parity.challenger} are the same as its first at {parity.level}"
        )
    if parity.opening:
        return f"{parity.arms} greedy answers begin the same in both arms at {parity.level}"
    said = f"{parity.arms} greedy answers are the same in both arms at {parity.level}"
    if recounted := parity.arms.recounted:
        said += f" ({recounted} more have the same text, and other counts of tokens)"
    return said


def _at(what: str, cells: Sequence[Cell]) -> list[str]:
    found = [
        f"{cell.level}: {times(cell.decision.speedup) if cell.decision.speedup else cell.decision.reason}"
        for cell in cells
    ]
    return [f"{what} {', '.join(found)}"] if found else []
