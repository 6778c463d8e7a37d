"""Panels of a dashboard, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specops.prometheus import series
from specops.prometheus.promql import LATENCIES, Latency
from specops.prometheus.series import (
    GUARD_EFFECT,
    GUARD_EVALUATIONS,
    GUARD_OVERRIDE,
    GUARD_PERCENT,
    GUARD_STATE,
    POOL,
    ROLLOUT,
    ROUTE_DECISIONS,
    ROUTE_DURATION,
    ROUTE_FAILOVERS,
    ROUTE_IN_FLIGHT,
    ROUTE_PERCENT,
    ROUTE_REQUESTS,
)

Kind = Literal["lines", "value", "bars", "states", "table"]

# Grafana's variables: the dashboard serves every rollout that a Prometheus has.
OURS = '{specops_rollout="$rollout",model_name=~"$model"}'
SPECULATIVE = '{specops_rollout="$rollout",specops_pool="speculative",model_name=~"$model"}'
STANDARD = '{specops_rollout="$rollout",specops_pool="standard",model_name=~"$model"}'
ALL = '{specops_rollout="$rollout"}'
BOTH = '{specops_rollout="$rollout",specops_pool="speculative"}'
FIRING = 'ALERTS{specops_rollout="$rollout",alertstate="firing"}'
RATE = "[$__rate_interval]"
POOL_AND_MODEL = "{{specops_pool}} {{model_name}}"

# Units, by Grafana's ids. Grafana writes seconds below 1 as ms.
SECONDS, SHARE, PERCENT, PER_SECOND, REQUESTS_PER_SECOND = "s", "percentunit", "percent", "ops", "reqps"
TIMES, TOKENS, TOKENS_PER_SECOND = "suffix:×", "suffix: tok", "suffix: tok/s"
REQUESTS, ALERTS, SERVERS, EVALUATIONS = (
    "suffix: req",
    "suffix: firing",
    "suffix: servers",
    "suffix: evaluations",
)
WORDS = "none"
"""The unit of a panel that shows words for its values."""


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    title: str
    description: str
    queries: Sequence[Query]
    unit: str
    kind: Kind = "lines"
    width: int = 8
    """Width of the panel, of 24."""

    height: int = 8
    steps: Sequence[tuple[float, str]] = ()
    """Colours from a value on, rising; below the first it is red."""

    words: Mapping[str, str] | None = None
    """The word that stands for a value."""

    empty: str = "–"
    """Shown where there is no value."""


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


Steps = Sequence[tuple[float, str]]
_FASTER: Steps = ((0.9, "orange"), (1.0, "green"))
_SAVES: Steps = ((0.0, "green"),)


def alerts(errors: float) -> Row:
    """Return the row of alerts. `errors`: the threshold of SpeculationErrors."""
    loaded = f"count({series.ALERT_INFO}{ALL})"
    since = f"time() - ALERTS_FOR_STATE{ALL} and ignoring (alertstate) {FIRING}"
    texts = f"on ({ROLLOUT}, alertname) group_left (title, runbook_url) {series.ALERT_INFO}{ALL}"
    return Row(
        "Alerts",
        [
            _figure(
                "Alerts firing",
                "The number of alerts that fire now. No value: Prometheus has not loaded the rules of this"
                " rollout.",
                Query(f"count({FIRING}) or {loaded} * 0", "firing"),
                ((0.0, "green"), (1.0, "red")),
                ALERTS,
            ),
            _figure(
                "Failed requests",
                "The share of requests that failed, by the pool they were sent to: the routers' 5xx or,"
                " without routers, the requests that the engines aborted. Red from the threshold of"
                " SpeculationErrors.",
                Query(f"{series.ERROR_SHARE}{ALL}", "{{specops_pool}}"),
                ((0.0, "green"), (errors, "red")),
                SHARE,
            ),
            Panel(
                "Firing now",
                "Each alert that fires, what it means, for how long its condition has been true, and where"
                " the runbook says what to do.",
                [Query(f"({since}) * {texts}", "")],
                SECONDS,
                "table",
                width=18,
                height=5,
                empty="No alert fires.",
            ),
        ],
    )


def paying(low: float, critical: float) -> Row:
    """Return the row on whether it pays. `low` and `critical`: the thresholds of LowAcceptRatio and
    CriticalAcceptRatio."""
    e2e, requests = 'latency="e2e"', f"{series.TOKENS_PER_S}{OURS} / {series.ANSWER_TOKENS}{OURS}"
    speculative, standard = (f"{series.SPEEDUP}{pool[:-1]},{e2e}}}" for pool in (SPECULATIVE, STANDARD))
    relative = f"{speculative} / ignoring ({POOL}) ({standard} > 0)"
    saved = f"{series.EXPECTED['e2e']}{SPECULATIVE} - {series.MEAN['e2e']}{SPECULATIVE}"
    at_once = f"{series.TOKENS_PER_S}{SPECULATIVE} / {series.ANSWER_TOKENS}{SPECULATIVE}"
    return Row(
        "Is it paying?",
        [
            _figure(
                "× standard pool",
                "How many times faster the speculative pool answers than the standard pool does now. Each"
                " pool is first compared with the baseline at its own load, so different loads do not"
                " count. No value: a pool has no traffic, or the baseline did not measure its load.",
                Query(relative, "{{model_name}}"),
                _FASTER,
                TIMES,
            ),
            _figure(
                "Speed-up, answer",
                "How many times faster a whole answer is than in the baseline at the same load and length."
                " No value: no traffic, no baseline, or a load that was not measured.",
                Query(speculative, "{{model_name}}"),
                _FASTER,
                TIMES,
            ),
            _figure(
                "Speed-up, token",
                "The same for the time of one token after the first (TPOT).",
                Query(speculative.replace("e2e", "tpot"), "{{model_name}}"),
                _FASTER,
                TIMES,
            ),
            _figure(
                "Saved per answer",
                "The time that a user waits less for a whole answer. Negative: speculation costs time.",
                Query(saved, "{{model_name}}"),
                _SAVES,
                SECONDS,
            ),
            _figure(
                "Servers saved",
                "How many more servers without speculation this traffic would keep busy. Negative:"
                " speculation needs more servers. The weekly report has the sum, and its price.",
                Query(f"{at_once} * ({saved}) / ({series.CONCURRENCY}{SPECULATIVE} > 0)", "{{model_name}}"),
                _SAVES,
                SERVERS,
            ),
            _figure(
                "Acceptance",
                "Accepted over drafted tokens. No value: no traffic. Green from the threshold of"
                " LowAcceptRatio, red below that of CriticalAcceptRatio.",
                Query(f"{series.ACCEPTANCE}{SPECULATIVE}", "{{model_name}}"),
                ((critical, "orange"), (low, "green")),
                SHARE,
            ),
            _figure(
                "Speculative share",
                "Of the requests that the rules allow on the speculative pool, the share that each router"
                " sends there. All routers must have the same.",
                Query(f"{ROUTE_PERCENT}{ALL}", "{{instance}}"),
                ((1, "orange"), (100, "green")),
                PERCENT,
            ),
            _figure(
                "Guard",
                "on: the speculative pool gets all its traffic. canary: traffic comes back in steps."
                " fallen: the guard switched speculation off. held: off until a person acts.",
                Query(_state(), "state"),
                ((1, "orange"), (3, "green")),
                WORDS,
                words={"0": "held", "1": "fallen", "2": "canary", "3": "on"},
            ),
            Panel(
                "Speed-up of an answer",
                "Above 1× is faster than the baseline at the same load. The standard pool is the control:"
                " where it leaves 1×, the machines or the traffic changed, and speculation is not the"
                " cause.",
                [
                    Query(f"{series.SPEEDUP}{OURS[:-1]},{e2e}}}", POOL_AND_MODEL),
                    Query(relative, "speculative / standard {{model_name}}"),
                ],
                TIMES,
                width=12,
            ),
            Panel(
                "Requests per second",
                "Requests that each pool's servers completed.",
                [Query(requests, POOL_AND_MODEL)],
                REQUESTS_PER_SECOND,
                width=12,
            ),
        ],
    )


def _figure(
    title: str,
    description: str,
    query: Query,
    steps: Steps,
    unit: str,
    words: Mapping[str, str] | None = None,
) -> Panel:
    return Panel(title, description, [query], unit, "value", width=3, height=5, steps=steps, words=words)


def _state() -> str:
    """The state as one number, since a stat panel shows one."""
    return " or ".join(
        f'({GUARD_STATE}{{specops_rollout="$rollout",state="{state}"}} == 1) * {number}'
        for number, state in enumerate(("held", "fallen", "canary", "on"))
    )


def acceptance() -> Row:
    return Row(
        "Acceptance",
        [
            Panel(
                "Acceptance, now and as measured",
                "Accepted over drafted tokens, and the value measured before going live. A gap: no traffic.",
                [
                    Query(f"{series.ACCEPTANCE}{SPECULATIVE}", "{{model_name}}"),
                    Query(f"{series.RECORDED_ACCEPTANCE}{BOTH}", "measured before"),
                ],
                SHARE,
            ),
            Panel(
                "Accepted by position",
                "The share of drafts that were accepted up to each position. Where it falls to almost"
                " nothing, a shorter draft serves as well.",
                [Query(f"{series.PER_POSITION}{SPECULATIVE}", "{{position}}")],
                SHARE,
                "bars",
            ),
            Panel(
                "Tokens per step",
                "Tokens that one verification yields, with the bonus token; and tokens per step over all"
                " steps, those without a draft included.",
                [
                    Query(f"{series.ACCEPTED_LENGTH}{SPECULATIVE}", "per verification, {{model_name}}"),
                    Query(f"{series.TOKENS_PER_STEP}{SPECULATIVE}", "all steps, {{model_name}}"),
                ],
                TOKENS,
            ),
        ],
    )


def speed() -> Row:
    return Row(
        "Latency against the same traffic, and against the baseline",
        [
            Panel(
                "Live effect",
                "Time with speculation over that of the holdout, with the interval that the guard reads."
                " Below 1× is faster. Empty without a holdout.",
                [Query(f"{GUARD_EFFECT}{ALL}", "{{latency}} {{end}}")],
                TIMES,
                width=24,
            ),
            Panel(
                "Speed-up by latency",
                "Above 1× is faster than the baseline at the same load: first token (ttft), token after"
                " the first (tpot), whole answer (e2e).",
                [Query(f"{series.SPEEDUP}{OURS}", "{{specops_pool}} {{latency}}")],
                TIMES,
                width=24,
            ),
            *(_latency(latency) for latency in LATENCIES),
        ],
    )


def _latency(latency: Latency) -> Panel:
    title, meaning = {
        "ttft": ("TTFT", "Time to the first token."),
        "tpot": ("TPOT", "Time of each token after the first."),
        "e2e": ("E2E", "Time of a whole answer; the expected time is for answers of the current length."),
    }[latency]
    return Panel(
        title,
        f"{meaning} Expected: the baseline's mean at the current load. p95 is interpolated within the"
        " engine's bucket, and left out where that is the first.",
        [
            Query(f"{series.MEAN[latency]}{OURS}", "mean, {{specops_pool}}"),
            Query(f"{series.EXPECTED[latency]}{SPECULATIVE}", "expected without speculation"),
            Query(f"{series.P95[latency]}{OURS}", "p95, {{specops_pool}}"),
        ],
        SECONDS,
    )


def routes() -> Row:
    by_class = f"sum by (class, pool) (rate({ROUTE_REQUESTS}{ALL}{RATE}))"
    spill = f'{ROUTE_DECISIONS}{ALL[:-1]},reason="in-flight"}}'
    durations, counted = (
        f"sum by (class, pool) (rate({ROUTE_DURATION}_{suffix}{ALL}{RATE}))" for suffix in ("sum", "count")
    )
    return Row(
        "Routes",
        [
            Panel(
                "Requests by class",
                "Requests of each class, and the pool that the rules chose for them.",
                [Query(by_class, "{{class}} → {{pool}}")],
                REQUESTS_PER_SECOND,
            ),
            Panel(
                "Spilled and failed over",
                "Spilled: sent to the standard pool, since too many were in flight. Failed over: answered"
                " by the standard pool, since the speculative pool did not answer.",
                [
                    Query(f"sum by (class) (rate({spill}{RATE}))", "spilled, {{class}}"),
                    Query(f"sum by (class) (rate({ROUTE_FAILOVERS}{ALL}{RATE}))", "failed over, {{class}}"),
                ],
                REQUESTS_PER_SECOND,
            ),
            Panel(
                "Reasons",
                "Which rule of the router chose the pool.",
                [
                    Query(
                        f"sum by (reason, pool) (rate({ROUTE_DECISIONS}{ALL}{RATE}))", "{{reason}} → {{pool}}"
                    )
                ],
                REQUESTS_PER_SECOND,
            ),
            Panel(
                "In flight",
                "Requests that a pool works on. A request for n answers counts n times.",
                [Query(f"sum by (pool) ({ROUTE_IN_FLIGHT}{ALL})", "{{pool}}")],
                REQUESTS,
                width=12,
            ),
            Panel(
                "Mean duration by class",
                "Duration of the answers with status 2xx, by the pool that gave them.",
                [Query(f"{durations} / ({counted} > 0)", "{{class}}, {{pool}}")],
                SECONDS,
                width=12,
            ),
        ],
    )


def servers() -> Row:
    return Row(
        "Servers",
        [
            Panel(
                "Load of a server",
                "Requests that a server has at a time, as a request meets them, and those that wait. The"
                " baseline is compared at this load.",
                [
                    Query(f"{series.CONCURRENCY}{OURS}", POOL_AND_MODEL),
                    Query(f"{series.WAITING}{OURS}", f"waiting, {POOL_AND_MODEL}"),
                ],
                REQUESTS,
            ),
            Panel(
                "Tokens per second",
                "Tokens generated by all servers of a pool.",
                [Query(f"{series.TOKENS_PER_S}{OURS}", POOL_AND_MODEL)],
                TOKENS_PER_SECOND,
            ),
            Panel(
                "Tokens per answer",
                "The mean length of an answer. About 1: answers are empty, since the end counts as a token.",
                [Query(f"{series.ANSWER_TOKENS}{OURS}", POOL_AND_MODEL)],
                TOKENS,
            ),
            Panel(
                "KV cache",
                "The share in use, of the fullest server. It is not GPU memory, which vLLM takes at once.",
                [Query(f"{series.KV_USAGE}{OURS}", POOL_AND_MODEL)],
                SHARE,
            ),
            Panel(
                "Preemptions",
                "Requests put back per second, since the KV cache was full. Their tokens are computed again.",
                [Query(f"{series.PREEMPTIONS}{OURS}", POOL_AND_MODEL)],
                PER_SECOND,
            ),
            Panel(
                "GPU memory",
                "The share in use, by DCGM's exporter. Empty where that is not scraped.",
                [Query(f"{series.GPU_MEMORY}{ALL}", "{{Hostname}} GPU {{gpu}}")],
                SHARE,
            ),
        ],
    )


def guard() -> Row:
    state = f'{GUARD_STATE}{{specops_rollout="$rollout"}} == 1'
    return Row(
        "Guard",
        [
            Panel(
                "Guard's state",
                "The state that the guard is in: on, canary, fallen or held.",
                [Query(state, "{{state}}")],
                WORDS,
                kind="states",
                width=12,
                steps=((1, "blue"),),
                words={"1": "in this state"},
            ),
            Panel(
                "Evaluations",
                "Verdicts of the guard. Only bad ones count towards a fallback; no_data, no_traffic and"
                " unknown do not.",
                [Query(f"sum by (verdict) (increase({GUARD_EVALUATIONS}{ALL}{RATE}))", "{{verdict}}")],
                EVALUATIONS,
                width=12,
            ),
            Panel(
                "Speculative share, set and reported",
                "The share that the guard sets, and the share that each router reports.",
                [
                    Query(f"{GUARD_PERCENT}{ALL}", "set by the guard"),
                    Query(f"{ROUTE_PERCENT}{ALL}", "reported by {{instance}}"),
                ],
                PERCENT,
                width=12,
            ),
            Panel(
                "Alerts over time",
                "When each alert was firing.",
                [Query(FIRING, "{{alertname}}")],
                WORDS,
                kind="states",
                width=12,
                steps=((1, "orange"),),
                words={"1": "firing"},
            ),
        ],
    )


@dataclass(frozen=True)
class Event:
    """An annotation: drawn over the time in which the expression has a value."""

    name: str
    expr: str
    colour: str
    title: str
    text: str
    """HTML, as Grafana shows it; {{label}} is a label of the series."""


EVENTS: Sequence[Event] = (
    Event(
        "Alerts",
        f"{FIRING} * on ({ROLLOUT}, alertname) group_left (title, runbook_url) {series.ALERT_INFO}{ALL}",
        "red",
        "{{alertname}}",
        '{{title}} <a href="{{runbook_url}}">Runbook</a>',
    ),
    *(
        Event(
            f"Guard: {state}",
            f'{GUARD_STATE}{{specops_rollout="$rollout",state="{state}"}} == 1',
            colour,
            f"The guard's state is {state}",
            text,
        )
        for state, colour, text in (
            ("fallen", "orange", "The guard switched speculation off. It will try again in steps."),
            ("held", "red", "Speculation is off until a person acts."),
            ("canary", "blue", "Traffic comes back to the speculative pool in steps."),
        )
    ),
    Event(
        "Override",
        f"{GUARD_OVERRIDE}{ALL} == 1",
        "purple",
        "A person's override holds",
        "The guard evaluates, and acts on nothing.",
    ),
)
