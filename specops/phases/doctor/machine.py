"""This machine: what is installed, and what there is room for."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from specops.assets import asset
from specops.errors import FileError
from specops.phases.doctor.check import Check, Status

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
                fix=f'pip install "specops[{extra}]"',
            )


def cores() -> Check:
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if usable > 1:
        return Check(name="cores", status="ok", found=str(usable))
    return Check(
        name="cores",
        status="warn",
        found="1; the load driver and a server on this machine would disturb each other",
        fix="measure a server elsewhere, or on a machine with two cores",
    )


def pair() -> Check:
    try:
        for model in ("target", "draft"):
            for file in ("config.json", "tokenizer.json", "model.safetensors"):
                asset("playbooks", "embedded", model, file)
    except FileError as error:
        return Check(name="shipped pair", status="fail", found=error.message, fix=error.hint)
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
            fix="let this process listen on the loopback interface",
        )
    return Check(name="port", status="ok", found=f"127.0.0.1 has free ports, such as {port}")


def disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free / 1e9
    found = f"{free:.1f} GB free for results in {folder.resolve()}"
    if free >= DISK_WARN_GB:
        return Check(name="disk", status="ok", found=found)
    status: Status = "warn" if free >= DISK_FAIL_GB else "fail"
    return Check(name="disk", status=status, found=found, fix="free some space, or run in another folder")
