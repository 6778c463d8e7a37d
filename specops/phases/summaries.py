"""The types of `summary` in the result of each phase: the few figures that a line about it needs."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from specops.experiment.findings import Ratio
from specops.phases import PhaseName
from specops.phases.ab.report import DeployTarget
from specops.results import Verdict


class Ab(TypedDict):
    """The summary of a comparison: the best challenger at the lightest load; the first one where none may be
    deployed."""

    challenger: str
    deploy: list[DeployTarget]
    e2e_speedup: Ratio
    tpot_speedup: Ratio
    throughput_ratio: float | None
    pays_up_to: int | None
    parity: str | None
    parity_control: str | None
    parity_mixed: str | None
    acceptance_rate: float | None
    acceptance_length: float | None
    more_prompts: int | None
    looks: str
    duration_s: float


class Sweep(TypedDict):
    """The summary of a sweep: the recommended setting at the load that decided."""

    recommended: int | None
    setting: str | None
    concurrency: int | None
    prompts: int | None
    e2e_speedup: Ratio
    tpot_speedup: Ratio
    ttft_change_ms: float | None
    tokens_per_sec: float | None
    acceptance_rate: float | None
    break_even_acceptance: float | None
    on_max: int | None
    off_min: int | None
    more_prompts: int | None


class Canary(TypedDict):
    checks: int
    passed: int
    failed: list[str]
    undecided: list[str]
    unsupported: list[str]


class Plan(TypedDict):
    chosen: dict[int, str]
    """The tree, by batch size."""


class Launch(TypedDict):
    files: int
    errors: int
    warnings: int
    unknown: int
    capacity: Verdict


class Lint(TypedDict):
    commands: int
    errors: int
    warnings: int
    unknown: int
    judged: str


class Route(TypedDict):
    files: int
    classes: int
    router: str


class RouteCheck(TypedDict):
    requests: int
    wrong: int


class Monitor(TypedDict):
    files: int
    alerts: int
    measured: int


class Drill(TypedDict):
    switched_ms: float
    returned_ms: float
    lost: float | None


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
