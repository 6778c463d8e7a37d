"""From findings to a decision on each traffic class and load. Pure.

The error budget. Superiority is the only claim that chance could make true: its intervals hold together
over traffic classes and challengers (Bonferroni) and over all looks (specops.stats.sequential). Loads are
tested from the lightest upwards until one does not pay, a fixed sequence, which costs nothing.
Non-inferiority is tested at 95%, one-sided, for each claim: a deployment needs all of them, so their
number costs nothing. Factors can only take a yes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Generic, TypeVar

from specops import stats
from specops.experiment import answer_claims, cache_claims, claims, sentences
from specops.experiment.claims import BesideFigure, Evidence
from specops.experiment.findings import Basis, Decision, Finding
from specops.load.arrivals import Level
from specops.results import Verdict
from specops.stats import shares

LOOKS = (0.4, 0.55, 0.7, 0.85, 1.0)
"""Shares of the planned requests after which the evidence is looked at. The first has enough for the
bounds on rare events."""


@dataclass(frozen=True)
class Confidences:
    """The confidence of one interval of a speed-up, such that all hold together at every look."""

    of_classes: float
    of_loads: float

    @classmethod
    def at(
        cls, confidence: float, classes: int, challengers: int, look: int, looks: Sequence[float]
    ) -> Confidences:
        """`look` counts from 1; `looks` are their shares of the requests."""
        return cls(
            _of_look(confidence, look, tuple(looks), max(1, classes * challengers)),
            _of_look(confidence, look, tuple(looks), max(1, challengers)),
        )


@cache
def _of_look(confidence: float, look: int, looks: tuple[float, ...], among: int) -> float:
    return stats.sequential.levels(looks, 1 - (1 - confidence) / among)[look - 1]


@dataclass(frozen=True)
class Judged:
    """All that is concluded about one challenger."""

    decision: Decision
    classes: dict[str, tuple[Decision, ...]]
    """By class, at each load from the lightest."""

    together: tuple[Decision, ...]
    """All classes together, at each load."""

    lengths: tuple[Finding, ...]
    """At each load."""

    findings: tuple[Finding, ...]
    """Every line of the table, the common ones first."""

    levels: tuple[Level, ...]
    confidences: Confidences

    @property
    def deploy(self) -> list[tuple[str, Level]]:
        if self.decision.verdict != "yes":
            return []
        return [
            (name, level)
            for name, decisions in sorted(self.classes.items())
            for level, decision in zip(self.levels, decisions, strict=True)
            if decision.verdict == "yes"
        ]

    @property
    def settled(self) -> bool:
        """Return whether no more requests are needed: nothing is open up to the first load that does not
        pay, or something that concerns all loads speaks against it."""
        if any(finding.verdict == "against" for finding in self.decision.findings):
            return True
        rows = [*self.classes.values(), self.together]
        return bool(self.classes) and all(_settled(row) for row in rows)


Claim = Callable[[Evidence], Finding]
Part = TypeVar("Part", str, Level)
"""A class, or a load."""


def judge_challenger(evidence: Evidence, confidences: Confidences) -> Judged:
    """Judge every claim on the challenger, by class and load."""
    levels, classes = evidence.levels, evidence.classes
    lengths = tuple(claims.length(evidence, level, confidences.of_loads) for level in levels)
    bases = [
        _basis(evidence, level, length, confidences.of_loads)
        for level, length in zip(levels, lengths, strict=True)
    ]
    cells = {
        (name, level): [claims.wait(evidence, level, name, basis, confidences.of_classes)]
        for name in classes
        for level, basis in zip(levels, bases, strict=True)
    }
    slower = [cell for cell, (wait,) in cells.items() if wait.verdict == "against"]
    if len(slower) < len(cells):
        evidence = replace(evidence, not_for=slower)
    together = [
        [claims.wait(evidence, level, None, basis, confidences.of_loads)]
        for level, basis in zip(levels, bases, strict=True)
    ]
    for level, length, row in zip(levels, lengths, together, strict=True):
        beside: BesideFigure = "equal_length" if length.verdict != "shown" or length.cause else "e2e"
        faster = [name for name in classes if (name, level) not in slower] or classes
        among = evidence.of_classes(faster)
        # What divides the samples of all that gain divides those of each class. One that loses hides it.
        gained = row[0]
        if len(faster) < len(classes):
            gained = claims.wait(among, level, None, row[0].basis or "e2e", confidences.of_loads)
        doubts = [gained] if gained.verdict != "shown" and gained.cause in _CAUSES_OF_ALL else []
        cached = cache_claims.cached_tokens(evidence, level, _BESIDE)
        for claim in _claims_at(evidence, level, beside, cached, confidences):
            row.append(claim(evidence))
            by_class = _split(claim, among, faster, Evidence.of_classes)
            for name in classes:
                cells[name, level].append(by_class.of(name))
        for name in classes:
            cells[name, level] += [*claims.open_loop(evidence, level, name, beside, _BESIDE), *doubts]
        row += claims.open_loop(evidence, level, None, beside, _BESIDE)
        if cached is not None:
            row.append(cached)
            for name in classes:  # of few prompt tokens, the whole says nothing
                alone = cache_claims.cached_tokens(evidence, level, _BESIDE, traffic_class=name)
                cells[name, level].append(cached if alone is None or alone.verdict == "unknown" else alone)
    of_class: dict[str, list[Finding]] = {name: [] for name in classes}
    for claim in (_failures, _answers, answer_claims.sampled_answers, claims.gain_of_speculation):
        by_load = _split(claim, evidence, levels, Evidence.of_loads)
        elsewhere = evidence.of_loads([level for level in levels if level not in by_load.alone])
        by_class = _split(claim, elsewhere, classes, Evidence.of_classes)
        for name in classes:
            of_class[name].append(by_class.of(name))
        for level, row in zip(levels, together, strict=True):
            row.append(by_load.alone.get(level, by_class.whole))
            for name in classes if level in by_load.alone else ():
                cells[name, level].append(by_load.alone[level])
    for name, common in of_class.items():
        common += answer_claims.same_prompts_read(evidence)
        heaviest = cells[name, levels[-1]]
        # Where greedy requests gain at that load, it is sampling that loses, and it does so at lighter ones.
        if heaviest[0].verdict == "shown":
            common += [f for f in heaviest if f.claim == "sampled wait" and f.verdict == "against"]
    rows = {name: [[*cells[name, level], *of_class[name]] for level in levels] for name in classes}
    counted = [*claims.failures(evidence)[1:], *answer_claims.acceptable_answers(evidence)[1:]]
    listed = chain(*of_class.values(), counted, *together, *cells.values())
    return Judged(
        _of_challenger(of_class, together[0] if together else []),
        {name: _in_sequence(map(decide_claims, row)) for name, row in rows.items()},
        _in_sequence(map(decide_claims, together)),
        lengths,
        tuple({id(finding): finding for finding in listed}.values()),
        tuple(levels),
        confidences,
    )


_CAUSES_OF_ALL = (
    "time", "drift", "order", "place", "connection", "repeat", "known prompt", "pause", "client",
)  # fmt: skip
_BESIDE = 2 * claims.ONE_SIDED - 1
"""Confidence of a two-sided interval whose ends are one-sided bounds."""


def _basis(evidence: Evidence, level: Level, lengths: Finding, confidence: float) -> Basis:
    """End to end where answers are as long as the standard's and the gain is in decoding, else by token, or
    by character."""
    timed = any(s.standard.tpot_ms and s.challenger.tpot_ms for s in evidence.at(level) if s.answered)
    if lengths.verdict != "shown" or lengths.cause == "accepted":
        return "tpot" if timed else "per_character"
    whole, decoding = claims.gains(evidence, level, confidence)
    if whole is None or decoding is None or whole.low <= claims.LEAST_GAIN:
        return "e2e"
    return "e2e" if decoding.low > 1 and whole.low <= decoding.high else "tpot"


def _claims_at(
    evidence: Evidence,
    level: Level,
    beside: BesideFigure,
    cached: Finding | None,
    confidences: Confidences,
) -> list[Claim]:
    """The claims of non-inferiority at one load. The open loop's rate is a share of what the standard answers
    at the heaviest, where sampled requests are sent, too. First tokens are compared at an equal cache state
    (`cached`)."""
    equal = cache_claims.at_equal_state
    listed: list[Claim] = [
        lambda part: equal(claims.first_token(part, level, _BESIDE), cached),
        lambda part: claims.length(part, level, confidences.of_loads),
        lambda part: claims.cost_of_late(part, level),
    ]
    kinds = {sample.kind for sample in evidence.samples if level == evidence.levels[-1]}
    if "open" in kinds:
        listed.append(lambda part: equal(claims.open_first_token(part, level, _BESIDE), cached))
    if "mixed" in kinds:
        listed.append(lambda part: claims.sampled_wait(part, level, beside, _BESIDE))
    return listed


def _failures(evidence: Evidence) -> Finding:
    return _with_windows_beside(claims.failures(evidence))


def _answers(evidence: Evidence) -> Finding:
    return _with_windows_beside(answer_claims.acceptable_answers(evidence))


def _with_windows_beside(findings: Sequence[Finding]) -> Finding:
    """Return the finding over all requests, or what is against in the open loop or among sampled requests:
    there are few of them."""
    whole, *by_scope = findings
    beside = (f for f in by_scope if f.scope != "measured" and f.verdict == "against")
    return whole if whole.verdict == "against" else next(beside, whole)


@dataclass(frozen=True)
class _Split(Generic[Part]):
    """A claim on all requests, where some parts of them may be refused alone."""

    whole: Finding
    rest: Finding
    """Over all parts that are not refused."""

    alone: Mapping[Part, Finding]
    """What refuses a part."""

    def of(self, part: Part) -> Finding:
        return self.alone.get(part, self.rest)


def _split(
    claim: Claim,
    evidence: Evidence,
    parts: Sequence[Part],
    only: Callable[[Evidence, Sequence[Part]], Evidence],
) -> _Split[Part]:
    """Judge `claim` over all parts. What is surely against, and surely unlike the others, is refused, and
    the others are judged without it: a fault of one class is no fault of another, and no mean hides it."""
    whole = claim(evidence)
    if len(parts) < 2:
        return _Split(whole, whole, {})
    by_part = {part: claim(only(evidence, [part])) for part in parts}
    against = {part: finding for part, finding in by_part.items() if finding.verdict == "against"}
    accepted = [part for part in parts if part not in against]
    rest = claim(only(evidence, accepted)) if against and accepted else whole
    if rest is whole or not all(_surely_unlike(finding, rest) for finding in against.values()):
        return _Split(whole, whole, {})
    return _Split(whole, rest, {part: _of_part(finding, part) for part, finding in against.items()})


def _of_part(finding: Finding, part: str | Level) -> Finding:
    update = {"traffic_class": part} if isinstance(part, str) else {"load": part}
    return finding.model_copy(update=update)


def _surely_unlike(part: Finding, rest: Finding) -> bool:
    if part.ratio is not None and rest.ratio is not None:
        return part.ratio.low > rest.ratio.high or part.ratio.high < rest.ratio.low
    if part.counts is not None and rest.counts is not None:
        counts_of_rest = rest.counts.challenger, rest.counts.challenger_n
        lower = shares.difference_lower(
            *counts_of_rest, part.counts.challenger, part.counts.challenger_n, _SURELY
        )
        return lower > 0
    return rest.verdict == "shown"


_SURELY = 0.99


def decide_claims(findings: Sequence[Finding]) -> Decision:
    """The decision from all claims on one class at one load; one of them is on the wait."""
    wait = next(finding for finding in findings if finding.claim == "wait")
    against = [finding for finding in findings if finding.verdict == "against"]
    open_ = [f for f in findings if f.verdict in ("open", "unknown") and not _may_be_unknown(f)]
    verdict: Verdict = "no" if against else "undecided" if open_ else "yes"
    decisive = against or open_ or list(findings)
    needs = [finding.needs for finding in open_]
    more = None if against or not open_ or None in needs else max(need for need in needs if need is not None)
    return Decision(
        verdict=verdict,
        reason=sentences.reason(verdict, decisive, wait),
        speedup=wait.ratio,
        basis=wait.basis,
        more_prompts=more,
        findings=decisive,
    )


def _may_be_unknown(finding: Finding) -> bool:
    """Whether nothing observed is enough: an engine without counters may speculate, and greedy answers need
    no comparison where no server gives any."""
    if finding.claim == "answers" and finding.cause != "always fails":
        return False
    if finding.cause == "cache":  # what was observed may be the cache's
        return False
    return finding.verdict == "unknown" and finding.claim in ("speculation", "first token", "answers")


def _in_sequence(by_load: Iterable[Decision]) -> tuple[Decision, ...]:
    """A load counts as paying only where every lighter one does."""
    decisions = list(by_load)
    paying = len(decisions)
    for index, decision in enumerate(decisions):
        if decision.verdict != "yes":
            paying = index
            break
    return tuple(
        decision.model_copy(
            update={"verdict": "undecided", "reason": sentences.not_reached(decision), "more_prompts": None}
        )
        if index > paying and decision.verdict == "yes"
        else decision
        for index, decision in enumerate(decisions)
    )


def _settled(decisions: Sequence[Decision]) -> bool:
    for decision in decisions:
        if decision.verdict != "yes":
            return decision.verdict == "no"
    return True


def _of_challenger(of_class: Mapping[str, Sequence[Finding]], lightest: Sequence[Finding]) -> Decision:
    """What concerns all loads, where it is against in every class; `over_all` adds what classes show. What is
    against at the lightest load besides is named with it."""
    against = {name: [f for f in findings if f.verdict == "against"] for name, findings in of_class.items()}
    if not against or not all(against.values()):
        return Decision(verdict="undecided", reason="", findings=[])
    besides = (finding for finding in lightest if finding.verdict == "against")
    decisive = list({id(finding): finding for finding in chain(*against.values(), besides)}.values())
    return Decision(verdict="no", reason=sentences.reason("no", decisive, None), findings=decisive)


def over_all(judged: Judged) -> Judged:
    """Return `judged` with the decision over all classes and loads."""
    if judged.decision.verdict == "no":
        return judged
    deploy = replace(judged, decision=judged.decision.model_copy(update={"verdict": "yes"})).deploy
    lightest = [decisions[0] for decisions in judged.classes.values() if decisions]
    if deploy:
        best = next(d for name, rows in sorted(judged.classes.items()) for d in rows if d.verdict == "yes")
        decision = best.model_copy(update={"reason": sentences.deployed(judged, deploy)})
    elif not lightest or any(decision.verdict == "undecided" for decision in lightest):
        undecided = [decision for decision in lightest if decision.verdict == "undecided"]
        mores = [decision.more_prompts for decision in undecided]
        decision = Decision(
            verdict="undecided",
            reason=sentences.not_shown(judged.classes, judged.levels),
            more_prompts=None if None in mores else max((more for more in mores if more), default=None),
            findings=undecided[0].findings if undecided else [],
        )
    else:
        decision = lightest[0].model_copy(update={"reason": sentences.refused(judged.classes, judged.levels)})
    return replace(judged, decision=decision)


def over_loads(decisions: Sequence[Decision], levels: Sequence[Level]) -> Decision:
    """The decision on one class over all loads; its reason says at which."""
    if len(decisions) == 1:
        return decisions[0]
    first = next((d for d in decisions if d.verdict == "yes"), decisions[0])
    return first.model_copy(update={"reason": sentences.over_loads(decisions, levels)})
