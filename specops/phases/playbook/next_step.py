"""After a walk: what to change, if anything, and the one command to run next."""

from __future__ import annotations

from pathlib import Path

from specops.config import Rollout
from specops.phases import Phase
from specops.phases.commands import Commands
from specops.phases.playbook import Step, Walk
from specops.phases.rendered import Rendered

CHANGES: dict[Phase, str] = {
    "baseline": "fix what {result} names",
    "drafts": "choose another draft: pools.speculative in {file}",
    "sweep": "give other drafts or trees to try in {file}: sweep.drafts, sweep.trees",
    "ab": "another draft, tree or K: pools.speculative in {file}",
    "canary": "fix what {result} shows",
    "guard-drill": "fix what {result} names; its logs are {folder}/logs/guard-drill-*.log",
}
"""What to change after a phase said no."""
AGAIN: dict[Phase, str] = {
    "canary": "run {rollout} --only canary --fresh",
    "guard-drill": "run {rollout} --only guard-drill",
}
"""The command after that, where it is not `specops run ROLLOUT`."""


def following_walk(walk: Walk, rollout: Rollout, file: Path) -> list[str]:
    """Lines `change: …`, if any, and `next: COMMAND`: what the first no calls for; else what is open; else
    going live."""
    commands = Commands(rollout, file, walk.folder)
    said_no = next((step for step in walk.steps if step.result.verdict == "no"), None)
    checked = walk.step("checklist")
    if said_no is not None and said_no is not checked:
        return _after_no(said_no, walk, commands)
    if checked is not None and checked.result.verdict != "yes":
        return _lines(commands.of("checklist {rollout}"))
    if checked is not None:
        return _lines(commands.of("guard status {rollout}"))
    if walk.steps:
        return _after(walk.steps[-1], commands)
    hint = walk.skipped[-1].hint
    if hint is not None and hint.startswith("specops "):
        return _lines(hint)
    return _lines(_again(commands), hint)


def _lines(command: str, change: str | None = None) -> list[str]:
    return [*([f"change: {change}"] if change else []), f"next: {command}"]


def _after_no(step: Step, walk: Walk, commands: Commands) -> list[str]:
    if step.phase == "launch":
        return _lines(_again(commands), _of_launch(step))
    change = CHANGES.get(step.phase, "fix what {result} names")
    change = change.format(file=commands.file, folder=walk.folder, result=step.path)
    if step.phase == "drafts":
        target = str(step.result.settings.get("target", ""))
        if target:
            return _lines(commands.of(f"verify-draft --guide {target}"), change)
    if step.phase == "guard-drill" and step.by_hand:  # of the live set-up, which no walk drills by itself
        return _lines(commands.of("guard drill {rollout}"), f"fix what {step.path} names")
    return _lines(commands.of(AGAIN.get(step.phase, "run {rollout}")), change)


def _of_launch(step: Step) -> str:
    """The gate's hint where it is the gate that said no, else what was rendered has errors."""
    data = Rendered.model_validate(step.result.data)
    if step.result.verdict == data.capacity.verdict and data.capacity.hint:
        return data.capacity.hint
    return f"fix the errors that {step.path} names"


def _after(last: Step, commands: Commands) -> list[str]:
    """Of a walk that did not come to the checklist."""
    if last.result.verdict in ("yes", "partial"):
        return _lines(_again(commands))
    if last.phase == "ab" and last.result.verdict == "undecided":
        more = last.result.summary.get("more_prompts")
        return _lines(
            _again(commands), f"add {f'about {more}' if more else 'many'} prompts in {commands.file}"
        )
    return _lines(_again(commands), f"see {last.path}")


def _again(commands: Commands) -> str:
    return commands.of("run {rollout}")
