"""Comparisons of stubs, as the tests of `ab` make them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stub import Stub

from specops.experiment.arms import Arm
from specops.experiment.records import WindowRecord
from specops.load.settings import BaselineSettings
from specops.phases.ab.earlier import measurements_of
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import NO_ADDRESS_YET
from specops.progress import SilentProgress
from specops.results import Result
from specops.serving.endpoint import EndpointPool

SHORT = AbSettings(looks=1, mixed_prompts=0, requests=40, min_duration_s=0.0)
"""Two cycles or three: enough for what is sent and stored, too little for a verdict."""


def arms(*stubs: Stub) -> list[Arm]:
    """Called a, b and c."""
    pools = [EndpointPool(engine="endpoint", base_url=stub.base_url, model="stub") for stub in stubs]
    return [Arm(name, pool) for name, pool in zip("abc", pools, strict=False)]


def asked(prompts: Path, **chosen: Any) -> BaselineSettings:
    fields = {"base_url": NO_ADDRESS_YET, "model": "", "prompts": prompts, "warmup": 0, "same_prompts": True}
    return BaselineSettings(**fields | chosen)


def run(
    stubs: Sequence[Stub],
    prompts: Path,
    previous: Result | None = None,
    settings: AbSettings | None = None,
    kept: list[Result] | None = None,
    **chosen: Any,
) -> Result:
    """Endpoints are not started, so nothing is logged."""
    return compare(
        arms(*stubs),
        asked(prompts, **chosen),
        settings or SHORT,
        SilentProgress(),
        logs=prompts.parent / "logs",
        previous=previous,
        on_partial=kept.append if kept is not None else lambda _: None,
    )


def windows(result: Result) -> list[WindowRecord]:
    return measurements_of(result, "it").windows


def texts(stub: Stub) -> list[str]:
    return [request["messages"][0]["content"] for request in stub.requests]
