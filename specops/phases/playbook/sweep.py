"""Which K, or which tree, pays at which load."""

from __future__ import annotations

from specops import results
from specops.config import Rollout
from specops.phases.commands import Commands
from specops.phases.inputs import changed
from specops.phases.playbook.keeping import by_hand, keeping, unchanged
from specops.phases.playbook.step import Given, Skipped, Step
from specops.phases.sweep.confirmation import BudgetError
from specops.phases.sweep.forecast import samples_of
from specops.phases.sweep.machines import machines
from specops.phases.sweep.records import kept_of
from specops.phases.sweep.sweep import sweep
from specops.phases.sweep.wanted import wanted_of


def run(at: Given) -> Step | Skipped:
    rollout, path, progress = at.rollout, at.path("sweep"), at.progress
    command = Commands(rollout, at.file, at.folder).sweep()
    why_not = _why_not(rollout)
    if why_not is not None:
        return by_hand(at, "sweep") or Skipped("sweep", why_not, command)
    wanted = wanted_of(rollout, at.file.parent)
    inputs = wanted.inputs()
    previous = results.read(path) if path.exists() and not at.fresh else None
    if previous is not None:
        kept_of(previous, str(path))  # damage is told before the first server is started, by the file's name
        spent = previous.settings.get("budget_min") == wanted.budget_min
        if changed(previous, inputs) is None and previous.verdict != "partial" and spent:
            return Step("sweep", path, previous, reused=True)
    previous = unchanged("sweep", previous, inputs, progress)
    earlier, _ = samples_of(path)
    with (
        keeping("sweep", path, previous, inputs, progress) as keep,
        machines(wanted, rollout.sweep.cluster, at.logs / "sweep", progress) as executor,
    ):
        try:
            keep(sweep(wanted, executor, progress, previous=previous, earlier=earlier, on_partial=keep))
        except BudgetError as error:
            return Skipped("sweep", error.message, f"{command} --budget {error.minutes}")
    return Step("sweep", path, results.read(path))


def _why_not(rollout: Rollout) -> str | None:
    """Why K is not specops's to set."""
    pool = rollout.pools.speculative
    if pool.endpoint is not None:
        return "the speculative pool runs already, and its K is not specops's to set"
    return pool.fixed_k
