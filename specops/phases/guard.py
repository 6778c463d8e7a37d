"""Phase 6, guard: the parts put together, for a rollout file and its run folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from specops.actions import counted_routers, notifications, targets
from specops.actions.http_client import ask
from specops.config import Rollout
from specops.defaults import LEAST_ACCEPTANCE
from specops.errors import ConfigError, EndpointError
from specops.guard.guard import CapacityGate, Guard, Observe, OverrideRequest, Status, carry_out, status
from specops.guard.journal import FILE, Journal, read
from specops.guard.lock import LOCK, Holder, Lock, alone, holder, locked
from specops.guard.policy import GuardRules
from specops.guard.service import Settings, bind, serve
from specops.guard.signals.criteria import (
    BREAK_EVEN_KNOWN,
    Criteria,
    Missing,
    break_even,
    of_cells,
)
from specops.guard.signals.observation import BadRow, observe
from specops.guard.signals.query import LiveQuery
from specops.guard.state import Evaluation, Threshold
from specops.guard.switch import Switch
from specops.hints import in_rollout
from specops.phases import run_folder
from specops.phases.capacity.gate import Capacity, capacity
from specops.phases.commands import Commands
from specops.phases.inputs import left_out, version_of
from specops.phases.measurement import cells_of
from specops.phases.monitor.thresholds import branches
from specops.phases.run_folder import RunFolder, Stored, undamaged
from specops.prometheus.api import Api
from specops.prometheus.series import exposed

GUARD = "guard"
DRY = "dry-run"
"""A dry run has a journal and a lock of its own, so that it may run beside the guard, and its decisions are
never taken for the guard's."""
READ = ("baseline", "sweep")
"""Results that the guard judges by."""

ANYWHERE = "127.0.0.1:0"
ANSWER_S = 60.0
"""A turn that is being taken comes first: it may be waiting for Prometheus, or for a router; and longer,
where it is running commands."""


def run(commands: Commands, tell: Callable[[str], None], *, dry_run: bool = False) -> None:
    """Guard until a signal comes."""
    guard = commands.rollout.guard
    settings = Settings(rollout=commands.rollout.rollout, interval_s=guard.interval_s)
    with (
        guarding(commands, _observer(commands, tell), dry_run=dry_run) as (running_guard, lock),
        bind(ANYWHERE if dry_run else guard.listen) as bound,
    ):
        serve(running_guard, settings, bound, lock, tell)


def once(commands: Commands, tell: Callable[[str], None], *, dry_run: bool = False) -> Status:
    """One evaluation, and what it decides."""
    with guarding(commands, _observer(commands, tell), dry_run=dry_run) as (guard, _):
        guard.resume()
        guard.turn()
        return status(guard.standing, unconfirmed=guard.unconfirmed, dry_run=dry_run)


def standing(folder: Path) -> Status:
    """Return how the guard of a run folder stands."""
    running = holder(folder / GUARD)
    if running is not None and running.url is not None:
        try:
            answer = ask("ask the guard how it stands", "GET", f"{running.url}/status", timeout_s=5.0)
            return Status.model_validate_json(answer)
        except EndpointError:
            if holder(folder / GUARD) is not None:  # else it has just ended
                raise
    return status(read(folder / GUARD / FILE), running=running.pid if running else None)


def override(commands: Commands, request: OverrideRequest) -> Status:
    """A person's decision, through the guard that runs, or at once where none does."""
    running = holder(commands.folder / GUARD)
    if running is not None and running.url is not None:
        return through(commands.rollout, running, request)
    with guarding(commands, blind) as (guard, _):
        guard.resume()
        carry_out(guard, request)
        return status(guard.standing, unconfirmed=guard.unconfirmed)


def through(rollout: Rollout, running: Holder, request: OverrideRequest) -> Status:
    """Send an override through the guard that runs."""
    commands = sum(action.longest_s for action in rollout.guard.actions)
    answer = ask(
        "send the override to the guard",
        "POST",
        f"{running.url}/override",
        body=json.loads(request.model_dump_json()),
        token=running.token,
        timeout_s=ANSWER_S + 2 * commands,
    )
    return Status.model_validate_json(answer)


@contextmanager
def guarding(commands: Commands, see: Observe, *, dry_run: bool = False) -> Iterator[tuple[Guard, Lock]]:
    rollout, folder = commands.rollout, commands.folder
    _whole_windows(rollout)
    where = folder / GUARD
    switch = switch_of(rollout, folder)
    with ExitStack() as held:
        lock = held.enter_context(locked(where, f"{DRY}.{LOCK}" if dry_run else LOCK))
        if not dry_run:
            held.enter_context(alone([target.identity for target in switch.targets]))
        guard = Guard(
            rules=GuardRules.from_settings(rollout.guard),
            observe=see,
            switch=switch,
            journal=Journal(where / (f"{DRY}.jsonl" if dry_run else FILE)),
            gate=lambda: gate(capacity(rollout, folder)),
            dry_run=dry_run,
            rollout=rollout.rollout,
            place=commands.anywhere.place,
            notifications=notifications(rollout.guard.actions),
            steady=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),  # counts on while the host is suspended
        )
        yield guard, lock


def switch_of(rollout: Rollout, folder: Path) -> Switch:
    """All that the rollout's guard switches. Raises ConfigError where that is nothing."""
    actions = rollout.guard.actions
    routers = [rollout.route.router.listener(address) for address in rollout.addresses.routers]
    return Switch(targets(actions, routers, folder / GUARD), counted_routers(actions, routers))


def _whole_windows(rollout: Rollout) -> None:
    """Raises ConfigError where a step would be judged by samples from before it."""
    guard, window_s = rollout.guard, rollout.monitor.window_s
    window = f"monitor.window_s, the {window_s} s that rates are taken over"
    if guard.cooldown_s < window_s:
        raise ConfigError(
            f"guard.cooldown_s is less than {window}: an attempt to re-enable would be judged by older data",
            hint=in_rollout("cooldown_s", f"write {window_s} or more"),
        )
    held_s = guard.hold_evaluations * guard.interval_s
    if held_s < window_s:
        raise ConfigError(
            f"guard.hold_evaluations x guard.interval_s is {held_s} s, less than {window}:"
            " a step would be judged by what was before it",
            hint=in_rollout("hold_evaluations", f"write {math.ceil(window_s / guard.interval_s)} or more"),
        )


def _observer(commands: Commands, tell: Callable[[str], None]) -> Observe:
    rollout = commands.rollout
    url = rollout.addresses.prometheus
    if url is None:
        raise ConfigError(
            "the guard needs Prometheus, and the rollout file names none: expected "
            "addresses.prometheus, such as http://127.0.0.1:9090",
            hint=in_rollout("addresses", "add addresses.prometheus: http://127.0.0.1:9090"),
        )
    api, (criteria, without) = Api(url), deployment_criteria(rollout, commands.folder)
    for line in without:
        tell(line)
    return lambda now, since, row: observe(api, criteria, now, since, row)


def deployment_criteria(rollout: Rollout, folder: Path) -> tuple[Criteria, list[str]]:
    """Return the deployment's criteria, and a line for each reference that is not used. Raises
    FileError where a result is damaged."""
    unfit = left_out(rollout, folder, version_of(rollout))
    criteria = criteria_of(rollout, RunFolder(folder, unfit))
    lines = [f"{phase}.json is not used as a reference: {unfit[phase]}" for phase in READ if phase in unfit]
    if isinstance(criteria.baseline, Missing):
        lines.append(f"latencies are not judged: {criteria.baseline.why}")
    return criteria, lines


def criteria_of(rollout: Rollout, run: RunFolder) -> Criteria:
    """Return the criteria from the sweep and the baseline of `run`. Raises FileError where one is damaged."""
    guard = rollout.guard
    min_acceptance, measured = _min_acceptance(rollout, run)
    baseline = undamaged(run.finished("baseline", cells_of))
    return Criteria(
        query=LiveQuery(
            rollout=rollout.rollout,
            series=exposed(rollout, "speculative"),
            standard=exposed(rollout, "standard"),
            labels=rollout.monitor.labels,
            scrape_s=float(rollout.monitor.scrape_interval_s),
            routed=bool(rollout.addresses.routers),
            servers=len(rollout.addresses.speculative),
            routers=len(rollout.addresses.routers),
        ),
        window_s=float(rollout.monitor.window_s),
        min_acceptance=min_acceptance,
        baseline=of_cells(baseline.part, baseline.file)
        if isinstance(baseline, Stored)
        else Missing(str(baseline)),
        regression=Threshold(
            value=1 + guard.max_regression,
            source=f"guard.max_regression of the rollout file, {guard.max_regression:.0%}",
        ),
        max_error_share=Threshold(
            value=guard.max_error_share, source="guard.max_error_share of the rollout file"
        ),
        min_requests=guard.min_requests,
        break_even_known_to=BREAK_EVEN_KNOWN if measured else 0.0,
        ends_speculation=rollout.pools.speculative.ends_speculation,
        holdout=rollout.effect.holdout if rollout.addresses.routers else 0.0,
        block_s=rollout.effect.block_s if rollout.effect.mode == "windows" else None,
    )


def _min_acceptance(rollout: Rollout, run: RunFolder) -> tuple[Threshold | Missing, bool]:
    """Return the least acceptance, and whether it was measured."""
    configured, pool = rollout.guard.min_acceptance, rollout.pools.speculative
    if configured is not None:
        return Threshold(value=configured, source="guard.min_acceptance of the rollout file"), False
    stored = undamaged(run.finished("sweep", lambda result, _: break_even(pool, result)))
    why = "no sweep measured break-even"
    if isinstance(stored, run_folder.Missing):
        why = stored.why if stored.unused else why
    elif stored.part is not None:
        return Threshold(value=stored.part, source=f"break-even measured by {stored.file}"), True
    if branches(pool):
        # Of a tree that branches most of what is drafted cannot be accepted, and it may pay well.
        tree = "no sweep measured what a tree that branches must have accepted to break even"
        return Missing(f"{tree}: specops sweep ROLLOUT, or set guard.min_acceptance"), False
    return Threshold(value=LEAST_ACCEPTANCE, source=f"default; {why}"), False


def blind(now: float, since: float | None, row: BadRow | None) -> Evaluation:
    """The evaluation of a guard that carries out what a person decided: it observes nothing, so this is
    never called."""
    raise AssertionError


def gate(capacity: Capacity) -> CapacityGate:
    """Return what the capacity gate's answer means for a fallback. Where it is a plain no, the standard pool
    gets what it was measured to carry and the rest stays: slower than it need be, which is better than a
    standard pool that breaks down. What was not measured holds nothing back; it is said."""
    if capacity.verdict != "no":
        return CapacityGate(reason=capacity.reason)
    carried = min(
        (demand.offered.low or demand.offered.estimate) / demand.peak for demand in capacity.demands
    )
    floor = min(max(math.ceil(round(100 * (1 - carried), 6)), 0), 99)
    return CapacityGate(
        reason=f"{capacity.reason}; so {floor}% stay speculative unless requests fail", floor=floor
    )
