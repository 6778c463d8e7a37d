"""What a dashboard is made of, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specops.prometheus import series
from specops.prometheus.promql import LATENCIES, Latency
from specops.prometheus.series import (
    GUARD_EVALUATIONS,
    GUARD_OVERRIDE,
    GUARD_PERCENT,
    GUARD_STATE,
    ROUTE_DECISIONS,
    ROUTE_DURATION,
    ROUTE_FAILOVERS,
    ROUTE_IN_FLIGHT,
    ROUTE_PERCENT,
    ROUTE_REQUESTS,
)

Kind = Literal["lines", "value", "bars", "states"]

# Grafana's variables: the dashboard serves every rollout that a Prometheus has.
OURS = '{specops_rollout="$rollout",model_name=~"$model"}'
SPECULATIVE = '{specops_rollout="$rollout",specops_pool="speculative",model_name=~"$model"}'
ALL = '{specops_rollout="$rollout"}'
BOTH = '{specops_rollout="$rollout",specops_pool="speculative"}'
RATE = "[$__rate_interval]"
POOL_AND_MODEL = "{{specops_pool}} {{model_name}}"


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    title: str
    description: str
    queries: Sequence[Query]
    unit: str = "short"
    """By Grafana's ids: percentunit (0 to 1), percent (0 to 100), s, reqps, ops."""

    kind: Kind = "lines"
    width: int = 8
    """Of 24."""

    height: int = 8
    steps: Sequence[tuple[float, str]] = ()
    """Colours from a value on, rising; below the first it is red."""

    words: Mapping[str, str] | None = None
    """Of values that stand for something."""


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


Steps = Sequence[tuple[float, str]]
_FASTER: Steps = ((0.9, "orange"), (1.0, "green"))


def now(low: float, critical: float, errors: float) -> Row:
    """The thresholds of the alerts on acceptance and on errors."""
    speedup = f"{series.SPEEDUP}{SPECULATIVE[:-1]},latency="
    return Row(
        "Now",
        [
            _figure(
                "Acceptance",
                "Accepted over drafted tokens. No value: no traffic. Green from LowAcceptRatio's threshold"
                " on, red below CriticalAcceptRatio's.",
                Query(f"{series.ACCEPTANCE}{SPECULATIVE}", "{{model_name}}"),
                ((critical, "orange"), (low, "green")),
                "percentunit",
            ),
            _figure(
                "Speed-up of a token",
                "The baseline's TPOT at the load that there is, over TPOT now. No value: no traffic, no"
                " baseline, or a load that was not measured.",
                Query(f'{speedup}"tpot"}}', "{{model_name}}"),
                _FASTER,
            ),
            _figure(
                "Speed-up of an answer",
                "The same of E2E, for answers as long as they are now.",
                Query(f'{speedup}"e2e"}}', "{{model_name}}"),
                _FASTER,
            ),
            _figure(
                "Guard",
                "on: all that may be speculative is; canary: it comes back in steps; fallen: off; held: off"
                " until a person acts.",
                Query(_state(), "state"),
                ((1, "orange"), (3, "green")),
                words={"0": "held", "1": "fallen", "2": "canary", "3": "on"},
            ),
            _figure(
                "Speculative share",
                "Of what the rules allow on the speculative pool, by router: all must have the same.",
                Query(f"{ROUTE_PERCENT}{ALL}", "{{instance}}"),
                ((1, "orange"), (100, "green")),
                "percent",
            ),
            _figure(
                "Failed requests",
                "By the routers' 5xx, by the pool that a request was sent to; without routers, what engines"
                " aborted.",
                Query(f"{series.ERROR_SHARE}{ALL}", "{{specops_pool}}"),
                ((0.0, "green"), (errors, "red")),
                "percentunit",
            ),
        ],
    )


def _figure(
    title: str,
    description: str,
    query: Query,
    steps: Steps,
    unit: str = "short",
    words: Mapping[str, str] | None = None,
) -> Panel:
    return Panel(title, description, [query], unit, "value", width=4, height=5, steps=steps, words=words)


def _state() -> str:
    """The state as one number, since a value has one."""
    return " or ".join(
        f'({GUARD_STATE}{{specops_rollout="$rollout",state="{state}"}} == 1) * {number}'
        for number, state in enumerate(("held", "fallen", "canary", "on"))
    )


def acceptance() -> Row:
    return Row(
        "Acceptance",
        [
            Panel(
                "Acceptance, and what it was measured to be",
                "A gap is no traffic.",
                [
                    Query(f"{series.ACCEPTANCE}{SPECULATIVE}", "{{model_name}}"),
                    Query(f"{series.RECORDED_ACCEPTANCE}{BOTH}", "measured before"),
                ],
                "percentunit",
            ),
            Panel(
                "Accepted by position",
                "The share of drafts accepted that far. Where it falls to nothing, a shorter draft does as"
                " well.",
                [Query(f"{series.PER_POSITION}{SPECULATIVE}", "{{position}}")],
                "percentunit",
                "bars",
            ),
            Panel(
                "Tokens of a step",
                "Of a verification: the bonus token included. Of all steps: those without a draft, too.",
                [
                    Query(f"{series.ACCEPTED_LENGTH}{SPECULATIVE}", "a verification, {{model_name}}"),
                    Query(f"{series.TOKENS_PER_STEP}{SPECULATIVE}", "all steps, {{model_name}}"),
                ],
            ),
        ],
    )


def speed() -> Row:
    return Row(
        "Against the baseline",
        [
            Panel(
                "Speed-up",
                "Above 1 is faster than the baseline at the same load. The standard pool is the control:"
                " where it leaves 1, the machine or the traffic has changed, not speculation.",
                [Query(f"{series.SPEEDUP}{OURS}", "{{specops_pool}} {{latency}}")],
                width=24,
            ),
            *(_latency(latency) for latency in LATENCIES),
        ],
    )


def _latency(latency: Latency) -> Panel:
    said = {
        "ttft": ("TTFT", "Time to the first token."),
        "tpot": ("TPOT", "Time of each token after the first."),
        "e2e": ("E2E", "A whole answer; expected is for answers as long as they are now."),
    }
    title, what = said[latency]
    return Panel(
        title,
        f"{what} p95 lies somewhere in its bucket, and is left out where that is the engine's first.",
        [
            Query(f"{series.MEAN[latency]}{OURS}", "mean, {{specops_pool}}"),
            Query(f"{series.EXPECTED[latency]}{SPECULATIVE}", "expected without speculation"),
            Query(f"{series.P95[latency]}{OURS}", "p95, {{specops_pool}}"),
        ],
        "s",
    )


def routes() -> Row:
    by_class = f"sum by (class, pool) (rate({ROUTE_REQUESTS}{ALL}{RATE}))"
    spill = f'{ROUTE_DECISIONS}{ALL[:-1]},reason="in-flight"}}'
    taken, counted = (
        f"sum by (class, pool) (rate({ROUTE_DURATION}_{of}{ALL}{RATE}))" for of in ("sum", "count")
    )
    return Row(
        "Routes",
        [
            Panel(
                "Requests by class",
                "By the pool that the rules chose.",
                [Query(by_class, "{{class}} → {{pool}}")],
                "reqps",
            ),
            Panel(
                "Spilled, and failed over",
                "Spilled: too many were in flight. Failed over: the speculative pool did not answer, the"
                " standard one did.",
                [
                    Query(f"sum by (class) (rate({spill}{RATE}))", "spilled, {{class}}"),
                    Query(f"sum by (class) (rate({ROUTE_FAILOVERS}{ALL}{RATE}))", "failed over, {{class}}"),
                ],
                "reqps",
            ),
            Panel(
                "Reasons",
                "Why requests went where they went.",
                [
                    Query(
                        f"sum by (reason, pool) (rate({ROUTE_DECISIONS}{ALL}{RATE}))", "{{reason}} → {{pool}}"
                    )
                ],
                "reqps",
            ),
            Panel(
                "In flight",
                "A request counts as many times as it asks for answers.",
                [Query(f"sum by (pool) ({ROUTE_IN_FLIGHT}{ALL})", "{{pool}}")],
                width=12,
            ),
            Panel(
                "Mean duration by class",
                "Of good answers, by the pool that gave them.",
                [Query(f"{taken} / ({counted} > 0)", "{{class}}, {{pool}}")],
                "s",
                width=12,
            ),
        ],
    )


def servers() -> Row:
    return Row(
        "Servers",
        [
            Panel(
                "Requests at a time",
                "That a server has, as a request sees it: by this the baseline is compared.",
                [
                    Query(f"{series.CONCURRENCY}{OURS}", POOL_AND_MODEL),
                    Query(f"{series.WAITING}{OURS}", f"waiting, {POOL_AND_MODEL}"),
                ],
            ),
            Panel(
                "Tokens a second",
                "Generated, of all servers.",
                [Query(f"{series.TOKENS_PER_S}{OURS}", POOL_AND_MODEL)],
            ),
            Panel(
                "Tokens of an answer",
                "On average. About 1: empty answers, of which the end counts as a token.",
                [Query(f"{series.ANSWER_TOKENS}{OURS}", POOL_AND_MODEL)],
            ),
            Panel(
                "KV cache",
                "In use, of the fullest server. It is not GPU memory, which vLLM takes at the start.",
                [Query(f"{series.KV_USAGE}{OURS}", POOL_AND_MODEL)],
                "percentunit",
            ),
            Panel(
                "Preemptions",
                "The KV cache was full, and a request was put back: what it had is computed again.",
                [Query(f"{series.PREEMPTIONS}{OURS}", POOL_AND_MODEL)],
                "ops",
            ),
            Panel(
                "GPU memory",
                "In use, by DCGM's exporter where it is scraped.",
                [Query(f"{series.GPU_MEMORY}{ALL}", "{{Hostname}} GPU {{gpu}}")],
                "percentunit",
            ),
        ],
    )


def guard() -> Row:
    state = f'{GUARD_STATE}{{specops_rollout="$rollout"}} == 1'
    return Row(
        "Guard",
        [
            Panel(
                "State",
                "What the guard has decided.",
                [Query(state, "{{state}}")],
                kind="states",
                width=12,
                steps=((1, "blue"),),
                words={"1": "here"},
            ),
            Panel(
                "Evaluations",
                "Only bad ones count towards a fall-back; no data, no traffic and unknown are not bad.",
                [Query(f"sum by (verdict) (increase({GUARD_EVALUATIONS}{ALL}{RATE}))", "{{verdict}}")],
                width=12,
            ),
            Panel(
                "Speculative share, wanted and had",
                "What the guard wants, and what each router has.",
                [
                    Query(f"{GUARD_PERCENT}{ALL}", "the guard wants"),
                    Query(f"{ROUTE_PERCENT}{ALL}", "{{instance}} has"),
                ],
                "percent",
                width=12,
            ),
            Panel(
                "Alerts",
                "That fire now.",
                [Query('ALERTS{specops_rollout="$rollout",alertstate="firing"}', "{{alertname}}")],
                kind="states",
                width=12,
                steps=((1, "orange"),),
                words={"1": "firing"},
            ),
        ],
    )


EVENTS: Mapping[str, tuple[str, str]] = {
    "Speculation off: fallen": (f'{GUARD_STATE}{{specops_rollout="$rollout",state="fallen"}} == 1', "orange"),
    "Speculation off: held": (f'{GUARD_STATE}{{specops_rollout="$rollout",state="held"}} == 1', "red"),
    "Coming back": (f'{GUARD_STATE}{{specops_rollout="$rollout",state="canary"}} == 1', "blue"),
    "A person's override": (f"{GUARD_OVERRIDE}{ALL} == 1", "purple"),
}
"""Annotations: the time over which the expression has a value, and a colour."""
