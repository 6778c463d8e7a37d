"""The decision on a challenger over all classes and loads, on the whole comparison, and what voids them.
Pure.

A challenger deploys where some class does at some load, its greedy answers are the standard's, and nothing
that drifted during the run could have made its gain. A comparison whose standard speculates does not say
whether to turn speculation on, and an A/A of one server measures noise. Neither deploys anything: every
decision of it is undecided, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from specops.load.arrivals import Level
from specops.load.counters import Observed, several_tokens, speculating_standard
from specops.load.validity import COUNT_ADVICE
from specops.phases.ab.confounders import Lengths, OtherPrompts
from specops.phases.ab.drift import Drift
from specops.phases.ab.parity import Parity
from specops.phases.ab.report import Challenger, Noise
from specops.phases.ab.speedups import StoredInterval, levels_of
from specops.phases.ab.verdict import (
    PER,
    Cell,
    Decision,
    Verdicts,
    in_sequence,
    most_prompts,
    pays_up_to,
)
from specops.phases.ab.visits import VisitRecord
from specops.render.figures import times
from specops.stats import Interval

NOT_DEPLOYED = "do not deploy: "


def load_sentence(cells: Sequence[Cell]) -> str:
    """Return one sentence on the levels above the lightest, for all classes together; empty for one level."""
    if len(cells) < 2:
        return ""
    best = pays_up_to(cells)
    if best == cells[-1].level:
        return f"For all classes together, speculation is faster at every measured level, up to {best}."
    rest = [cell for cell in cells if cell.decision.verdict != "yes"]
    against = [cell for cell in rest if cell.decision.verdict == "no"]
    slower = [cell for cell in against if cell.decision.speedup and cell.decision.speedup.high < 1]
    found = [
        *_at("slower at", slower),
        *_at("not deployed at", [cell for cell in against if cell not in slower]),
        *_at("not shown to pay at", [cell for cell in rest if cell.decision.verdict == "undecided"]),
    ]
    start = f"speculation pays up to {best}; " if best else "speculation is "
    return f"For all classes together, {start}{'; '.join(found)}."


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
    """Return the decision on a challenger, from its classes and loads. A speed-up with answers that differ
    from the standard's does not count."""
    decision = _of_loads(verdicts)
    lost = [parity for parity in parities if parity.shows_a_fault(parity_confidence)]
    if lost:
        faults = "; ".join(_lost(parity) for parity in lost)
        also = f"besides, {decision.reason.removeprefix(NOT_DEPLOYED)}" if decision.verdict == "no" else ""
        return Decision(
            verdict="no", reason=f"{NOT_DEPLOYED}{faults}; {also or f'by speed alone: {decision.reason}'}"
        )
    for parity in sorted(
        parities, key=lambda parity: not parity.opening
    ):  # the reason that explains the others comes first
        if decision.verdict != "yes":
            break
        if parity.refused is not None:
            return Decision(
                verdict="undecided",
                reason=f"{parity.challenger} refuses requests at temperature 0, which the standard answers "
                f"({parity.refused}): the answers cannot be compared; by speed alone: "
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
                reason=f"{_same(parity)}, and {parity.control} when the standard is compared with itself: a "
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


def unchecked_answers(decision: Decision, why: str) -> Decision:
    """Return `decision`, which says where it is a yes that the answers could not be compared."""
    if decision.verdict != "yes":
        return decision
    reason = f"{decision.reason}; the answers were not compared with the standard's: {why}"
    return decision.model_copy(update={"reason": reason})


def unless_prompts_differ(decision: Decision, found: OtherPrompts | None, same_answers: bool) -> Decision:
    """A gain does not count where the arms may have read different prompts. Where all greedy answers are the
    same, they only count differently."""
    if found is None:
        return decision
    if decision.verdict == "yes" and not same_answers:
        return Decision(verdict="undecided", reason=f"{found}; by speed alone: {decision.reason}")
    return decision.model_copy(update={"reason": f"{decision.reason}; {found}"})


def unless_answers_differ(
    verdicts: Verdicts,
    parities: Sequence[Parity],
    parity_confidence: float,
    ignored: Mapping[Level, str],
) -> Verdicts:
    """`verdicts` with a no at each load at which the greedy answers are other ones than the standard's, or at
    which the temperature is `ignored`."""
    faults = dict(ignored) | {
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
    """Return `decision`, or undecided if the arms drifted and the gain is not shown throughout the run. A
    server that slows down is judged by its end; a standard that slows down could have made the gain itself.

    `halves` are the speed-ups in the halves of the run; `lowest` is the speed-up at the worse end of the run,
    by its trend."""
    if drift is None:
        return decision
    drifted = f"the speed-up drifted ({drift.message})"
    if decision.verdict != "yes":
        return decision.model_copy(update={"reason": f"{decision.reason}; {drifted}"})
    if all(part is not None and part.low > 1 for part in (*halves, lowest)):
        reason = f"{decision.reason}; the speed-up drifted, and both halves of the run show the gain"
        return decision.model_copy(update={"reason": reason})  # the line of the drift has the figures
    each = " then ".join("too few prompts" if half is None else times(half) for half in halves)
    end = "" if lowest is None else f", and {times(lowest)} at the worse end"
    return Decision(
        verdict="undecided",
        reason=f"{drifted}, and the gain is not shown throughout the run: {each} in its halves{end}; "
        f"over the whole run: {decision.reason}",
    )


def unless_it_wakes_up(
    decision: Decision, drift: Drift | None, halves: tuple[Interval | None, Interval | None]
) -> Decision:
    """A gain that differs within visits stands only where both halves of the visits show it: else an arm that
    had been idle, and woke up, may have made it. `halves` are the speed-ups in them."""
    if drift is None or decision.verdict != "yes":
        return decision
    if all(part is not None and part.low > 1 for part in halves):
        return decision
    each = " then ".join("too few visits" if half is None else times(half) for half in halves)
    return Decision(
        verdict="undecided",
        reason=f"{drift.message}: {ORDER}, and the gain is not shown "
        f"in both halves of the visits ({each}); over the whole run: {decision.reason}",
    )


CHANGED = "one of the arms changed during the run"
ORDER = "an idle arm may be slow at first"


def unless_it_changed(
    decision: Decision, drift: Drift | None, slower: Interval | None, why: str = CHANGED
) -> Decision:
    """A gain that differs between two parts of the run stands only where the slower part shows it. `why` says
    what else may have made it: a server may be fast for its first minutes alone, or wake up in one order."""
    if drift is None or decision.verdict != "yes" or (slower is not None and slower.low > 1):
        return decision
    shown = "too few prompts to say" if slower is None else times(slower)
    return Decision(
        verdict="undecided",
        reason=f"{drift.message}: {why}, and the slower part does not show the gain ({shown}); over the "
        f"whole run: {decision.reason}",
    )


def unless_pauses_made_it(
    decision: Decision, paused: Interval | None, sustained: Interval | None
) -> Decision:
    """A gain stands only where requests without a pause may have as much of it, or surely show some: else an
    arm that has to wake up after each pause may have made it. Both are speed-ups per output token; `paused`
    is that of the visits. The drift of kind `idle` compares the usual request, and misses a few slow ones."""
    if decision.verdict != "yes" or paused is None or sustained is None:
        return decision
    if sustained.low > 1 or sustained.high >= paused.low:
        return decision
    return Decision(
        verdict="undecided",
        reason=f"the speed-up per output token is {times(paused)} in visits between pauses, and "
        f"{times(sustained)} without a pause: {ORDER}; over the whole run: {decision.reason}",
    )


def unless_lengths_differ_without_a_pause(
    decision: Decision, lengths: Lengths | None, accepted: bool
) -> Decision:
    """A gain does not stand where answers to requests without a pause surely have other lengths. `lengths`
    compares them. `accepted`: whether other lengths are accepted."""
    if decision.verdict != "yes" or lengths is None or not lengths.differ or accepted:
        return decision
    return Decision(
        verdict="no" if lengths.finding == "shorter" else "undecided",
        reason=f"{lengths} when requests are sent without a pause; over the whole run: {decision.reason}",
    )


def overall(decisions: Mapping[str, Decision], fastest: str | None) -> Decision:
    """The decision on the comparison; `fastest` is what `fastest_of` returns."""
    if len(decisions) == 1:
        return next(iter(decisions.values()))
    each = ". ".join(f"{name}: {decision.reason}" for name, decision in decisions.items())
    if fastest is not None:
        return Decision(verdict="yes", reason=f"the fastest that may be deployed is {fastest}. {each}")
    undecided = [decision for decision in decisions.values() if decision.verdict == "undecided"]
    if undecided:
        return Decision(verdict="undecided", reason=each, more_prompts=most_prompts(undecided))
    return Decision(verdict="no", reason=each)


def fastest_of(decisions: Mapping[str, Decision], speedups: Mapping[str, Interval | None]) -> str | None:
    """The fastest of those that deploy, by its estimate; None where none does."""
    paying = [name for name, decision in decisions.items() if decision.verdict == "yes"]

    def estimate(name: str) -> float:
        interval = speedups.get(name)
        return interval.estimate if interval is not None else 0.0

    return max(paying, key=estimate, default=None)


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
        return Decision(
            verdict="no", reason=f"{NOT_DEPLOYED}{'; '.join(word.removeprefix('not for ') for word in words)}"
        )
    return Decision(
        verdict="undecided",
        reason=f"not enough evidence: {'; '.join(words)}",
        more_prompts=most_prompts([d for d in lightest.values() if d.verdict == "undecided"]),
    )


def _second(item: tuple[Level, list[str]]) -> list[str]:
    return item[1]


def _others(classes: Mapping[str, Sequence[Cell]], number: int, named: bool) -> list[str]:
    """Return why the other classes do not deploy at a load: those that must not, then those that are open.
    Classes with the same reason, such as one that is of all requests, are named together."""
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
        shown = f"{times(decision.speedup)}{PER[decision.basis]}"
    if decision.speedup is not None and decision.speedup.high < 1:
        return f"it is slower ({shown})"
    if decision.verdict == "no":
        return f"do not deploy ({shown})"
    if decision.verdict == "yes":
        return f"it pays ({shown})"
    by_speed = decision.speedup is not None and decision.speedup.low <= 1
    return f"no gain is shown ({shown})" if by_speed else f"undecided ({shown})"


def _lost(parity: Parity) -> str:
    if parity.breaks:
        shared = " when sampled requests share the batch" if parity.mixed else ""
        return (
            f"greedy requests fail{shared}: {len(parity.failures)}, all of "
            f"which the standard answered, such as: {parity.failures[0]}"
        )
    if parity.repeated:
        return (
            f"greedy answers to repeated prompts change: {_same(parity)}, and {parity.control} of the "
            "standard's"
        )
    what = "greedy answers change when sampled requests share the batch: " if parity.mixed else ""
    return f"{what}{_same(parity)}, and {parity.control} when the standard is compared with itself"


def _same(parity: Parity) -> str:
    if parity.repeated:
        return (
            f"{parity.arms} later answers of {parity.challenger} are the same as its first at {parity.level}"
        )
    if parity.opening:
        return f"{parity.arms} greedy answers begin the same in both arms at {parity.level}"
    same = f"{parity.arms} greedy answers are the same in both arms at {parity.level}"
    if recounted := parity.arms.token_count_differences:
        same += f" ({recounted} more have the same text, and other counts of tokens)"
    return same


def _at(what: str, cells: Sequence[Cell]) -> list[str]:
    def why(one: Decision) -> str:
        return times(one.speedup) if one.speedup and one.speedup.low <= 1 else one.reason

    found = [f"{cell.level}: {why(cell.decision)}" for cell in cells]
    return [f"{what} {', '.join(found)}"] if found else []


def check_standard(
    visits: Sequence[VisitRecord], standard: str, challenger: str, facts: Mapping[str, Any] | None
) -> tuple[str | None, str | None]:
    """Return why the comparison does not answer its question, and what else is to be noted of the standard.

    `facts` is what is known of the standard. One that was configured to speculate, with `--arm
    NAME=embedded:TREE`, was meant to: that is a note, unless the challenger does not speculate.
    """
    ours, theirs = observed(visits, standard), observed(visits, challenger)
    wrong = speculating_standard(ours, theirs)
    configured = ((facts or {}).get("pool") or {}).get("speculation") is not None
    if wrong is not None and configured and theirs.speculates:
        return None, wrong
    return wrong, None if wrong is not None else several_tokens(ours)


def miscounting(facts: Mapping[str, Mapping[str, Any]], arms: Iterable[str]) -> str | None:
    """Return which of `arms` counts tokens wrongly: then neither lengths nor times per token can be
    compared."""
    found = [f"{arm}: {facts[arm]['miscount']}" for arm in arms if facts.get(arm, {}).get("miscount")]
    return f"{'; '.join(found)}; {COUNT_ADVICE}, and compare again" if found else None


def observed(visits: Iterable[VisitRecord], arm: str) -> Observed:
    """Drafts over all loads. Tokens per chunk at the lightest load: under load, chunks may wait and be
    joined."""
    cells = [visit.cell for visit in visits if visit.arm == arm]
    counts = [
        cell.drafts.drafts if cell.verified is None and cell.drafts is not None else cell.verified
        for cell in cells
    ]
    known = [count for count in counts if count is not None]
    lightest = levels_of(visit for visit in visits if visit.arm == arm)[:1]
    rows = [row for cell in cells if cell.level in lightest for row in cell.rows if row.error is None]
    sized = [(row.tokens, row.chunks) for row in rows if row.tokens is not None and row.chunks]
    chunks = sum(number for _, number in sized)
    tokens = sum(number for number, _ in sized)
    return Observed(sum(known) if known else None, tokens / chunks if chunks else None)


def void(challenger: Challenger, reason: str) -> Challenger:
    """`challenger` with every decision undecided for `reason`, and nothing to deploy."""
    if challenger.failed is not None:  # that it failed is an answer
        return challenger

    def undecided(decision: Decision) -> Decision:
        why = f"{reason}; by speed alone: {decision.reason}"
        return decision.model_copy(update={"verdict": "undecided", "reason": why, "more_prompts": None})

    classes = {
        name: of.model_copy(
            update={
                "decision": undecided(of.decision),
                "levels": [
                    level.model_copy(update={"decision": undecided(level.decision)}) for level in of.levels
                ],
            }
        )
        for name, of in challenger.classes.items()
    }
    levels = [level.model_copy(update={"decision": undecided(level.decision)}) for level in challenger.levels]
    return challenger.model_copy(
        update={
            "decision": Decision(verdict="undecided", reason=reason),
            "deploy": [],
            "pays_up_to": None,
            "load": "",
            "classes": classes,
            "levels": levels,
        }
    )


def noise_of(challengers: Mapping[str, Challenger]) -> list[Noise]:
    """Return what an A/A found: how far one server is from itself, by arm and load, all classes together."""
    return [
        Noise(arm=name, level=level.speedups.level, e2e=level.speedups.e2e, below=_below(level.speedups.e2e))
        for name, challenger in challengers.items()
        for level in challenger.levels
    ]


def _below(interval: StoredInterval | None) -> float | None:
    """A relative difference below which an interval as wide as this one may include 1."""
    if interval is None:
        return None
    return round(max(interval.high / interval.estimate, interval.estimate / interval.low) - 1, 4)


def noise_sentence(found: Sequence[Noise]) -> str:
    """The result of an A/A in a sentence."""
    known = [(one, one.e2e, one.below) for one in found if one.e2e is not None and one.below is not None]
    if not known:
        return "an A/A of one server: too few prompts for an interval"
    below = ", ".join(f"{100 * share:.1f}% at {one.level}" for one, _, share in known)
    reason = f"an A/A of one server: differences below {below} are within the noise here"
    apart = [
        f"{times(interval)} at {one.level}"
        for one, interval, _ in known
        if not interval.low <= 1 <= interval.high
    ]
    return reason + (f"; the server differs from itself: {', '.join(apart)}" if apart else "")
