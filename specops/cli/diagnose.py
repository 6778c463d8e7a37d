"""`specops diagnose ROLLOUT`: why it is slow, or odd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from specops.cli.call import Answer, RolloutCall, nearest, shared_options
from specops.hints import with_options
from specops.phases.diagnose import FILE, Diagnosis
from specops.phases.diagnose.finding import Finding, Severity, Symptom
from specops.phases.measurement import checked
from specops.render.figures import age, sentence
from specops.results import Result

if TYPE_CHECKING:
    from specops.phases.diagnose.finding import Symptom


@shared_options()
def diagnose(
    call: RolloutCall,
    symptom: Annotated[
        list[str] | None,
        typer.Option(
            help="slower, acceptance, bursts, vocabulary, answers or watching; again for more. Default: all."
        ),
    ] = None,
    requests: Annotated[
        bool,
        typer.Option(help="Send a few streamed requests to the speculative pool, to see how text comes."),
    ] = True,
) -> Answer:
    """Every question gets an answer: a cause with its fix, ruled out, or the missing evidence. Writes
    diagnose.json. Exit 0 where nothing is wrong, 1 where something is, 4 where a check has no evidence.
    """
    from datetime import UTC, datetime

    from specops import results
    from specops.phases.diagnose import FILE, diagnose
    from specops.phases.diagnose.collectors import gather

    symptoms = _symptoms(symptom or [])
    with call.progress() as shown:
        observed = gather(call.file, call.folder, datetime.now(UTC), shown, requests=requests)
    result = diagnose(observed, symptoms, call.commands.place, call.commands.sweep())
    results.write(call.folder / FILE, result)
    return Answer(result, page(result))


def _symptoms(requested: list[str]) -> list[Symptom]:
    from typing import get_args

    from specops.errors import UsageError
    from specops.phases.diagnose.finding import Symptom

    known: tuple[Symptom, ...] = get_args(Symptom)
    for name in requested:
        if name not in known:
            raise UsageError(
                f"there is no symptom {name!r}: expected {', '.join(known)}",
                hint=with_options({"--symptom": nearest(name, known)}),
            )
    return [name for name in known if name in requested]


TITLES: dict[Symptom, str] = {
    "slower": "slower than without speculation",
    "acceptance": "acceptance is down, or down on some prompts",
    "bursts": "text comes in bursts",
    "vocabulary": "vocabularies of target and draft",
    "answers": "answers are wrong, or refused",
    "watching": "panels are blank",
}
WORDS: dict[Severity, str] = {
    "symptom": "SYMPTOM",
    "cause": "CAUSE",
    "contributing": "possible",
    "ruled_out": "ruled out",
    "unknown": "unknown",
}
WIDTH = max(map(len, WORDS.values()))


def page(result: Result) -> list[str]:
    """The page's lines. diagnose.json has everything on it."""
    findings = checked(Diagnosis, result.data, f"{FILE} is damaged: data").findings
    lines = [f"diagnose · {result.settings['rollout']}"]
    for symptom, title in TITLES.items():
        ours = [one for one in findings if one.symptom == symptom]
        if ours:
            lines.append(title)
            lines += _symptom(ours)
    lines.append(sentence(result.reason))
    lines += _next(findings)
    return lines


def _symptom(findings: Sequence[Finding]) -> Iterator[str]:
    order = get_args(Severity)
    indent = " " * (WIDTH + 4)
    for one in sorted(findings, key=lambda finding: order.index(finding.severity)):
        if one.severity == "unknown":
            continue
        yield f"  {WORDS[one.severity]:{WIDTH}}  {one.id}: {one.message}"
        ages = [part.age_s for part in one.evidence if part.age_s is not None]
        if one.severity != "ruled_out" and ages:
            yield f"{indent}evidence of {_span(ages)}"
        if one.cause:
            yield f"{indent}because {one.cause}"
        if one.fix:
            yield f"{indent}fix: {one.fix}"
        for line in (one.paste or "").splitlines():
            yield f"{indent}  {line}"
    yield from _unknown([one for one in findings if one.severity == "unknown"])


def _span(ages: Sequence[float]) -> str:
    """From when to when it is."""
    newest, oldest = (f"{age(one)} ago" if age(one) != "now" else "now" for one in (min(ages), max(ages)))
    return newest if newest == oldest else f"{newest} and {oldest}"


def _unknown(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield one line for all that the same command would show; diagnose.json has each reason."""
    by_fix: dict[str, list[Finding]] = {}
    for one in findings:
        by_fix.setdefault(one.fix or one.message, []).append(one)
    for ours in by_fix.values():
        names = ", ".join(one.id for one in ours)
        show = f" (to find out: {ours[0].fix})" if ours[0].fix else ""
        yield f"  {WORDS['unknown']:{WIDTH}}  {names}: {ours[0].message}{show}"


def _next(findings: Sequence[Finding]) -> Iterator[str]:
    """The fix of the first cause, else the command that would answer most unknown checks."""
    first = next((one for one in findings if one.severity == "cause" and one.fix), None)
    if first is not None and first.fix is not None:
        label = "next" if first.fix.startswith("specops ") else "to do"
        yield f"{label}: {first.fix}"
        return
    shown = [one.fix for one in findings if one.severity == "unknown" and one.fix]
    if shown:
        yield f"next: {max(shown, key=shown.count)}"
