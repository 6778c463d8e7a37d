"""A diagnosis as a document. All of it is in diagnose.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from specops.phases.diagnose import Diagnosis
from specops.phases.diagnose.finding import DiagnosisFinding, Severity, Symptom
from specops.phases.measurement import checked
from specops.render.figures import age
from specops.render.report.document import Cell, Document, Section, State, Step, Table
from specops.results import Result

TITLES: Mapping[Symptom, str] = {
    "slower": "slower than without speculation",
    "acceptance": "acceptance is down, or down on some prompts",
    "bursts": "text comes in bursts",
    "vocabulary": "vocabularies of target and draft",
    "answers": "answers are wrong, or refused",
    "watching": "panels are blank",
}
SEVERITIES: Mapping[Severity, tuple[str, State]] = {
    "symptom": ("SYMPTOM", "bad"),
    "cause": ("CAUSE", "bad"),
    "contributing": ("possible", "open"),
    "unknown": ("unknown", "open"),
    "ruled_out": ("ruled out", "good"),
}


def document(result: Result, path: Path) -> Document:
    """The document of a diagnosis, which `path` holds."""
    findings = checked(Diagnosis, result.data, f"{path} is damaged: data").findings
    return Document.of_result(
        result, (result.settings.get("rollout"), path), _sections(findings), _steps(findings)
    )


def _sections(findings: Sequence[DiagnosisFinding]) -> Iterator[Section]:
    order = get_args(Severity)
    columns = ("check", "severity", "message", "evidence of", "because", "fix", "to find out")
    for symptom, title in TITLES.items():
        own = [finding for finding in findings if finding.symptom == symptom]
        observed = [finding for finding in own if finding.severity != "unknown"]
        rows = [_row(finding) for finding in sorted(observed, key=lambda one: order.index(one.severity))]
        rows += _unknown([finding for finding in own if finding.severity == "unknown"])
        pastes = tuple(
            Step(f"paste this for {finding.id}", "", f"{finding.paste}\n") for finding in own if finding.paste
        )
        if rows:
            table = Table("", columns, tuple(rows), prose=tuple(range(2, len(columns))))
            yield Section(title.capitalize(), tables=(table.without_empty_prose(),), steps=pastes)


def _row(finding: DiagnosisFinding) -> tuple[str | Cell, ...]:
    ages = [part.age_s for part in finding.evidence if part.age_s is not None]
    dated = _span(ages) if ages and finding.severity != "ruled_out" else ""
    state = Cell(*SEVERITIES[finding.severity])
    return (finding.id, state, finding.message, dated, finding.cause or "", finding.fix or "", "")


def _span(ages: Sequence[float]) -> str:
    """From when to when it is."""
    newest, oldest = (
        f"{age(seconds)} ago" if age(seconds) != "now" else "now" for seconds in (min(ages), max(ages))
    )
    return newest if newest == oldest else f"{newest} and {oldest}"


def _unknown(findings: Sequence[DiagnosisFinding]) -> Iterator[tuple[str | Cell, ...]]:
    """Yield one row for all that the same command would show; diagnose.json has each reason."""
    by_fix: dict[str, list[DiagnosisFinding]] = {}
    for finding in findings:
        by_fix.setdefault(finding.fix or finding.message, []).append(finding)
    for alike in by_fix.values():
        names = ", ".join(finding.id for finding in alike)
        state = Cell(*SEVERITIES["unknown"])
        yield (names, state, alike[0].message, "", "", "", alike[0].fix or "")


def _steps(findings: Sequence[DiagnosisFinding]) -> Iterator[Step]:
    """The fix of the first cause, else the command that would answer most unknown checks."""
    first = next((finding.fix for finding in findings if finding.severity == "cause" and finding.fix), None)
    if first is not None:
        yield Step("", "", first) if first.startswith("specops ") else Step(first, "", "")
        return
    answers = [finding.fix for finding in findings if finding.severity == "unknown" and finding.fix]
    if answers:
        yield Step("", "", max(answers, key=answers.count))
