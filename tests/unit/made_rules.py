"""Rollouts and results for the tests of the router's rules, and decide.lua ready to be asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from made_windows import judgement, windows

from specops import results
from specops.config import Rollout
from specops.experiment.plan import Window
from specops.phases.route.thresholds import rules
from specops.results import Result
from specops.router import CHAT, Judge, Request, StoredRules

ENDPOINT = {"engine": "endpoint", "base_url": "http://127.0.0.1:8000/v1", "model": "m"}
NO_FOLDER = Path("no", "such", "run")


def rollout(speculative: dict[str, Any] | None = None, **sections: Any) -> Rollout:
    pools = {"standard": ENDPOINT, "speculative": speculative or ENDPOINT}
    return Rollout.model_validate({"rollout": "r", "pools": pools, **sections})


def judge(holdout: float = 0.05, **route: Any) -> Judge:
    settings = rollout(route=route, effect={"holdout": holdout})
    stored = StoredRules(rules(settings, NO_FOLDER).table, settings.route.trusted)
    return settings.route.router.judge(stored)


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


def ab_result(
    speed: Callable[[str], float],
    challenger: str = "speculative",
    streams: tuple[int, ...] = (1,),
    heavy: Callable[[str, int], float] = lambda name, streams: 1.0,
    cycles: int = 20,
) -> Result:
    """A comparison in which each class is `speed` times as fast as the standard, times `heavy` at a load."""
    arms = ("standard", challenger)
    classes = ("edit", "long", "short")

    def slower(window: Window, prompt: str, at: float) -> dict[str, Any]:
        name = classes[int(prompt[1:]) % len(classes)]
        by = 1 / heavy(name, window.level.concurrency or 1)
        return {"slower": by if window.arm == challenger else 1.0}

    made = windows(
        lambda arm, name: 1.0 if arm == "standard" else speed(name),
        arms=arms,
        noise=0.0,
        classes=classes,
        concurrency=streams,
        answer=slower,
        cycles=cycles,
    )
    found = judgement(made, arms)
    return Result(phase="ab", verdict=found.verdict, reason=found.reason, data=found.data)


def pays_up_to(**by_class: int) -> Callable[[str, int], float]:
    return lambda name, streams: 1.0 if streams <= by_class[name] else 0.25
