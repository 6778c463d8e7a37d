"""The last page of a run: the answer, a line for each phase, what was measured, and the next command."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from specops.cli.page_figures import figures, reused
from specops.config import Rollout
from specops.phases import PHASES, Phase
from specops.phases.commands import Commands
from specops.phases.playbook import Skipped, Step, Walk
from specops.phases.playbook.walk import following_walk
from specops.phases.run_page import INDEX
from specops.phases.run_page.conclusion import (
    SKIPPED,
    STATES,
    decision,
    decision_line,
    failed_gate,
    failure,
    phase_reason,
)
from specops.render.figures import count

WIDTH = 100
"""Of the page in a file or a pipe. On a narrower terminal it is the terminal's."""


def page(walk: Walk, rollout: Rollout, path: Path) -> list[str]:
    """The page's lines. Every figure on it is in the file of its phase, in `walk.folder`."""
    parts = [
        [line for text in _answer(walk, rollout, path) for line in _wrapped(text, "", "  ")],
        list(_phases(walk)),
        [
            _headline(walk),
            *figures(walk),
            *(f"  reused    {line}" for line in reused(walk, rollout)),
        ],
    ]
    lines = [line for part in parts if part for line in (*part, "")]
    return [*lines[:-1], f"page: {walk.folder / INDEX}", *following_walk(walk, rollout, path)]


def _answer(walk: Walk, rollout: Rollout, path: Path) -> Iterator[str]:
    """What the comparison says of each load; where there is none, what the last phase says. Then which gate
    failed, and where the walk stopped."""
    last = walk.step(walk.stopped) if walk.stopped else None
    found, failed = decision(walk), failed_gate(walk)
    if found.support:
        yield from (*found.support, decision_line(found, failed))
        if failed is not None and failed is not last:
            yield failure(failed)
    elif last is None:
        yield found.headline
    if last is not None:
        again = Commands(rollout, path, walk.folder).of("run {rollout} --continue")
        yield f"Stopped at {last.phase}: {last.result.reason}. To go on all the same: {again}"


def _headline(walk: Walk) -> str:
    parts = [walk.rollout]
    cores = (step.result.environment.get("cores") for step in reversed(walk.steps))
    parts += [f"{number} cores" for number in list(cores)[:1]]
    for step in reversed(walk.steps):
        prompts = step.result.data.get("prompts")
        if prompts and step.phase in ("baseline", "ab"):
            classes = count(len(prompts["classes"]), "class", "classes")
            kind = "sample prompt" if prompts.get("samples") else "prompt"
            parts.append(f"{count(prompts['count'], kind)} in {classes}")
            break
    return " · ".join([*parts, str(walk.folder)])


def _phases(walk: Walk) -> Iterator[str]:
    """A line for each phase, in order; nothing for a walk of one phase, which the page is about."""
    found: dict[Phase, Step | Skipped] = {step.phase: step for step in walk.steps}
    found |= {one.phase: one for one in walk.skipped}
    if len(found) < 2:
        return
    for phase in PHASES:
        each = found.get(phase)
        if isinstance(each, Step):
            yield from _phase(phase, STATES[each.result.verdict][1], phase_reason(each))
        elif each is not None:
            hint = f"; {each.hint}" if each.hint else ""
            yield from _phase(phase, SKIPPED[1], f"{each.reason}{hint}")


def _phase(phase: Phase, state: str, reason: str) -> list[str]:
    head = f"  {phase:11}  {state:9}  "
    return _wrapped(reason, head, " " * len(head))


def _wrapped(text: str, head: str, below: str) -> list[str]:
    terminal = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
    return textwrap.wrap(
        text,
        min(WIDTH, max(terminal, len(head) + 20)),
        initial_indent=head,
        subsequent_indent=below,
        break_on_hyphens=False,
        break_long_words=False,
    )
