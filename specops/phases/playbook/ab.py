"""Both pools, asked in turn and paired prompt by prompt."""

from __future__ import annotations

from specops import results
from specops.errors import ConfigError
from specops.phases.ab import report
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings, Arm
from specops.phases.inputs import changed, inputs_of_arms, settings_of
from specops.phases.playbook.keeping import keeping, unchanged
from specops.phases.playbook.step import Given, Step


def run(at: Given) -> Step:
    rollout, path, progress = at.rollout, at.path("ab"), at.progress
    pool = rollout.pools.speculative
    if pool.open_k is not None:
        raise ConfigError(
            f"could not compare the pools: the speculative one's command says {pool.open_k}, which a sweep"
            " fills in",
            hint=f"write the K that the sweep recommends in its place in {at.file}; the sweep stands",
        )
    arms = [Arm("standard", rollout.pools.standard), Arm("speculative", rollout.pools.speculative)]
    asked = settings_of(rollout, rollout.pools.standard)
    settings = AbSettings(**rollout.ab.model_dump())
    inputs = inputs_of_arms(arms, asked, settings, asked.prompt_set())
    previous = report.read_comparison(path) if path.exists() and not at.fresh else None
    if (
        previous is not None
        and changed(previous, inputs) is None
        and previous.verdict != "partial"
        and not previous.data["failed"]  # an arm that failed is asked again
    ):
        return Step("ab", path, previous, reused=True)
    previous = unchanged("ab", previous, inputs, progress)
    with keeping("ab", path, previous, inputs, progress) as keep:
        result = compare(arms, asked, settings, progress, logs=at.logs, previous=previous, on_partial=keep)
        keep(result)
    return Step("ab", path, results.read(path))
