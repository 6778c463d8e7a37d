"""`specops checklist` beside what runs: a router, a guard, a Prometheus, asked while they are up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import specops
from daemons import free_port, prometheus, wait_until
from guarded import Deployment, Load, deployment, guard, stub_pool
from routers import running

from specops.config import load

Items = dict[str, dict[str, Any]]


def checked(up: Deployment) -> Items:
    done = specops("checklist", str(up.file), "--out", str(up.run), "--quiet", "--json")
    assert done.returncode in (1, 4), done.stderr
    return {item["name"]: item for item in json.loads(done.stdout)["data"]["items"]}


@pytest.mark.slow
def test_what_runs_is_seen_to_run_and_what_does_not_is_never_passed(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": []}))
    with (
        stub_pool() as standard,
        stub_pool() as speculative,
        prometheus(tmp_path / "prometheus.yml", tmp_path) as watching,
    ):
        addresses = {"prometheus": watching.url, "standard": [standard], "speculative": [speculative]}
        up = deployment(tmp_path / "up", guard={"interval_s": 1}, addresses=addresses)
        for command in (("route", "render"), ("monitor", "render")):
            done = specops(*command, str(up.file), "--out", str(up.run), "--quiet")
            assert done.returncode == 0, done.stderr
        items = checked(up)
        assert items["routing"]["status"] == "open", items["routing"]["found"]
        assert "could not see where router" in items["routing"]["found"]
        assert items["monitoring"]["status"] == "failed"  # a Prometheus that has loaded nothing
        assert items["monitoring"]["decide"] == f"specops monitor check {up.file}"
        assert items["guard-running"]["status"] == "open"
        assert items["fallback-tested"]["status"] == "open"
        with running(up.run, load(up.file)) as router, guard(up), Load(router.url, clients=2):
            wait_until(lambda: up.status().evaluation, "its first evaluation", 30)
            drilled = up.specops("drill", "--quiet")
            assert drilled.returncode == 0, drilled.stderr
            items = checked(up)
            assert items["routing"]["status"] == "passed"
            assert "decided so far" in items["routing"]["found"]
            assert items["fallback-tested"]["status"] == "passed"
            assert items["fallback-tested"]["evidence"][0]["source"] == "guard-drill.json"
            # It runs, and there is nothing in that Prometheus for it to see.
            assert items["guard-running"]["status"] == "failed"
            assert "has no data" in items["guard-running"]["found"]
            other = deployment(tmp_path / "other", addresses=up.sections["addresses"])
            other.sections["rollout"] = "other"
            other.add()
            rendered = specops("route", "render", str(other.file), "--out", str(other.run), "--quiet")
            assert rendered.returncode == 0, rendered.stderr
            items = checked(other)
            assert items["routing"]["status"] == "open"
            assert items["routing"]["found"].endswith("runs tiny, not other")
        up.add(routers=[f"127.0.0.1:{free_port()}"])
        items = checked(up)
        assert items["guard-running"]["status"] == "open"  # it was stopped
        for name in ("routing", "fallback-tested", "monitoring"):  # of other addresses
            assert items[name]["status"] == "open", items[name]["found"]
            assert "addresses changed since" in items[name]["found"]
