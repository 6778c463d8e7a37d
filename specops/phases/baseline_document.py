"""A baseline as a document: the terminal, the page of a run and a notebook show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

from specops.load.arrivals import Level
from specops.load.record import Acceptance, Latencies, LevelFigures, Row
from specops.phases.latency_section import latency_section, replay_section
from specops.phases.measurement import BaselineData, checked
from specops.render.figures import NONE, decimals, milliseconds
from specops.render.report.document import Cell, Document, Section, Table
from specops.results import Result

FILE = "baseline.json"
ARM = "standard"
"""The name of the pool that a baseline measures."""
_SHORTAGE = re.compile(r"^(p\d+) needs (\d+) samples, there are \d+$")
_QUANTILES = (*product(("ttft_ms", "tpot_ms", "e2e_ms"), ("p50", "p95")), ("e2e_ms", "p99"))


def document(result: Result, path: Path) -> Document:
    """The document of a baseline, which `path` holds. Raises FileError for a damaged one."""
    return Document.of_result(result, (result.settings.get("model"), path), sections(result))


def sections(result: Result) -> Iterator[Section]:
    data = checked(BaselineData, result.data, f"{FILE} is damaged: data")
    rows: dict[tuple[str, Level], list[Row]] = {}
    for cell in data.cells:
        rows.setdefault((ARM, cell.level), []).extend(row for row in cell.rows if row.error is None)
    if not rows:
        return
    latencies = [f"{name[:-3].upper()} {quantile}" for name, quantile in _QUANTILES]
    classes = tuple(
        (
            f"{_load(figures)}, {name}",
            str(figures.requests),
            str(figures.failed),
            *(milliseconds(getattr(getattr(figures, key), quantile)) for key, quantile in _QUANTILES),
        )
        for name, levels in data.by_class.items()
        for figures in levels
        if len(data.by_class) > 1
    )
    loads = Table(
        "Throughput and failures",
        ("load", "tokens", "requests", "failed"),
        tuple(map(_requests, data.by_concurrency)),
    )
    by_class = Table("By class", ("load, class", "requests", "failed", *latencies), classes)
    latency = latency_section(rows, [ARM], [loads, *([by_class] if classes else [])], FILE)
    yield Section(
        latency.title,
        tuple(f"{NONE}: {reason}" for reason in _reasons(result, data)),
        latency.charts,
        latency.tables,
        sources=latency.sources,
        guide=latency.guide,
    )
    yield Section("Acceptance", tuple(_acceptance(data)), sources=(FILE,))
    if data.replay is not None:
        marked = [cell.client_bound for cell in data.cells if cell.client_bound]
        yield replay_section(data.replay, marked, FILE)


def _load(figures: Latencies) -> str:
    return str(Level(figures.concurrency, figures.rate, replay=figures.replay))


def _requests(figures: LevelFigures) -> tuple[str | Cell, ...]:
    rate = figures.over_repeats.get("tokens_per_sec")
    return (
        _load(figures),
        f"{rate.estimate:.1f} tok/s" if rate else NONE,
        str(figures.requests),
        Cell(str(figures.failed), "bad" if figures.failed else None),
    )


def _acceptance(data: BaselineData) -> Iterator[str]:
    """Acceptance of the whole run, and of each load where there are several; or why there is none."""
    if data.acceptance is None:
        surely_none = bool(data.cells) and all(cell.verified == 0 for cell in data.cells)
        state = "none, this server does not speculate" if surely_none else "unknown"
        yield f"acceptance: {state} ({data.acceptance_missing})"
        return
    estimated = " (by the server's gauges; it does not count drafted tokens)"
    yield f"{_accepted(data.acceptance)}{estimated if data.acceptance.estimated else ''}"
    levels = [(_load(figures), figures.acceptance) for figures in data.by_concurrency if figures.acceptance]
    for load, acceptance in levels if len(levels) > 1 else []:
        yield f"{load}: {_accepted(acceptance)}"


def _accepted(acceptance: Acceptance) -> str:
    rate, length = (decimals(value, 2) for value in (acceptance.rate, acceptance.length))
    return f"accepted {rate} of drafted tokens, {length} tokens a step"


def _reasons(result: Result, data: BaselineData) -> list[str]:
    """Return why figures are missing: each reason once, and once for all rows with too few requests."""
    levels = [*data.by_concurrency, *chain(*data.by_class.values())]
    missing = [
        (getattr(figures, key).missing, quantile) for figures in levels for key, quantile in _QUANTILES
    ]
    reasons = [*result.summary.get("reasons", {}).values()]
    reasons += [by_quantile[quantile] for by_quantile, quantile in missing if quantile in by_quantile]
    return list(
        dict.fromkeys(
            _SHORTAGE.sub(r"\1 is not shown for rows with fewer than \2 requests", reason)
            for reason in reasons
        )
    )
