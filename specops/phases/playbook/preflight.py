"""What is checked before a walk sends its first request: in seconds, and before the question."""

from __future__ import annotations

from collections.abc import Sequence

from specops.errors import EnvironmentFailure, SpecopsError, UsageError
from specops.hints import ROLLOUT
from specops.phases import PhaseName
from specops.phases.doctor.deployment import addressed
from specops.phases.doctor.machine import Check, disk
from specops.phases.phase import PhaseInput
from specops.phases.playbook.endpoints import check_endpoints
from specops.phases.playbook.walk import WalkForecast, forecast
from specops.progress import Progress

USAGE = ("prompts",)
"""Checks whose failure is wrong usage; any other is the environment's."""

LATER = ("router", "guard", "prometheus server")
"""Checks whose warning is worth a line: no phase that measures needs them, and a later one does."""


def preflight(phase_input: PhaseInput, only: PhaseName | None = None) -> WalkForecast:
    """Return what the walk would do, once what its requests need is there. Nothing is checked where it sends
    none. The checks are those of `specops doctor`.

    Raises what `check_endpoints` raises, before anything is sent. Raises EnvironmentFailure with all problems
    in its message, UsageError where the prompts are the only one; and what `forecast` raises.
    """
    planned: WalkForecast | SpecopsError
    try:
        planned = forecast(phase_input, only)
    except SpecopsError as error:
        planned = error  # such as prompts that cannot be read: others may be wrong as well
    if isinstance(planned, SpecopsError) or any(planned.load):
        check_endpoints(phase_input)  # first, since it sends nothing
        folder = phase_input.folder
        existing = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
        checks = [disk(existing), *addressed(phase_input.rollout, phase_input.file)]
        _refuse([check for check in checks if check.status == "fail"])
        _note(checks, phase_input.progress)
    if isinstance(planned, SpecopsError):
        raise planned
    return planned


def _refuse(failed: Sequence[Check]) -> None:
    if not failed:
        return
    lines = [line for check in failed for line in _described(check)]
    if len(failed) > 1:
        lines = [f"{len(failed)} problems", *(f"  {line}" for line in lines)]
    error = UsageError if all(check.name in USAGE for check in failed) else EnvironmentFailure
    raise error("nothing was measured: " + "\n".join(lines), hint=f"specops doctor {ROLLOUT}  # checks again")


def _described(check: Check) -> list[str]:
    fix = [f"  fix: {check.fix}"] if check.fix else []
    if check.paste:
        fix = [f"  fix: paste this into {check.paste.into}", *check.paste.text.splitlines(), *fix]
    return [f"{check.name}: {check.found}", *fix]


def _note(checks: Sequence[Check], progress: Progress) -> None:
    for check in checks:
        if check.name in LATER and check.status != "ok":
            progress.note(f"{check.name}: {check.found}")
