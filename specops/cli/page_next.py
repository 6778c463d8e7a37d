"""The last line of a run's page: the one thing to do next."""

from __future__ import annotations

from pathlib import Path

from specops.cli.ab_page import following
from specops.config import Rollout
from specops.phases import Phase
from specops.phases.playbook import Step, Walk
from specops.phases.rendered import Rendered

AFTER_NO: dict[Phase, str] = {
    "baseline": "fix what failed, then {again}; it resumes",
    "drafts": "choose another draft in {file}: `specops verify-draft TARGET --guide` names suitable ones",
    "sweep": "give other drafts or trees to try in {file} (sweep.drafts, sweep.trees), then {again}",
    "ab": "change pools.speculative in {file}, then {again}",
    "canary": "fix what {folder}/canary.json shows, then {again} --only canary --fresh",
    "guard-drill": "see {folder}/logs/guard-drill-*.log, then {again} --only guard-drill",
}
"""What to do after a phase said no."""


def following_walk(walk: Walk, rollout: Rollout, file: Path) -> str:
    """What the first no calls for; else what is open; else going live."""
    said_no = next((step for step in walk.steps if step.result.verdict == "no"), None)
    checked = walk.step("checklist")
    if said_no is not None and said_no is not checked:
        return _after_no(said_no, walk, file)
    if checked is not None and checked.result.verdict != "yes":
        return f"specops checklist {file}"
    if checked is not None:
        return f"specops guard status {file}, and each week: specops report {file}"
    return _after(walk.steps[-1], rollout, file) if walk.steps else walk.skipped[-1].hint or _again(file)


def _after_no(step: Step, walk: Walk, file: Path) -> str:
    if step.phase == "launch":
        return f"{_of_launch(step)}, then {_again(file)}"
    if step.phase == "guard-drill" and step.by_hand:  # of the live set-up, which no walk drills by itself
        return f"fix what {step.path} names, then specops guard drill {file}"
    said = AFTER_NO.get(step.phase, "fix what {phase}.json names, then {again}")
    return said.format(file=file, again=_again(file), folder=walk.folder, phase=step.phase)


def _of_launch(step: Step) -> str:
    """The gate's hint where it is the gate that said no, else what was rendered has errors."""
    data = Rendered.model_validate(step.result.data)
    if step.result.verdict == data.capacity.verdict and data.capacity.hint:
        return data.capacity.hint
    return f"fix the errors that {step.path} names"


def _after(last: Step, rollout: Rollout, file: Path) -> str:
    """Of a walk that did not come to the checklist."""
    if last.phase != "ab":
        return _again(file) if last.result.verdict == "yes" else f"see {last.path}, then {_again(file)}"
    if last.result.verdict == "undecided":
        more = last.result.summary.get("more_prompts")
        return f"add {f'about {more}' if more else 'many'} prompts in {file}, then {_again(file)}"
    return following(rollout.pools.speculative.model_dump(mode="json"))


def _again(file: Path) -> str:
    return f"specops run {file}"
