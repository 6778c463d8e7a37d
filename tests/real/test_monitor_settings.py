"""Rules and alerts by promtool, over the optional settings of a rollout file and of what is scraped.

A setting that only adds labels or servers must not change what fires. And whichever engines serve, with or
without routers, each fault has its alert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from promtool_tests import check_rules, promtool_test

from specops.config import Rollout, load
from specops.config.monitor import ALERTS, alert_record
from specops.phases.monitor.render import texts
from specops.phases.monitor.thresholds import Figure, Measurements, limits, measurements
from specops.prometheus import series
from specops.prometheus.promql import selector
from specops.prometheus.series import POOLS, exposed
from specops.render.prometheus.rules import Load
from specops.serving import Series, namings

EXAMPLES = Path(__file__).parents[2] / "alerts" / "examples"
LABELS: Mapping[str, dict[str, str]] = {
    "no label": {},
    "a label": {"cluster": "a"},
    "labels": {"cluster": 'a"b\\c', "zone": "z"},
}


def render_rules(rollout: Rollout, before: Measurements, folder: Path) -> list[str]:
    rendered = texts(rollout, before, limits(rollout, before))
    for name in ("rules.yml", "alerts.yml"):
        (folder / name).write_text(rendered[name])
    return [str(folder / name) for name in ("rules.yml", "alerts.yml")]


# 1. The alerts' own tests, where series have more labels, or more servers expose them.

Given = list[dict[str, str]]


def with_labels(given: Given, labels: Mapping[str, str]) -> Given:
    more = selector(labels)[1:-1]
    return [one | {"series": f"{one['series'][:-1]},{more}}}"} for one in given] if more else given


def as_written(given: Given) -> Given:
    return given


def idle_servers(given: Given) -> Given:
    """A second server, and a second router, without a request."""
    counters = ("vllm:", "specops_route_requests_total", "specops_route_failovers_total")
    beside = [one for one in given if one["series"].startswith(counters)]
    return given + [
        {"series": renamed(one["series"], "instance", "idle"), "values": "0x240"} for one in unique(beside)
    ]


def another_class(given: Given) -> Given:
    """A class of traffic whose requests all go well, too few to matter."""
    routed = [one for one in given if 'class="default"' in one["series"]]
    return given + [
        {"series": renamed(one["series"], "class", "code"), "values": "0x240"} for one in unique(routed)
    ]


def replicas_of_prometheus(given: Given) -> Given:
    """Two Prometheus replicas behind one query front end that does not remove duplicates."""
    return [one for replica in "12" for one in with_labels(given, {"replica": replica})]


def renamed(text: str, label: str, value: str) -> str:
    name, _, labels = text[:-1].partition("{")
    kept = [pair for pair in labels.split(",") if not pair.startswith(f"{label}=")]
    return f"{name}{{{','.join([*kept, f'{label}={chr(34)}{value}{chr(34)}'])}}}"


def unique(given: Given) -> Given:
    return list({renamed(one["series"], "instance", ""): one for one in given}.values())


SCRAPED: Mapping[str, Callable[[Given], Given]] = {
    "as written": as_written,
    "idle servers": idle_servers,
    "another class": another_class,
    "replicas of Prometheus": replicas_of_prometheus,
}
FEW = ("too few", "too little", "fewest", "as at night")
"""Words in the name of a test whose counts decide: replicas count each request twice."""


@pytest.mark.slow
@pytest.mark.parametrize("scraped", SCRAPED)
@pytest.mark.parametrize("labels", LABELS)
def test_a_setting_that_adds_labels_or_servers_does_not_change_what_fires(
    labels: str, scraped: str, tmp_path: Path
) -> None:
    """Beside them, another cluster has the same series: nothing of it is read."""
    document = yaml.safe_load((EXAMPLES / "rollout.yaml").read_text()) | {
        "monitor": {"labels": LABELS[labels]}
    }
    pools = document["pools"]
    for pool in pools.values():
        pool["target"] = str(EXAMPLES / pool["target"])
    pools["speculative"]["speculation"]["draft"] = str(
        EXAMPLES / pools["speculative"]["speculation"]["draft"]
    )
    rollout = Rollout.model_validate(document)
    files = render_rules(rollout, measurements(load(EXAMPLES / "rollout.yaml"), EXAMPLES), tmp_path)
    tests = []
    for name in ALERTS:
        for test in alert_record(name).tests:
            if scraped == "replicas of Prometheus" and any(word in test["name"] for word in FEW):
                continue
            made = promtool_test(name, test)
            given = SCRAPED[scraped](made["input_series"])
            jobs = "-".join(("specops-example", *LABELS[labels].values()))
            escaped = jobs.replace("\\", "\\\\").replace('"', '\\"')
            given = [one | {"series": one["series"].replace("specops-example", escaped)} for one in given]
            made["input_series"] = with_labels(given, LABELS[labels])
            for asked in made["promql_expr_test"]:
                # Which fire, not how often: each replica of Prometheus has its own.
                asked["expr"] = asked["expr"].replace("count by", "group by")
            if LABELS[labels]:
                made["input_series"] += with_labels(given, dict.fromkeys(LABELS[labels], "elsewhere"))
                for asked in made["promql_expr_test"]:
                    if "ALERTS" not in asked["expr"]:
                        asked["exp_samples"] = with_expected_labels(asked["exp_samples"], LABELS[labels])
            tests.append(made)
    # As written they pass at 1m in test_monitor_promtool.py: so once at another interval.
    as_they_are = (labels, scraped) == ("no label", "as written")
    check_rules(tests, files, tmp_path, evaluation_interval="30s" if as_they_are else "1m")


def with_expected_labels(samples: list[dict[str, Any]], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [one | {"labels": f"{one['labels'][:-1]},{selector(labels)[1:]}"} for one in samples]


# 2. Each fault, whichever engines serve, with and without routers and a guard.

WINDOW_S = 60
STEPS = 36
"""Scrapes, 15 s apart."""
AT = "8m"
"""When it is judged: after SGLang's and llama.cpp's longer window for a stuck server."""


@dataclass(frozen=True)
class Traffic:
    """What one server, and its router, see within 15 s; seconds are means of a request or a token."""

    requests: float = 10
    steps: float = 300
    """Verifications, of three drafted tokens each."""
    accepted: float = 630
    ttft_s: float = 0.05
    tpot_s: float = 0.01
    running: float = 1
    aborted: float = 0
    """Requests that the engine gave up, or that the router answered with 5xx."""
    refused: float = 0
    """Requests that the API, or the router, answered with 5xx; the engine never had them."""
    saved: float = 0
    """Requests that the standard pool answered in place of the speculative one."""
    ends_at: int = STEPS
    """The scrape after which no counter grows."""
    not_a_number: bool = False
    without: str = ""
    """The field of `Series` whose series does not exist."""
    up: bool = True

    @property
    def tokens(self) -> float:
        return self.requests + self.steps + self.accepted


@dataclass(frozen=True)
class Watch:
    """Who serves, and what is scraped."""

    standard: str
    speculative: str
    labels: Mapping[str, str]
    routers: bool
    guard: bool

    @property
    def rollout(self) -> Rollout:
        endpoint = {"engine": "endpoint", "base_url": "http://p.example/v1", "model": "m"}
        addresses: dict[str, Any] = {"standard": ["a:8000"], "speculative": ["b:8000"]}
        addresses |= {"routers": ["r:1", "r:2"]} if self.routers else {}
        addresses |= {"guard": "g:1"} if self.guard else {}
        monitor = {
            "names": {"standard": self.standard, "speculative": self.speculative},
            "labels": dict(self.labels),
            "alerts": {name: {"for_s": 30} for name in ALERTS},
            "window_s": WINDOW_S,
        }
        pools = {"standard": endpoint, "speculative": endpoint}
        document = {"rollout": "r", "pools": pools, "addresses": addresses, "monitor": monitor}
        return Rollout.model_validate(document)

    def exposed(self, pool: str) -> Series:
        return exposed(self.rollout, pool)  # type: ignore[arg-type]

    def counts_requests(self, pool: str) -> bool:
        """Whether it is known how many requests ended on the pool: llama.cpp counts none."""
        return self.routers or not self.exposed(pool).requests_by_router


def growing(each: float, traffic: Traffic) -> str:
    """A counter, as promtool writes it."""
    last = STEPS - traffic.ends_at
    return f"0+{each:.9g}x{traffic.ends_at}" + (f" {each * traffic.ends_at:.9g}x{last}" if last else "")


def engine_series(watch: Watch, pool: str, traffic: Traffic) -> Iterator[dict[str, str]]:
    exposes = watch.exposed(pool)
    where = {"specops_rollout": "r", "specops_pool": pool, "instance": pool} | dict(watch.labels)
    where |= {} if exposes.requests_by_router else {"model_name": "m"}

    def counter(name: str, each: float, **labels: str) -> dict[str, str]:
        return {"series": f"{name}{selector(where | labels)}", "values": growing(each, traffic)}

    def gauge(name: str, value: float) -> dict[str, str]:
        return {"series": f"{name}{selector(where)}", "values": f"{value:.9g}x{STEPS}"}

    yield gauge("up", float(traffic.up)) | {
        "series": f"up{selector(where | {'job': f'specops-r-{pool}'})}",
    }
    if traffic.without != "running":
        yield gauge(exposes.running, traffic.running)
    yield gauge(exposes.waiting, 0)
    yield counter(exposes.generated, traffic.tokens)
    later_s = (traffic.tokens - traffic.requests) * traffic.tpot_s
    whole_s = traffic.requests * traffic.ttft_s + later_s
    observed = later_s if exposes.tpot_of_events else traffic.requests * traffic.tpot_s
    seconds = counter(exposes.tpot_seconds, observed)
    yield seconds | ({"values": "NaN " * STEPS} if traffic.not_a_number else {})
    if not exposes.tpot_counts_seconds:
        yield counter(f"{exposes.tpot}_count", traffic.requests)
    if not exposes.requests_by_router:
        for name, each in ((exposes.ttft, traffic.requests * traffic.ttft_s), (exposes.e2e, whole_s)):
            yield counter(f"{name}_sum", each)
            yield counter(f"{name}_count", traffic.requests)
        if exposes.aborted_reasons:
            yield counter(exposes.finished, traffic.requests - traffic.aborted, finished_reason="stop")
            yield counter(exposes.finished, traffic.aborted, finished_reason="error")
        else:
            yield counter(exposes.finished, traffic.requests)
            yield counter(exposes.aborted, traffic.aborted)
    if exposes.http:
        ok, bad = ("2xx", "5xx") if exposes.http.status == "status" else ("200", "503")
        for status, each in ((ok, traffic.requests), (bad, traffic.refused)):
            labels = {exposes.http.path: "/v1/completions", "method": "POST", exposes.http.status: status}
            yield counter(exposes.http.counter, each, **labels)
    counted = exposes.acceptance[0]
    if pool == "standard":
        return
    if not counted.counted and counted.rate is not None:
        yield gauge(counted.rate, traffic.accepted / (3 * traffic.steps or 1))
        yield counter(counted.drafts, traffic.steps)
        return
    if not counted.of_first:
        yield counter(counted.drafts, traffic.steps)
        yield counter(counted.draft_tokens, 3 * traffic.steps)
        yield counter(counted.accepted_tokens, traffic.accepted)
    for position in range(3):
        label = {counted.position: str(position)}
        if counted.of_first:
            yield counter(counted.draft_tokens, traffic.steps, **label)
        yield counter(counted.per_position, traffic.accepted / 3, **label)


def router_series(watch: Watch, pool: str, traffic: Traffic) -> Iterator[dict[str, str]]:
    where = {"specops_rollout": "r", "instance": "r:1", "class": "default"} | dict(watch.labels)
    if any(watch.exposed(name).requests_by_router for name in POOLS):
        where |= {"specops_pool": pool}

    def counter(name: str, each: float, **labels: str) -> dict[str, str]:
        return {"series": f"{name}{selector(where | labels)}", "values": growing(each, traffic)}

    failed = traffic.refused + traffic.aborted
    answered = traffic.requests - traffic.aborted - traffic.saved
    yield counter(series.ROUTE_REQUESTS, answered, pool=pool, served=pool, status="2xx")
    if failed:  # a series exists from its first request on
        yield counter(series.ROUTE_REQUESTS, failed, pool=pool, served="none", status="5xx")
    if traffic.saved:
        yield counter(series.ROUTE_REQUESTS, traffic.saved, pool=pool, served="standard", status="2xx")
        yield counter(series.ROUTE_FAILOVERS, traffic.saved)
    whole_s = traffic.requests * traffic.ttft_s + (traffic.tokens - traffic.requests) * traffic.tpot_s
    for name, each in (
        (series.ROUTE_FIRST_BYTE, traffic.requests * traffic.ttft_s),
        (series.ROUTE_DURATION, whole_s),
    ):
        yield counter(f"{name}_sum", each, pool=pool)
        yield counter(f"{name}_count", traffic.requests, pool=pool)


def around(watch: Watch) -> Iterator[dict[str, str]]:
    """Routers and a guard that agree, and work."""
    where = {"specops_rollout": "r"} | dict(watch.labels)
    for instance in ("r:1", "r:2") if watch.routers else ():
        name = f"{series.ROUTE_PERCENT}{selector(where | {'instance': instance})}"
        yield {"series": name, "values": f"100x{STEPS}"}
    if watch.guard:
        job = "-".join(("specops", "r", *watch.labels.values(), "guard"))
        yield {"series": f"up{selector(where | {'job': job, 'instance': 'g'})}", "values": f"1x{STEPS}"}
        yield {"series": f"{series.GUARD_LAST}{selector(where)}", "values": f"0+15x{STEPS}"}
        yield {"series": f"{series.GUARD_PERCENT}{selector(where)}", "values": f"100x{STEPS}"}
        yield {"series": f"{series.GUARD_STATE}{selector(where | {'state': 'on'})}", "values": f"1x{STEPS}"}


WELL = Traffic()


@dataclass(frozen=True)
class Fault:
    """Traffic with something wrong, and the alerts that fire."""

    speculative: Traffic
    fires: Callable[[Watch], set[str]]
    standard: Traffic = WELL


def counted(*names: str) -> Callable[[Watch], set[str]]:
    return lambda watch: set(names) if watch.counts_requests("speculative") else set()


def always(*names: str) -> Callable[[Watch], set[str]]:
    return lambda watch: set(names)


def refuses(watch: Watch) -> set[str]:
    if watch.routers:
        return {"SpeculationPoolFailing", "SpeculationErrors"}
    return {"SpeculationPoolFailing"} if watch.exposed("speculative").http else set()


def both_slow(watch: Watch) -> set[str]:
    if not watch.counts_requests("speculative"):
        return set()
    seen = watch.counts_requests("standard")  # else nothing is known of the standard pool's times
    return {"SpeculationBothPoolsSlow" if seen else "SpeculationLatencyRegression"}


FAULTS: Mapping[str, Fault] = {
    "none": Fault(WELL, always()),
    "little is accepted": Fault(
        replace(WELL, accepted=90),
        always("LowAcceptRatio", "CriticalAcceptRatio", "SpeculationAcceptanceDrift"),
    ),
    "nothing is accepted": Fault(
        replace(WELL, accepted=0),
        always("LowAcceptRatio", "CriticalAcceptRatio", "SpeculationAcceptanceDrift"),
    ),
    "one request in five fails": Fault(replace(WELL, aborted=2), counted("SpeculationErrors")),
    "all requests are refused": Fault(
        replace(WELL, requests=0.05, steps=1.5, accepted=3.15, refused=20), refuses
    ),
    "the other pool stands in": Fault(
        replace(WELL, saved=2), lambda watch: {"SpeculationFailovers"} if watch.routers else set()
    ),
    "slow tokens": Fault(replace(WELL, tpot_s=0.02), counted("SpeculationLatencyRegression")),
    "slow tokens of both pools": Fault(
        replace(WELL, tpot_s=0.02),
        both_slow,
        standard=replace(WELL, tpot_s=0.02),
    ),
    "a late first token": Fault(replace(WELL, ttft_s=0.15), counted("SpeculationTtftVeto")),
    "empty answers": Fault(replace(WELL, steps=0, accepted=0), counted("SpeculationEmptyOutputs")),
    "no traffic": Fault(replace(WELL, running=0, ends_at=8), counted("SpeculationNoTraffic")),
    "stuck": Fault(
        replace(WELL, running=5, ends_at=8),
        lambda watch: {"SpeculationReplicaStuck"} | counted("SpeculationNoTraffic")(watch),
    ),
    "a sum is not a number": Fault(replace(WELL, not_a_number=True), always("SpeculationNotANumber")),
    "a server is down": Fault(replace(WELL, up=False), always("SpeculationTargetDown")),
    "a series has another name": Fault(replace(WELL, without="running"), always("SpeculationSeriesAbsent")),
    "a thin standard pool": Fault(
        WELL,
        lambda watch: (
            {"SpeculationStandardPoolThin"}
            if watch.counts_requests("speculative") and watch.counts_requests("standard")
            else set()
        ),
        standard=replace(WELL, requests=0.4),
    ),
}
OF_THE_GUARD_AND_SWITCH = {name for name in ALERTS if name.startswith("Specops")} | {"SpeculationPartBad"}
"""They read no series of an engine: part 1 has them."""

OF_ONE_SERVER = {"SpeculationNotDrafting"}
"""Its own tests have two servers, of which one stops drafting; here a pool is one."""


def recorded(watch: Watch) -> dict[str, dict[str, float]]:
    """The recorded series of healthy traffic, by pool, computed here."""
    exposes = watch.exposed("speculative")
    pools = [pool for pool in POOLS if watch.counts_requests(pool)]
    drafts = exposes.acceptance[0].counted
    figures: dict[str, dict[str, float]] = {
        series.ACCEPTANCE: {"speculative": 0.7},
        series.ACCEPTED_LENGTH: {"speculative": 3.1 if drafts else 3.133},
        series.MEAN["tpot"]: dict.fromkeys(pools, 0.01),
        series.CONCURRENCY: dict.fromkeys(POOLS, 1.0),
        series.MEAN["ttft"]: dict.fromkeys(pools, 0.05),
        series.MEAN["e2e"]: dict.fromkeys(pools, 0.98),
        series.ANSWER_TOKENS: dict.fromkeys(pools, 94.0),
        series.FINISHED: dict.fromkeys(pools, 40.0),
        series.ERROR_SHARE: dict.fromkeys(pools, 0.0),
        series.REQUESTS: dict.fromkeys(pools, 40.0),
    }
    if watch.routers:
        figures[series.UNANSWERED_SHARE] = dict.fromkeys(POOLS, 0.0)
    else:
        counting = [pool for pool in POOLS if watch.exposed(pool).http]
        figures[series.UNANSWERED_SHARE] = dict.fromkeys(counting, 0.0)
    return figures


ENGINES = sorted(namings())
PAIRS = [(name, name) for name in ENGINES] + [
    ("vllm", "sglang"),
    ("sglang", "trtllm"),
    ("llamacpp", "vllm"),
    ("vllm", "llamacpp"),
    ("embedded", "vllm-0.10"),
]
SCRAPES = {"pools": (False, False), "routers": (True, False), "all": (True, True), "guard": (False, True)}


@pytest.mark.quick(2)
@pytest.mark.parametrize("scrapes", SCRAPES)
@pytest.mark.parametrize("labels", ["no label", "labels"])
@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_each_fault_has_its_alert_whichever_engines_serve(
    pair: tuple[str, str], labels: str, scrapes: str, tmp_path: Path
) -> None:
    watch = Watch(*pair, LABELS[labels], *SCRAPES[scrapes])
    loads = (Load(1, {("ttft", "mean"): 0.05, ("tpot", "mean"): 0.01}, 0.01),)
    figure = Figure(0.7, "ab.json")
    before = Measurements(loads, "baseline.json", None, figure, branches=False, read={}, missing={})
    files = render_rules(watch.rollout, before, tmp_path)
    firing = 'group by (alertname) (ALERTS{alertstate="firing",alertname!="SpecopsGuardDown"})'
    tests = []
    for name, fault in FAULTS.items():
        given = list(around(watch))
        for pool, traffic in (("standard", fault.standard), ("speculative", fault.speculative)):
            given += engine_series(watch, pool, traffic)
            given += router_series(watch, pool, traffic) if watch.routers else ()
        fires = [{"labels": selector({"alertname": alert}), "value": 1} for alert in fault.fires(watch)]
        asked = [{"expr": firing, "eval_time": AT, "exp_samples": fires}]
        if name == "none":
            asked += [
                {
                    "expr": f"round(sum by (specops_pool) ({record}), 0.001)",
                    "eval_time": AT,
                    "exp_samples": [
                        {"labels": selector({"specops_pool": pool}), "value": value}
                        for pool, value in by_pool.items()
                    ],
                }
                for record, by_pool in recorded(watch).items()
            ]
        tests.append({"name": name, "interval": "15s", "input_series": given, "promql_expr_test": asked})
    check_rules(tests, files, tmp_path, evaluation_interval="1m")


def test_every_alert_of_the_pools_has_a_fault() -> None:
    watch = Watch("vllm", "vllm", {}, routers=True, guard=True)
    fired = {name for fault in FAULTS.values() for name in fault.fires(watch)}
    assert fired == set(ALERTS) - OF_THE_GUARD_AND_SWITCH - OF_ONE_SERVER
