"""The types of `summary` in the result of each phase: the few figures that a line about it needs."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from specops.phases import PhaseName
from specops.results import Verdict


class Plan(TypedDict):
    chosen: dict[int, str]
    """The tree, by batch size."""


class Lint(TypedDict):
    commands: int
    errors: int
    warnings: int
    unknown: int
    judged: str


class RouteCheck(TypedDict):
    requests: int
    wrong: int


class Report(TypedDict):
    status: Literal["good", "look", "no data"]
    acceptance: float | None
    e2e_speedup: float | None
    incidents: int | None
    fallbacks: int | None
    server_hours_saved: float | None
    money_saved: float | None
    recommendations: int


class Compare(TypedDict):
    worse: int
    better: int
    compared: int
    settings_changed: int
    latencies_higher: int
    latencies_lower: int
    acceptances_changed: int
    phases_of_one_run: int
    unknown: int


class EdgeLevel(TypedDict):
    itl_ms: dict[str, float | None]
    tokens_per_s: dict[str, float | None]
    server_idle: dict[str, float | None]
    best_edge_arm: str | None
    latency_over_server_only: float | None


EdgeLevels = dict[str, EdgeLevel]


Walk = dict[PhaseName, Verdict]
Counts = dict[str, int]
