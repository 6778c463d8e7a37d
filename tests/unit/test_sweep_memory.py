"""What a server takes: its process group's peak, and its devices' use as NVML would tell it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from specops.phases.sweep.measure import Footprint
from specops.phases.sweep.plan import Memory

GIB = 2**30
HOG = """
import subprocess, sys
work = "x = bytearray(b'1') * 2**26; print(flush=True); import time; time.sleep(600)"
worker = subprocess.Popen([sys.executable, "-c", work])
x = bytearray(b"1") * 2**26
input()
del x
print("freed", flush=True)
input()
"""


class NVMLError(Exception):
    pass


class FakeNvml(SimpleNamespace):
    """Two devices of 80 GiB, in use as `used` says; `pids` run on them."""

    NVMLError = NVMLError

    def __init__(self, used: list[int], pids: list[list[int]]) -> None:
        super().__init__(used=used, pids=pids)

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.used)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, device: int) -> str:
        return f"GPU-{device}8f2a"

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(used=self.used[device] * GIB, total=80 * GIB)

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids[device]]


@contextmanager
def hogging(**variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that leads a group, and its worker: each takes 64 MiB, the leader until it reads a line."""
    clean = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    with subprocess.Popen(
        [sys.executable, "-c", HOG],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=clean | variables,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # of the worker
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def hog() -> Iterator[subprocess.Popen[str]]:
    with hogging() as process:
        yield process


def say(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    print(file=process.stdin, flush=True)
    return process.stdout.readline()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_peak_is_the_groups_and_begins_anew_with_each_cell(hog) -> None:
    footprint = Footprint(hog.pid)
    footprint.reset()
    while (most := footprint.most().resident_gib or 0) < 2 * 64 / 1024:
        time.sleep(0.02)  # the leader may not have its own yet
    assert most < 0.5
    assert say(hog) == "freed\n"
    # At its most, though 64 MiB are free now. The kernel counts pages in batches, a few hundred of them by
    # processor, so that the same peak may be read some hundreds of KiB lower a moment later.
    assert (footprint.most().resident_gib or 0) >= most - 2 / 1024
    footprint.reset()
    assert (footprint.most().resident_gib or 0) < most - 50 / 1024


def test_nothing_is_known_of_a_server_that_specops_did_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([70, 1], [[1], []]))
    footprint = Footprint(None)
    footprint.reset()
    assert footprint.most() == Memory()


def test_the_devices_are_those_that_the_group_runs_on(hog, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([70, 30], [[1], [hog.pid]])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    footprint = Footprint(hog.pid)
    footprint.reset()
    nvml.used = [75, 28]
    most = footprint.most()
    assert (most.gpu_gib, most.gpu_total_gib) == (30, 80)  # it had more when the cell began
    nvml.used = [75, 31]
    assert footprint.most().gpu_gib == 31


@pytest.mark.parametrize(
    ("visible", "used"), [(None, 71), ("1", 1), ("0,1", 71), ("GPU-08f", 70), ("GPU-9", None), ("", None)]
)
def test_where_nvml_knows_no_process_the_visible_devices_count(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, used: int | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([70, 1], [[], []]))
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with hogging(**variables) as process:
        assert Footprint(process.pid).most().gpu_gib == used


def test_without_a_driver_there_is_no_gpu(hog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NVMLError

    nvml = FakeNvml([70], [[]])
    nvml.nvmlInit = refuse
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert Footprint(hog.pid).most().gpu_gib is None
