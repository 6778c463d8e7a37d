"""A fall-back and a return, rehearsed on a stage of pools and a router of its own.

On pools that run already a drill moves live traffic: when, an operator says, with `specops guard drill` or
by asking for this phase by name.
"""

from __future__ import annotations

from specops.config import Rollout
from specops.errors import ServerError
from specops.phases import Phase
from specops.phases.commands import Commands
from specops.phases.guard_drill import drill
from specops.phases.inputs import changed, inputs_of_settings, settings_of
from specops.phases.playbook.keeping import by_hand, earlier, set_aside, written
from specops.phases.playbook.stage import STAGED, missing, staged
from specops.phases.playbook.step import Given, Skipped, Step
from specops.phases.playbook.together import apart

PHASE: Phase = "guard-drill"
LIMIT_S = 60.0


def run(at: Given) -> Step | Skipped:
    pools = at.rollout.pools
    if pools.standard.endpoint or pools.speculative.endpoint:
        if at.by_name:
            return written(at, PHASE, drill(at.rollout, at.folder, at.progress, limit_s=LIMIT_S))
        return by_hand(at, PHASE) or Skipped(
            PHASE,
            "the pools run already, and a drill would move their live traffic: run it when that suits",
            Commands(at.rollout, at.file, at.folder).of("guard drill {rollout}"),
        )
    return _rehearsed(at)


def _rehearsed(at: Given) -> Step | Skipped:
    asked = inputs(at.rollout)
    previous = earlier(at, PHASE)
    if previous is not None:
        live = STAGED not in previous.settings  # which says more than a rehearsal: none takes its place
        # What mends a drill, such as another NGINX, is in no input: one that was not passed is tried again.
        if live or (previous.verdict == "yes" and changed(previous, asked) is None):
            return Step(PHASE, at.path(PHASE), previous, reused=True, by_hand=live)
    lacking = missing(at.rollout)
    if lacking is not None:
        return Skipped(PHASE, f"a stage for it has no router: {lacking.message}", lacking.hint)
    try:
        with staged(at) as (rollout, folder):
            result = drill(rollout, folder, at.progress, limit_s=LIMIT_S)
    except ServerError as error:
        return apart(at, PHASE, error)
    update = {
        "inputs": asked,
        "settings": result.settings | {STAGED: "both pools and NGINX, started for the drill on loopback"},
        "reason": f"rehearsed on a stage: {result.reason}",
    }
    set_aside(PHASE, at.path(PHASE), at.progress)
    return written(at, PHASE, result.model_copy(update=update))


def inputs(rollout: Rollout) -> dict[str, str]:
    pools = {"standard": rollout.pools.standard, "speculative": rollout.pools.speculative}
    asked = settings_of(rollout, rollout.pools.standard)
    rehearsed = {"guard": rollout.guard.model_dump(mode="json")}
    return inputs_of_settings(pools, asked, rehearsed, asked.prompt_set())
