"""The phases of a walk. `PHASE_RUNS` is the table: an entry says how a phase runs, or why it does not apply.

Some phases measure: they reuse or resume an earlier result of the same inputs. The others render files or
judge results. That takes seconds, so each walk does it again.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from specops import results
from specops.checkpoints.draft_kind import WITHOUT_MODEL
from specops.config import Pool, Rollout
from specops.errors import ConfigError, ModelError, ServerError
from specops.experiment.arms import Arm
from specops.launch.servers import serving
from specops.load.counters import speculating_standard
from specops.load.server_identity import one_address, probe
from specops.load.settings import OF_THE_RUN, BaselineSettings
from specops.phases import Phase, measurement
from specops.phases.ab import report
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings
from specops.phases.baseline import measure
from specops.phases.canary import canary
from specops.phases.canary import inputs as canary_inputs
from specops.phases.canary import resumable as canary_resumable
from specops.phases.checklist.checklist import checklist
from specops.phases.commands import Commands
from specops.phases.guard_drill import drill
from specops.phases.inputs import ADDED, changed, inputs_of, inputs_of_arms, inputs_of_settings, settings_of
from specops.phases.launch import render as render_launch
from specops.phases.measurement import Keep
from specops.phases.monitor.render import render as render_monitor
from specops.phases.playbook.stage import STAGED, missing, staged
from specops.phases.playbook.walk_step import (
    PhaseInput,
    Run,
    Skipped,
    Step,
    by_hand,
    earlier,
    set_aside,
    stored,
    unchanged,
    written,
)
from specops.phases.route import render as render_route
from specops.phases.route.thresholds import servers
from specops.phases.sweep.measure import machines
from specops.phases.sweep.plan import measurements_of
from specops.phases.sweep.spec import samples_of, spec_of
from specops.phases.sweep.stages import BudgetError
from specops.phases.sweep.sweep import sweep
from specops.phases.verify_draft.pair import settings_for
from specops.phases.verify_draft.verify import verify
from specops.prometheus.series import POOLS
from specops.results import Result
from specops.trees import exit_layers

DRILL_LIMIT_S = 60.0


def _measured(
    at: PhaseInput,
    phase: Phase,
    inputs: dict[str, str],
    previous: Result | None,
    measure: Callable[[Result | None, Keep], Result],
    *,
    stands: bool,
) -> Step:
    """The step of a phase that measures. `previous` is its earlier result, if any. It is reused if it
    `stands` and has the same `inputs`. `measure` resumes from it if it has the same inputs."""
    path = at.path(phase)
    if previous is not None and stands and changed(previous, inputs) is None:
        return Step(phase, path, previous, reused=True)
    previous = unchanged(phase, previous, inputs, at.progress)
    with stored(phase, path, previous, inputs, at.progress) as keep:
        keep(measure(previous, keep))
    return Step(phase, path, results.read(path))


def _baseline(at: PhaseInput) -> Step:
    """Measure the standard pool."""
    pool, path, progress = at.rollout.pools.standard, at.path("baseline"), at.progress
    settings = settings_of(at.rollout, pool)
    requested = settings.model_dump(mode="json")
    previous = measurement.read(path) if path.exists() and not at.fresh else None
    log = at.logs / "baseline.log"

    def measured(previous: Result | None, keep: Keep) -> Result:
        if previous is not None:  # partial, failed, or fewer requests than now: complete cells are reused
            known = {name: sha for name, sha in previous.inputs.items() if name not in ADDED}
            previous = previous.model_copy(update={"inputs": known})
        check_servers(at)
        with serving(pool, "standard", model=at.rollout.rollout, log=log, progress=progress) as server:
            return measure(settings.at(server, "standard"), progress, previous, keep)

    stands = (
        previous is not None
        and previous.verdict == "yes"
        and all(previous.settings.get(name) == requested[name] for name in OF_THE_RUN)
    )
    step = _measured(at, "baseline", inputs_of(settings, pool), previous, measured, stands=stands)
    if step.result.verdict == "no" and not step.reused and log.exists():
        progress.note(f"baseline: the server's log is {log}")
    return step


def _drafts(at: PhaseInput) -> Step | Skipped:
    """Judge the draft and the target of the speculative pool from their files. They may have changed on the
    hub, so this is done at each walk."""
    settings = settings_for(at.rollout.pools.speculative)
    if settings is None:
        engine = at.rollout.pools.speculative.engine
        return by_hand(at, "drafts") or Skipped(
            "drafts",
            f"the draft was not checked: the rollout file has no model folders of a pool of engine {engine}",
            f"specops verify-draft TARGET DRAFT --out {at.path('drafts')}",
        )
    prompts = settings_of(at.rollout, at.rollout.pools.standard).prompt_set()
    try:
        result = verify(settings, prompts, at.progress)
    except ModelError as error:
        if all(_local(name) for name in (settings.target, settings.draft)):
            raise
        # The machine that measures may have no access to the hub. That must not stop the walk.
        return by_hand(at, "drafts") or Skipped("drafts", error.message, error.hint)
    return written(at, "drafts", result)


def _local(name: str) -> bool:
    return name in WITHOUT_MODEL or exit_layers(name) is not None or Path(name).is_dir()


def _sweep(at: PhaseInput) -> Step | Skipped:
    """Measure which K, or which tree, pays at which load."""
    rollout, path, progress = at.rollout, at.path("sweep"), at.progress
    command = Commands(rollout, at.file, at.folder).sweep()
    fixed = _fixed_k(rollout)
    if fixed is not None:
        return by_hand(at, "sweep") or Skipped("sweep", fixed, command)
    spec = spec_of(rollout, at.file.parent)
    previous = results.read(path) if path.exists() and not at.fresh else None
    if previous is not None:
        measurements_of(previous, str(path))  # a damaged file is an error before the first server is started

    def measured(previous: Result | None, keep: Keep) -> Result:
        samples, _ = samples_of(path)
        with machines(spec, rollout.sweep.cluster, at.logs / "sweep", progress) as executor:
            return sweep(spec, executor, progress, previous=previous, earlier=samples, on_partial=keep)

    stands = (
        previous is not None
        and previous.verdict != "partial"
        and previous.settings.get("budget_min") == spec.budget_min
    )
    try:
        return _measured(at, "sweep", spec.inputs(), previous, measured, stands=stands)
    except BudgetError as error:
        return Skipped("sweep", error.message, f"{command} --budget {error.minutes}")


def _fixed_k(rollout: Rollout) -> str | None:
    """Return why specops cannot set K; None if it can."""
    pool = rollout.pools.speculative
    if pool.endpoint is not None:
        return "the speculative pool runs already, so specops cannot set its K"
    return pool.fixed_k


def _ab(at: PhaseInput) -> Step:
    """Compare both pools: visited in turn, paired by prompt."""
    rollout, path = at.rollout, at.path("ab")
    pool = rollout.pools.speculative
    if pool.open_k is not None:
        raise ConfigError(
            f"could not compare the pools: the speculative one's command says {pool.open_k}, which a sweep"
            " fills in",
            hint=f"grep -n -F -e {shlex.quote(pool.open_k)} {shlex.quote(str(at.file))}  # write the K "
            "that the sweep recommends in its place",
        )
    arms = [Arm("standard", rollout.pools.standard), Arm("speculative", rollout.pools.speculative)]
    requested = settings_of(rollout, rollout.pools.standard)
    settings = AbSettings(**rollout.ab.model_dump())
    inputs = inputs_of_arms(arms, requested, settings, requested.prompt_set())
    previous = report.read_comparison(path) if path.exists() and not at.fresh else None

    def measured(previous: Result | None, keep: Keep) -> Result:
        return compare(
            arms, requested, settings, at.progress, logs=at.logs, previous=previous, on_partial=keep
        )

    # An arm that failed is measured again.
    stands = previous is not None and previous.verdict != "partial" and not previous.data["failed"]
    return _measured(at, "ab", inputs, previous, measured, stands=stands)


def _canary(at: PhaseInput) -> Step | Skipped:
    """Check that the speculative pool answers as the standard pool does, for all kinds of requests."""
    inputs, path = canary_inputs(at.rollout), at.path("canary")
    previous = results.read(path) if path.exists() and not at.fresh else None
    stands = previous is not None and previous.verdict in ("yes", "no")
    if previous is not None and not stands and not canary_resumable(previous, inputs, str(path)):
        previous = None

    def measured(previous: Result | None, keep: Keep) -> Result:
        return canary(at.rollout, at.folder, at.progress, previous=previous, on_partial=keep)

    try:
        return _measured(at, "canary", inputs, previous, measured, stands=stands)
    except ServerError as error:
        return no_room(at, "canary", error)


def _rendered(phase: Phase, render: Callable[[PhaseInput], Result]) -> Run:
    """A phase that renders files. It is skipped while the address of a pool is unknown: specops starts that
    pool only to measure it."""

    def run(at: PhaseInput) -> Step | Skipped:
        try:
            servers(at.rollout, "standard")
            servers(at.rollout, "speculative")
        except ConfigError as error:
            return Skipped(phase, error.message, error.hint)
        return written(at, phase, render(at))

    return run


def _drill(at: PhaseInput) -> Step | Skipped:
    """Rehearse a fallback and a return on pools and a router that are started for it.

    On pools that run already a drill moves live traffic. An operator decides when: with `specops guard
    drill`, or with this phase by name.
    """
    pools = at.rollout.pools
    if not pools.standard.endpoint and not pools.speculative.endpoint:
        return _rehearsal(at)
    commands = Commands(at.rollout, at.file, at.folder)
    if at.by_name:
        result = drill(commands, at.progress, limit_s=DRILL_LIMIT_S)
        return written(at, "guard-drill", result)
    return by_hand(at, "guard-drill") or Skipped(
        "guard-drill",
        "the pools run already, and a drill moves their live traffic: run it at a suitable time",
        commands.of("guard drill {rollout}"),
    )


def _rehearsal(at: PhaseInput) -> Step | Skipped:
    phase: Phase = "guard-drill"
    inputs = drill_inputs(at.rollout)
    previous = earlier(at, phase)
    if previous is not None:
        live = STAGED not in previous.settings  # a drill on live traffic is stronger evidence: it stays
        # A fix, such as another router, is in no input. So a drill that did not pass is tried again.
        if live or (previous.verdict == "yes" and changed(previous, inputs) is None):
            return Step(phase, at.path(phase), previous, reused=True, by_hand=live)
    no_router = missing(at.rollout)
    if no_router is not None:
        return Skipped(phase, f"no router for the rehearsal: {no_router.message}", no_router.hint)
    try:
        with staged(at) as (rollout, folder):
            result = drill(Commands(rollout, at.file, folder), at.progress, limit_s=DRILL_LIMIT_S)
    except ServerError as error:
        return no_room(at, phase, error)
    stage = f"both pools and {at.rollout.route.router.title}, started for the drill on loopback"
    update = {
        "inputs": inputs,
        "settings": result.settings | {STAGED: stage},
        "reason": f"rehearsed on temporary pools: {result.reason}",
    }
    set_aside(phase, at.path(phase), at.progress)
    return written(at, phase, result.model_copy(update=update))


def drill_inputs(rollout: Rollout) -> dict[str, str]:
    """The hash of each input of a rehearsal by name."""
    pools = {"standard": rollout.pools.standard, "speculative": rollout.pools.speculative}
    requested = settings_of(rollout, rollout.pools.standard)
    rehearsed = {"guard": rollout.guard.model_dump(mode="json")}
    return inputs_of_settings(pools, requested, rehearsed, requested.prompt_set())


def no_room(at: PhaseInput, phase: Phase, error: ServerError) -> Skipped:
    """The phase is skipped if both pools share a device, since it needs both at once. Otherwise raises
    `error`: the comparison ran both."""
    if at.rollout.ab.design != "abba-restart":
        raise error
    return Skipped(
        phase,
        "it needs both pools at once: make room for both (gpu_memory_utilization), or give both as endpoints"
        f" on separate machines; one did not start: {error.message}",
        error.hint,
    )


def check_endpoints(at: PhaseInput) -> None:
    """Raise ConfigError for two pools with one address, and UsageError for a pool whose secrets are not in
    the environment. Sends nothing."""
    one, other = at.rollout.pools.standard, at.rollout.pools.speculative
    for name, pool in zip(POOLS, (one, other), strict=True):
        if pool.endpoint is not None:
            pool.endpoint.access.credentials(name)
    if one.endpoint is not None and other.endpoint is not None:
        reason = one_address(one.endpoint, other.endpoint)
        if reason is not None:
            raise _one_server(reason, at)


def check_servers(at: PhaseInput) -> None:
    """Raise ConfigError for running pools that show that they are one server, or that the standard pool
    speculates. Sends short requests to both."""
    requested = settings_of(at.rollout, at.rollout.pools.standard)
    running: dict[str, BaselineSettings] = {}
    for name in POOLS:
        pool: Pool = getattr(at.rollout.pools, name)
        if pool.endpoint is not None:
            running[name] = requested.at(pool.endpoint, name)
    shared, observed = asyncio.run(probe(running))
    if shared is not None:
        raise _one_server(shared, at)
    if "standard" in observed:
        reason = speculating_standard(observed["standard"], observed.get("speculative"))
        if reason is not None:
            raise ConfigError(
                reason,
                hint=f"specops doctor {shlex.quote(str(at.file))}  # after pools.standard is a server "
                "without speculation",
            )


def _one_server(reason: str, at: PhaseInput) -> ConfigError:
    return ConfigError(
        f"the standard and the speculative pool are one server: {reason}",
        hint=f"specops doctor {shlex.quote(str(at.file))}  # after the address of the second server is in it",
    )


PHASE_RUNS: Mapping[Phase, Run] = {
    "baseline": _baseline,
    "drafts": _drafts,
    "launch": lambda at: written(at, "launch", render_launch(at.rollout, at.folder, at.progress)),
    "sweep": _sweep,
    "ab": _ab,
    "canary": _canary,
    "monitor": _rendered("monitor", lambda at: render_monitor(at.rollout, at.folder, at.progress, at.file)),
    "route": _rendered("route", lambda at: render_route(at.rollout, at.folder)),
    "guard-drill": _drill,
    "checklist": lambda at: written(
        at, "checklist", checklist(at.rollout, at.file, at.folder, datetime.now(UTC))
    ),
}
