"""The page of `diagnose`: by symptom; what is wrong first, then what was ruled out, then what is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from specops.phases.diagnose.diagnose import FILE, Diagnosis
from specops.phases.diagnose.finding import Finding, Severity, Symptom
from specops.phases.measurement import checked
from specops.render.figures import sentence
from specops.results import Result

TITLES: dict[Symptom, str] = {
    "slower": "slower than without speculation",
    "acceptance": "acceptance is down, or down on some prompts",
    "bursts": "text comes in bursts",
    "vocabulary": "vocabularies of target and draft",
    "answers": "answers are wrong, or refused",
    "watching": "panels are blank",
}
WORDS: dict[Severity, str] = {
    "symptom": "IT IS SO",
    "cause": "CAUSE",
    "contributing": "perhaps",
    "ruled_out": "not it",
    "unknown": "unknown",
}
WIDTH = max(map(len, WORDS.values()))


def page(result: Result, rollout: Path) -> list[str]:
    """The page's lines. All that is on it is in diagnose.json."""
    findings = checked(Diagnosis, result.data, f"{FILE} is damaged: data").findings
    lines = [f"diagnose · {result.settings['rollout']}"]
    for symptom, title in TITLES.items():
        ours = [one for one in findings if one.symptom == symptom]
        if ours:
            lines.append(title)
            lines += _symptom(ours, rollout)
    lines.append(sentence(result.reason))
    lines += _next(findings, rollout)
    return lines


def _symptom(findings: Sequence[Finding], rollout: Path) -> Iterator[str]:
    order = get_args(Severity)
    indent = " " * (WIDTH + 4)
    for one in sorted(findings, key=lambda finding: order.index(finding.severity)):
        if one.severity == "unknown":
            continue
        yield f"  {WORDS[one.severity]:{WIDTH}}  {one.id}: {_named(one.message, rollout)}"
        if one.cause:
            yield f"{indent}since {one.cause}"
        if one.fix:
            yield f"{indent}fix: {_named(one.fix, rollout)}"
        for line in (one.paste or "").splitlines():
            yield f"{indent}  {line}"
    yield from _unknown([one for one in findings if one.severity == "unknown"], rollout)


def _unknown(findings: Sequence[Finding], rollout: Path) -> Iterator[str]:
    """What would be shown by the same is one line; why each is not known is in diagnose.json."""
    by_fix: dict[str, list[Finding]] = {}
    for one in findings:
        by_fix.setdefault(one.fix or one.message, []).append(one)
    for ours in by_fix.values():
        names = ", ".join(one.id for one in ours)
        show = f" (to see: {_named(ours[0].fix, rollout)})" if ours[0].fix else ""
        yield f"  {WORDS['unknown']:{WIDTH}}  {names}: {_named(ours[0].message, rollout)}{show}"


def _next(findings: Sequence[Finding], rollout: Path) -> Iterator[str]:
    """The first cause's fix, else what would show most of what is not known."""
    first = next((one for one in findings if one.severity == "cause" and one.fix), None)
    if first is not None and first.fix is not None:
        yield f"next: {_named(first.fix, rollout)}"
        return
    shown = [one.fix for one in findings if one.severity == "unknown" and one.fix]
    if shown:
        yield f"next: {_named(max(shown, key=shown.count), rollout)}"


def _named(text: str, rollout: Path) -> str:
    return text.replace("ROLLOUT", str(rollout))
