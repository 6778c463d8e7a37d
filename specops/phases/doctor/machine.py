"""A check and its outcome; the checks of this machine: what is installed, its room, its GPUs."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from specops.assets import asset, restore_command
from specops.errors import FileError, install_command
from specops.gpus import GIB, NvmlUnavailable, devices, open_nvml
from specops.hints import folder_state
from specops.section import Frozen

Status = Literal["ok", "warn", "unknown", "fail"]
"""Unknown: it could not be observed, which is neither a yes nor a no; `fix` says how to find out."""

ANSWER_S = 5.0
"""How long a program or a server may take to answer."""


class FileText(Frozen):
    """Text for a file that the user keeps."""

    into: str
    """The file, and where the text goes in it."""

    text: str


class Check(Frozen):
    name: str
    status: Status
    found: str
    fix: str | None = None
    """A command to paste into a shell; words in capitals are to be filled in."""

    paste: FileText | None = None
    """Before the command, where there are both."""


DISK_WARN_GB = 1.0
DISK_FAIL_GB = 0.1


def packages() -> Iterator[Check]:
    for name, extra, use in (
        ("torch", "serve", "the embedded engine needs it"),
        ("transformers", "serve", "the embedded engine needs it"),
        ("ray", "ray", "only a sweep on many machines needs it"),
    ):
        try:
            yield Check(name=name, status="ok", found=version(name))
        except PackageNotFoundError:
            yield Check(
                name=name,
                status="warn" if extra == "serve" else "ok",
                found=f"not installed; {use}",
                fix=install_command(extra),
            )


def cores() -> Check:
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else total
    if usable > 1:
        return Check(name="cores", status="ok", found=str(usable))
    elsewhere = "specops doctor --base-url http://HOST:PORT/v1  # measure a server on another machine"
    all_of_them = f"taskset -pc 0-{total - 1} $$  # this shell may use all {total} cores"
    return Check(
        name="cores",
        status="warn",
        found="1; the load driver and a server on this machine would disturb each other",
        fix=all_of_them if total > 1 else elsewhere,
    )


def pair() -> Check:
    try:
        for model in ("target", "draft"):
            for file in ("config.json", "tokenizer.json", "model.safetensors"):
                asset("playbooks", "embedded", model, file)
    except FileError as error:
        return Check(name="shipped pair", status="fail", found=error.message, fix=restore_command())
    return Check(name="shipped pair", status="ok", found=str(asset("playbooks", "embedded")))


def port() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
    except OSError as error:
        return Check(
            name="port",
            status="fail",
            found=f"could not listen on 127.0.0.1: {error.strerror}",
            fix="ip link set lo up",
        )
    return Check(name="port", status="ok", found=f"127.0.0.1 has free ports, such as {port}")


def disk(folder: Path) -> Check:
    if not os.access(folder, os.W_OK | os.X_OK):
        message = f"results cannot be written in {folder.resolve()}"
        return Check(name="disk", status="fail", found=message, fix=folder_state(folder))
    free = shutil.disk_usage(folder).free / 1e9
    message = f"{free:.1f} GB free for results in {folder.resolve()}"
    if free >= DISK_WARN_GB:
        return Check(name="disk", status="ok", found=message)
    status: Status = "warn" if free >= DISK_FAIL_GB else "fail"
    return Check(name="disk", status=status, found=message, fix=_room(folder))


def _room(folder: Path) -> str:
    """A command that gives results in `folder` more room: another place if one has it."""
    place = folder.resolve()
    for parent in (Path.home(), Path("/var/tmp")):
        if parent.is_dir() and shutil.disk_usage(parent).free / 1e9 >= DISK_WARN_GB:
            target = parent / place.name
            return f"cp -r {shlex.quote(str(place))} {parent}/ && cd {shlex.quote(str(target))}"
    return f"du -xah {shlex.quote(str(place))} | sort -h | tail  # delete what is not needed"


QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
FULL = 0.9
"""A share of memory in use that leaves a server no room to start."""
DRIVER = (
    "modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia_uvm  # or install it again"
)


def gpus() -> Iterator[Check]:
    """A line for each GPU; a single line without GPUs, or where they cannot be queried."""
    try:
        nvml = open_nvml()
    except NvmlUnavailable:  # no driver, or one that fails: nvidia-smi distinguishes these
        yield _by_nvidia_smi()
        return
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        yield from (_gpu(nvml, handle, driver) for handle in devices(nvml))
    except nvml.NVMLError as error:
        yield Check(name="gpu", status="warn", found=f"NVML is installed but fails: {error}", fix=DRIVER)
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any, driver: str) -> Check:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    used, total = int(memory.used), int(memory.total)
    parts = [
        f"{_text(nvml.nvmlDeviceGetName(handle))}, {total / GIB:.0f} GiB, {used / GIB:.1f} in use",
        f"driver {driver}",
    ]
    if _partitioned(nvml, handle):
        parts.append("MIG is on: servers see its instances, not the whole GPU")
    return Check(
        name="gpu",
        status="warn" if used > FULL * total else "ok",
        found="; ".join(parts),
        fix="nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv  # then: kill PID",
    )


def _partitioned(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # a GPU that has no MIG
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _by_nvidia_smi() -> Check:
    try:
        answer = subprocess.run(QUERY, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except FileNotFoundError:
        return Check(name="gpu", status="ok", found="none; the embedded engine runs on the CPU")
    except (subprocess.SubprocessError, OSError) as error:
        return Check(name="gpu", status="warn", found=f"nvidia-smi is here and fails: {error}", fix=DRIVER)
    return Check(name="gpu", status="ok", found="; ".join(answer.stdout.strip().splitlines()))
