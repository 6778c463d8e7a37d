"""Which results count as yardsticks: those of the rollout's models, engine version, prompts and settings as
they are now. The guard, `monitor render` and the capacity gate decide by the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specops import results
from specops.actions.http_client import ask_json
from specops.config import Pool, Rollout
from specops.errors import EndpointError, SpecopsError
from specops.load.settings import OF_THE_RUN
from specops.phases.ab.settings import AbSettings, Arm
from specops.phases.inputs import changed, inputs_of, inputs_of_arms, inputs_of_settings, settings_of
from specops.phases.sweep.plan import STANDARD
from specops.results import Result
from specops.serving import pool_of

ASK_S = 1.0


def unlike(rollout: Rollout, result: Result, version: str | None = None) -> str | None:
    """What changed in the rollout since `result` was measured, in words; None where it is a yardstick.

    `version`: what the standard pool's server says that it is now; None where it does not say. A result of a
    phase that measures no yardstick has nothing to compare. Raises SpecopsError where the prompts, or a model
    of the rollout, cannot be read.
    """
    then = result.environment.get("server")
    if version is not None and isinstance(then, str) and then != version:
        return f"the engine version ({then} then, {version} now)"
    check = CHECKS.get(result.phase)
    return check(rollout, result) if check is not None else None


def left_out(rollout: Rollout, folder: Path, version: str | None = None) -> dict[str, str]:
    """By phase, why a result in the run folder is not a yardstick. Missing and damaged results are not among
    them: whoever reads them says so."""
    found = {}
    for phase in CHECKS:
        path = folder / f"{phase}.json"
        if not path.exists():
            continue
        try:
            result = results.read(path)
        except SpecopsError:
            continue
        try:
            what = unlike(rollout, result, version) if result.phase == phase else None
        except SpecopsError as error:
            found[phase] = f"whether it is of this rollout is not known: {error.message}"
        else:
            if what is not None:
                found[phase] = f"{what} changed since"
    return found


def version_of(rollout: Rollout) -> str | None:
    """What the standard pool's server says at /version; None where it does not answer within a second."""
    pool = rollout.pools.standard
    if pool.endpoint is not None:
        root = pool.endpoint.base_url.rstrip("/").removesuffix("/v1")
    elif rollout.addresses.standard:
        root = f"http://{rollout.addresses.standard[0]}"
    else:
        return None
    try:
        said = ask_json("read the engine's version", "GET", f"{root}/version", timeout_s=ASK_S)
    except EndpointError:
        return None
    version = said.get("version") if isinstance(said, dict) else None
    return version if isinstance(version, str) and version else None


def _baseline(rollout: Rollout, result: Result) -> str | None:
    pool = rollout.pools.standard
    now = inputs_of(settings_of(rollout, pool), pool)
    return _changed(result, now, here=pool.own is not None)


def _ab(rollout: Rollout, result: Result) -> str | None:
    pools = rollout.pools
    arms = [Arm("standard", pools.standard), Arm("speculative", pools.speculative)]
    requested = settings_of(rollout, pools.standard)
    now = inputs_of_arms(arms, requested, AbSettings(**rollout.ab.model_dump()), requested.prompt_set())
    return _changed(result, now, here=any(arm.pool.own is not None for arm in arms))


def _sweep(rollout: Rollout, result: Result) -> str | None:
    """Its standard, its models and the settings of its requests; not its grid, which may have grown."""
    pool, requested = rollout.pools.standard, settings_of(rollout, rollout.pools.standard)
    swept = result.settings.get("settings") or {}
    if swept.get(STANDARD) != pool.model_dump(mode="json"):
        return "the standard pool"
    prompts = requested.prompt_set()
    if result.inputs.get("prompts") != prompts.sha256:
        return "the prompts"
    plan = {name: value for name, value in requested.plan().items() if name not in OF_THE_RUN}
    if any(result.settings.get(name) != value for name, value in plan.items()):
        return "the settings"
    now = inputs_of_settings(_pools(swept), requested, {}, prompts)
    return None if now.get("models") == result.inputs.get("models") else "a model"


def _pools(swept: Mapping[str, Any]) -> dict[str, Pool]:
    try:
        return {name: pool_of(pool) for name, pool in swept.items()}
    except ValueError:  # of an earlier version, which knew other pools; pydantic's ValidationError is one
        return {}


def _changed(result: Result, now: dict[str, str], *, here: bool) -> str | None:
    """The machine counts where it serves as well (`here`): who drives the load changes little."""
    then = dict(result.inputs)
    if not here:
        now.pop("machine", None)
        then.pop("machine", None)
    return changed(result.model_copy(update={"inputs": then}), now)


CHECKS: Mapping[str, Callable[[Rollout, Result], str | None]] = {
    "baseline": _baseline,
    "sweep": _sweep,
    "ab": _ab,
}
