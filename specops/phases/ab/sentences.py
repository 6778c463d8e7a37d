"""The answer of a comparison in sentences: one for each load, notes, the decision. Pure.

Each measured load has a sentence. "Use it" is said of a traffic class at a load only if the report deploys it
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from specops.experiment.findings import Decision
from specops.experiment.sentences import PER, head, noted
from specops.load.arrivals import Level
from specops.phases.ab.report import Challenger, DeployTarget, Report
from specops.render.figures import times
from specops.render.report.document import STATES, State
from specops.stats import Interval

ROUND_FROM = 1.2
"""A speed-up from here on is written with one decimal in a sentence; a smaller one needs two."""

DECISION = "Decision: "
_VERDICTS: Mapping[State, str] = {
    "good": "Speculation pays",
    "bad": "Speculation does not pay",
    "open": "Undecided",
}

Outcome = Literal["faster", "slower", "no gain", "other"]


@dataclass(frozen=True)
class _Class:
    """One traffic class, or all together, at one load."""

    name: str
    decision: Decision

    @property
    def outcome(self) -> Outcome:
        speedup, verdict = self.decision.speedup, self.decision.verdict
        if verdict == "yes" and speedup is not None:
            return "faster"
        if speedup is None or any(
            finding.claim != "wait" or finding.cause for finding in self.decision.findings
        ):
            return "other"
        if verdict == "no" and speedup.high < 1:
            return "slower"
        return "no gain" if verdict == "undecided" and speedup.low <= 1 <= speedup.high else "other"

    @property
    def speedup_text(self) -> str:
        return f"{times(self.decision.speedup)}{PER[self.decision.basis]}"


@dataclass(frozen=True)
class Conclusion:
    state: State
    verdict: str
    """The verdict in a few words."""

    headline: str
    """One sentence."""

    support: tuple[str, ...] = ()
    """The sentences that the headline rests on."""

    caution: str = ""
    """How far the measurement can be trusted, in one sentence; empty where nothing limits it."""


def conclude(report: Report, name: str) -> Conclusion:
    """What the comparison concludes on the challenger `name`."""
    challenger = report.challengers[name]
    *support, decision = answer(report, name)
    state, _ = STATES[challenger.decision.verdict]
    verdicts = [level.decision.verdict for figures in challenger.classes.values() for level in figures.levels]
    limited = state == "good" and any(verdict != "yes" for verdict in verdicts)
    verdict = f"{_VERDICTS[state]}, with limits" if limited else _VERDICTS[state]
    return Conclusion(state, verdict, decision.removeprefix(DECISION), tuple(support))


def answer(report: Report, name: str, *, subject: str = "speculation") -> list[str]:
    """The lines on the challenger `name`, which sentences call `subject`."""
    challenger = report.challengers[name]
    return [
        *load_sentences(challenger, subject),
        *(f"Note: {note}." for note in _notes(report, challenger)),
        decision_sentence(challenger),
    ]


def load_sentences(challenger: Challenger, subject: str = "speculation") -> Iterator[str]:
    """Yield what each load showed, from the lightest; loads that showed the same share a sentence."""
    level_sentences = [
        (level.speedups.level, _level_sentence(challenger, number, subject))
        for number, level in enumerate(challenger.levels)
    ]
    for message, alike in groupby(level_sentences, key=lambda pair: pair[1]):
        yield f"At {_and(str(level) for level, _ in alike)}, {message}."


def _level_sentence(challenger: Challenger, number: int, subject: str) -> str:
    level = challenger.levels[number]
    overall = _Class("all classes together", level.decision)
    classes = [_Class(name, figures.levels[number].decision) for name, figures in challenger.classes.items()]
    prompts = f"n={level.speedups.prompts}"
    outcomes = {traffic_class.outcome for traffic_class in classes} | {overall.outcome}
    if outcomes == {"faster"}:
        return f"{_faster(overall, classes, subject)}; {prompts})"
    if outcomes == {"no gain"}:
        return f"no gain is shown ({overall.speedup_text})"
    if outcomes == {"slower"}:
        return f"{subject} is slower ({overall.speedup_text})"
    if not classes:
        return f"{level.decision.reason}"
    common = {head(traffic_class.decision) for traffic_class in classes if traffic_class.outcome == "other"}
    if len(common) == 1 and outcomes == {"other"}:
        return f"{_verdict(classes[0].decision)}: {common.pop()}"
    clauses = list(_clauses(classes, subject))
    if overall.outcome == "faster" and not any(
        traffic_class.outcome == "faster" for traffic_class in classes
    ):
        clauses.insert(0, f"{subject} answers {overall.speedup_text} as fast over all classes")
    return f"{'; '.join(clauses)} ({prompts})"


def _faster(overall: _Class, classes: Sequence[_Class], subject: str) -> str:
    speedup = overall.decision.speedup
    assert speedup is not None
    fast = f"{subject} answers {_rounded(speedup)}× as fast{PER[overall.decision.basis]}"
    if len(classes) == 1:
        return f"{fast} ({times(speedup)}"
    decisions = {traffic_class.name: traffic_class.decision for traffic_class in classes}
    speedups = [
        f"{name} {decision.speedup.estimate:.2f}{PER[decision.basis]}"
        for name, decision in decisions.items()
        if decision.speedup is not None
    ]
    return f"{fast} ({', '.join(speedups)}"


def _clauses(classes: Sequence[_Class], subject: str) -> Iterator[str]:
    """Yield a clause for each outcome, then one for each class with a reason of its own."""
    words: Mapping[Outcome, str] = {
        "faster": f"{subject} answers faster for",
        "slower": f"{subject} is slower for",
        "no gain": "no gain is shown for",
    }
    for outcome, start in words.items():
        listed = [
            f"{traffic_class.name} ({traffic_class.speedup_text})"
            for traffic_class in classes
            if traffic_class.outcome == outcome
        ]
        if listed:
            yield f"{start} {', '.join(listed)}"
    reasons: dict[str, list[_Class]] = {}
    for traffic_class in classes:
        if traffic_class.outcome == "other":
            reasons.setdefault(head(traffic_class.decision), []).append(traffic_class)
    for reason, several in reasons.items():
        names = ", ".join(traffic_class.name for traffic_class in several)
        yield f"{_verdict(several[0].decision)} for {names}: {reason}"


def _verdict(decision: Decision) -> str:
    return {"no": "do not deploy", "yes": "deploy"}.get(decision.verdict, "undecided")


def _rounded(speedup: Interval) -> str:
    digits = 1 if speedup.estimate >= ROUND_FROM else 2
    return f"{speedup.estimate:.{digits}f}"


def _notes(report: Report, challenger: Challenger) -> Iterator[str]:
    if report.standard_note:
        yield report.standard_note
    if report.same_prompts:
        yield "prompts were sent as they are (--same-prompts), so a cache may have answered"
    yield from noted(challenger.findings)


def decision_sentence(challenger: Challenger) -> str:
    """Return where to use it, and where not."""
    levels = [level.speedups.level for level in challenger.levels]
    used = {
        name: [
            level for level in levels if DeployTarget(traffic_class=name, level=level) in challenger.deploy
        ]
        for name in challenger.classes
    }
    if challenger.decision.verdict != "yes" or not any(used.values()):
        return f"Decision: {_not_used(challenger)}"
    groups: dict[tuple[Level, ...], list[str]] = {}
    for name, those in used.items():
        groups.setdefault(tuple(those), []).append(name)
    gaps = _not_measured(levels)
    if len(groups) == 1:
        (alike,) = groups
        off = [level for level in levels if level not in alike]
        keep = f"; keep speculation off at {_numbers(off)}" if off else ""
        return f"Decision: use speculation at {_loads(alike)}{keep}{gaps}."
    ordered = sorted(groups.items(), key=lambda item: -len(item[0]))
    use = [f"for {_and(names)} at {_loads(those)}" for those, names in ordered if those]
    off_at = [
        f"for {_and(names)}" + (f" at {_loads(rest)}" if those else " at every load" * (len(levels) > 1))
        for those, names in ordered
        if (rest := [level for level in levels if level not in those])
    ]
    return f"Decision: use speculation {'; '.join(use)}. Keep speculation off {'; '.join(off_at)}{gaps}."


def _not_used(challenger: Challenger) -> str:
    """Return why it is off: the reason, where the sentences on the loads have not given it."""
    decision = challenger.decision
    lightest = [figures.levels[0].decision.verdict for figures in challenger.classes.values()]
    explained = bool(lightest) and "yes" not in lightest and challenger.failed is None
    reason = head(decision)
    if decision.verdict == "no":
        off = "keep speculation off"
        return f"{off}." if explained and "no" in lightest else f"{off}: {reason}."
    if not explained:
        return f"undecided; keep speculation off until it is decided: {reason}."
    more = decision.more_prompts
    takes = f": about {more} more prompts a class would decide" if more else ""
    return f"undecided; keep speculation off until it is decided{takes}."


def _loads(levels: Sequence[Level]) -> str:
    """Return the loads in words, such as `1 and 8 streams a server`."""
    if all(level.concurrency is not None for level in levels):
        last = levels[-1].concurrency
        return f"{_numbers(levels)} {'stream' if last == 1 else 'streams'} a server"
    return _and(map(str, levels))


def _numbers(levels: Sequence[Level]) -> str:
    """Streams without their unit."""
    return _and(str(level) if level.concurrency is None else str(level.concurrency) for level in levels)


def _not_measured(levels: Sequence[Level]) -> str:
    """The numbers of streams between those that were measured."""
    measured = sorted({level.concurrency for level in levels if level.concurrency is not None})
    gaps = [(lower + 1, higher - 1) for lower, higher in pairwise(measured) if higher > lower + 1]
    if not gaps:
        return ""
    words = [
        f"{low} to {high}" if high > low + 1 else _and(map(str, range(low, high + 1))) for low, high in gaps
    ]
    single = len(gaps) == 1 and gaps[0][0] == gaps[0][1]
    return f" ({_and(words)} {'was' if single else 'were'} not measured)"


def _and(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
