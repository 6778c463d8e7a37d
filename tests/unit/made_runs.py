"""Run folders as walks would have left them, with figures that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from made_windows import judgement, windows

from specops import results
from specops.phases.playbook.walk import RECORD, Record
from specops.results import Result, sha256

ARMS = ("standard", "speculative")
POOL = {"engine": "embedded", "base_url": None}
ROLLOUT = """\
rollout: demo
pools:
  standard: {engine: endpoint, base_url: "http://127.0.0.1:1/v1", model: m}
  speculative: {engine: endpoint, base_url: "http://127.0.0.1:2/v1", model: m}
"""


def prompts(sha: str = "mine", path: str = "/data/mine.json") -> dict[str, Any]:
    return {
        "path": path,
        "format": "playbook",
        "sha256": sha256(sha),
        "count": 48,
        "classes": {"edit": 16, "long": 16, "short": 16},
        "ignored_fields": [],
        "repeated": 0,
    }


def compared(
    speed: Callable[[str, str], float] | float = 2.0,
    *,
    prompt_set: dict[str, Any] | None = None,
    model: str = "the-model",
    draft: str = "a-draft",
    version: str = "0.1.0",
    temperature: float = 0.0,
    environment: dict[str, Any] | None = None,
    **measured: Any,
) -> Result:
    """The comparison of `speed`, which the speculative pool is times as fast, as windows(…) of `measured`."""
    prompt_set = prompt_set or prompts()
    made = windows(speed, arms=ARMS, **measured)
    found = judgement(made, ARMS)
    pools = {"standard": POOL, "speculative": POOL | {"speculation": {"draft": draft, "tree": "chain:3"}}}
    arms = {name: {"pool": pool, "model": model, "server": version} for name, pool in pools.items()}
    kept = {
        "prompts": prompt_set,
        "run": "abcd",
        "windows": [window.model_dump(mode="json", by_alias=True) for window in made],
        "margins": [],
        "failed": {},
        "looks": {"done": 4, "planned": 4},
        "duration_s": 120.0,
    }
    levels = sorted({window.level.concurrency for window in made if window.level.concurrency})
    return Result(
        phase="ab",
        inputs={
            "prompts": prompt_set["sha256"],
            "settings": sha256(f"{model} {draft}"),
            "machine": sha256("here"),
        },
        settings={
            "temperature": temperature,
            "max_tokens": 96,
            "concurrency": levels,
            "confidence": 0.95,
            "arms": pools,
        },
        environment={"cores": 2, "processor": "a processor", "arms": arms} | (environment or {}),
        verdict=found.verdict,
        reason=found.reason,
        summary=found.summary,
        data=json.loads(json.dumps(found.data)) | kept,
    )


def run(folder: Path, *made: Result, record: dict[str, Any] | None = None) -> Path:
    """Write `made` and what a walk records into `folder`, beside a rollout file."""
    (folder.parent.parent / "rollout.yaml").write_text(ROLLOUT)
    for one in made:
        name = "drafts" if one.phase == "verify-draft" else one.phase
        results.write(folder / f"{name}.json", one)
    known = {"rollout": "demo", "rollout_file": "../../rollout.yaml"} | (record or {})
    data = Record.model_validate(known).model_dump(mode="json")
    results.write(folder / RECORD, Result(phase="run", verdict="yes", reason="walked", data=data))
    return folder
