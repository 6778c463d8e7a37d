"""Predictions from a made log with made costs of steps."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from specops.assets import asset
from specops.config import load
from specops.phases.commands import Commands
from specops.phases.predict import predict as predicting
from specops.phases.predict.predict import PredictSettings, predict
from specops.phases.predict.records import MeasuredCosts, StepCosts
from specops.progress import SilentProgress
from specops.results import Result

PAIR = asset("playbooks", "embedded")
OWN = {"engine": "embedded", "target": str(PAIR / "target"), "threads": 1}
ENTRIES: list[dict[str, Any]] = [
    {
        "id": f"c{n}", "class": ("odd", "even")[n % 2], "prompt": f"x{n} = [1, 2, 3]\ny = [1, 2, 3]\n",
        "completion": f"x{n} = [1, 2, 3]\ny = [1, 2, 3]\n", "finish_reason": "length", "temperature": n // 9,
    }
    for n in range(10)
]  # fmt: skip


def log_of(folder: Path, *entries: Any) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def rollout_of(folder: Path, speculation: dict[str, Any], pool: dict[str, Any]) -> Path:
    path = folder / "rollout.json"
    content = {
        "rollout": "mine",
        "prompts": str(PAIR / "prompts.json"),
        "pools": {"standard": pool, "speculative": pool | {"speculation": speculation}},
        "measure": {"endpoint": "completions"},
        "slo": {"e2e_ms": 1000},
        "sweep": {"k": [2, 4]},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def costs_at(streams: int, step_ms: float, largest_k: int = 2) -> StepCosts:
    return StepCosts(
        streams=streams, step_ms=step_ms, draft_ms=0, token_ms=0, first_ms=10, prompt_ms=0, requests=20,
        largest_k=largest_k,
    )  # fmt: skip


def made_costs(context: float | None = 30.0) -> MeasuredCosts:
    """A step takes 10 ms alone, 12 ms of two; n-grams of up to 2 tokens cost as much."""
    levels = [costs_at(1, 10.0), costs_at(2, 12.0)]
    return MeasuredCosts(
        source="a comparison", context=context, by_kind={"standard": levels, "ngram": levels}
    )


def predicted(context: float | None = 30.0) -> Result:
    """Of the embedded engine's copies."""
    with (
        tempfile.TemporaryDirectory() as name,
        mock.patch.object(predicting, "measured_costs", return_value=made_costs(context)),
    ):
        folder = Path(name)
        file, log = rollout_of(folder, {"tree": "ngram:4"}, OWN), log_of(folder, *ENTRIES)
        rollout = load(file)
        settings = PredictSettings(log=log, ks=(2, 4))
        return predict(rollout, settings, None, Commands(rollout, file, folder), folder, SilentProgress())
