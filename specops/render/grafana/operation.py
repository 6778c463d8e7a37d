"""Rows on what carries it: routes, servers, the guard; and the guard's events."""

from __future__ import annotations

from collections.abc import Mapping

from specops.prometheus import series
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
from specops.render.grafana.panels import ALL, OURS, POOL_AND_MODEL, RATE, Panel, Query, Row


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
