"""What is swept: a rollout's grid with its prompts, and how they are asked; checked before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from specops.config import Pool, Rollout
from specops.load.settings import BaselineSettings
from specops.load.workload import PromptSet
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import inputs_of_settings, settings_of
from specops.phases.sweep import grid, plan
from specops.phases.sweep.jobs import Load, Setting
from specops.phases.sweep.lengths import Lengths, lengths_of
from specops.phases.sweep.plan import Decks


@dataclass(frozen=True)
class Wanted:
    """What is swept. The first of `settings` is the standard."""

    settings: Sequence[Setting]
    loads: Sequence[Load]
    lengths: Lengths
    prompts: PromptSet
    asked: BaselineSettings
    """How every prompt is asked; with the repeats, where there is no budget."""

    budget_min: float | None = None
    confidence: float = 0.95
    margins: AbSettings = field(default_factory=AbSettings)
    """Of lengths, failures and TTFT, as `ab` has them."""

    def decks(self, only: Collection[str] = ()) -> Decks:
        """The prompts of each stage; those of the confirmation of the traffic classes `only`, if any."""
        dealt = {name: plan.deal(of, self.asked.seed) for name, of in self.lengths.classes.items()}
        found = plan.divided(dealt, len(self.settings) - 1)
        if not only:
            return found
        ours = {prompt.id for prompt in self.prompts.prompts if prompt.traffic_class in only}
        kept = {name: tuple(one for one in deck if one in ours) for name, deck in found.confirmation.items()}
        return replace(found, confirmation={name: deck for name, deck in kept.items() if deck})

    def inputs(self) -> dict[str, str]:
        """Minutes are no input: a sweep that has spent them goes on where more are given."""
        pools = {setting.name: setting.pool for setting in self.settings}
        grid = {
            "loads": [asdict(load) for load in self.loads],
            "classes": {name: [prompt.id for prompt in of] for name, of in self.lengths.classes.items()},
            "budget": self.budget_min is not None,
            "confidence": self.confidence,
        }
        return inputs_of_settings(pools, self.asked, grid, self.prompts)


def wanted_of(rollout: Rollout, folder: Path, endpoints: Mapping[int, Pool] | None = None) -> Wanted:
    """Of the rollout file in `folder`; of `endpoints`, by their K, in place of its pools where there are any.

    Raises ConfigError for pools that cannot be swept, UsageError for endpoints or a tokenizer that cannot,
    and PromptsError for prompts that cannot be sent.
    """
    settings = grid.attached(endpoints) if endpoints else grid.settings_of(rollout, folder)
    asked = settings_of(rollout, rollout.pools.standard)
    streams = rollout.sweep.concurrency or rollout.measure.concurrency
    asked = asked.model_copy(update={"concurrency": tuple(sorted(set(streams)))})
    prompts = asked.prompt_set()
    bounds = rollout.sweep.prompt_tokens
    lengths = lengths_of(prompts.prompts, bounds, asked.tokenizer, settings[0].pool)
    return Wanted(
        settings=settings,
        loads=grid.loads_of(rollout, lengths.classes),
        lengths=lengths,
        prompts=prompts,
        asked=asked,
        budget_min=rollout.sweep.budget_min,
        confidence=rollout.ab.confidence,
        margins=AbSettings(**rollout.ab.model_dump()),
    )
