"""The check of a draft as a phase of the playbook: the speculative pool's two models, judged by their files.

They may have changed on the hub, so this is done at each walk.
"""

from __future__ import annotations

from pathlib import Path

from specops.checkpoints.draft_kind import WITHOUT_MODEL
from specops.errors import ModelError
from specops.phases.commands import Commands
from specops.phases.inputs import settings_of
from specops.phases.phase import Phase, PhaseInput, Skipped, Step, next_lines
from specops.phases.verify_draft.estimate_record import EstimateData
from specops.phases.verify_draft.pair import settings_for
from specops.phases.verify_draft.verify import VerifyDraftData, VerifySummary, verify
from specops.results import Content
from specops.trees import exit_layers


class _Drafts(Phase):
    name = "drafts"
    content = Content((VerifyDraftData, EstimateData), summary=VerifySummary)
    result_name = "verify-draft"
    noiseless = True
    change = "choose another draft: pools.speculative in {file}"

    def run(self, task: PhaseInput) -> Step | Skipped:
        settings = settings_for(task.rollout.pools.speculative)
        if settings is None:
            engine = task.rollout.pools.speculative.engine
            return self.written_by_hand(task) or Skipped(
                self.name,
                f"the draft was not checked: the rollout file has no model folders of a pool of engine "
                f"{engine}",
                f"specops verify-draft TARGET DRAFT --out {task.path(self.name)}",
            )
        prompts = settings_of(task.rollout, task.rollout.pools.standard).prompt_set()
        try:
            result = verify(settings, prompts, task.progress)
        except ModelError as error:
            if all(_local(name) for name in (settings.target, settings.draft)):
                raise
            # The machine that measures may have no access to the hub. That must not stop the walk.
            return self.written_by_hand(task) or Skipped(self.name, error.message, error.hint)
        return self.write(task, result)

    def following(self, step: Step, commands: Commands) -> list[str]:
        target = str(step.result.settings.get("target", ""))
        if step.result.verdict != "no" or not target:
            return super().following(step, commands)
        return next_lines(
            commands.of(f"verify-draft --guide {target}"), self.change.format(file=commands.file)
        )


def _local(name: str) -> bool:
    return name in WITHOUT_MODEL or exit_layers(name) is not None or Path(name).is_dir()


PHASE = _Drafts()
