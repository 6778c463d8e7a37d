"""The checklist as a document. All of it is in checklist.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from specops.phases.checklist.evidence import ChecklistData, Item, Status, todo
from specops.phases.measurement import checked
from specops.render.figures import age, count
from specops.render.report.document import Cell, Document, Section, State, Step, Table
from specops.results import Result

FILE = "checklist.json"
ITEM_STATES: Mapping[Status, State] = {"passed": "good", "attested": "good", "failed": "bad", "open": "open"}
DIGITS = 12
"""Number of digits of a hash that is shown."""
UNSIGNED = (
    "A result's hash has no key: it shows edits in passing, not a forgery by who may write the file."
    " For that, use `checklist sign` and --signers."
)


def document(result: Result, path: Path) -> Document:
    """The document of a checklist, which `path` holds."""
    data = checked(ChecklistData, result.data, f"{path} is damaged: data")
    counts = ", ".join(f"{number} {status}" for status, number in result.summary.items() if number)
    details = (result.settings.get("rollout"), path.parent, counts)
    summary = () if result.settings.get("signers") else (UNSIGNED,)
    return Document.of_result(result, details, sections(data), steps(data), summary)


def sections(data: ChecklistData) -> Iterator[Section]:
    yield Section(
        "Go-live checklist",
        tables=tuple(_tables(data.items)),
        sources=(FILE,),
        guide="docs/go-live.md",
    )


def steps(data: ChecklistData) -> Iterator[Step]:
    for entry in todo(data.items):
        changes = "; ".join(f"{change} ({name})" for change, name in entry.changes)
        yield Step(changes, ", ".join(entry.items), entry.command)


def _tables(items: Sequence[Item]) -> Iterator[Table]:
    """What is left to do is shown; the rest is folded. A figure stands beside its threshold."""
    gated = any(item.gate for item in items)
    columns = ("item", "state", *(("measured",) if gated else ()), "found", "evidence")
    prose = (len(columns) - 2, len(columns) - 1)
    for statuses in (("failed", "open"), ("passed", "attested")):
        rows = tuple(
            _row(item, gated=gated) for status in statuses for item in items if item.status == status
        )
        counts = {status: sum(item.status == status for item in items) for status in statuses}
        folded = ""
        if "passed" in statuses:
            folded = count(counts["passed"], "item") + " passed"
            folded += f", {counts['attested']} attested" if counts["attested"] else ""
        if rows:
            yield Table("", columns, rows, prose=prose, folded=folded)


def _row(item: Item, *, gated: bool) -> tuple[str | Cell, ...]:
    gate = Cell(item.gate.measured, about=f"threshold: {item.gate.threshold}") if item.gate else ""
    return (
        Cell(item.name, about=item.asks),
        Cell(item.status, ITEM_STATES[item.status]),
        *((gate,) if gated else ()),
        item.found,
        _evidence(item),
    )


def _evidence(item: Item) -> str | Cell:
    """Each file with the beginning of its hash, a live probe by who answered, and the age of the oldest. A
    single file is linked."""
    text = ", ".join(
        f"{entry.source} {entry.sha256[:DIGITS]}" if entry.sha256 else f"{entry.source} (live)"
        for entry in item.evidence
    )
    if not text:
        return ""
    when = age(max(entry.age_s for entry in item.evidence))
    text += "" if when == "now" else f", {when} old"
    files = {entry.source for entry in item.evidence if entry.sha256}
    linked = len(files) == len({entry.source for entry in item.evidence}) == 1
    return Cell(text, link=files.pop()) if linked else text
