"""The last page of a run, and what was measured as it shows it: the answer, the phases, the next command."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from specops.cli.ab_page import items, measured, tails, trust
from specops.cli.output import COMMAND
from specops.cli.route import unmatched_lines
from specops.config import Rollout
from specops.phases import PHASES, PhaseName, phase_named
from specops.phases.ab.report import Report, read
from specops.phases.commands import Commands
from specops.phases.playbook import Skipped, Step, Walk
from specops.phases.playbook.walk import following_walk
from specops.phases.route import unmatched_sentence
from specops.phases.run_page import INDEX
from specops.phases.run_page.conclusion import (
    SKIPPED,
    STATES,
    challenger_of,
    decision,
    decision_line,
    doubts_of,
    failed_gate,
    failure,
    phase_reason,
    unrouted,
)
from specops.render.figures import NONE, aligned, count, milliseconds, sentence
from specops.results import Result

WIDTH = 100
"""Width of the page in a file or a pipe. On a narrower terminal it is the terminal's."""


def page(walk: Walk, rollout: Rollout, path: Path) -> list[str]:
    """The page's lines. Every figure on it is in the file of its phase, in `walk.folder`. Its last lines
    are the decision once more, since the first ones may have left the screen, the page to open, and what to
    do next."""
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
    found, failed = decision(walk), failed_gate(walk)
    decided = decision_line(found, failed) if found.support and len(walk.steps) > 1 else ""
    gap = unrouted(walk)
    block = _wrapped(sentence(unmatched_sentence(gap.unmatched)), "", "  ") if gap is not None else []
    block += unmatched_lines(gap, path) if gap is not None else []
    ending = [*_wrapped(decided, "", "  "), *block, f"open {walk.folder / INDEX}"]
    return [*lines[:-1], *ending, *following_walk(walk, rollout, path)]


def _answer(walk: Walk, rollout: Rollout, path: Path) -> Iterator[str]:
    """Yield the comparison's answer for each load, or, without a comparison, the last phase's answer. Then
    the gate that failed, and the phase at which the walk stopped."""
    last = walk.step(walk.stopped) if walk.stopped else None
    found, failed = decision(walk), failed_gate(walk)
    if found.support:
        limits = [found.caution] if found.caution else []
        yield from (*found.support, *limits, decision_line(found, failed))
        if failed is not None and failed is not last:
            yield failure(failed)
    elif last is None:
        yield found.headline
    if last is not None:
        again = Commands(rollout, path, walk.folder).of("run {rollout} --continue")
        yield f"Stopped at {last.phase}: {last.result.reason}. To continue past this gate: {again}"


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
    found: dict[PhaseName, Step | Skipped] = {step.phase: step for step in walk.steps}
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


def _phase(phase: PhaseName, state: str, reason: str) -> list[str]:
    head = f"  {phase:11}  {state:9}  "
    return _wrapped(reason, head, " " * len(head))


def _wrapped(text: str, head: str, below: str) -> list[str]:
    """The lines of a text; a command in it that does not fit has a line to itself, to be pasted whole."""
    command = COMMAND.search(text)
    if command is not None and len(head) + len(text) > WIDTH:
        said, line = text[: command.start()].rstrip(" ;"), text[command.start() :]
        return [*_wrapped(said, head, below), below + line] if said else [head + line]
    terminal = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
    return textwrap.wrap(
        text,
        min(WIDTH, max(terminal, len(head) + 20)),
        initial_indent=head,
        subsequent_indent=below,
        break_on_hyphens=False,
        break_long_words=False,
    )


# --- measurements of both pools by load -------------------------------------------------------


def figures(walk: Walk) -> list[str]:
    """The comparison's where there is one, else the baseline's."""
    compared, baseline = walk.step("ab"), walk.step("baseline")
    if compared is not None:
        return [*_compared(read(compared.result, str(compared.path))), *trust(doubts_of(walk))]
    return aligned(list(_baseline(baseline.result))) if baseline is not None else []


def _baseline(result: Result) -> Iterator[list[str]]:
    for level in result.data["by_concurrency"]:
        rate = level["over_repeats"]["tokens_per_sec"]
        yield [
            "  measured",
            "standard",
            count(level["concurrency"], "stream"),
            f"TTFT {milliseconds(level['ttft_ms']['p50'])}",
            f"TPOT {milliseconds(level['tpot_ms']['p50'])}",
            f"p95 {milliseconds(level['tpot_ms']['p95'])}",
            f"E2E {milliseconds(level['e2e_ms']['p50'])}",
            f"{rate['estimate']:.0f} tok/s" if rate else NONE,
            f"{level['failed']} of {level['requests']} failed" if level["failed"] else "",
        ]


def _compared(report: Report) -> list[str]:
    found = report.challengers[challenger_of(report)]
    return [
        *aligned([row for arm, levels in report.arms.items() for row in measured(arm, levels)]),
        *(f"  tail      {line}" for line in tails(report)),
        *(f"  {line}" for line in items(found)),
    ]


def reused(walk: Walk, rollout: Rollout) -> Iterator[str]:
    """Yield when a running server was measured: a new configuration under its address shows in no hash."""
    for step in walk.steps:
        when = f"{step.result.created:%Y-%m-%d %H:%M} UTC"
        for name in phase_named(step.phase).pools if step.reused else ():
            at = getattr(rollout.pools, name).endpoint
            if at is not None:
                yield f"{at.base_url} as it was on {when} ({step.phase}); --fresh measures it again"
