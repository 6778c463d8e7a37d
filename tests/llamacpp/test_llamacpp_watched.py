"""Two real servers of llama.cpp behind a real NGINX, scraped by a real Prometheus: rules, guard and report.

llama.cpp's server counts tokens and drafts, and no requests. How many there were, and how long they took,
comes from the router, whose series Prometheus gives the pool's label.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest
import yaml
from calling import specops
from conftest import Serve
from daemons import free_port, prometheus, wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))
from routers import ask, running

from specops.assets import asset
from specops.config import Rollout
from specops.guard.signals.observation import observe
from specops.guard.state import Evaluation
from specops.phases.guard import criteria_of
from specops.phases.monitor.render import FOLDER, render
from specops.phases.report.assembly import report
from specops.phases.report.report import ReportWindow
from specops.phases.run_folder import RunFolder
from specops.progress import SilentProgress
from specops.prometheus import series
from specops.prometheus.api import Api
from specops.prometheus.promql import LATENCIES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
POOLS = ("standard", "speculative")
TEXTS = [one["text"] for one in json.loads(asset("playbooks", "embedded", "prompts.json").read_text())[:8]]


def rollout(servers: dict[str, str], standard: dict[str, Any], drafting: dict[str, Any]) -> dict[str, Any]:
    admin = f"127.0.0.1:{free_port()}"
    nginx: dict[str, Any] = {"workers": 1}
    route = {"listen": f"127.0.0.1:{free_port()}", "admin": admin, "nginx": nginx}
    if os.geteuid() == 0:
        nginx["user"] = "root"  # its worker writes into a folder of the test's own
    addresses: dict[str, Any] = {name: [urlsplit(url).netloc] for name, url in servers.items()}
    return {
        "rollout": "watched",
        "pools": {"standard": standard, "speculative": standard | {"speculation": drafting}},
        "addresses": addresses | {"routers": [admin]},
        "route": route,
        "monitor": {"scrape_interval_s": 1, "window_s": 20},
        "guard": {"min_acceptance": 0.01, "min_requests": 5},
        "effect": {"holdout": 0},  # so that the rules alone decide the pool
    }


def test_rules_guard_and_report_have_all_that_there_is(
    serve: Serve, standard, drafting, tmp_path: Path
) -> None:
    with serve(standard) as one, serve(standard | {"speculation": drafting}) as other:
        file = rollout(dict(zip(POOLS, (one.base_url, other.base_url), strict=True)), standard, drafting)
        made = Rollout.model_validate(file)
        path = tmp_path / "rollout.yaml"
        path.write_text(yaml.safe_dump(file))
        render(made, tmp_path, SilentProgress())
        config = tmp_path / FOLDER / "prometheus.yml"
        with running(tmp_path / "route", made) as router, prometheus(config, tmp_path) as up:
            api = Api(up.url)

            def traffic() -> None:
                for number, text in enumerate(TEXTS):
                    body = {"model": "shipped", "prompt": text, "temperature": 0, "stream": True}
                    body["max_tokens"] = (260, 16)[number % 2]  # long answers draft
                    answer = ask(f"{router.url}/v1/completions", body)
                    assert answer.status == 200, answer.body
                    assert answer.route[0] == POOLS[1 - number % 2]

            def checked() -> Any:
                traffic()
                words = ("monitor", "check", str(path), "--prometheus", up.url, "--quiet", "--json")
                return json.loads(specops(*words).stdout)

            def all_there() -> bool:
                found = checked()
                unseen = {one["name"] for one in found["data"]["names"] if one["status"] == "no traffic"}
                return found["verdict"] == "yes" and unseen <= {series.ROUTE_FAILOVERS}

            wait_until(all_there, f"every name: {checked()['reason']}", 90)
            names = [*series.MEAN.values(), series.FINISHED, series.ANSWER_TOKENS, series.CONCURRENCY]
            for pool in POOLS:
                of = f'{{specops_pool="{pool}"}}'
                has = partial(_all, api, [name + of for name in names])
                wait_until(has, f"values of {pool}", 60)
                [tokens] = api.instant(series.ANSWER_TOKENS + of)
                assert 0 < tokens.value < 320
                mean = {latency: api.instant(series.MEAN[latency] + of)[0].value for latency in LATENCIES}
                assert 0 < mean["tpot"] < mean["e2e"]
                assert mean["ttft"] < mean["e2e"]
            [rate] = api.instant(f'{series.ACCEPTANCE}{{specops_pool="speculative"}}')
            assert 0 < rate.value < 1
            positions = api.instant(f'{series.PER_POSITION}{{specops_pool="speculative"}}')
            assert len(positions) == drafting["n_max"]
            assert not api.instant(series.KV_USAGE), "it has no such gauge"
            criteria = criteria_of(made, RunFolder(tmp_path))

            def seen() -> Evaluation:
                traffic()
                return observe(api, criteria, time.time())

            def judged() -> Evaluation | None:
                found = seen()
                counted = _verdict(found, "acceptance") in ("healthy", "bad")
                return found if counted and _verdict(found, "errors") == "healthy" else None

            wait_until(judged, "acceptance and errors, judged", 90)
            found = seen()
            # There is no baseline to compare with; but both were measured.
            assert {_verdict(found, signal) for signal in ("tpot", "e2e")} <= {"unknown", "no_traffic"}
            # As of the end of this hour, since a report is of whole ones.
            ends = 3600 * (1 + int(time.time()) // 3600)
            window = ReportWindow(ends - 7200, ends, ZoneInfo("UTC"))
            written = report(made, path, tmp_path, window, api, SilentProgress()).data["pools"]
            for pool in POOLS:
                found = written[pool]
                assert found["requests"] > 0
                tokens, answers = found["generated_tokens"], found["latencies"]["ttft"]["n"]
                assert found["latencies"]["tpot"]["n"] == tokens - answers, "all but the first of each"
                assert (found["preemptions"], found["kv_usage"]) == (None, None)
            counted = written["speculative"]["acceptance"]
            assert 0 < counted["rate"] < 1
            assert counted["length"] == pytest.approx(1 + counted["accepted_tokens"] / counted["drafts"])
            api.close()


def _all(api: Api, names: list[str]) -> bool:
    return all(api.instant(name) for name in names)


def _verdict(found: Evaluation, signal: str) -> str | None:
    return next((one.verdict for one in found.findings if one.signal == signal), None)
