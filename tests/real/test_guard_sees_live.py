"""A server that decodes, scraped by a real Prometheus, seen by the guard: its names are there, and mean what
they say."""

from __future__ import annotations

import json
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from daemons import prometheus, wait_until

from specops.guard.signals.criteria import Criteria, Missing
from specops.guard.signals.observation import observe
from specops.guard.signals.query import LiveQuery
from specops.guard.state import Threshold
from specops.launch.servers import Server
from specops.prometheus import exposition
from specops.prometheus.api import Api
from specops.serving.vllm.pool import SERIES as VLLM

(DRAFTS,) = VLLM.acceptance
DRAFT_TOKENS = DRAFTS.draft_tokens


def answer(server: Server) -> None:
    body = {"model": server.model, "prompt": "the server measures", "max_tokens": 24, "ignore_eos": True}
    request = urllib.request.Request(
        f"{server.base_url}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()


@pytest.mark.slow
def test_what_a_server_counts_is_what_the_guard_sees(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "prometheus.yml"
    target = {"targets": [urlsplit(server.base_url).netloc]}
    target["labels"] = {"specops_pool": "speculative", "specops_rollout": "live"}  # type: ignore[assignment]
    job = {"job_name": "pool", "scrape_interval": "500ms", "static_configs": [target]}
    config.write_text(json.dumps({"scrape_configs": [job]}))
    plan = Criteria(
        query=LiveQuery("live", VLLM, VLLM, {}, scrape_s=0.5, routed=False),
        window_s=120.0,
        min_acceptance=Threshold(value=0.0001, source="the test"),
        baseline=Missing("there is none"),
        regression=Threshold(value=1.2, source="the test"),
        max_error_share=Threshold(value=0.05, source="the test"),
        min_requests=5,
    )
    with prometheus(config, tmp_path) as up:
        api = Api(up.url)
        wait_until(lambda: api.instant('up{specops_rollout="live"} == 1'), "a scrape")
        began = time.time()
        assert observe(api, plan, time.time()).verdict in ("no_data", "no_traffic")
        enough = f"count_over_time({DRAFT_TOKENS}[1m]) >= 12"
        wait_until(lambda: api.instant(enough), "some seconds of scrapes: it extrapolates by one")
        before = exposition.scrape(server.base_url)
        for _ in range(30):
            answer(server)
        after = exposition.scrape(server.base_url)
        drafted = sum(value for (name, _), value in after.items() if name == DRAFT_TOKENS)
        wait_until(
            lambda: api.instant(f"sum({DRAFT_TOKENS}) == {drafted}"),
            "all to be scraped",
        )
        covered = replace(plan, window_s=float(round(time.time() - began)))  # all that was scraped
        found = {one.signal: one for one in observe(api, covered, time.time()).findings}
        api.close()
    counts = exposition.draft_counts(before, after)
    assert isinstance(counts, exposition.DraftCounts)
    assert found["acceptance"].value == pytest.approx(counts.rate, abs=0.02)
    assert found["acceptance"].n == pytest.approx(counts.draft_tokens, rel=0.25)  # increases are extrapolated
    assert found["tpot"].n == pytest.approx(30, rel=0.25)
    assert (found["errors"].verdict, found["errors"].value) == ("healthy", 0.0)
