"""The page of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from specops.phases.run_comparison.comparison import Comparison, read_comparison
from specops.phases.run_comparison.latencies import Figure as Latency
from specops.render.figures import NONE, milliseconds, sentence, times
from specops.render.report.document import STATES, Cell, Document, Ratio, Ratios, Section, State, Table, Tile
from specops.results import Result
from specops.stats import Interval

VERDICTS = {"yes": "Nothing surely worse", "no": "Surely worse", "undecided": "Not comparable"}
OUTCOMES: dict[str, State] = {"better": "good", "worse": "bad", "no sure change": "open"}


def document(result: Result) -> Document:
    data = read_comparison(result)
    state, _ = STATES[result.verdict]
    return Document(
        title="compare",
        subtitle=f"A: {data.a} · B: {data.b}",
        status=state,
        verdict=VERDICTS[result.verdict],
        headline=sentence(result.reason),
        summary=tuple(sentence(f"{part.what}: {part.why}") for part in data.unknown),
        tiles=tuple(_tiles(result)),
        steps=(),
        sections=tuple(_sections(data)),
        foot=(
            "The verdict rests on speed-ups: the load of a machine cancels in them, and in latencies of two"
            " runs it does not. A change is sure if its interval excludes no change.",
        ),
    )


def _tiles(result: Result) -> Iterator[Tile]:
    summary = result.summary
    yield Tile("Surely worse", str(summary["worse"]), "results", "bad" if summary["worse"] else None)
    yield Tile("Surely better", str(summary["better"]), "results", "good" if summary["better"] else None)
    yield Tile("Compared", str(summary["compared"]), "speed-ups by class and load")
    yield Tile("Settings", str(summary["settings_changed"]), "differ")


def _sections(data: Comparison) -> Iterator[Section]:
    if data.changes or data.gates:
        rows = tuple(
            Ratio(
                speedup.traffic_class,
                f"{speedup.figure}, {speedup.load}",
                OUTCOMES[speedup.outcome],
                speedup.change.estimate,
                speedup.change.low,
                speedup.change.high,
            )
            for speedup in sorted(data.changes, key=lambda speedup: speedup.figure)
        )
        description = "; ".join(
            f"{row.group}, {row.label}: {row.estimate:.2f}×" for row in rows if row.estimate
        )
        chart = Ratios(
            "Speed-up of B over that of A", description, "with intervals, log scale", rows, "less", "more"
        )
        table = tuple(
            (
                f"{speedup.traffic_class}, {speedup.load}",
                speedup.figure,
                Cell(speedup.outcome, OUTCOMES[speedup.outcome]),
                times(speedup.a),
                times(speedup.b),
                times(speedup.change),
            )
            for speedup in data.changes
        )
        gates = tuple(
            (gate.phase, "verdict", Cell(gate.outcome, OUTCOMES[gate.outcome]), gate.a, gate.b, NONE)
            for gate in data.gates
        )
        columns = ("what", "figure", "change", "A", "B", "B over A")
        yield Section("Results", (), (chart,) if rows else (), (Table("", columns, table + gates),))
    if data.latencies:
        columns = ("latency, load", "arm", "change", "A", "B", "B over A")
        table_of_latencies = Table("", columns, tuple(_row(latency) for latency in data.latencies))
        yield Section("Latencies", (LATENCIES,), (), (table_of_latencies,))
    if data.acceptances:
        columns = ("acceptance, load", "arm", "change", "A", "B", "B less A")
        table_of_acceptance = Table("", columns, tuple(_row(acceptance) for acceptance in data.acceptances))
        yield Section("Acceptance", (ACCEPTANCE,), (), (table_of_acceptance,))
    if data.unmatched:
        rows_alone = tuple((unmatched.phase, f"only in {unmatched.run}") for unmatched in data.unmatched)
        yield Section("Phases of one run", (), (), (Table("", ("phase", "result"), rows_alone),))
    if data.unknown:
        unknown = tuple((part.what, part.why) for part in data.unknown)
        yield Section("Not compared", (), (), (Table("", ("what", "why"), unknown, prose=(1,)),))
    settings = tuple((setting.name, setting.a or NONE, setting.b or NONE) for setting in data.settings)
    table_of_settings = Table("", ("setting", "A", "B"), settings, prose=(1, 2))
    title = "Settings that differ" if settings else "No setting differs"
    yield Section(title, (), (), (table_of_settings,) if settings else ())


LATENCIES = (
    "All classes together. A sure change is a difference between the two measurements; the machine may have"
    " caused it. Intervals hold together, and are left out where the requests are too few."
)
ACCEPTANCE = "Accepted over drafted tokens, by the server's counters. Intervals hold together."
MOVED: dict[str, State | None] = {"higher": None, "lower": None, "no sure change": None, "unknown": "open"}


def _row(row: Latency) -> tuple[str | Cell, ...]:
    a, b, change = _values(row)
    return f"{row.figure}, {row.load}", row.arm, Cell(row.outcome, MOVED[row.outcome]), a, b, change


def _values(row: Latency) -> tuple[str, str, str]:
    """A, B and the change, with their intervals."""
    if row.figure == "acceptance":
        change = row.change
        difference = (
            NONE if change is None else f"{change.estimate:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
        )
        return _with(row.a, row.a_interval, _share), _with(row.b, row.b_interval, _share), difference
    return (
        _with(row.a, row.a_interval, milliseconds),
        _with(row.b, row.b_interval, milliseconds),
        times(row.change),
    )


def _share(value: float) -> str:
    return f"{value:.2f}"


def _with(value: float | None, interval: Interval | None, format_value: Callable[[float], str]) -> str:
    if value is None or interval is None:
        return NONE if value is None else format_value(value)
    low, high = (format_value(end).removesuffix(" ms") for end in (interval.low, interval.high))
    return f"{format_value(value)} [{low}, {high}]"
