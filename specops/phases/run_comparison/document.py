"""The page of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Iterator

from specops.phases.run_comparison.comparison import Comparison, read_comparison
from specops.phases.run_page.conclusion import STATES
from specops.render.figures import NONE, aligned, sentence, times
from specops.render.report.document import Cell, Document, Ratio, Ratios, Section, State, Table, Tile
from specops.results import Result

VERDICTS = {"yes": "Nothing surely worse", "no": "Surely worse", "undecided": "Not comparable"}
OUTCOMES: dict[str, State] = {"better": "good", "worse": "bad", "no sure change": "open"}


def document(result: Result) -> Document:
    data = read_comparison(result)
    state, _ = STATES[result.verdict]
    return Document(
        title=f"{data.a} and {data.b}",
        subtitle=f"A: {data.a} · B: {data.b}",
        status=state,
        verdict=VERDICTS[result.verdict],
        headline=sentence(result.reason),
        summary=tuple(sentence(f"{one.what}: {one.why}") for one in data.unknown),
        tiles=tuple(_tiles(result)),
        steps=(),
        sections=tuple(_sections(data)),
        foot=(
            "Speed-ups only are compared: the load of a machine cancels in them, and in latencies of two runs"
            " it does not. A change is sure if its interval excludes 1.",
        ),
    )


def _tiles(result: Result) -> Iterator[Tile]:
    found = result.summary
    yield Tile("Surely worse", str(found["worse"]), "results", "bad" if found["worse"] else None)
    yield Tile("Surely better", str(found["better"]), "results", "good" if found["better"] else None)
    yield Tile("Compared", str(found["compared"]), "speed-ups by class and load")
    yield Tile("Settings", str(found["settings_changed"]), "differ")


def _sections(data: Comparison) -> Iterator[Section]:
    if data.changes or data.gates:
        rows = tuple(
            Ratio(one.traffic_class, f"{one.figure}, {one.load}", OUTCOMES[one.outcome], one.change.estimate,
                  one.change.low, one.change.high)
            for one in sorted(data.changes, key=lambda one: one.figure)
        )  # fmt: skip
        said = "; ".join(f"{row.group}, {row.label}: {row.estimate:.2f}×" for row in rows if row.estimate)
        chart = Ratios(
            "Speed-up of B over that of A", said, "with intervals, log scale", rows, "less", "more"
        )
        table = tuple(
            (f"{one.traffic_class}, {one.load}", one.figure, Cell(one.outcome, OUTCOMES[one.outcome]),
             times(one.a), times(one.b), times(one.change))
            for one in data.changes
        )  # fmt: skip
        gates = tuple(
            (one.phase, "verdict", Cell(one.outcome, OUTCOMES[one.outcome]), one.a, one.b, NONE)
            for one in data.gates
        )
        columns = ("what", "figure", "change", "A", "B", "B over A")
        yield Section("Results", (), (chart,) if rows else (), (Table("", columns, table + gates),))
    if data.unknown:
        unknown = tuple((one.what, one.why) for one in data.unknown)
        yield Section("Not compared", (), (), (Table("", ("what", "why"), unknown, prose=(1,)),))
    settings = tuple((one.name, one.a or NONE, one.b or NONE) for one in data.settings)
    if settings:
        table_of_settings = Table("", ("setting", "A", "B"), settings, prose=(1, 2))
        yield Section("Settings that differ", (), (), (table_of_settings,))


def lines(result: Result) -> list[str]:
    """The terminal's page."""
    data = read_comparison(result)
    changed = [[f"  {one.name}", one.a or NONE, "→", one.b or NONE] for one in data.settings]
    found = [
        [f"  {one.outcome}", f"{one.traffic_class} at {one.load}", one.figure, times(one.a), "→",
         times(one.b), f"change {times(one.change)}"]
        for one in data.changes
    ]  # fmt: skip
    parts = [
        [f"compare · A {data.a} · B {data.b}"],
        ["settings that differ:", *aligned(changed)] if changed else ["no setting differs"],
        ["speed-ups over the standard:", *aligned(found)] if found else [],
        [f"  {one.outcome}  {one.phase}  {one.a} → {one.b}" for one in data.gates],
        ["not compared:", *(f"  {one.what}: {one.why}" for one in data.unknown)] if data.unknown else [],
        [sentence(result.reason)],
    ]
    return [line for part in parts if part for line in part]
