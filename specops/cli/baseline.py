"""`specops baseline`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.call import (
    Answer,
    Call,
    LoadOptions,
    ResultOption,
    names,
    shared_options,
)
from specops.cli.output import Table, decimals

if TYPE_CHECKING:
    from specops.results import Result

DEFAULT_OUT = Path("baseline.json")
_SHORTAGE = re.compile(r"^(p\d+) needs (\d+) samples, there are \d+$")
_SHOWN = (*product(("ttft_ms", "tpot_ms", "e2e_ms"), ("p50", "p95")), ("e2e_ms", "p99"))


@shared_options(out=ResultOption, default_out=DEFAULT_OUT)
def baseline(
    call: Call,
    base_url: Annotated[str, typer.Option(help="OpenAI base URL, such as http://127.0.0.1:8000/v1.")],
    model: Annotated[str | None, typer.Option(help="Model name; by default the only one served.")] = None,
    classes: Annotated[
        str, typer.Option(help="Traffic classes to measure, comma-separated; default: all.")
    ] = "",
    arrivals: Annotated[str, typer.Option(help="Arrival process: closed, poisson or gamma.")] = "closed",
    rate: Annotated[float | None, typer.Option(help="Requests per second of an open loop.")] = None,
    burstiness: Annotated[float, typer.Option(help="Shape of gamma arrivals; below 1 is burstier.")] = 1.0,
    repeats: Annotated[int, typer.Option(help="Number of measurements of each level.")] = 2,
    warmup: Annotated[
        int, typer.Option(help="Requests before the first cell of each level; failures count.")
    ] = 4,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of order, arrivals and sampling.")] = 0,
    stall: Annotated[float, typer.Option(help="Timeout between two chunks, in seconds.")] = 30.0,
    retries: Annotated[int, typer.Option(help="Retries after 429, 503 or a refused connection.")] = 2,
    slo_ttft_ms: Annotated[float | None, typer.Option(help="TTFT objective for goodput, in ms.")] = None,
    slo_tpot_ms: Annotated[float | None, typer.Option(help="TPOT objective for goodput, in ms.")] = None,
    slo_e2e_ms: Annotated[float | None, typer.Option(help="E2E objective for goodput, in ms.")] = None,
    max_error_share: Annotated[
        float, typer.Option(help="Share of failed requests, 0 to 1, above which the verdict is no.")
    ] = 0.05,
    abort_error_share: Annotated[
        float, typer.Option(help="Share of failed requests, 0 to 1, above which to abort.")
    ] = 0.5,
    abort_e2e_ms: Annotated[
        float | None, typer.Option(help="Abort if the median end-to-end latency exceeds this many ms.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again; stored measurements are not reused.")
    ] = False,
    *,
    load: LoadOptions,
) -> Answer:
    """Measures TTFT, TPOT, E2E and throughput by level. Writes baseline.json, and resumes an earlier one.

    Exit 0 where it is measured, 1 where too many requests failed or it was aborted, 4 where it is undecided.
    """
    assert call.out is not None
    from specops.load.settings import BaselineSettings
    from specops.phases.baseline import measure_into

    fields: dict[str, Any] = {
        "base_url": base_url,
        "model": model or "",
        "classes": names(classes),
        "arrivals": arrivals,
        "rate": rate,
        "burstiness": burstiness,
        "repeats": repeats,
        "warmup": warmup,
        "temperature": temperature,
        "seed": seed,
        "stall_s": stall,
        "retries": retries,
        "slo": {"ttft_ms": slo_ttft_ms, "tpot_ms": slo_tpot_ms, "e2e_ms": slo_e2e_ms},
        "max_error_share": max_error_share,
        "abort_error_share": abort_error_share,
        "abort_e2e_ms": abort_e2e_ms,
    }
    settings = call.settings(BaselineSettings, load.settings() | fields)
    with call.progress() as shown:
        result = measure_into(call.out, settings, shown, fresh=fresh)
    return Answer(result, _page(result, call.out))


def _page(result: Result, out: Path) -> Iterator[str | Table]:
    latencies = [f"{name[:-3].upper()} {q}" if q == "p50" else q for name, q in _SHOWN]
    columns = ["load", "requests", "failed", *latencies, "tok/s"]
    rows = [_row(_load(level), level) for level in result.data["by_concurrency"]]
    for name, levels in result.data["by_class"].items():
        if len(result.data["by_class"]) > 1:
            rows += [_row(f"{_load(level)}, {name}", level) for level in levels]
    yield Table(columns, rows, title=f"{result.settings['model']} (milliseconds)")
    for reason in _reasons(result):
        yield f"–: {reason}"
    yield from _accepted(result)
    yield f"{result.verdict}: {result.reason}"
    yield f"result: {out}"


def _accepted(result: Result) -> Iterator[str]:
    """Acceptance of the whole run, and of each load where there are several; or why there is none."""
    whole = result.data["acceptance"]
    if not whole:
        cells, why = result.data["cells"], result.data["acceptance_missing"]
        surely_none = bool(cells) and all(cell["verified"] == 0 for cell in cells)
        state = "none, this server does not speculate" if surely_none else "unknown"
        yield f"acceptance: {state} ({why})"
        return
    rate, length = (decimals(whole[name], 2) for name in ("rate", "length"))
    origin = " (by the server's gauges; it does not count drafted tokens)" if whole.get("estimated") else ""
    yield f"accepted {rate} of drafted tokens, {length} tokens a step{origin}"
    by_load = [level for level in result.data["by_concurrency"] if level.get("acceptance")]
    for level in by_load if len(by_load) > 1 else []:
        rate, length = (decimals(level["acceptance"][name], 2) for name in ("rate", "length"))
        yield f"  {_load(level)}: accepted {rate}, {length} tokens a step"


def _reasons(result: Result) -> list[str]:
    """Return why figures of the table are missing: each reason once, and once for all rows with too few
    requests."""
    levels = [*result.data["by_concurrency"], *chain(*result.data["by_class"].values())]
    missing = [(level[name]["missing"], quantile) for level in levels for name, quantile in _SHOWN]
    shown = [of[quantile] for of, quantile in missing if quantile in of]
    found = [*result.summary.get("reasons", {}).values(), *shown]
    return list(
        dict.fromkeys(
            _SHORTAGE.sub(r"\1 is not shown for rows with fewer than \2 requests", reason) for reason in found
        )
    )


def _load(level: dict[str, Any]) -> str:
    from specops.load.arrivals import Level

    return str(Level(concurrency=level["concurrency"], rate=level["rate"]))


def _row(label: str, level: dict[str, Any]) -> list[str]:
    rate = (level.get("over_repeats") or {}).get("tokens_per_sec")
    latencies = [level[name][q] for name, q in _SHOWN]
    return [
        label,
        str(level["requests"]),
        str(level["failed"]),
        *(decimals(value, 1) for value in latencies),
        decimals(rate["estimate"] if rate else None, 1),
    ]
