"""The referee's findings in words."""

from __future__ import annotations

from collections.abc import Mapping

from specops.phases.referee.records import ADAPTIVE, OFF, Adaptation, Findings, PhaseFinding, Swing
from specops.render.figures import count, times


def reason_of(findings: Findings, failed: Mapping[str, str], margin: float) -> str:
    """The answer of the whole in a sentence."""
    for name in (ADAPTIVE, OFF):
        if name in failed:
            return f"{findings.verdict}: {name} failed: {failed[name]}"
    deciding = [phase for phase in findings.phases if phase.verdict == findings.verdict]
    if findings.verdict == "pays":
        return (
            f"the adaptive pool pays: {times(findings.off)} against off over the programme, and in each of "
            f"{count(len(findings.phases), 'phase')} no fixed setting is over {margin:.0%} faster"
            f"{_without(findings)}"
        )
    if findings.verdict == "loses":
        phase = next((phase for phase in deciding if phase.collapse), deciding[0])
        collapse = f"{'; '.join(findings.collapses)}: " if findings.collapses else ""
        ratios = f"{times(phase.off)} against off, {times(phase.static)} against {phase.best}"
        why = ratios if phase.off is not None and phase.static is not None else phase.why
        return f"the adaptive pool loses: {collapse}{why} at {name_of(phase)}"
    if findings.verdict == "unknown":
        return (
            f"unknown: {name_of(deciding[0])}: {deciding[0].why}"
            if deciding
            else "unknown: all static settings failed"
        )
    if not deciding:
        return f"undecided: a gain over off is not shown ({times(findings.off)} over the programme)"
    number = f"{len(deciding)} of {count(len(findings.phases), 'phase')}"
    return f"undecided in {number}: {name_of(deciding[0])}: {deciding[0].why}"


def _without(findings: Findings) -> str:
    names = dict.fromkeys(name for phase in findings.phases for name in phase.left_out)
    return f", {' and '.join(names)} not compared" if names else ""


def name_of(phase: PhaseFinding) -> str:
    return f"{phase.load} ({phase.traffic})" if phase.traffic else phase.load


def adaptation_words(adaptation: Adaptation | None) -> str:
    """The time to adapt; empty where the phase does not begin with a change."""
    if adaptation is None:
        return ""
    if adaptation.time_s is not None:
        change = f" ({times(adaptation.change)})" if adaptation.change is not None else ""
        return {
            "adapts": f"{adaptation.time_s:.1f} s{change}",
            "slows": f"slower after {adaptation.time_s:.1f} s{change}",
        }.get(adaptation.outcome, f"within {adaptation.time_s:.1f} s")
    if adaptation.outcome == "not observed":
        return f"not observed in {adaptation.observed_s:.1f} s"
    return "unknown"


def swing_words(swing: Swing) -> str:
    figure = "the speed" if swing.figure == "speed" else "the number of drafted tokens"
    return f"{figure} swings by about {swing.size:.0%}, every {swing.period_s:.1f} s"
