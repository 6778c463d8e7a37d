"""From findings to a decision on each traffic class and load. Pure.

The error budget. Superiority is the only claim that chance could make true: its intervals hold together
over traffic classes and challengers (Bonferroni) and over all looks (specops.stats.sequential). Loads are
tested from the lightest upwards until one does not pay, a fixed sequence, which costs nothing.
Non-inferiority is tested at 95%, one-sided, for each claim: a deployment needs all of them, so their
number costs nothing. Factors can only take a yes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from specops import stats
from specops.experiment import claims, sentences
from specops.experiment.claims import Evidence
from specops.experiment.findings import Basis, Decision, Finding
from specops.load.arrivals import Level
from specops.results import Verdict

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


def judge_challenger(evidence: Evidence, confidences: Confidences) -> Judged:
    """Judge every claim on the challenger, by class and load."""
    lengths = tuple(claims.length(evidence, level, None, confidences.of_loads) for level in evidence.levels)
    cells = {
        (name, level): _cell(evidence, level, name, length, confidences.of_classes)
        for name in evidence.classes
        for level, length in zip(evidence.levels, lengths, strict=True)
    }
    slower = [where for where, findings in cells.items() if findings[0].verdict == "against"]
    if len(slower) < len(cells):
        evidence = replace(evidence, not_for=slower)
    failures, *failures_by_load = claims.failures(evidence)
    answers, *answers_by_load = claims.acceptable_answers(evidence)
    by_load = [*failures_by_load, *answers_by_load]
    bad = {
        f.load: f for f in by_load if f.scope == "measured" and f.verdict == "against" and f.load is not None
    }
    if bad and len(bad) < len(evidence.levels):  # what fails at one load only keeps it off that load
        others = replace(evidence, windows=[window for window in evidence.windows if window.level not in bad])
        failures, answers = claims.failures(others)[0], claims.acceptable_answers(others)[0]
    elsewhere = [
        finding
        for finding in by_load
        if finding.scope != "measured" and finding.verdict == "against" and finding.load not in bad
    ]
    common = [
        failures,
        answers,
        claims.sampled_answers(evidence),
        claims.gain_of_speculation(evidence),
        *elsewhere,
    ]
    together = [
        _cell(evidence, level, None, lengths[index], confidences.of_loads)
        + ([bad[level]] if level in bad else [])
        for index, level in enumerate(evidence.levels)
    ]
    # Where greedy requests gain at that load, it is sampling that loses, and it does so at lighter ones too.
    if together and together[-1][0].verdict == "shown":
        common += [f for f in together[-1] if f.claim == "sampled wait" and f.verdict == "against"]
    classes = {}
    for name in evidence.classes:
        rows = []
        for index, level in enumerate(evidence.levels):
            findings = cells[name, level]
            # What divides all samples of a load divides those of each class.
            doubts = [f for f in together[index] if f.verdict != "shown" and f.cause in _CAUSES_OF_ALL]
            rows.append([*findings, *doubts, *([bad[level]] if level in bad else [])])
        classes[name] = rows
    return Judged(
        _of_challenger(common, classes, evidence.levels),
        {
            name: _in_sequence(_decided(common, rows, evidence.settings.accept_length_change))
            for name, rows in classes.items()
        },
        _in_sequence(_decided(common, together, evidence.settings.accept_length_change)),
        lengths,
        (
            *common,
            *by_load,
            *(f for row in together for f in row),
            *(f for rows in classes.values() for row in rows for f in row if f.traffic_class),
        ),
        tuple(evidence.levels),
        confidences,
    )


_CAUSES_OF_ALL = ("time", "order", "place", "connection", "repeat", "client", "late")


def _cell(
    evidence: Evidence, level: Level, traffic_class: str | None, lengths: Finding, confidence: float
) -> list[Finding]:
    """The claims on one class, or on all, at one load."""
    basis: Basis = "e2e"
    if lengths.verdict != "shown":
        known = any(s.standard.tpot_ms and s.challenger.tpot_ms for s in evidence.at(level) if s.answered)
        basis = "tpot" if known else "per_character"
    findings = [
        claims.wait(evidence, level, traffic_class, basis, confidence),
        _first_token(evidence, level, traffic_class),
        lengths,
    ]
    if level == evidence.levels[-1]:  # the open loop's rate is a share of what the standard answers there
        confidence = 2 * claims.ONE_SIDED - 1
        beside = (
            claims.open_loop(evidence, traffic_class, confidence),
            claims.open_first_token(evidence, confidence),
            claims.sampled_wait(evidence, confidence),
        )
        findings += [finding for finding in beside if finding is not None]
    return findings


def _first_token(evidence: Evidence, level: Level, traffic_class: str | None) -> Finding:
    """Of a class, only what speaks against it: that nothing does is shown over all classes."""
    confidence = 2 * claims.ONE_SIDED - 1
    whole = claims.first_token(evidence, level, None, confidence)
    if traffic_class is None:
        return whole
    alone = claims.first_token(evidence, level, traffic_class, confidence)
    return alone if alone.verdict == "against" else whole


def _decided(
    common: Sequence[Finding], rows: Sequence[Sequence[Finding]], accept_length_change: bool
) -> list[Decision]:
    return [decide_claims([*common, *row], accept_length_change) for row in rows]


def decide_claims(findings: Sequence[Finding], accept_length_change: bool) -> Decision:
    """The decision from all claims on one class at one load; one of them is on the wait."""
    needed = [f for f in findings if not (f.claim == "length" and accept_length_change)]
    wait = next(finding for finding in findings if finding.claim == "wait")
    against = [finding for finding in needed if finding.verdict == "against"]
    open_ = [f for f in needed if f.verdict in ("open", "unknown") and not _may_be_unknown(f)]
    verdict: Verdict = "no" if against else "undecided" if open_ else "yes"
    decisive = against or open_ or list(needed)
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
    """Whether nothing observed is enough: an engine without counters may speculate."""
    return finding.verdict == "unknown" and finding.claim in ("speculation", "first token")


def _in_sequence(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """A load counts as paying only where every lighter one does."""
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


def _of_challenger(
    common: Sequence[Finding], classes: dict[str, list[list[Finding]]], levels: Sequence[Level]
) -> Decision:
    """What concerns all classes and loads alike; `over_all` adds what they show."""
    against = [finding for finding in common if finding.verdict == "against"]
    if against:
        return Decision(verdict="no", reason=sentences.reason("no", against, None), findings=against)
    return Decision(verdict="undecided", reason="", findings=[])


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
