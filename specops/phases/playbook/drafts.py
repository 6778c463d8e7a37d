"""The pair that the speculative pool runs, judged from its files."""

from __future__ import annotations

from pathlib import Path

from specops.checkpoints.kind import WITHOUT_MODEL
from specops.errors import ModelError
from specops.phases import Phase
from specops.phases.inputs import settings_of
from specops.phases.playbook.keeping import by_hand, written
from specops.phases.playbook.step import Given, Skipped, Step
from specops.phases.verify_draft.pair import settings_for
from specops.phases.verify_draft.verify import verify
from specops.trees import exit_layers

PHASE: Phase = "drafts"


def run(at: Given) -> Step | Skipped:
    """Judged anew each time: it takes seconds, and a model on the hub may have changed."""
    settings = settings_for(at.rollout.pools.speculative)
    if settings is None:
        engine = at.rollout.pools.speculative.engine
        return by_hand(at, PHASE) or Skipped(
            PHASE,
            f"which models a pool of engine {engine} serves is not in the rollout file",
            f"specops verify-draft TARGET DRAFT --out {at.path(PHASE)}",
        )
    prompts = settings_of(at.rollout, at.rollout.pools.standard).prompt_set()
    try:
        result = verify(settings, prompts, at.progress)
    except ModelError as error:
        if all(_here(name) for name in (settings.target, settings.draft)):
            raise
        # Where pools are measured is not always where the hub can be reached: that stops nobody.
        return by_hand(at, PHASE) or Skipped(PHASE, error.message, error.hint)
    return written(at, PHASE, result)


def _here(name: str) -> bool:
    return name in WITHOUT_MODEL or exit_layers(name) is not None or Path(name).is_dir()
