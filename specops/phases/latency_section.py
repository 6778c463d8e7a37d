"""The section on latencies and lengths: the same for a comparison and for a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from specops.experiment.records import ordered
from specops.load.arrivals import Level
from specops.load.record import Row, Spread
from specops.load.replay import ReplayFacts
from specops.render.figures import NONE, count, milliseconds, sentence
from specops.render.report.document import Distribution, Samples, Section, Table

ALL = "all classes"
MOST_LOADS = 4
"""Number of loads that have charts of their distributions; the table has all."""
LATENCIES = (("end to end", "e2e_ms"), ("first token", "ttft_ms"), ("per output token", "tpot_ms"))

Rows = Mapping[tuple[str, Level], Sequence[Row]]
"""The answered requests of each arm at each load."""


def latency_section(rows: Rows, arms: Sequence[str], further: Sequence[Table], source: str) -> Section:
    """`further`: tables that follow that of the latencies. `source`: the file that has the rows."""
    levels = ordered(level for arm, level in rows if arm == arms[0])
    step = max(1.0, (len(levels) - 1) / (MOST_LOADS - 1))
    charted = [levels[round(step * place)] for place in range(min(MOST_LOADS, len(levels)))]
    charts = [
        _distribution(f"{latency.capitalize()} at {level}", rows, [(arm, level) for arm in arms], key)
        for level in charted
        for latency, key in LATENCIES[:2]
    ]
    table = tuple(
        (
            f"{latency}, {level}",
            arm,
            *map(milliseconds, (spread.p50, spread.p95, spread.p99, spread.max)),
            str(spread.n),
        )
        for level in levels
        for latency, key in LATENCIES
        for arm in arms
        if (arm, level) in rows
        for spread in (Spread.of(_values(rows[arm, level], key)),)
    )
    columns = ("latency, load", "arm", "p50", "p95", "p99", "slowest", "n")
    note = " ".join(
        (
            "Latencies are those of whole answers. A percentile needs enough requests: – means too few.",
            *_unknown_tpot(rows, arms),
        )
    )
    tables = (Table("", columns, table, note), *further, *_workload(rows, arms))
    charts += _lengths(rows, arms)
    return Section("Latency", (), tuple(charts), tables, sources=(source,), guide="docs/measure.md")


def replay_section(facts: ReplayFacts, marked: Sequence[str], source: str) -> Section:
    """What was replayed, what of it could not be sent, and the windows that decide nothing: `marked` has the
    reason for each."""
    text = [sentence(part) for part in facts.sentences()]
    if marked:
        text.append(sentence(f"windows that cannot give a yes: {len(marked)}, such as: {marked[0]}"))
    return Section("Replay", tuple(text), sources=(source,), guide="docs/traces.md")


def _unknown_tpot(rows: Rows, arms: Iterable[str]) -> Iterator[str]:
    """Yield why an arm has no latency per output token."""
    for arm in arms:
        answered = _of_arm(rows, arm)
        reasons = Counter(row.missing["tpot_ms"] for row in answered if "tpot_ms" in row.missing)
        if reasons and not _values(answered, "tpot_ms"):
            yield f"Per output token, {arm} is not known: {reasons.most_common(1)[0][0]}."


def _lengths(rows: Rows, arms: Iterable[str]) -> list[Distribution]:
    """Return the lengths of prompts and of each arm's answers: a latency means little without them."""
    prompts = Samples("prompts", tuple(_values(_distinct(rows), "prompt_tokens")))
    answers = tuple(Samples(arm, tuple(_values(_of_arm(rows, arm), "tokens"))) for arm in arms)
    return [
        Distribution(
            title,
            "cumulative share. " + "; ".join(f"{part.label}: {_length(part.values)}" for part in samples),
            samples,
            "share up to p99; dots: p50, p95",
            of="tokens",
        )
        for title, samples in (("Prompt length", (prompts,)), ("Answer length", answers))
        if any(len(part.values) > 1 for part in samples)
    ]


def _length(values: Sequence[float]) -> str:
    spread = Spread.of(values)
    return f"p50 {_tokens(spread.p50)} tokens, p95 {_tokens(spread.p95)}, n={spread.n}"


def _workload(rows: Rows, arms: Iterable[str]) -> Iterator[Table]:
    """Yield what was sent and answered, by class."""
    prompts = _distinct(rows)
    texts = [("prompts", "prompt_tokens", prompts)]
    texts += [(f"answers of {arm}", "tokens", _of_arm(rows, arm)) for arm in arms]
    classes = sorted({row.traffic_class for row in prompts})
    lines = []
    for name in [*([ALL] if len(classes) > 1 else []), *classes]:
        for text, key, sent in texts:
            values = _values((row for row in sent if name in (ALL, row.traffic_class)), key)
            spread = Spread.of(values)
            if values:
                lengths = map(_tokens, (spread.p50, spread.p95, spread.max))
                lines.append((f"{text}, {name}", *lengths, str(spread.n)))
    note = "Lengths in tokens, as the servers count them. A percentile needs enough of them: – means too few."
    if lines:
        folded = f"Lengths of prompts and answers: {count(len(lines), 'row')}"
        columns = ("length of", "p50", "p95", "longest", "n")
        yield Table("Workload", columns, tuple(lines), note, folded=folded)


def _tokens(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}"


def _of_arm(rows: Rows, name: str) -> list[Row]:
    return [row for (arm, _), answered in rows.items() if arm == name for row in answered]


def _distinct(rows: Rows) -> list[Row]:
    """A row for each prompt."""
    return list({row.prompt: row for answered in rows.values() for row in answered}.values())


def _distribution(title: str, rows: Rows, places: Iterable[tuple[str, Level]], key: str) -> Distribution:
    samples = tuple(Samples(arm, tuple(_values(rows.get((arm, level), ()), key))) for arm, level in places)
    spreads = [(part.label, Spread.of(part.values)) for part in samples]
    summary = "; ".join(
        f"{label}: p50 {milliseconds(spread.p50)}, p95 {milliseconds(spread.p95)}, n={spread.n}"
        for label, spread in spreads
    )
    return Distribution(
        title,
        f"cumulative share of requests. {summary}",
        samples,
        "share of requests up to p99; dots: p50, p95",
    )


def _values(rows: Iterable[Row], key: str) -> list[float]:
    return [value for row in rows if (value := getattr(row, key)) is not None]
