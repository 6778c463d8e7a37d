"""Rollouts and results for the tests of the router's rules, and decide.lua ready to be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specops import results
from specops.config import Rollout
from specops.phases.route.explain import CHAT, Judge, Request
from specops.phases.route.thresholds import rules
from specops.render.nginx.lua import literal
from specops.results import Result

ENDPOINT = {"engine": "endpoint", "base_url": "http://127.0.0.1:8000/v1", "model": "m"}
NO_FOLDER = Path("no", "such", "run")


def rollout(speculative: dict[str, Any] | None = None, **sections: Any) -> Rollout:
    pools = {"standard": ENDPOINT, "speculative": speculative or ENDPOINT}
    return Rollout.model_validate({"rollout": "r", "pools": pools, **sections})


def judge(**route: Any) -> Judge:
    settings = rollout(route=route)
    return Judge(f"return {literal(rules(settings, NO_FOLDER).table)}", settings.route.trusted)


def asked(_path: str = CHAT, _headers: dict[str, str] | None = None, **fields: Any) -> Request:
    return Request(json.dumps(fields).encode(), path=_path, headers=_headers or {})


def sweep_result(**recommendation: Any) -> Result:
    told = {
        "verdict": "yes",
        "setting": "K=5",
        "method": "draft_model",
        "k": 5,
        "tree": None,
        "draft": None,
        "only_for": [],
        "schedule": None,
        "break_even_acceptance": 0.4,
        "cost": {"draft_ms": None, "target_ms": None},
        "crossover": {"on_max": None, "off_min": None, "per": "replica"},
        "by_class": {},
    }
    told |= recommendation
    return Result(phase="sweep", verdict=told["verdict"], reason="as measured", recommendation=told)


def group(verdict: str) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "reason": "as measured",
        "setting": "K=5",
        "speedup": None,
        "best": None,
        "k": 5 if verdict == "yes" else 0,
    }


def kept(folder: Path, name: str, result: Result) -> Path:
    path = folder / f"{name}.json"
    results.write(path, result)
    return path
