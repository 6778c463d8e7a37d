"""playbooks/vllm-pools.yaml walked: two endpoints that run already, NGINX and Prometheus as the walk rendered
them, and the drill on live traffic, which is asked for by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from daemons import free_port, nginx, program, prometheus
from guarded import Load
from walking import CANARY, MEASURE, PROMPTS, walk

from specops.assets import asset
from specops.launch.servers import LoggedAddress, running
from specops.phases import guard_drill
from specops.phases.checklist.evidence import ChecklistData
from specops.phases.playbook import Walk
from specops.progress import SilentProgress
from specops.router.nginx import CONF
from specops.serving.embedded import ANNOUNCED, EmbeddedPool

MEASURED = ["baseline", "ab", "canary"]


def of_this_machine(folder: Path, standard: str, speculative: str, model: str) -> Path:
    """The file as it ships, with addresses of loopback, and less to measure."""
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("listen", "admin", "guard", "prometheus")}
    file: dict[str, Any] = yaml.safe_load(asset("playbooks", "vllm-pools.yaml").read_text())
    for name, base_url in (("standard", standard), ("speculative", speculative)):
        file["pools"][name] |= {"base_url": base_url, "model": model}
    file["measure"] |= MEASURE | {"repeats": 1, "max_rps": 200.0}
    file["addresses"] |= {
        "routers": [ports["admin"]],
        "guard": ports["guard"],
        "gpus": [],
        "alertmanagers": [],
        "prometheus": f"http://{ports['prometheus']}",
    }
    file["route"] |= {"listen": ports["listen"], "admin": ports["admin"], "nginx": {"workers": 1}}
    file["route"]["speculate"] = (
        True  # the comparison of a random draft deploys nothing, and the drill needs traffic
    )
    if os.geteuid() == 0:
        # Workers write the switch's file into a folder of the test's own.
        file["route"]["nginx"]["user"] = "root"
    file["ab"] |= {"requests": 60, "min_duration_s": 0.0}
    file["guard"] |= {"listen": ports["guard"]}
    file |= {"prompts": "prompts.json", "canary": CANARY}
    (folder / "prompts.json").write_text(json.dumps(PROMPTS))
    (folder / "rollout.yaml").write_text(yaml.safe_dump(file))
    return folder / "rollout.yaml"


def items(done: Walk) -> dict[str, str]:
    step = done.step("checklist")
    assert step is not None
    return {item.name: item.status for item in ChecklistData.model_validate(step.result.data).items}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_pools_from_measuring_to_the_checklist(server, tiny_pair, tmp_path, monkeypatch) -> None:
    program("nginx")
    program("prometheus")
    monkeypatch.setattr(guard_drill, "WATCH_S", 0.5)
    pool = EmbeddedPool.model_validate({"engine": "embedded", "target": tiny_pair[0], "threads": 1})
    words = pool.start(0, server.model).words
    log = tmp_path / "standard.log"
    with running(
        "standard", words, address=LoggedAddress(ANNOUNCED), log=log, progress=SilentProgress()
    ) as standard:
        path = of_this_machine(tmp_path, standard.base_url, server.base_url, server.model)
        first, notes = walk(path, go_on=True)
        assert [one.phase for one in first.skipped] == ["drafts", "sweep", "guard-drill"]
        assert notes.said("guard-drill", "moves their live traffic")
        assert (items(first)["routing"], items(first)["fallback-tested"]) == ("open", "open")
        rendered = path.parent / "run" / "rendered"
        prefix, monitor = rendered / "nginx", rendered / "monitor"
        sections = yaml.safe_load(path.read_text())
        url = f"http://{sections['route']['listen']}"
        with (
            nginx(prefix / CONF, prefix, url=url, ready="/nowhere"),
            prometheus(monitor / "prometheus.yml", tmp_path) as watching,
        ):
            sections["addresses"]["prometheus"] = watching.url
            path.write_text(yaml.safe_dump(sections))
            with Load(url, clients=2) as load:
                drilled, _ = walk(path, only="guard-drill")
            assert load.failures == []
            assert [step.result.verdict for step in drilled.steps] == ["yes"]
            second, _ = walk(path, go_on=True)
    assert [step.phase for step in second.steps if step.reused] == [*MEASURED, "guard-drill"]
    assert (items(second)["routing"], items(second)["fallback-tested"]) == ("passed", "passed")
    assert items(second)["runbook-shared"] == "open", "only a person can say it"
    assert second.exit_code != 0
