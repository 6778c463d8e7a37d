"""`doctor`: the first look at an environment. Each check is one line, with its mend where it needs one."""

from __future__ import annotations

import http.client
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from specops import prometheus
from specops.assets import asset
from specops.errors import EndpointError, FileError, UsageError
from specops.load.endpoint import checked_base_url
from specops.results import Result, environment

Status = Literal["ok", "warn", "fail"]

DISK_WARN_GB = 1.0
DISK_FAIL_GB = 0.1
ANSWER_S = 5.0
"""How long a command or an endpoint may take to answer."""
METRICS = (
    prometheus.DRAFTS,
    prometheus.DRAFT_TOKENS,
    prometheus.ACCEPTED_TOKENS,
    prometheus.ACCEPTED_PER_POSITION,
    prometheus.GENERATION_TOKENS,
)
"""What the phases read from a server's /metrics."""


class Check(BaseModel):
    name: str
    status: Status
    found: str
    mend: str | None = None


def examine(base_url: str | None = None, folder: Path = Path()) -> list[Check]:
    """Look at this machine and, given `base_url`, at that endpoint. Results would be written in `folder`.

    Raises UsageError for a base URL that `specops baseline` would refuse, such as one with a password.
    """
    if base_url is not None:
        base_url = _usable(base_url)
    checks = [
        Check(name="python", status="ok", found=platform.python_version()),
        *_packages(),
        _gpu(),
        _cores(),
        _pair(),
        _port(),
        _disk(folder),
    ]
    if base_url is not None:
        checks += _endpoint(base_url)
    return checks


def result(checks: list[Check]) -> Result:
    """`no` when a check failed; a warning is no failure."""
    failed = [check.name for check in checks if check.status == "fail"]
    return Result(
        phase="doctor",
        environment=environment(),
        verdict="no" if failed else "yes",
        reason=f"failed: {', '.join(failed)}" if failed else "no check failed",
        data={"checks": [check.model_dump() for check in checks]},
    )


def _packages() -> Iterator[Check]:
    for name, extra, use in (
        ("torch", "serve", "the embedded engine needs it"),
        ("transformers", "serve", "the embedded engine needs it"),
        ("vllm", None, "only pools that specops starts with vLLM need it"),
    ):
        try:
            yield Check(name=name, status="ok", found=version(name))
        except PackageNotFoundError:
            yield Check(
                name=name,
                status="warn" if extra else "ok",
                found=f"not installed; {use}",
                mend=f'pip install "specops[{extra}]"' if extra else None,
            )


def _gpu() -> Check:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except FileNotFoundError:
        return Check(name="gpu", status="ok", found="none; the embedded engine runs on the CPU")
    except (subprocess.SubprocessError, OSError) as error:
        return Check(
            name="gpu",
            status="warn",
            found=f"nvidia-smi is here and fails: {error}",
            mend="reload or install the driver that fits the kernel",
        )
    return Check(name="gpu", status="ok", found="; ".join(answer.stdout.strip().splitlines()))


def _cores() -> Check:
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if usable > 1:
        return Check(name="cores", status="ok", found=str(usable))
    return Check(
        name="cores",
        status="warn",
        found="1; the load driver and a server on this machine would disturb each other",
        mend="measure a server elsewhere, or on a machine with two cores",
    )


def _pair() -> Check:
    try:
        for model in ("target", "draft"):
            for file in ("config.json", "tokenizer.json", "model.safetensors"):
                asset("playbooks", "embedded", model, file)
    except FileError as error:
        return Check(name="shipped pair", status="fail", found=error.message, mend=error.hint)
    return Check(name="shipped pair", status="ok", found=str(asset("playbooks", "embedded")))


def _port() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
    except OSError as error:
        return Check(
            name="port",
            status="fail",
            found=f"could not listen on 127.0.0.1: {error.strerror}",
            mend="let this process listen on the loopback interface",
        )
    return Check(name="port", status="ok", found=f"127.0.0.1 has free ports, such as {port}")


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free / 1e9
    found = f"{free:.1f} GB free for results in {folder.resolve()}"
    if free >= DISK_WARN_GB:
        return Check(name="disk", status="ok", found=found)
    status: Status = "warn" if free >= DISK_FAIL_GB else "fail"
    return Check(name="disk", status=status, found=found, mend="free some space, or run in another folder")


def _usable(base_url: str) -> str:
    try:
        return checked_base_url(base_url)
    except ValueError as error:
        raise UsageError(
            f"could not use --base-url: it {error}", hint="give the API's root, such as http://host:8000/v1"
        ) from None


def _endpoint(base_url: str) -> Iterator[Check]:
    key = os.environ.get("SPECOPS_API_KEY") or os.environ.get("OPENAI_API_KEY")
    request = urllib.request.Request(
        f"{base_url}/models", headers={"Authorization": f"Bearer {key}"} if key else {}
    )
    try:
        with prometheus.opener(base_url).open(request, timeout=ANSWER_S) as answer:
            models = [str(model["id"]) for model in json.load(answer)["data"]]
    except urllib.error.HTTPError as error:
        error.close()
        refused = error.code in (401, 403)
        yield Check(
            name="endpoint",
            status="fail",
            found=f"{base_url}/models answered {error.code}",
            mend="set SPECOPS_API_KEY to a key that it accepts" if refused else "give its URL up to /v1",
        )
        return
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        yield Check(
            name="endpoint",
            status="fail",
            found=f"{base_url}/models gave no list of models: {getattr(error, 'reason', error)}",
            mend="start the server, or give the URL of its API up to /v1",
        )
        return
    yield Check(name="endpoint", status="ok", found=f"{base_url} serves {', '.join(models) or 'no model'}")
    yield _metrics(base_url)


def _metrics(base_url: str) -> Check:
    try:
        exposed = {name for name, _ in prometheus.scrape(base_url)}
    except EndpointError as error:
        return Check(
            name="metrics",
            status="warn",
            found=error.message,
            mend="without /metrics latency is still measured, acceptance is not",
        )
    missing = [name for name in METRICS if name not in exposed]
    if not missing:
        return Check(name="metrics", status="ok", found="every name that specops reads is there")
    return Check(
        name="metrics",
        status="warn",
        found=f"missing: {', '.join(missing)}",
        mend="servers show the draft counters only while they speculate; see its start command",
    )
