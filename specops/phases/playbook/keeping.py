"""Earlier results: which of them still stand, and what is set aside for what is measured anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specops import results
from specops.phases import Phase
from specops.phases.inputs import changed
from specops.phases.partial_results import Keep, partial_results
from specops.phases.playbook.step import Given, Step
from specops.progress import Progress
from specops.results import Result


def unchanged(
    phase: Phase, previous: Result | None, inputs: dict[str, str], progress: Progress
) -> Result | None:
    """`previous` where it is of these inputs."""
    unlike = changed(previous, inputs) if previous is not None else None
    if unlike is None:
        return previous
    progress.note(f"{phase}: measured anew, since {unlike} changed")
    return None


def earlier(at: Given, phase: Phase) -> Result | None:
    """The whole result of an earlier run; None where there is none, or it is not to be reused."""
    path = at.path(phase)
    if at.fresh or not path.exists():
        return None
    previous = results.read(path)
    return None if previous.verdict == "partial" else previous


def by_hand(at: Given, phase: Phase) -> Step | None:
    """A result that the phase's own command left in the run folder, where a walk cannot make one."""
    previous = earlier(at, phase)
    return Step(phase, at.path(phase), previous, reused=True, by_hand=True) if previous is not None else None


def set_aside(phase: Phase, path: Path, progress: Progress) -> None:
    """Keep an earlier result at `path` beside the one that is to come."""
    if path.exists():
        progress.note(f"{phase}: the earlier measurement is now {results.set_aside(path)}")


def written(at: Given, phase: Phase, result: Result) -> Step:
    """`result`, in the place of an earlier one."""
    path = at.path(phase)
    results.write(path, result)
    return Step(phase, path, result)


@contextmanager
def keeping(
    phase: Phase, path: Path, previous: Result | None, inputs: dict[str, str], progress: Progress
) -> Iterator[Keep]:
    """What writes a result to `path`, of these inputs. What is there of others is set aside for the first."""
    with partial_results(
        path,
        progress,
        resumed=previous is not None,
        before_first=lambda: set_aside(phase, path, progress),
    ) as keep:
        yield lambda result: keep(result.model_copy(update={"phase": phase, "inputs": inputs}))
