"""`monitor check`: which of the names that rules and panels need a running Prometheus has, with data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from specops import results
from specops.config import Rollout
from specops.phases.monitor.names import Need, needs, of_engine
from specops.progress import Progress
from specops.prometheus.api import Api
from specops.prometheus.promql import selector
from specops.results import Result
from specops.serving import USUAL, tables

PHASE = "monitor-check"
SCRAPES = 4
"""A value is old when so many scrapes did not have it; Prometheus goes on showing it for 5 minutes."""
WINDOW, INTERVAL_S = "5m", 15
"""Where no rollout file says them."""
LABELS = (
    "its scrape configuration does not add specops_rollout and specops_pool: take the job of the rendered"
    " prometheus.yml"
)

Status = Literal["there", "old", "no traffic", "renamed", "absent"]
GOOD: tuple[Status, ...] = ("there", "no traffic")


class Found(BaseModel):
    """One name. `data.names[]` of the result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    where: str
    needs: str
    status: Status
    age_s: float | None
    """Of its last value, by Prometheus' clock; also of one within the last day."""

    now_called: str | None
    fix: str | None


def check(rollout: Rollout | None, api: Api, progress: Progress) -> Result:
    """No where something needed is not there. Without a rollout, any vLLM's or SGLang's names are asked for.

    Raises EndpointError where Prometheus cannot be asked.
    """
    api.ready()
    asked = list(needs(rollout)) if rollout else list(_of_any(api))
    progress.start("asking for names", len(asked))
    interval_s = rollout.monitor.scrape_interval_s if rollout else INTERVAL_S
    looking = _Looking(api, SCRAPES * interval_s)
    found = []
    for need in asked:
        found.append(looking.look(need))
        progress.advance()
    return _result(rollout, api.url, found)


def _of_any(api: Api) -> Iterator[Need]:
    """Whatever labels they have; the usual ones where nothing says otherwise."""
    others = (series for series in tables() if series.running != USUAL.running)
    series = next((one for one in others if api.instant(f"count({one.running})")), USUAL)
    return of_engine(series, "any server", {}, WINDOW)


class _Looking:
    def __init__(self, api: Api, old_s: float) -> None:
        self.api = api
        self.old_s = old_s
        self._traffic: dict[str, bool] = {}

    def look(self, need: Need) -> Found:
        age = self._age(f"{need.name}{selector(need.labels)}")
        if age is not None:
            status: Status = "there" if age <= self.old_s else "old"
            fix = None if status == "there" else "it was there a moment ago: is its target up?"
            return _found(need, status, age, fix=fix)
        if need.traffic is not None and not self._has_traffic(need.traffic):
            return _found(need, "no traffic")
        for other, fix in need.others.items():
            if self._age(f"{other}{selector(need.labels)}") is not None:
                return _found(need, "renamed", now_called=other, fix=fix)
        if need.labels and self._age(need.name) is not None:
            return _found(need, "absent", now_called=f"{need.name}, with other labels", fix=LABELS)
        return _found(need, "absent", self._last_seen(need), fix=need.fix)

    def _age(self, series: str) -> float | None:
        """Seconds since its last value, by Prometheus' clock; None where it has none now."""
        return self._one(f"time() - max(timestamp({series}))")

    def _last_seen(self, need: Need) -> float | None:
        series = f"timestamp({need.name}{selector(need.labels)})"
        return self._one(f"time() - max(max_over_time({series}[1d:5m]))")

    def _has_traffic(self, expr: str) -> bool:
        if expr not in self._traffic:
            self._traffic[expr] = (self._one(expr) or 0.0) > 0.0
        return self._traffic[expr]

    def _one(self, expr: str) -> float | None:
        samples = self.api.instant(expr)
        return samples[0].value if samples and math.isfinite(samples[0].value) else None


def _found(
    need: Need,
    status: Status,
    age_s: float | None = None,
    *,
    now_called: str | None = None,
    fix: str | None = None,
) -> Found:
    return Found(
        name=need.name,
        where=need.where,
        needs=need.needs,
        status=status,
        age_s=None if age_s is None else round(age_s, 1),
        now_called=now_called,
        fix=fix,
    )


def _result(rollout: Rollout | None, url: str, found: Sequence[Found]) -> Result:
    lacking = [each for each in found if each.status not in GOOD]
    settings: dict[str, Any] = {
        "prometheus": url,
        "rollout": rollout.rollout if rollout else None,
        "monitor": rollout.monitor.model_dump(mode="json") if rollout else None,
    }
    reason = f"all {len(found)} names are there, or wait for traffic"
    if lacking:
        first = lacking[0]
        more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        reason = f"{first.name} of the {first.where} is {first.status}{more}"
    return Result(
        phase=PHASE,
        inputs={"settings": results.sha256(settings)},
        settings=settings,
        environment=results.environment(),
        verdict="no" if lacking else "yes",
        reason=reason,
        summary={status: sum(each.status == status for each in found) for status in get_args(Status)},
        data={"names": [each.model_dump(mode="json") for each in found]},
    )
