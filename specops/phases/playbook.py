"""`run`: walks the phases that there are, in order, and runs those whose inputs have changed.

baseline   the standard pool                                    -> baseline.json
ab         both pools, asked in turn and paired prompt by prompt -> ab.json
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from specops import results
from specops.config import Rollout
from specops.errors import Exit
from specops.launch.pools import serving
from specops.load.settings import OF_THE_RUN
from specops.phases import PHASES, Phase, measurement
from specops.phases.ab import report
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings, Arm
from specops.phases.baseline import measure
from specops.phases.inputs import ADDED, changed, inputs_of, inputs_of_arms, settings_of
from specops.progress import Progress
from specops.results import Result

Keep = Callable[[Result], None]


@dataclass(frozen=True)
class Step:
    """What became of one phase."""

    phase: Phase
    path: Path
    result: Result
    reused: bool
    """The result of an earlier run stands, since its inputs have not changed."""


@dataclass
class Walk:
    rollout: str
    folder: Path
    steps: list[Step] = field(default_factory=list)

    @property
    def exit_code(self) -> Exit:
        """No where a phase said no; else undecided where one is; else yes."""
        codes = {step.result.exit_code for step in self.steps}
        return next((code for code in (Exit.NO, Exit.UNDECIDED) if code in codes), Exit.YES)


def run(
    rollout: Rollout,
    folder: Path,
    progress: Progress,
    *,
    only: Phase | None = None,
    fresh: bool = False,
    go_on: bool = False,
) -> Walk:
    """Walk the playbook; results go to `folder`.

    `only` runs one phase, `fresh` reuses no earlier result, `go_on` does not stop at a phase that said no.
    Raises what the phases raise; what was measured until then is in `folder` and the same call resumes.
    """
    walk = Walk(rollout.rollout, folder)
    for phase in PHASES if only is None else (only,):
        path = folder / f"{phase}.json"
        phase_of = _baseline if phase == "baseline" else _ab
        step = phase_of(rollout, path, path.exists() and not fresh, progress)
        if step.reused:
            progress.note(f"{phase}: not run again, its inputs have not changed ({path})")
        walk.steps.append(step)
        if step.result.verdict == "no" and phase != PHASES[-1] and not go_on:
            progress.note(f"{phase} said no: {step.result.reason}; --continue goes on all the same")
            break
    return walk


def _baseline(rollout: Rollout, path: Path, reuse: bool, progress: Progress) -> Step:
    pool = rollout.pools.standard
    settings = settings_of(rollout, pool)
    inputs = inputs_of(settings, pool)
    previous = measurement.read(path) if reuse else None
    if previous is not None:
        asked = settings.model_dump(mode="json")
        whole = all(previous.settings.get(name) == asked[name] for name in OF_THE_RUN)
        if changed(previous, inputs) is None and previous.verdict == "yes" and whole:
            return Step("baseline", path, previous, reused=True)
    previous = _unchanged("baseline", previous, inputs, progress)
    if previous is not None:  # partial, failed, or asked for more: `measure` keeps the cells that are whole
        known = {name: sha for name, sha in previous.inputs.items() if name not in ADDED}
        previous = previous.model_copy(update={"inputs": known})
    log = path.parent / "logs" / "baseline.log"
    with _keeping("baseline", path, previous, inputs, progress) as keep:
        with serving(pool, "standard", model=rollout.rollout, log=log, progress=progress) as server:
            at = settings.model_copy(update={"base_url": server.base_url, "model": server.model})
            result = measure(at, progress, previous, keep)
        keep(result)  # now that its server is known to have lived to the end
    if result.verdict == "no" and log.exists():
        progress.note(f"baseline: the server's log is {log}")
    return Step("baseline", path, results.read(path), reused=False)


def _ab(rollout: Rollout, path: Path, reuse: bool, progress: Progress) -> Step:
    arms = [Arm("standard", rollout.pools.standard), Arm("speculative", rollout.pools.speculative)]
    asked = settings_of(rollout, rollout.pools.standard)
    settings = AbSettings(**rollout.ab.model_dump())
    inputs = inputs_of_arms(arms, asked, settings, asked.prompt_set())
    previous = report.read_comparison(path) if reuse else None
    if (
        previous is not None
        and changed(previous, inputs) is None
        and previous.verdict != "partial"
        and not previous.data["failed"]  # an arm that failed is asked again
    ):
        return Step("ab", path, previous, reused=True)
    previous = _unchanged("ab", previous, inputs, progress)
    with _keeping("ab", path, previous, inputs, progress) as keep:
        logs = path.parent / "logs"
        result = compare(arms, asked, settings, progress, logs=logs, previous=previous, on_partial=keep)
        keep(result)
    return Step("ab", path, results.read(path), reused=False)


def _unchanged(
    phase: Phase, previous: Result | None, inputs: dict[str, str], progress: Progress
) -> Result | None:
    unlike = changed(previous, inputs) if previous is not None else None
    if unlike is None:
        return previous
    progress.note(f"{phase}: measured anew, since {unlike} changed")
    return None


@contextmanager
def _keeping(
    phase: Phase, path: Path, previous: Result | None, inputs: dict[str, str], progress: Progress
) -> Iterator[Keep]:
    """What writes a result to `path`, of these inputs. What is there of others is set aside for the first."""
    kept = previous is not None

    def keep(result: Result) -> None:
        nonlocal kept
        if not kept and path.exists():
            progress.note(f"{phase}: the earlier measurement is now {results.set_aside(path)}")
        results.write(path, result.model_copy(update={"phase": phase, "inputs": inputs}))
        kept = True

    try:
        yield keep
    except KeyboardInterrupt:
        if kept:
            progress.note(f"{phase}: stopped; what was measured is in {path}, and the same command resumes")
        else:
            progress.note(f"{phase}: stopped before anything was measured")
        raise
