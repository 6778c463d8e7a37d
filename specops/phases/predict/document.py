"""The page of a prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specops.phases.predict.records import (
    LogFacts,
    MeasuredCosts,
    NotPredicted,
    PredictedAcceptance,
    PredictedCapacity,
    PredictedSetting,
    PredictedSpeedup,
)
from specops.render.figures import NONE, decimals, times
from specops.render.report.document import Cell, Document, Section, Step, Table
from specops.results import Result

GUIDE = "docs/predict.md"
POSITIONS = 4
"""Positions whose acceptance is a column; all are in the result."""


def document(result: Result, path: Path | None = None) -> Document:
    data = result.data
    facts = LogFacts.model_validate(data["log"]) if "log" in data else None
    settings = [PredictedSetting.model_validate(stored) for stored in data.get("settings", [])]
    left = [NotPredicted.model_validate(stored) for stored in data.get("not_predicted", [])]
    return Document.of_result(
        result,
        (facts.path if facts else result.settings["log"], path),
        _sections(data, facts, settings, left),
        [Step(f"measure {entry.setting}", entry.why, entry.command) for entry in _by_command(left)],
        list(_cautions(facts, settings, data)) if facts else (),
    )


def _by_command(left: Sequence[NotPredicted]) -> list[NotPredicted]:
    """The first of each command."""
    return list({entry.command: entry for entry in reversed(left)}.values())[::-1]


def _cautions(
    facts: LogFacts, settings: Sequence[PredictedSetting], data: dict[str, Any]
) -> Iterator[str | Cell]:
    if not settings:
        return
    if facts.sampled or facts.unknown_temperature:
        yield Cell(
            f"{facts.sampled} of {facts.answers} answers are sampled and {facts.unknown_temperature} have no "
            "logged temperature: what was accepted there is one draw, and other draws differ.",
            "open",
        )
    if facts.verified < facts.answers:
        yield Cell(
            f"The tokens of {facts.answers - facts.verified} answers or their prompts are not verified: the "
            "log has neither them nor their number.",
            "open",
        )
    if facts.left_out:
        yield Cell(
            f"{sum(facts.left_out.values())} entries are left out: "
            + "; ".join(f"{reason} ({number})" for reason, number in facts.left_out.items())
            + ".",
            "open",
        )
    if data.get("costs_missing"):
        yield Cell(f"No speed-up is predicted: {data['costs_missing']}.", "open")


def _sections(
    data: dict[str, Any],
    facts: LogFacts | None,
    settings: Sequence[PredictedSetting],
    left: Sequence[NotPredicted],
) -> Iterator[Section]:
    if facts is None:
        return
    yield _log(facts)
    if settings:
        yield _acceptance(settings)
    speedups = [PredictedSpeedup.model_validate(stored) for stored in data.get("speedups", [])]
    if speedups:
        costs = MeasuredCosts.model_validate(data["costs"])
        capacity = [PredictedCapacity.model_validate(stored) for stored in data["capacity"]]
        yield _speed(speedups, costs)
        yield _capacity(capacity, data["capacity_missing"])
    if left:
        rows = tuple((entry.setting, entry.why, Cell(entry.command, code=True)) for entry in left)
        table = Table("", ("setting", "why", "measure with"), rows, prose=(1, 2))
        yield Section("Not predicted", tables=(table,), guide=GUIDE)


def _log(facts: LogFacts) -> Section:
    rows = (
        ("answers", f"{facts.answers:,}", f"{facts.conversations:,} conversations"),
        ("tokens", f"{facts.prompt_tokens + facts.answer_tokens:,}", f"{facts.answer_tokens:,} of answers"),
        ("greedy", f"{facts.greedy:,}", "acceptance follows from the text"),
        ("sampled", f"{facts.sampled:,}", "one draw of the acceptance"),
        ("temperature unknown", f"{facts.unknown_temperature:,}", "--temperature says it"),
        ("tokens verified", f"{facts.verified:,}", "the log has them, or their number"),
    )
    return Section("Log", tables=(Table("", ("", "number", "meaning"), rows, prose=(2,)),), guide=GUIDE)


def _acceptance(settings: Sequence[PredictedSetting]) -> Section:
    positions = tuple(f"position {number}" for number in range(1, POSITIONS + 1))
    columns = (
        "setting",
        "nextn",
        "tokens a step",
        "accepted",
        "drafted a step",
        *positions,
        "answers",
        "exact",
    )
    rows = tuple(
        (
            setting.setting,
            str(setting.k),
            _length(setting.overall),
            decimals(setting.overall.rate, 3),
            f"{setting.overall.drafted / setting.overall.steps:.2f}",
            *(decimals(share, 2) for share in _first(setting.overall.per_position)),
            f"{setting.overall.answers:,}",
            "yes" if setting.exact else "no",
        )
        for setting in settings
    )
    tables = [Table("", columns, rows, note=_assumptions(settings))]
    classes = sorted({name for setting in settings for name in setting.by_class})
    if len(classes) > 1:
        by_class = tuple(
            (setting.setting, *(_length(setting.by_class.get(name)) for name in classes))
            for setting in settings
        )
        tables.append(Table("Tokens a step, by class", ("setting", *classes), by_class))
    return Section("Acceptance", tables=tuple(tables), guide=GUIDE)


def _assumptions(settings: Sequence[PredictedSetting]) -> str:
    kinds: dict[str, list[str]] = {}
    for setting in settings:
        if setting.assumes:
            kinds.setdefault(setting.assumes, []).append(setting.setting)
    return " ".join(f"{', '.join(names)}, assumed: {assumed}." for assumed, names in kinds.items())


def _first(shares: Sequence[float]) -> list[float | None]:
    return [shares[index] if index < len(shares) else None for index in range(POSITIONS)]


def _length(acceptance: PredictedAcceptance | None) -> str:
    if acceptance is None:
        return NONE
    interval = acceptance.interval
    ends = f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else ""
    return f"{acceptance.tokens_per_step:.2f}{ends}"


def _speed(speedups: Sequence[PredictedSpeedup], costs: MeasuredCosts) -> Section:
    classes = sorted({name for speedup in speedups for name in speedup.by_class})
    named = classes if len(classes) > 1 else []
    rows = tuple(
        (
            speedup.setting,
            str(speedup.streams),
            times(speedup.e2e, speedup.estimate),
            *(times(None, speedup.by_class.get(name)) for name in named),
            f"{speedup.requests_per_s:.2f}",
            f"{speedup.standard_requests_per_s:.2f}",
        )
        for speedup in speedups
    )
    columns = ("setting", "streams", "end to end", *named, "requests/s", "standard")
    note = (
        f"Costs of steps by {costs.source}, at {costs.context:.0f} tokens of context. Intervals resample the "
        "conversations of the log and take the costs as they are."
    )
    return Section("Speed-up, all streams busy", tables=(Table("", columns, rows, note=note),), guide=GUIDE)


def _capacity(capacity: Sequence[PredictedCapacity], missing: str | None) -> Section:
    if not capacity:
        return Section("Capacity", (f"Capacity is not predicted: {missing}.",), guide=GUIDE)
    rows = tuple(
        (entry.setting, str(entry.most_streams), f"{entry.requests_per_s:.2f}", times(None, entry.ratio))
        for entry in capacity
    )
    note = (
        "Simulated Poisson arrivals of the answers in the log on one server. Above the highest measured "
        "level they wait."
    )
    table = Table("", ("setting", "streams at most", "requests/s", "over the standard"), rows, note=note)
    return Section("Capacity at the objective", tables=(table,), guide=GUIDE)
