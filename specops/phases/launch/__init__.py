"""Phase 3, configure: how both pools are started (`launch render`); commands that start one (`launch lint`).

`render` writes rendered/{standard,speculative}.sh, rendered/compose.yaml and rendered/KIND/{standard,
speculative}.yaml for each of `KINDS` into the run folder. Its result says what was rendered, what
the lint has against it, what was left out and why, and whether the standard pool carries the peak alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from specops import results
from specops.config import Deploy, Pool, Rollout
from specops.errors import ConfigError, UsageError
from specops.hints import in_rollout
from specops.launch.command_files import command_of, commands_in, judge
from specops.launch.servers import contained
from specops.phases.capacity.gate import Capacity, capacity
from specops.progress import Progress
from specops.render import helm, write_files
from specops.render.figures import count
from specops.render.kubernetes import (
    ADDRESS,
    RANK,
    inference_service,
    kserve_lacking,
    leader_worker_set,
    llm_inference_service,
    manifests,
)
from specops.render.server import Server, compose, own_host, script
from specops.results import Result, Verdict
from specops.section import Frozen
from specops.serving import ENGINES, Condition, Finding, LintResult, MultiHost, Startable, Unknown

RENDERED = "rendered"
COMPOSE = f"{RENDERED}/compose.yaml"


class RenderedPool(Frozen):
    """`data.pools.NAME` of launch.json. Commands of a pool that runs already are empty."""

    engine: str
    version: str | None
    """Version of the engine that the command is for; None where it does not depend on one."""

    judged: str | None = None
    """The engine's release that `findings` and `conditions` hold for, in words."""

    command: list[str]
    in_a_container: list[str]
    findings: list[Finding]
    left_out: dict[str, str]
    """What was not rendered, and why."""

    conditions: list[Condition] = Field(default=[])
    """What the engine chooses by itself."""

    unknown: list[Unknown] = Field(default=[])
    """What of the command was not read, so that the findings do not cover it."""


class LaunchData(Frozen):
    """`data` of launch.json."""

    folder: str
    """The run folder, as it was given."""

    files: list[str]
    """Paths relative to the folder."""

    pools: dict[str, RenderedPool]
    capacity: Capacity


POOLS: tuple[Literal["standard"], Literal["speculative"]] = ("standard", "speculative")


@dataclass
class _Work:
    """A pool while it is rendered."""

    name: str
    pool: Pool
    version: str | None = None
    judged: str | None = None
    command: list[str] = field(default_factory=list)
    server: Server | None = None
    spread: MultiHost | None = None
    """Where a server spans several hosts: `server` is then one of them."""

    findings: list[Finding] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)


def render(rollout: Rollout, folder: Path, progress: Progress) -> Result:
    """Write what starts the rollout's pools into `folder` and say what is wrong with it.

    What an earlier call wrote and this one has no cause to is removed. Raises ConfigError for settings that
    an engine's version does not have, FileError where nothing can be written.
    """
    works = [_rendered(rollout, name, getattr(rollout.pools, name)) for name in POOLS]
    _compare(works)
    files = _files(rollout, works)
    write_files(folder, files)
    progress.note(f"rendered into {folder / RENDERED}")
    data = LaunchData(
        folder=str(folder),
        files=[name for name, text in files.items() if text is not None],
        pools={
            work.name: RenderedPool(
                engine=work.pool.engine,
                version=work.version,
                judged=work.judged,
                command=work.command,
                in_a_container=list(work.server.command) if work.server else [],
                findings=work.findings,
                left_out=work.left_out,
                conditions=work.conditions,
                unknown=work.unknown,
            )
            for work in works
        },
        capacity=capacity(rollout, folder),
    )
    return _result(rollout, data)


def _rendered(rollout: Rollout, name: str, pool: Pool) -> _Work:
    work = _Work(name, pool)
    if not isinstance(pool, Startable):
        where = "elsewhere" if pool.endpoint is None else f"at {pool.endpoint.base_url}"
        work.left_out["everything"] = f"it runs already, {where}"
        return work
    port = rollout.deploy.port + POOLS.index(name)
    script = pool.rendering(port, rollout.rollout)
    work.version, work.judged, work.command = script.version, script.judged, script.words
    work.findings += [*script.notes, *script.findings]
    work.conditions = script.conditions
    try:
        linted = judge(command_of(work.command), work.version)
        work.findings += linted.findings if script.judged is None else []
        work.unknown = linted.unknown
    except UsageError:  # a program that no lint knows
        why = "no lint of specops knows the program: its flags were not judged"
        how = f"{shlex.quote(work.command[0])} --help"
        work.unknown = [Unknown(work.command[0], why, how, decides=False)] if script.judged is None else []
    _in_a_container(work, rollout)
    return work


def _compare(works: list[_Work]) -> None:
    """Warn of a choice that the engine makes for one pool alone, on the speculative one."""
    standard, speculative = works
    for standard_choice, choice in zip(standard.conditions, speculative.conditions, strict=False):
        if standard_choice.value == choice.value or None in (
            standard_choice.value,
            choice.value,
        ):
            continue
        because = f" ({choice.why})" if choice.why else ""
        why = (
            f"{choice.value} here{because} and {standard_choice.value} in the standard pool: the comparison"
            " would include it"
        )
        speculative.findings.append(Finding("warning", choice.name, why, f"{choice.pin} in both pools"))


def _in_a_container(work: _Work, rollout: Rollout) -> None:
    deploy, pool = rollout.deploy, work.pool
    assert isinstance(pool, Startable)
    inside = contained(pool, deploy, model=rollout.rollout, version=work.version)
    if isinstance(inside, str):
        work.left_out["Compose and Kubernetes"] = inside
        return
    assert inside.image is not None
    gpus = inside.gpus
    if deploy.nodes > 1:
        work.spread = pool.spread(inside.words, deploy.nodes, ADDRESS, RANK)
        if work.spread is None:
            engine = ENGINES[pool.engine].title
            work.left_out["LeaderWorkerSet"] = f"specops cannot spread a server of {engine} over hosts"
            return
        gpus, left = divmod(inside.gpus, deploy.nodes)
        if left:
            raise ConfigError(
                f"deploy.nodes: {inside.gpus} GPUs of the {work.name} pool do not divide by {deploy.nodes}: "
                "expected parallel sizes that multiply to a multiple of deploy.nodes",
                hint=in_rollout("nodes", "or change the parallel sizes"),
            )
    work.server = Server(
        rollout=rollout.rollout,
        pool=work.name,
        engine=pool.engine,
        image=inside.image,
        command=work.spread.first if work.spread else tuple(inside.words),
        environment=pool.environment_variables,
        replicas=getattr(deploy, f"{work.name}_replicas"),
        gpus=gpus,
        downloads=inside.downloads,
        drains=inside.drains,
    )
    work.findings += inside.findings
    line = ENGINES[pool.engine].command_line
    if work.spread is not None or line is None:
        return
    for form, place, lacking in (
        (HELM, helm.CHART, helm.lacking),
        (LLM, KSERVE, kserve_lacking),
    ):
        if place in line.usual_in and (why := lacking(work.server, deploy)) is not None:
            work.left_out[form] = why


def _files(rollout: Rollout, works: list[_Work]) -> dict[str, str | None]:
    """Every file that render may write, by its name in the run folder; None: there is no cause to."""
    files: dict[str, str | None] = {}
    for work in works:
        files[f"{RENDERED}/{work.name}.sh"] = (
            script(
                work.command,
                work.pool.environment_variables,
                rollout.deploy.secrets,
                rollout=rollout.rollout,
                pool=work.name,
            )
            if work.command
            else None
        )
    servers = [work.server for work in works if work.server is not None]
    one_host = rollout.deploy.nodes == 1
    files[COMPOSE] = compose(servers, rollout.deploy) if servers and one_host else None
    for kind in KINDS:
        for work in works:
            files[f"{RENDERED}/{kind}/{work.name}.yaml"] = _of_kind(kind, work, rollout.deploy)
    return files


KINDS = ("compose", "kubernetes", "kserve", "llminferenceservice", "helm", "leaderworkerset")
"""Folders of files with a pool each."""
KSERVE = "KServe"
HELM, LLM = "Helm values", "LLMInferenceService"
"""What not every engine and not all settings have."""


def _of_kind(kind: str, work: _Work, deploy: Deploy) -> str | None:
    server, spread = work.server, work.spread
    if server is None or (spread is not None) != (kind == "leaderworkerset"):
        return None
    if spread is not None:
        return leader_worker_set(server, spread.worker, deploy)
    line = ENGINES[server.engine].command_line
    usual = () if line is None else line.usual_in
    match kind:
        case "compose":
            return own_host(server, deploy)
        case "kubernetes":
            return manifests(server, deploy)
        case "kserve":
            return inference_service(server, deploy)
        case "llminferenceservice" if KSERVE in usual and LLM not in work.left_out:
            return llm_inference_service(server, deploy)
        case "helm" if helm.CHART in usual and HELM not in work.left_out:
            return helm.values(server, deploy)
    return None


def _result(rollout: Rollout, data: LaunchData) -> Result:
    levels = [finding.level for pool in data.pools.values() for finding in pool.findings]
    verdict, reason = _verdict(data, levels.count("error"))
    settings = {"pools": rollout.pools, "deploy": rollout.deploy, "peak": rollout.peak, "slo": rollout.slo}
    settings_: dict[str, Any] = {
        name: None if part is None else part.model_dump(mode="json") for name, part in settings.items()
    }
    inputs = {"settings": results.sha256(settings_)}
    if data.capacity.measured is not None:
        inputs[Path(data.capacity.measured.source).stem] = data.capacity.measured.sha256
    return Result(
        phase="launch",
        inputs=inputs,
        settings=settings_,
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={
            "files": len(data.files),
            "errors": levels.count("error"),
            "warnings": levels.count("warning"),
            "unknown": sum(len(pool.unknown) for pool in data.pools.values()),
            "capacity": data.capacity.verdict,
        },
        data=data.model_dump(mode="json"),
    )


def _verdict(data: LaunchData, errors: int) -> tuple[Verdict, str]:
    if errors:
        return "no", f"{errors} error{'s' if errors > 1 else ''} in what was rendered"
    unread = [entry.what for pool in data.pools.values() for entry in pool.unknown if entry.decides]
    if unread:
        return "undecided", f"{len(unread)} unknown in what was rendered: {', '.join(unread)}"
    return data.capacity.verdict, data.capacity.reason


# --- launch lint: commands and files, held against the version that they are for --------------

SOURCE = "by the flags and keys in the engine's released sources; nothing was run"
"""How commands are judged."""


class LintData(BaseModel):
    """`data` of the result."""

    commands: list[LintResult]


def lint_words(words: Sequence[str], version: str | None = None) -> tuple[list[LintResult], Result]:
    """Lint the words of a command. Raises UsageError for words that call no engine, ConfigError for an
    invalid version."""
    judged = [judge(command_of(words), version)]
    return judged, _lint_result(judged, {}, version)


def lint_file(
    path: Path, version: str | None = None, text: str | None = None
) -> tuple[list[LintResult], Result]:
    """Every command in it. Raises FileError where there is no file, UsageError where there is no command in
    it. `text`: as in `commands_in`."""
    judged = [judge(command, version) for command in commands_in(path, text)]
    return judged, _lint_result(judged, {path.name: results.sha256(path if text is None else text)}, version)


def _lint_result(judged: list[LintResult], inputs: dict[str, str], version: str | None) -> Result:
    """The verdict is no with an error, and undecided where something that may hold one was not read. A
    warning is not an error. The command is not stored: it may hold a key."""
    levels = [finding.level for lint in judged for finding in lint.findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    unknown = {entry.what: entry.decides for lint in judged for entry in lint.unknown}
    counts = [count(errors, "error"), count(warnings, "warning")] if errors or warnings else []
    if unknown:
        counts.append(f"{len(unknown)} unknown: {', '.join(unknown)}")
    settings: dict[str, Any] = {"engine_version": version}
    return Result(
        phase="lint",
        inputs=inputs,
        settings=settings,
        environment=results.environment(),
        verdict="no" if errors else "undecided" if any(unknown.values()) else "yes",
        reason=", ".join(counts) or "clean",
        summary={
            "commands": len(judged),
            "errors": errors,
            "warnings": warnings,
            "unknown": len(unknown),
            "judged": SOURCE,
        },
        data=LintData(commands=judged).model_dump(mode="json"),
    )
