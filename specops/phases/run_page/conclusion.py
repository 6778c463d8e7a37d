"""The conclusion of a run in one sentence, and the state of each phase. Pure.

The terminal page and the HTML page both take it from here.
"""

from __future__ import annotations

from dataclasses import replace

from specops.phases import phase_named
from specops.phases.ab.report import Report, read
from specops.phases.ab.sentences import DECISION, Conclusion, conclude
from specops.phases.ab.trust import Doubt, caution, doubts
from specops.phases.measurement import BaselineSteadiness, checked
from specops.phases.phase import Skipped, Step
from specops.phases.playbook.walk import Walk
from specops.phases.route import RouteData
from specops.render.figures import sentence
from specops.render.report.document import STATES, State

SKIPPED: tuple[State, str] = ("none", "skipped")
BY_SPEED = "By speed alone: "
"""Heading in place of DECISION before a yes where another gate failed: it is not to be deployed as it is."""


def challenger_of(report: Report) -> str:
    return report.main_challenger


def conclusion(walk: Walk) -> Conclusion:
    """The decision of the comparison; without one, what the last phase says. A failed gate comes first."""
    if not walk.steps and not walk.skipped:
        return Conclusion("none", "Nothing measured", "The run folder has no result yet.")
    failed, decided = failed_gate(walk), decision(walk)
    if failed is None:
        return decided
    support = (*decided.support, *([decision_line(decided, failed)] if decided.support else []))
    return Conclusion("bad", f"Failed: {failed.phase}", failure(failed), support, decided.caution)


def failed_gate(walk: Walk) -> Step | None:
    """The first gate that said no."""
    failed = (step for step in walk.steps if step.result.verdict == "no")
    return next((step for step in failed if phase_named(step.phase).gate), None)


def decision_line(decided: Conclusion, failed: Step | None) -> str:
    """The comparison's decision as a sentence below others; `failed` is another gate that said no."""
    return f"{BY_SPEED if failed is not None and decided.state == 'good' else DECISION}{decided.headline}"


def failure(step: Step) -> str:
    return sentence(f"{step.phase} failed: {step.result.reason}")


def decision(walk: Walk) -> Conclusion:
    """Return what the comparison decides, without regard to other gates."""
    comparison = walk.step("ab")
    if comparison is not None and comparison.result.verdict != "partial":
        report = read(comparison.result, str(comparison.path))
        return replace(conclude(report, challenger_of(report)), caution=caution(doubts_of(walk)))
    if not walk.steps:
        return Conclusion("none", "Not run", sentence(walk.skipped[-1].reason))
    step = walk.step("checklist") or comparison or walk.steps[-1]
    state, word = STATES[step.result.verdict]
    verdict = "Not compared yet" if state == "good" else f"{step.phase}: {word}"
    return Conclusion("none" if state == "good" else state, verdict, sentence(step.result.reason))


def doubts_of(walk: Walk) -> list[Doubt]:
    """How far the comparison and the baseline can be trusted; nothing without a comparison."""
    comparison, baseline = walk.step("ab"), walk.step("baseline")
    if comparison is None or comparison.result.verdict == "partial":
        return []
    report = read(comparison.result, str(comparison.path))
    stored = BaselineSteadiness.model_validate(baseline.result.data if baseline is not None else {})
    return doubts(report, challenger_of(report), stored.steadiness)


def unrouted(walk: Walk) -> RouteData | None:
    """What the router was rendered from, where a class must stay off speculation that it cannot recognise."""
    step = walk.step("route")
    if step is None or not step.result.data.get("unmatched"):
        return None
    return checked(RouteData, step.result.data, f"{step.path} is damaged: data")


def phase_reason(step: Step | Skipped) -> str:
    """A phase in a line."""
    if isinstance(step, Skipped):
        return step.reason
    return phase_named(step.phase).reason(step)
