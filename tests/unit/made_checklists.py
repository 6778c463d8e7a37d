"""A run folder with all that a checklist asks for, made without measuring anything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from made_monitoring import POOLS

from specops import results
from specops.assets import asset
from specops.checkpoints.source import find
from specops.config import Rollout, load
from specops.experiment.arms import Arm
from specops.phases import canary
from specops.phases import route as routing
from specops.phases.ab.settings import AbSettings
from specops.phases.checklist.checklist import checklist
from specops.phases.checklist.evidence import ChecklistData, Item, attest
from specops.phases.inputs import inputs_of, inputs_of_arms, settings_of
from specops.phases.monitor import render as monitoring
from specops.phases.sweep.spec import spec_of
from specops.phases.verify_draft.pair import ModelFiles
from specops.progress import SilentProgress
from specops.results import Result

EXAMPLES = Path(__file__).parents[2] / "alerts" / "examples"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ATTESTED = (
    "gpu-memory", "routing", "monitoring", "runbook-shared", "guard-running",
)  # fmt: skip
"""Items whose answer needs a router, a Prometheus or a guard; there is none here."""
WRITTEN: dict[str, Any] = {
    "rollout": "made",
    "pools": POOLS,
    "peak": {"requests_per_s": 0.01},
    "addresses": {"standard": ["127.0.0.1:1"], "speculative": ["127.0.0.1:2"]},
}


def write(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "rollout.yaml"
    path.write_text(yaml.safe_dump(WRITTEN | changes))
    return path


class Made:
    """`folder` is the run folder of the rollout file at `path`."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = write(tmp_path)
        self.folder = tmp_path / "run"

    @property
    def rollout(self) -> Rollout:
        return load(self.path)

    def put(self, phase: str, *, verdict: Any = "yes", name: str | None = None, **fields: Any) -> None:
        made = Result(
            created=NOW - timedelta(hours=3), phase=phase, verdict=verdict, reason="made up", **fields
        )
        results.write(self.folder / f"{name or phase}.json", made)

    def change(self, phase: str, **fields: Any) -> None:
        path = self.folder / f"{phase}.json"
        results.write(path, results.read(path).model_copy(update=fields))

    def fill(self) -> None:
        """Everything, so that it may go live."""
        rollout = self.rollout
        pools = rollout.pools
        asked = settings_of(rollout, pools.standard)
        self.put("baseline", inputs=inputs_of(asked, pools.standard), data=example("baseline"))
        self.put(
            "verify-draft",
            name="drafts",
            settings={"target": str(model("target")), "draft": str(model("draft"))},
            inputs={name: ModelFiles(find(str(model(name)))).sha256() for name in ("target", "draft")},
        )
        self.put(
            "sweep",
            inputs=spec_of(rollout, self.path.parent).inputs(),
            settings={"settings": {"k=3": pools.speculative.model_dump(mode="json")}},
            environment=results.environment(),
            data=swept(),
            recommendation=recommended(),
        )
        arms = [Arm("standard", pools.standard), Arm("speculative", pools.speculative)]
        compared = AbSettings(**rollout.ab.model_dump())
        self.put(
            "ab",
            inputs=inputs_of_arms(arms, asked, compared, asked.prompt_set()),
            data=example("ab", e2e=1.6),
        )
        conformance = {"checks": [], "unsupported": [], "requests": {}, "prompts": {}}
        self.put("canary", inputs=canary.inputs(rollout), data=conformance)
        for result in (
            monitoring.render(rollout, self.folder, SilentProgress()),
            routing.render(rollout, self.folder),
        ):
            kept = result.model_copy(update={"created": NOW - timedelta(hours=1)})
            results.write(self.folder / f"{result.phase}.json", kept)
        drilled = {"guard": rollout.guard, "addresses": rollout.addresses}
        self.put(
            "guard-drill",
            settings={name: part.model_dump(mode="json") for name, part in drilled.items()},
        )
        self.put("report", name="reports/2026-11-21")
        for item in ATTESTED:
            attest(rollout, self.folder, item, "Kim", "by hand", NOW - timedelta(days=1))

    def checked(self, now: datetime = NOW) -> tuple[Result, dict[str, Item]]:
        result = checklist(self.rollout, self.path, self.folder, now)
        return result, {item.name: item for item in ChecklistData.model_validate(result.data).items}


def model(name: str) -> Path:
    return asset("playbooks", "embedded", name)


def example(phase: str, e2e: float | None = None) -> dict[str, Any]:
    """The data of a measurement that was once made; `e2e` in place of its speed-ups."""
    data: dict[str, Any] = results.read(EXAMPLES / f"{phase}.json").data
    if e2e is not None:
        challenger = data["challengers"]["speculative"]
        challenger["decision"]["verdict"] = "yes"
        challenger["deploy"] = [
            {"traffic_class": name, "level": level["level"]}
            for name, one in challenger["classes"].items()
            for level in one["levels"]
        ]
        for one in challenger["classes"].values():
            for level in one["levels"]:
                level["decision"] = faster(e2e)
    return data


def faster(e2e: float) -> dict[str, Any]:
    """A decision of yes."""
    shown = {"estimate": e2e, "low": e2e - 0.1, "high": e2e + 0.1, "n": 64, "level": 0.95}
    return {"verdict": "yes", "reason": "made up", "speedup": shown}


def swept(
    setting: str = "k=3",
    resident_gb: float = 0.01,
    gpu_share: float | None = None,
    break_even: float | None = 0.3,
) -> dict[str, Any]:
    step = {
        "setting": setting, "k": 3, "requests": 64, "tokens": 2.0, "drafted": 3.0, "step_ms": 2.0,
        "target_ms": 1.0, "acceptance": 0.6, "break_even_acceptance": break_even, "break_even_alpha": None,
        "missing": None,
    }  # fmt: skip
    cell = {
        "setting": setting, "num_speculative_tokens": 3, "tree": "chain:3", "draft": None, "concurrency": 1,
        "temperature": 0.0, "length": "any length", "requests": 64, "failed": 0, "accept_ratio": 0.6,
        "accept_length": 2.8, "accept_missing": None, "ttft_p50_ms": 1.0, "tpot_p50_ms": 1.0,
        "e2e_p50_ms": 1.0, "tokens_per_sec": 1.0, "e2e_speedup": 1.6, "e2e_interval": None,
        "gpu_memory_gb": None, "gpu_memory_share": gpu_share, "resident_gb": resident_gb,
    }  # fmt: skip
    return {
        "standard": "standard", "confidence": 0.95, "confidence_of_each": 0.99, "looks": 1, "decided_at": 1,
        "recommended": "k=3", "nearest": "k=3", "only_for": [], "cells": [cell], "overall": [],
        "runners_up": [],
        "by_class": {}, "by_length": {}, "by_temperature": {}, "lines": [], "crossover": None,
        "steps": [step],
        "schedule": None, "schedule_missing": None, "standards": [], "start_sd": None,
        "confirmation": None, "starts": 0,
    }  # fmt: skip


def recommended(setting: str = "k=3", break_even: float | None = 0.3) -> dict[str, Any]:
    return {
        "verdict": "yes", "setting": setting, "method": None, "k": 3, "tree": None, "draft": None,
        "only_for": [], "schedule": None, "break_even_acceptance": break_even,
        "cost": {"draft_ms": 1.0, "target_ms": 1.0},
        "crossover": {"on_max": None, "off_min": None, "per": "replica"}, "by_class": {},
    }  # fmt: skip
