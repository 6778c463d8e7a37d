"""Results that count for another rollout file than the one they were measured of."""

from __future__ import annotations

from pathlib import Path

from specops.config import load
from specops.experiment.arms import Arm
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import inputs_of, inputs_of_arms, settings_of
from specops.results import read, write


def adopted_by(path: Path) -> None:
    """baseline.json and ab.json beside the rollout file at `path` get the inputs of results that were
    measured of it."""
    file = load(path)
    pools = file.pools
    asked = settings_of(file, pools.standard)
    arms = [Arm("standard", pools.standard), Arm("speculative", pools.speculative)]
    settings = AbSettings(**file.ab.model_dump())
    inputs = {
        "baseline": inputs_of(asked, pools.standard),
        "ab": inputs_of_arms(arms, asked, settings, asked.prompt_set()),
    }
    for phase, of in inputs.items():
        kept = read(path.parent / f"{phase}.json")
        write(path.parent / f"{phase}.json", kept.model_copy(update={"inputs": of}))
