"""The last page of a run: what was measured, a line for each phase, the verdict, the next command."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from specops.cli.figures import count, sentence
from specops.cli.page_figures import CHALLENGER, figures, reused
from specops.cli.page_next import following_walk
from specops.config import Rollout
from specops.phases import PHASES, Phase
from specops.phases.ab.report import read
from specops.phases.playbook import Skipped, Step, Walk

WIDTH = 100
GATE = {"yes": "passed", "no": "failed", "undecided": "open", "partial": "stopped"}


def page(walk: Walk, rollout: Rollout, path: Path) -> list[str]:
    """The page's lines. Every figure on it is in the file of its phase, in `walk.folder`."""
    return [
        _headline(walk),
        *figures(walk),
        *(f"  reused    {line}" for line in reused(walk, rollout)),
        *_gates(walk),
        _verdict(walk),
        f"next: {following_walk(walk, rollout, path)}",
    ]


def _headline(walk: Walk) -> str:
    parts = [walk.rollout]
    cores = (step.result.environment.get("cores") for step in reversed(walk.steps))
    parts += [f"{number} cores" for number in list(cores)[:1]]
    for step in reversed(walk.steps):
        prompts = step.result.data.get("prompts")
        if prompts and step.phase in ("baseline", "ab"):
            classes = count(len(prompts["classes"]), "class", "classes")
            parts.append(f"{count(prompts['count'], 'prompt')} in {classes}")
            break
    return " · ".join([*parts, str(walk.folder)])


def _gates(walk: Walk) -> Iterator[str]:
    """A line for each phase, in order; nothing for a walk of one phase, which the verdict is about."""
    made: dict[Phase, Step | Skipped] = {step.phase: step for step in walk.steps}
    made |= {one.phase: one for one in walk.skipped}
    if len(made) < 2:
        return
    about = _about(walk)
    for phase in PHASES:
        each = made.get(phase)
        if isinstance(each, Step):
            said = "as said below" if each is about else each.result.reason
            yield from _gate(phase, GATE[each.result.verdict], said)
        elif each is not None:
            mend = f"; {each.mend}" if each.mend else ""
            yield from _gate(phase, "not run", f"{each.reason}{mend}")


def _gate(phase: Phase, word: str, said: str) -> list[str]:
    head = f"  {phase:11}  {word:7}  "
    return textwrap.wrap(
        said,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _about(walk: Walk) -> Step | None:
    """What the verdict is of: the gate that ended the walk, else the last phase that gives one."""
    if walk.stopped:
        return walk.step(walk.stopped)
    return walk.step("checklist") or walk.step("ab") or (walk.steps[-1] if walk.steps else None)


def _verdict(walk: Walk) -> str:
    last = _about(walk)
    if last is None:
        return sentence(walk.skipped[-1].reason)
    if walk.stopped:
        return f"Stopped at {last.phase}: {last.result.reason}; --continue goes on all the same."
    said = sentence(last.result.reason)
    if last.phase == "ab" and last.result.verdict == "yes":
        said = f"{said} {read(last.result, str(last.path)).challengers[CHALLENGER].load}".rstrip()
    return said
