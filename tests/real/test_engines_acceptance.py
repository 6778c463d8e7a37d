"""Acceptance of each engine's own series in a real Prometheus: rules, guard, report and diagnose say what the
tokens give, whatever the engine counts, and nothing where its gauges show nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from backfilled import Pool, remembering

from specops.config import Rollout
from specops.guard.signals.query import LiveQuery, combine, read
from specops.phases.report import pools as report_pools
from specops.phases.report.prometheus_data import query
from specops.phases.report.report import ReportWindow
from specops.progress import SilentProgress
from specops.prometheus.api import Api
from specops.prometheus.promql import Signals
from specops.serving import Series, namings

HOUR = 3600
DRAFTS, DRAFTED = 30.0, 90.0
"""Of one request."""

SERVERS = {8000: (4.0, 0.7), 8001: (2.0, 0.4)}
"""Requests a second and acceptance rate, by port: together 0.6 of the drafted tokens. A mean of both rates
would be 0.55."""

RATE, LENGTH = 0.6, 2.8


def tokens(acceptance: float) -> float:
    """One of a request comes from its prompt."""
    return 1 + DRAFTS + DRAFTED * acceptance


def sglang(rate: float, acceptance: float, *, gauges: Mapping[str, float], verified: bool) -> dict[str, Any]:
    counters = {
        "num_requests_total": rate,
        "num_aborted_requests_total": 0.0,
    } | ({"spec_verify_calls_total": rate * DRAFTS} if verified else {})
    return {
        "prefix": "sglang:",
        "counters": counters,
        "gauges": {"num_running_reqs": 4, "num_queue_reqs": 0} | gauges,
    }


def trtllm(rate: float, acceptance: float, *, by_position: bool) -> dict[str, Any]:
    accepted = rate * DRAFTED * acceptance
    if by_position:
        counters = {
            f'spec_decode_{name}_tokens_total{{token_position="{at}"}}': amount / 3
            for name, amount in (("drafted", rate * DRAFTED), ("accepted", accepted))
            for at in range(3)
        }
        return {"prefix": "trtllm:", "counters": counters}
    return {
        "prefix": "trtllm:",
        "counters": {
            "spec_decode_num_draft_tokens_total": rate * DRAFTED,
            "spec_decode_num_accepted_tokens_total": accepted,
        },
        "gauges": {"spec_decode_acceptance_length": 1 + accepted / rate / DRAFTS},
    }


def shown(case: str, rate: float, acceptance: float) -> dict[str, Any]:
    length = 1 + 3 * acceptance
    match case:
        case "vllm":
            return {"speculates": True}
        case "sglang":
            gauges = {"spec_accept_rate": acceptance, "spec_accept_length": length}
            return sglang(rate, acceptance, gauges=gauges, verified=True)
        case "sglang-by-length":
            gauges = {"spec_accept_rate": acceptance, "spec_accept_length": length}
            return sglang(rate, acceptance, gauges=gauges, verified=False)
        case "sglang-silent":
            return sglang(
                rate, acceptance, gauges={"spec_accept_rate": 0, "spec_accept_length": 0}, verified=True
            )
        case "trtllm-by-position":
            return trtllm(rate, acceptance, by_position=True)
        case _:
            return trtllm(rate, acceptance, by_position=False)


CASES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "sglang-by-length": "sglang",
    "trtllm-by-position": "trtllm",
    "trtllm-by-iteration": "trtllm",
}
SILENT = "sglang-silent"
"""Its gauges are 0 at each scrape, and its verifications yield more than a token."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    pools = [
        Pool(
            case,
            requests_per_s=rate,
            tokens=tokens(acceptance),
            drafted=DRAFTED,
            acceptance=acceptance,
            port=port,
            past_s=4 * HOUR,
            every_s=60,
            **({"speculates": False} | shown(case, rate, acceptance)),
        )
        for case in (*CASES, SILENT)
        for port, (rate, acceptance) in SERVERS.items()
    ]
    with remembering(pools, tmp_path_factory.mktemp("prometheus")) as up:
        connection = Api(up.url)
        yield connection
        connection.close()


def series_of(case: str) -> Series:
    return namings()[CASES.get(case, "sglang")]


def labels(case: str) -> dict[str, str]:
    return {"specops_rollout": case, "specops_pool": "speculative"}


def value(api: Api, expression: str) -> float | None:
    samples = api.instant(expression)
    return samples[0].value if samples else None


@pytest.mark.parametrize("case", CASES)
def test_expressions_weigh_each_server_by_what_it_drafted(api: Api, case: str) -> None:
    signals = Signals(series_of(case), labels(case), "10m")
    assert value(api, signals.acceptance()) == pytest.approx(RATE, abs=0.003)
    assert value(api, signals.accepted_length()) == pytest.approx(LENGTH, rel=0.02)
    assert value(api, signals.drafted()) == pytest.approx(600 * 6 * DRAFTED, rel=0.03)


@pytest.mark.parametrize("case", CASES)
def test_the_guard_reads_the_same_of_the_pool_and_of_each_replica(api: Api, case: str) -> None:
    window_s = 600.0
    question = LiveQuery(case, series_of(case), series_of(case), {}, scrape_s=60.0, routed=False)
    live = read(api.instant(combine(question.expressions(window_s, window_s))), question, window_s)
    for port, (_, acceptance) in SERVERS.items():
        replica = live.replicas[f"127.0.0.1:{port}"]
        assert replica.accepted / replica.drafted == pytest.approx(acceptance, abs=0.003)
    assert live.acceptance == pytest.approx(RATE, abs=0.003)


def report_on(api: Api, case: str) -> Any:
    names = CASES.get(case, "sglang")
    end = int(time.time()) // HOUR * HOUR
    made = Rollout.model_validate(
        {
            "rollout": case,
            "monitor": {"names": {"standard": names, "speculative": names}},
            "pools": {
                name: {"engine": "endpoint", "base_url": f"http://{name}:8000/v1", "model": "m"}
                for name in ("standard", "speculative")
            },
        }
    )
    span = ReportWindow(end - 2 * HOUR, end, ZoneInfo("UTC"))
    return query(made, span, api, SilentProgress()).pools["speculative"], span


@pytest.mark.parametrize("case", CASES)
def test_the_report_has_the_acceptance_of_every_engine(api: Api, case: str) -> None:
    observed, span = report_on(api, case)
    found = report_pools.acceptance(observed, span, slice(span.hours, None))
    assert found is not None
    assert found.rate == pytest.approx(RATE, abs=0.003)
    assert found.length == pytest.approx(LENGTH, rel=0.02)
    assert found.drafted_tokens == pytest.approx(span.hours * HOUR * 6 * DRAFTED, rel=0.05)
    assert found.estimated == (case in ("sglang", "sglang-by-length", "trtllm-by-iteration"))
    assert len(found.per_position) == (3 if case == "trtllm-by-position" else 0)


def test_gauges_that_show_nothing_leave_it_unknown(api: Api) -> None:
    """Neither zero nor all: the verifications are counted, and what they drafted is not."""
    signals = Signals(series_of(SILENT), labels(SILENT), "10m")
    assert value(api, signals.acceptance()) is None
    assert value(api, signals.drafted()) is None
    assert value(api, signals.accepted_length()) == pytest.approx(LENGTH, rel=0.02)
    question = LiveQuery(SILENT, series_of(SILENT), series_of(SILENT), {}, scrape_s=60.0, routed=False)
    live = read(api.instant(combine(question.expressions(600.0, 600.0))), question, 600.0)
    assert live.acceptance != live.acceptance, "NaN: no number"
    observed, span = report_on(api, SILENT)
    assert report_pools.acceptance(observed, span, slice(span.hours, None)) is None
