"""Baselines of stubs, as the tests of `baseline` make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stub import Stub

from specops.load.settings import BaselineSettings
from specops.phases.baseline import measure
from specops.progress import SilentProgress
from specops.results import Result


def settings(stub: Stub, prompts: Path, **chosen: Any) -> BaselineSettings:
    fields = {"base_url": stub.base_url, "model": "stub", "prompts": prompts, "warmup": 0, "repeats": 1}
    return BaselineSettings(**fields | chosen)


def run(stub: Stub, prompts: Path, previous: Result | None = None, **chosen: Any) -> Result:
    return measure(settings(stub, prompts, **chosen), SilentProgress(), previous)
