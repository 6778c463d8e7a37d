"""`specops baseline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specops.cli.call import (
    Answer,
    ArrivalOptions,
    Call,
    LoadOptions,
    ResultOption,
    names,
    shared_options,
)
from specops.quantities import MILLISECONDS, SECONDS

DEFAULT_OUT = Path("baseline.json")


@shared_options(out=ResultOption, default_out=DEFAULT_OUT)
def baseline(
    call: Call,
    base_url: Annotated[str, typer.Option(help="OpenAI base URL, such as http://127.0.0.1:8000/v1.")],
    model: Annotated[str | None, typer.Option(help="Model name; by default the only one served.")] = None,
    classes: Annotated[
        str, typer.Option(help="Traffic classes to measure, comma-separated; default: all.")
    ] = "",
    repeats: Annotated[int, typer.Option(help="Number of measurements of each level.")] = 2,
    warmup: Annotated[
        int, typer.Option(help="Requests before the first cell of each level; failures count.")
    ] = 4,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of order, arrivals and sampling.")] = 0,
    stall: Annotated[
        float, SECONDS, typer.Option(help="Timeout between two chunks, in seconds or as 1m.")
    ] = 30.0,
    retries: Annotated[int, typer.Option(help="Retries after 429, 503 or a refused connection.")] = 2,
    slo_ttft_ms: Annotated[
        float | None, MILLISECONDS, typer.Option(help="TTFT objective for goodput, in ms.")
    ] = None,
    slo_tpot_ms: Annotated[
        float | None, MILLISECONDS, typer.Option(help="TPOT objective for goodput, in ms.")
    ] = None,
    slo_e2e_ms: Annotated[
        float | None, MILLISECONDS, typer.Option(help="E2E objective for goodput, in ms.")
    ] = None,
    max_error_share: Annotated[
        float, typer.Option(help="Share of failed requests, 0 to 1, above which the verdict is no.")
    ] = 0.05,
    abort_error_share: Annotated[
        float, typer.Option(help="Share of failed requests, 0 to 1, above which to abort.")
    ] = 0.5,
    abort_e2e_ms: Annotated[
        float | None,
        MILLISECONDS,
        typer.Option(help="Abort if the median end-to-end latency exceeds this many ms."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again; stored measurements are not reused.")
    ] = False,
    *,
    load: LoadOptions,
    arriving: ArrivalOptions,
) -> Answer:
    """Measures TTFT, TPOT, E2E and throughput by level. Writes baseline.json, and resumes an earlier one.

    Exit 0 where it is measured, 1 where too many requests failed or it was aborted, 4 where it is undecided.
    """
    assert call.out is not None
    from specops.load.settings import BaselineSettings
    from specops.phases.baseline import measure_into
    from specops.phases.baseline_document import document

    fields: dict[str, Any] = {
        "base_url": base_url,
        "model": model or "",
        "classes": names(classes),
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
    settings = call.settings(BaselineSettings, load.settings() | arriving.settings() | fields)
    with call.progress() as progress:
        result = measure_into(call.out, settings, progress, fresh=fresh)
    return Answer(result, document(result, call.out))
