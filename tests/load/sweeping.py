"""Sweeps of stubs, as the tests of `sweep` make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stub import Stub

from specops.config import Rollout
from specops.phases.sweep.measure import Local
from specops.phases.sweep.plan import Measurements, SweptCell, measurements_of
from specops.phases.sweep.spec import SweepSpec, spec_of
from specops.phases.sweep.sweep import sweep
from specops.progress import SilentProgress
from specops.results import Result
from specops.serving.endpoint import EndpointPool


def rollout(prompts: Path, **sections: Any) -> Rollout:
    """Of endpoints, which the tests attach by their K; one request at a time, nothing warmed up."""
    endpoint = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "stub"}
    fields = {
        "rollout": "stubs",
        "prompts": str(prompts),
        "pools": {"standard": endpoint, "speculative": endpoint},
        "measure": {"concurrency": [1], "repeats": 1, "warmup": 0} | sections.pop("measure", {}),
        "ab": {"requests": 16},  # as few as may be: a confirmation has all prompts once
    }
    return Rollout.model_validate(fields | sections)


def spec(stubs: Sequence[Stub], prompts: Path, ks: Sequence[int] = (0, 3, 5), **sections: Any) -> SweepSpec:
    pools = {
        k: EndpointPool(engine="endpoint", base_url=stub.base_url, model="stub")
        for k, stub in zip(ks, stubs, strict=False)
    }
    found = spec_of(rollout(prompts, **sections), prompts.parent, pools)
    # A stub that refuses is not waited for.
    return replace(found, requests=found.requests.model_copy(update={"retries": 0, "timeout_s": 5.0}))


def run(
    what: SweepSpec,
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    shown = SilentProgress()
    logs = Path(what.prompts.path).parent / "logs"
    here = Local(what.requests, what.prompts.prompts, logs, shown)
    return sweep(what, here, shown, previous=previous, on_partial=on_partial)


def found(result: Result) -> Measurements:
    return measurements_of(result, "it")


def cells(result: Result) -> list[SweptCell]:
    return found(result).cells


def order(result: Result) -> list[tuple[int, str, int]]:
    """Rung, setting and turn of every start, as they were measured."""
    seen = sorted(cells(result), key=lambda cell: cell.began)
    return list(dict.fromkeys((cell.rung, cell.setting, cell.turn) for cell in seen))
