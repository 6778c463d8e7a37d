"""Rows on what speculation brings: acceptance, and speed against the baseline.

They read recorded series, so that no engine's names are in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specops.prometheus import series
from specops.prometheus.promql import LATENCIES, Latency
from specops.prometheus.series import GUARD_STATE, ROUTE_PERCENT
from specops.render.grafana.panels import ALL, BOTH, OURS, SPECULATIVE, Panel, Query, Row

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
