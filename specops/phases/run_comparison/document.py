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
        summary=tuple(sentence(f"{one.what}: {one.why}") for one in data.unknown),
        tiles=tuple(_tiles(result)),
        steps=(),
        sections=tuple(_sections(data)),
        foot=(
            "The verdict rests on speed-ups: the load of a machine cancels in them, and in latencies of two"
            " runs it does not. A change is sure if its interval excludes no change.",
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
    if data.latencies:
        columns = ("latency, load", "arm", "change", "A", "B", "B over A")
        table_of_latencies = Table("", columns, tuple(_row(one) for one in data.latencies))
        yield Section("Latencies", (LATENCIES,), (), (table_of_latencies,))
    if data.acceptances:
        columns = ("acceptance, load", "arm", "change", "A", "B", "B less A")
        table_of_acceptance = Table("", columns, tuple(_row(one) for one in data.acceptances))
        yield Section("Acceptance", (ACCEPTANCE,), (), (table_of_acceptance,))
    if data.unmatched:
        rows_alone = tuple((one.phase, f"only in {one.run}") for one in data.unmatched)
        yield Section("Phases of one run", (), (), (Table("", ("phase", "result"), rows_alone),))
    if data.unknown:
        unknown = tuple((one.what, one.why) for one in data.unknown)
        yield Section("Not compared", (), (), (Table("", ("what", "why"), unknown, prose=(1,)),))
    settings = tuple((one.name, one.a or NONE, one.b or NONE) for one in data.settings)
    table_of_settings = Table("", ("setting", "A", "B"), settings, prose=(1, 2))
    title = "Settings that differ" if settings else "No setting differs"
    yield Section(title, (), (), (table_of_settings,) if settings else ())


LATENCIES = (
    "All classes together. A sure change is a difference between the two measurements; the machine may have"
    " caused it. Intervals hold together, and are left out where the requests are too few."
)
ACCEPTANCE = "Accepted over drafted tokens, by the server's counters. Intervals hold together."
MOVED: dict[str, State | None] = {"higher": None, "lower": None, "no sure change": None, "unknown": "open"}


def _row(one: Latency) -> tuple[str | Cell, ...]:
    a, b, change = _values(one)
    return f"{one.figure}, {one.load}", one.arm, Cell(one.outcome, MOVED[one.outcome]), a, b, change


def _values(one: Latency) -> tuple[str, str, str]:
    """A, B and the change, with their intervals."""
    if one.figure == "acceptance":
        change = one.change
        shown = NONE if change is None else f"{change.estimate:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
        return _with(one.a, one.a_interval, _share), _with(one.b, one.b_interval, _share), shown
    return (
        _with(one.a, one.a_interval, milliseconds),
        _with(one.b, one.b_interval, milliseconds),
        times(one.change),
    )


def _share(value: float) -> str:
    return f"{value:.2f}"


def _with(value: float | None, interval: Interval | None, shown: Callable[[float], str]) -> str:
    if value is None or interval is None:
        return NONE if value is None else shown(value)
    low, high = (shown(end).removesuffix(" ms") for end in (interval.low, interval.high))
    return f"{shown(value)} [{low}, {high}]"
