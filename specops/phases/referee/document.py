"""The page of the referee's result, and its section on the page of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from specops.phases.measurement import checked
from specops.phases.referee.records import ADAPTIVE, OFF, Findings, PhaseFinding, Word
from specops.phases.referee.sentences import adaptation_words, name_of, swing_words
from specops.render.figures import NONE, capital, count, sentence, times
from specops.render.report.document import Cell, Document, Section, State, Table
from specops.results import Result
from specops.stats import Interval

GUIDE = "docs/referee.md"
TITLE = "Adaptive and fixed settings"

STATES: Mapping[Word, State] = {
    "pays": "good",
    "even": "good",
    "loses": "bad",
    "undecided": "open",
    "unknown": "open",
}


def document(result: Result, path: Path | None = None) -> Document:
    """The page. Raises FileError for a damaged result."""
    return Document.of_result(result, (path,), sections(result))


def sections(result: Result) -> Iterator[Section]:
    """The section of a finished result; nothing of a partial one."""
    if result.verdict == "partial":
        return
    findings = checked(Findings, result.data, "the result is damaged: data")
    left_out = set[str].intersection(*({*phase.left_out} for phase in findings.phases))
    servers = [name for name in result.settings["arms"] if name not in (OFF, ADAPTIVE, *left_out)]
    margin = result.settings["margin"]
    text = [f"The adaptive pool against {', '.join(('off', *servers))}, by phases of the load programme."]
    text += map(sentence, findings.collapses)
    for phase in findings.phases:
        text += [f"{capital(name_of(phase))}: {swing_words(swing)}." for swing in phase.swings]
    columns = ("phase", "verdict", "against off", "against static", "best static", "regret", "adapts", "why")
    rows = [_row(phase) for phase in findings.phases]
    if findings.off is not None:
        rows.append(
            (
                "whole programme",
                Cell(findings.verdict, STATES[findings.verdict]),
                times(findings.off),
                times(findings.static),
                findings.best or NONE,
                NONE,
                "",
                "",
            )
        )
    passes = min((phase.passes for phase in findings.phases), default=0)
    note = (
        f"Times of the fixed setting over those of the adaptive pool: above 1, it is faster. All intervals "
        f"hold together. Regret is the time beyond the best fixed setting, off among them; {margin:.0%} is "
        f"allowed. {count(passes, 'pass', 'passes')} of the programme on each server."
    )
    table = Table("", columns, tuple(rows), note=note, prose=(7,))
    yield Section(
        "Adaptive and fixed settings", tuple(text), tables=(table,), sources=("referee.json",), guide=GUIDE
    )


def _row(phase: PhaseFinding) -> tuple[str | Cell, ...]:
    notes = [phase.why, *(f"{name} left out: {why}" for name, why in phase.left_out.items())]
    if phase.swings_unknown:
        notes.append(f"swings unknown: {phase.swings_unknown}")
    return (
        name_of(phase),
        Cell(phase.verdict, STATES[phase.verdict]),
        times(phase.off),
        times(phase.static),
        phase.best or NONE,
        _percent(phase.regret),
        adaptation_words(phase.adaptation),
        " ".join(sentence(note) for note in dict.fromkeys(filter(None, notes))),
    )


def _percent(share: Interval | None) -> str:
    if share is None:
        return NONE
    estimate, low, high = (f"{round(100 * end):+d}%" for end in (share.estimate, share.low, share.high))
    return f"{estimate} [{low}, {high}]"
