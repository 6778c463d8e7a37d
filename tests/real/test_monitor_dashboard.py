"""The dashboard's queries at a real Prometheus that has a day of a whole rollout and evaluates the rules."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from backfilled import Pool
from daemons import program, prometheus, wait_until

from specops.config import Rollout
from specops.phases.monitor.render import texts
from specops.phases.monitor.thresholds import Figure, Measurements, limits
from specops.prometheus.api import Api, Sample
from specops.render.prometheus.rules import Load

NAME, CLUSTER = "a-day", "east"
DAY_S, EVERY_S = 86400, 60
FLAT = {("ttft", "mean"): 0.1, ("tpot", "mean"): 0.03, ("e2e", "p95"): 4.0}
"""The same at every load, so that the speed-up is known: 3.1 s for an answer of 101 tokens."""

ROLLOUT = Rollout.model_validate(
    {
        "rollout": NAME,
        "pools": {
            "standard": {"engine": "vllm", "model": "m"},
            "speculative": {"engine": "vllm", "model": "m", "speculation": {"method": "ngram"}},
        },
        "addresses": {
            "standard": ["127.0.0.1:8000"],
            "speculative": ["127.0.0.1:8001", "127.0.0.1:8002"],
            "routers": ["127.0.0.1:9145"],
            "guard": "127.0.0.1:9469",
            "gpus": ["127.0.0.1:9400"],
        },
        "monitor": {
            "scrape_interval_s": EVERY_S,
            "window_s": 600,
            "labels": {"cluster": CLUSTER},
            "runbook": "https://wiki.example/runbook",
        },
    }
)
MEASURED = Measurements(
    loads=(Load(1, FLAT, 0.03), Load(16, FLAT, 0.03)),
    baseline="made up",
    break_even=Figure(0.5, "made up"),
    acceptance=Figure(0.7, "made up"),
    branches=False,
    read={},
    missing={},
)
STATES = {8: "fallen", 9: "held", 10: "canary"}
"""Of the guard, by the day's hour; on in the other hours."""

BUCKETS = {"e2e_request_latency": 2.5, "time_to_first_token": 0.1, "request_time_per_output_token": 0.025}
"""Histograms, each with a bucket in which every request ends."""


def pool(name: str, port: int, servers: int, **figures: Any) -> Pool:
    quantiles = {
        f'{histogram}_seconds_bucket{{le="{bound}"}}': 2.0
        for histogram, upper in BUCKETS.items()
        for bound in (upper, "+Inf")
    }
    quantiles |= {
        f'{histogram}_seconds_bucket{{le="{upper / 2}"}}': 0.0 for histogram, upper in BUCKETS.items()
    }
    positions = {
        f'spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}}': 60.0 - 20 * at for at in range(3)
    }
    return Pool(
        NAME,
        pool=name,
        port=port,
        servers=servers,
        counters=quantiles | {"num_preemptions_total": 0.01} | (positions if name == "speculative" else {}),
        gauges={"kv_cache_usage_perc": 0.4},
        speculates=name == "speculative",
        past_s=DAY_S,
        every_s=EVERY_S,
        until_s_ago=0.0,
        **figures,
    )


@dataclass(frozen=True)
class Line:
    """A series of routers, guard or GPUs: its value by the seconds that passed of the day."""

    name: str
    labels: dict[str, str]
    value: Callable[[int], float]

    def lines(self, now: float) -> Iterator[str]:
        labels = {"specops_rollout": NAME, **self.labels}
        written = ",".join(f'{label}="{value}"' for label, value in labels.items())
        for passed in range(0, DAY_S, EVERY_S):
            yield f"{self.name}{{{written}}} {self.value(passed):.6f} {now - DAY_S + passed:.0f}"


def counter(name: str, per_second: float, **labels: str) -> Line:
    return Line(name, labels, lambda passed: per_second * passed)


def gauge(name: str, value: float, **labels: str) -> Line:
    return Line(name, labels, lambda _: value)


def rollout_lines() -> list[Line]:
    router = {"instance": "127.0.0.1:9145", "job": "routers"}
    lines = [gauge("specops_route_speculative_percent", 100, **router)]
    for which in ("speculative", "standard"):
        routed = router | {"class": "chat", "pool": which}
        lines += [
            gauge("specops_route_in_flight", 4, **router, pool=which),
            counter("specops_route_requests_total", 2, **routed, served=which, status="2xx"),
            counter("specops_route_requests_total", 0.01, **routed, served=which, status="5xx"),
            counter("specops_route_decisions_total", 2, **routed, reason="class"),
            counter("specops_route_request_duration_seconds_sum", 4.2, **routed),
            counter("specops_route_request_duration_seconds_count", 2, **routed),
        ]
    spilled = router | {"class": "chat", "pool": "standard", "reason": "in-flight"}
    lines += [
        counter("specops_route_decisions_total", 0.1, **spilled),
        counter("specops_route_failovers_total", 0.02, **router, **{"class": "chat"}),
    ]
    guard = {"instance": "127.0.0.1:9469", "job": f"specops-{NAME}-{CLUSTER}-guard"}
    for state in ("on", "canary", "fallen", "held"):
        hours = [hour for hour in range(24) if STATES.get(hour, "on") == state]
        lines.append(
            Line(
                "specops_guard_state",
                guard | {"state": state},
                lambda passed, hours=hours: float(passed // 3600 in hours),
            )
        )
    return [
        *lines,
        Line("specops_guard_override", guard, lambda passed: float(STATES.get(passed // 3600) == "held")),
        gauge("specops_guard_speculative_percent", 100, **guard),
        gauge("specops_guard_effect_ratio", 0.8, **guard, latency="tpot", end="estimate"),
        counter("specops_guard_evaluations_total", 1 / 60, **guard, verdict="healthy"),
        gauge("DCGM_FI_DEV_FB_USED", 60000, Hostname="a", gpu="0"),
        gauge("DCGM_FI_DEV_FB_FREE", 20000, Hostname="a", gpu="0"),
    ]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, dict[str, Any]]]:
    """A Prometheus with the day, evaluating the rendered rules since then; and the dashboard."""
    folder = tmp_path_factory.mktemp("day")
    files = texts(ROLLOUT, MEASURED, limits(ROLLOUT, MEASURED))
    alerts = yaml.safe_load(files["alerts.yml"])
    for rule in alerts["groups"][0]["rules"]:
        rule.pop("for", None)  # how long a condition must hold is promtool's to test
    (folder / "rules.yml").write_text(files["rules.yml"])
    (folder / "alerts.yml").write_text(yaml.safe_dump(alerts))
    config = {
        "global": {"evaluation_interval": "1s", "external_labels": {}},
        "rule_files": ["rules.yml", "alerts.yml"],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    now = time.time()
    # Few drafts are accepted of late, so that an alert fires.
    speculative = pool("speculative", 8001, 2, tpot=0.02, then={"acceptance": 0.3}, then_s=1800.0)
    standard = pool("standard", 8000, 1, tpot=0.03)
    lines = [line for each in (speculative, standard, *rollout_lines()) for line in each.lines(now)]
    labelled = [line.replace("{", f'{{cluster="{CLUSTER}",', 1) for line in lines]
    text = "\n".join(sorted(labelled, key=lambda line: line.partition("{")[0]))
    (folder / "day.txt").write_text(f"{text}\n# EOF\n")
    made = [program("promtool"), "tsdb", "create-blocks-from", "--max-block-duration=720h", "openmetrics"]
    subprocess.run(
        [*made, "-q", str(folder / "day.txt"), str(folder / "data")], check=True, capture_output=True
    )
    with prometheus(folder / "prometheus.yml", folder) as up:
        api = Api(up.url)
        wait_until(lambda: api.instant('ALERTS{alertstate="firing"}'), "an alert to fire", 30)
        wait_until(lambda: api.instant("specops:speedup"), "the rules that read rules", 30)
        yield api, json.loads(files["dashboard.json"])
        api.close()


def chosen(expr: str) -> str:
    """The expression with the variables' values as Grafana puts them in."""
    values = {"rollout": NAME, "model": ".*", "label_cluster": CLUSTER, "__rate_interval": f"{4 * EVERY_S}s"}
    written = re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)
    assert "$" not in written, expr
    return written


def panels(dashboard: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in dashboard["panels"]:
        for query in panel.get("targets", []):
            yield panel["title"], query


def day(api: Api, expr: str) -> list[Any]:
    end = int(time.time()) + 1
    return [series for series in api.range(expr, end - DAY_S, end, 60) if series.points]


def only(api: Api, dashboard: dict[str, Any], title: str) -> Sample:
    found = [
        sample
        for name, query in panels(dashboard)
        if name == title
        for sample in api.instant(chosen(query["expr"]))
    ]
    assert len(found) == 1, (title, found)
    return found[0]


@pytest.mark.slow
def test_no_panel_annotation_or_variable_is_empty(watched: tuple[Api, dict[str, Any]]) -> None:
    api, dashboard = watched
    empty = [
        (title, query["expr"])
        for title, query in panels(dashboard)
        if not (api.instant if query.get("instant") else lambda expr: day(api, expr))(chosen(query["expr"]))
    ]
    assert not empty
    for event in dashboard["annotations"]["list"]:
        assert day(api, chosen(event["expr"])), event["name"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            [(selector, label)] = re.findall(r"label_values\((.+), (\w+)\)", chosen(variable["query"]))
            assert all(label in sample.labels for sample in api.instant(selector)), variable["name"]


@pytest.mark.slow
def test_what_the_first_rows_say_is_what_the_day_was(watched: tuple[Api, dict[str, Any]]) -> None:
    api, dashboard = watched
    answer_s, without_s = 0.1 + 100 * 0.02, 0.1 + 100 * 0.03
    expected = {
        "× standard pool": without_s / answer_s,
        "Speed-up, answer": without_s / answer_s,
        "Speed-up, token": 0.03 / 0.02,
        "Saved per answer": without_s - answer_s,
        # Two servers, each with two requests a second and four at a time.
        "Servers saved": 2 * 2 * (without_s - answer_s) / 4,
        "Acceptance": 0.3,
        "Speculative share": 100,
        "Guard": 3,
    }
    for title, value in expected.items():
        assert only(api, dashboard, title).value == pytest.approx(value, rel=0.02), title


@pytest.mark.slow
def test_a_firing_alert_stands_on_top_with_its_text_and_its_place_in_the_runbook(
    watched: tuple[Api, dict[str, Any]],
) -> None:
    api, dashboard = watched
    first = [panel["title"] for panel in dashboard["panels"][:4]]
    assert first == ["Alerts", "Alerts firing", "Failed requests", "Firing now"]
    query = next(query for title, query in panels(dashboard) if title == "Firing now")
    rows = {row.labels["alertname"]: row for row in api.instant(chosen(query["expr"]))}
    row = rows["LowAcceptRatio"]
    assert row.labels["title"].startswith("Too few drafted tokens are accepted")
    assert row.labels["runbook_url"] == "https://wiki.example/runbook#lowacceptratio"
    assert row.labels["severity"] == "warning"
    assert 0 <= row.value < 600
    assert only(api, dashboard, "Alerts firing").value == len(api.instant('ALERTS{alertstate="firing"}'))
    # No rules of such a rollout are loaded: that is not the same as no alert.
    other = next(query for title, query in panels(dashboard) if title == "Alerts firing")["expr"]
    assert not api.instant(chosen(other.replace("$rollout", "another")))
