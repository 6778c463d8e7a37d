"""`doctor`: the first look at an environment. Each check is one line, with its fix where it needs one.

machine.py     what is installed here, what there is room for, GPUs and their driver
programs.py    the router, Prometheus, Alertmanager, what schedules; a Prometheus that runs
endpoint.py    an endpoint, and the names on its /metrics
deployment.py  all that a rollout file names; whether both pools are one server, or the standard speculates
fixes.py       commands and texts that can be pasted

`examine` makes all checks, in the order in which they are read.
"""

from __future__ import annotations

import platform
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from specops import __version__
from specops.config import Rollout, Route, run_folder
from specops.phases.doctor import machine, programs
from specops.phases.doctor.deployment import deployment, engines
from specops.phases.doctor.endpoint import endpoint, usable
from specops.phases.doctor.machine import Check, gpus
from specops.results import Result, Verdict, environment


def examine(
    base_url: str | None = None,
    prometheus: str | None = None,
    rollout: Rollout | None = None,
    path: Path | None = None,
) -> list[Check]:
    """Look at this machine and, where they are given, at an endpoint, at a Prometheus by its root, and at all
    that a rollout names. `path` is the rollout file's; results are written beside it, else in this folder.

    Raises UsageError for a base URL that `specops baseline` would refuse, such as one with a password.
    """
    if base_url is not None:
        base_url = usable(base_url)
    checks = [
        Check(name="specops", status="ok", found=__version__),
        Check(name="python", status="ok", found=platform.python_version()),
        *machine.packages(),
        *gpus(),
        machine.cores(),
        machine.pair(),
        machine.port(),
        machine.disk(path.parent if path else Path()),
        programs.router((rollout.route if rollout else Route()).router),
        programs.prometheus(),
        programs.alertmanager(),
        programs.scheduler(),
    ]
    if rollout is None:  # else its own programs are examined
        checks += engines()
    if base_url is not None:
        checks += endpoint(base_url)
    if prometheus is not None:
        watched = (
            programs.ScrapedRollout(rollout, run_folder(path, rollout.rollout)) if rollout and path else None
        )
        checks += programs.prometheus_at(prometheus, watched, base_url)
    if rollout is not None:
        checks += deployment(rollout, path)
    return checks


class DoctorData(BaseModel):
    """`data` of the result."""

    model_config = ConfigDict(extra="forbid")

    checks: list[Check]


def result(checks: list[Check]) -> Result:
    """`no` when a check failed; undecided when something could not be observed. A warning is neither."""
    failed = [check.name for check in checks if check.status == "fail"]
    unknown = [check.name for check in checks if check.status == "unknown"]
    verdict: Verdict = "no" if failed else "undecided" if unknown else "yes"
    states = [("failed", failed), (f"{len(unknown)} unknown", unknown)]
    reason = "; ".join(f"{state}: {', '.join(names)}" for state, names in states if names)
    return Result(
        phase="doctor",
        environment=environment(),
        verdict=verdict,
        reason=reason or "no check failed",
        data=DoctorData(checks=checks).model_dump(mode="json"),
    )
