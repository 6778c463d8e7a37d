"""`doctor ROLLOUT`: all that the file names is looked at where it is; GPUs and vLLM, as they may be."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from calling import specops
from daemons import free_port
from routers import ask

from specops.config import load
from specops.errors import Exit
from specops.phases.doctor import examine
from specops.phases.doctor.deployment import engines
from specops.phases.doctor.machine import Check, gpus
from specops.serving import vllm
from specops.serving.vllm.versions import Version


def looked(path: Path) -> dict[str, Check]:
    return {check.name: check for check in examine(rollout=load(path))}


def test_endpoints_of_the_embedded_engine_have_every_name_that_monitoring_reads(written, server) -> None:
    body = {"model": server.model, "prompt": "the server", "max_tokens": 16, "stream": True}
    assert ask(f"{server.base_url}/completions", body).status == 200, "some names come with traffic"
    found = looked(written())
    for pool in ("standard", "speculative"):
        for name in ("endpoint", "metrics", "metric names"):
            assert found[f"{pool} {name}"].status == "ok", found[f"{pool} {name}"]
    assert found["prompts"].found.startswith("18 in 3 traffic classes; too few prompts of class ")


def test_what_is_not_there_is_named_with_its_mend(written, server) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    path = written(
        pools={
            "standard": {"engine": "endpoint", "base_url": f"http://{nowhere}/v1", "model": "tiny"},
            "speculative": {"engine": "endpoint", "base_url": server.base_url, "model": "another"},
        },
        addresses={"routers": [nowhere], "guard": nowhere, "prometheus": f"http://{nowhere}"},
    )
    found = looked(path)
    assert found["standard endpoint"].status == "fail"
    assert "serves tiny, not another" in found["speculative endpoint"].found
    assert found["speculative endpoint"].status == "fail"
    assert found["prometheus server"].status == "fail"
    assert (found["router"].status, found["guard"].status) == ("warn", "warn")
    assert all(check.fix or check.paste for check in found.values() if check.status != "ok")
    done = specops("doctor", str(path))
    assert done.returncode == Exit.NO
    assert f"\nspecops guard run {path}\n" in done.stdout, "below the address that is pasted"


def test_programs_that_start_the_pools_are_looked_for(written) -> None:
    command = {"engine": "command", "command": "no-such-server --port {port}"}
    vllm = {"engine": "vllm", "model": "m", "program": "no-such-vllm serve"}
    speculating = vllm | {"speculation": {"method": "ngram"}}
    found = looked(written(pools={"standard": command, "speculative": command}))
    assert (found["program"].status, "no-such-server" in found["program"].found) == ("fail", True)
    found = looked(written(pools={"standard": vllm, "speculative": speculating}))
    assert found["vllm (no-such-vllm serve)"].status == "fail"


def test_vllm_is_told_by_what_its_version_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(version: str) -> Check:
        monkeypatch.setattr(vllm, "installed", lambda _: Version.parse(version))
        return next(check for check in engines() if check.name == "vllm")

    new = of("0.32.0")
    assert (new.status, new.found.startswith("0.32.0; drafts by ngram, draft_model, eagle")) == ("ok", True)
    assert "--speculative-config in place of --speculative-model" in new.found
    assert "disable_by_batch_size" in new.found
    assert "in place of" not in of("0.8.0").found
    assert of("9.9.9").status == "warn"
    assert of("0.5.0").status == "warn"


class Nvml:
    """nvidia-ml-py, as far as it is asked, with two GPUs."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_DEVICE_MIG_ENABLE = 1

    def __init__(self, used: float = 0.01, mig: bool = False) -> None:
        self.used, self.mig = used, mig
        self.open = False

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _: int) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, _: int) -> Any:
        return SimpleNamespace(total=141 * 2**30, used=int(self.used * 141 * 2**30))

    def nvmlDeviceGetMigMode(self, index: int) -> tuple[int, int]:
        if index:
            raise self.NVMLError("Not Supported")
        return int(self.mig), int(self.mig)


def test_gpus_are_told_with_driver_memory_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(nvml: Nvml) -> list[Check]:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        found = list(gpus())
        assert not nvml.open
        return found

    free = seen(Nvml())
    assert [one.status for one in free] == ["ok", "ok"]
    assert free[0].found == "NVIDIA H200, 141 GiB, 1.4 in use; driver 580.1"
    assert [one.status for one in seen(Nvml(used=0.95))] == ["warn", "warn"]
    assert ["MIG is on" in one.found for one in seen(Nvml(mig=True))] == [True, False]
