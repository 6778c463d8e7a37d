"""The inputs of a measured phase, as hashes: unchanged, it need not run again; and which results count."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from specops import __version__, results
from specops.access import HOW, NOTHING
from specops.actions.http_client import ask_json
from specops.config import Pool, Rollout
from specops.errors import ConfigError, EndpointError, ModelError, SpecopsError, UsageError
from specops.experiment.arms import Arm
from specops.hints import in_rollout, listing
from specops.load.settings import BaselineSettings
from specops.load.workload import PromptSet, load_prompts
from specops.net import address
from specops.phases import PHASES, phase_named, phase_of_result
from specops.results import Result, environment, sha256
from specops.serving import ENGINES
from specops.validation import problem

NO_ADDRESS_YET = "http://127.0.0.1:0/v1"
_OF_A_REPLAY = {"trace", "trace_speed", "trace_from_s", "trace_for_s", "ramp"}
ADDED = ("target", "draft", "machine")
"""Inputs beside those that `measure` knows of."""
WORDS = {
    "prompts": "the prompts",
    "settings": "the settings",
    "target": "the target model",
    "draft": "the draft model",
    "models": "a model",
    "machine": "the machine or its software",
}


def settings_of(rollout: Rollout, pool: Pool, *, for_comparison: bool = False) -> BaselineSettings:
    """Return how `pool` is measured. The address of a pool that specops starts is known only once it runs.
    `for_comparison`: by `ab`, which alone replays a trace or a ramp."""
    try:
        return _settings(rollout, pool, for_comparison)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "measure"
        raise ConfigError(
            f"the rollout cannot be measured: {where} {problem(first)}",
            hint=in_rollout(where.rpartition(".")[2], "change it"),
        ) from None


def _settings(rollout: Rollout, pool: Pool, for_comparison: bool) -> BaselineSettings:
    measure = rollout.measure
    chosen = measure.model_dump(exclude_none=True, exclude=_OF_A_REPLAY)
    if for_comparison and (measure.trace or measure.ramp):
        chosen |= measure.model_dump(exclude_none=True, include=_OF_A_REPLAY - {"trace", "ramp"})
        chosen["arrivals"] = f"trace:{measure.trace}" if measure.trace else f"ramp:{measure.ramp}"
        chosen["concurrency"] = (1,)
    if rollout.prompts is not None:
        chosen["prompts"] = rollout.prompts
    if rollout.slo is not None:
        chosen["slo"] = rollout.slo.model_dump()
    if pool.endpoint is not None:
        return BaselineSettings(
            base_url=pool.endpoint.base_url,
            model=pool.endpoint.model,
            access=pool.endpoint.access,
            **chosen,
        )
    return BaselineSettings(
        base_url=NO_ADDRESS_YET, model=rollout.rollout, identity=sha256(_serving(pool)), **chosen
    )


def inputs_of(settings: BaselineSettings, pool: Pool) -> dict[str, str]:
    """The hash of each input by name: prompts, settings, machine, and the models of an embedded pool."""
    inputs = settings.inputs(load_prompts(settings.prompts).select(settings.classes))
    return inputs | _models(pool) | {"machine": _machine([pool])}


def inputs_of_arms(
    arms: Sequence[Arm], requested: BaselineSettings, settings: BaseModel, prompts: PromptSet
) -> dict[str, str]:
    """Return the hash of each input of a comparison by name; the models of an arm are named after it.

    All that plans the visits counts, looks and repeats too. A comparison that was carried on because it
    had not decided would err more often than it says.
    """
    plan = requested.plan() | settings.model_dump(mode="json")
    plan["arms"] = {arm.name: _serving(arm.pool) for arm in arms}
    models = {f"{arm.name} {name}": sha for arm in arms for name, sha in _models(arm.pool).items()}
    machine = _machine([arm.pool for arm in arms])
    return {"prompts": prompts.sha256, "settings": sha256(plan), "machine": machine} | models


def inputs_of_settings(
    pools: Mapping[str, Pool], requested: BaselineSettings, grid: dict[str, Any], prompts: PromptSet
) -> dict[str, str]:
    """Return the hash of each input of a sweep by name. `pools`: by the names of its settings; `grid`: what
    else plans its cells.

    Settings mostly share their models: each folder is read once.
    """
    plan = requested.plan() | grid | {"settings": {name: _serving(pool) for name, pool in pools.items()}}
    folders = [item for pool in pools.values() for item in _model_folders(pool).items()]
    models = [(role, _folder(folder)) for role, folder in dict.fromkeys(folders)]
    machine = _machine(list(pools.values()))
    inputs = {"prompts": prompts.sha256, "settings": sha256(plan), "machine": machine}
    return inputs | ({"models": sha256(models)} if models else {})


def identity(part: BaseModel) -> str:
    """The hash of what a rollout, or a part of it, means. Files and folders count by their content, and base
    URLs in one spelling: not by how or from where they are named. Keys and certificates do not count."""
    return sha256(_meaning(part.model_dump(mode="python")))


def _meaning(value: Any) -> Any:
    match value:
        case dict():
            return {
                key: address(inner) if key == "base_url" else _meaning(inner)
                for key, inner in value.items()
                if key not in HOW
            }
        case list() | tuple():
            return [_meaning(inner) for inner in value]
        case Path() if value.is_dir():
            return {"folder": _folder(value)}
        case Path() if value.is_file():
            return {"file": _file(value)}
        case Path():
            return str(value)  # exit:LAYERS
        case _:
            return value


def _serving(pool: Pool) -> dict[str, Any]:
    """Return how a pool serves. The folders count by what is in them, not by where they are."""
    described = pool.model_dump(mode="json", exclude={"target": True, "speculation": {"draft"}})
    described = {key: value for key, value in described.items() if key not in HOW}
    if pool.endpoint is not None:
        described["base_url"] = address(pool.endpoint.base_url)
    if pool.own is not None and pool.own.draft is not None and pool.own.draft_model is None:
        described["speculation"]["draft"] = pool.own.draft  # an exit of the target: its name says all
    return described


def _models(pool: Pool) -> dict[str, str]:
    return {name: _folder(folder) for name, folder in _model_folders(pool).items()}


def _model_folders(pool: Pool) -> Mapping[str, Path]:
    return {} if pool.own is None else pool.own.weights


def _machine(pools: Sequence[Pool]) -> str:
    machine = environment() | {"specops": __version__}
    packages = [name for pool in pools for name in ENGINES[pool.engine].packages]
    machine |= {name: _version(name) for name in packages}
    return sha256(machine)


def changed(previous: Result, inputs: dict[str, str]) -> str | None:
    """Return in words which of `inputs` are not those of the earlier result; None when all are."""
    names = previous.inputs.keys() | inputs.keys()
    unlike = sorted(name for name in names if previous.inputs.get(name) != inputs.get(name))
    return " and ".join(WORDS.get(name, name) for name in unlike) or None


def _folder(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    try:
        return sha256({path.relative_to(folder).as_posix(): _file(path) for path in files})
    except OSError as error:
        raise ModelError(
            f"could not read the model in {folder}: {error.strerror}; this user must be able to read "
            "the folder and its files",
            hint=listing(folder),
        ) from error


def _file(path: Path) -> str:
    described = path.stat()
    return _digest(path, described.st_size, described.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest(path: Path, size: int, changed_ns: int) -> str:
    """Return the hash of a file, which is read once while it does not change: a checklist asks of the same
    weights a dozen times."""
    with path.open("rb") as file:  # weights may be larger than memory
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


ASK_S = 1.0


def unlike(rollout: Rollout, result: Result, version: str | None = None) -> str | None:
    """Return what changed in the rollout since `result` was measured, in words; None where nothing did.

    `version`: what the standard pool's server says that it is now; None where it does not say. A result of a
    phase that measures no reference has nothing to compare. Raises SpecopsError where the prompts, or a model
    of the rollout, cannot be read.
    """
    then = result.environment.get("server")
    if version is not None and isinstance(then, str) and then != version:
        return f"the engine version ({then} then, {version} now)"
    phase = phase_of_result(result.phase)
    return None if phase is None else phase.unlike(rollout, result)


def left_out(rollout: Rollout, folder: Path, version: str | None = None) -> dict[str, str]:
    """Return by phase why a result of the run folder is not a reference. Missing and damaged results are
    not among them: whoever reads them says so."""
    reasons = {}
    for phase in (phase for phase in map(phase_named, PHASES) if phase.reference):
        path = folder / f"{phase.name}.json"
        if not path.exists():
            continue
        try:
            result = results.read(path)
        except SpecopsError:
            continue
        try:
            change = unlike(rollout, result, version) if result.phase == phase.result_name else None
        except SpecopsError as error:
            reasons[phase.name] = f"whether it is of this rollout is not known: {error.message}"
        else:
            if change is not None:
                reasons[phase.name] = f"{change} changed since"
    return reasons


def version_of(rollout: Rollout) -> str | None:
    """Return what the standard pool's server says at /version; None where it does not answer within a
    second."""
    pool = rollout.pools.standard
    if pool.endpoint is not None:
        root = pool.endpoint.base_url.rstrip("/").removesuffix("/v1")
    elif rollout.addresses.standard:
        root = f"http://{rollout.addresses.standard[0]}"
    else:
        return None
    try:
        credentials = NOTHING if pool.endpoint is None else pool.endpoint.access.credentials("standard")
        answer = ask_json(
            "read the engine's version", "GET", f"{root}/version", credentials=credentials, timeout_s=ASK_S
        )
    except (EndpointError, UsageError):
        return None
    version = answer.get("version") if isinstance(answer, dict) else None
    return version if isinstance(version, str) and version else None


def changed_where_served(result: Result, inputs: Mapping[str, str], pools: Sequence[Pool]) -> str | None:
    """`changed` for a result of these pools. The machine counts where it serves as well: who drives the load
    changes little, and a checklist may be made elsewhere."""
    before, now = dict(result.inputs), dict(inputs)
    if not any(pool.own is not None for pool in pools):
        before.pop("machine", None)
        now.pop("machine", None)
    return changed(result.model_copy(update={"inputs": before}), now)
