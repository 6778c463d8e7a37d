"""`run`: walks the phases that there are, in order, and runs those whose inputs have changed.

baseline      the standard pool     -> baseline.json
speculative   the speculative pool  -> speculative.json, measured the same way
compare       both results          -> compare.json
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from specops import results
from specops.config import EndpointPool, Pool, Rollout
from specops.errors import Exit
from specops.launch import embedded
from specops.launch.process import running
from specops.load.settings import OF_THE_RUN
from specops.phases import PHASES, Phase, measurement
from specops.phases.baseline import measure
from specops.phases.compare import compare
from specops.phases.inputs import ADDED, changed, inputs_of, settings_of
from specops.progress import Progress
from specops.results import Result, sha256


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
        reuse = path.exists() and not fresh
        if phase == "compare":
            step = _compare(path, measurement.read_comparison(path) if reuse else None, progress)
        else:
            pool = rollout.pools.standard if phase == "baseline" else rollout.pools.speculative
            step = _measure(rollout, phase, pool, path, measurement.read(path) if reuse else None, progress)
        if step.reused:
            progress.note(f"{phase}: not run again, its inputs have not changed ({path})")
        walk.steps.append(step)
        # A failed speculative arm is the comparison's to judge.
        if step.result.verdict == "no" and phase == "baseline" and not go_on:
            progress.note(f"{phase} said no: {step.result.reason}; --continue goes on all the same")
            break
    return walk


def _measure(
    rollout: Rollout, phase: Phase, pool: Pool, path: Path, previous: Result | None, progress: Progress
) -> Step:
    settings = settings_of(rollout, pool)
    inputs = inputs_of(settings, pool)
    if previous is not None:
        unlike = changed(previous, inputs)
        asked = settings.model_dump(mode="json")
        whole = all(previous.settings.get(name) == asked[name] for name in OF_THE_RUN)
        if unlike is None and previous.verdict == "yes" and whole:
            return Step(phase, path, previous, reused=True)
        if unlike is not None:
            progress.note(f"{phase}: measured anew, since {unlike} changed")
            previous = None
        else:  # partial, failed, or asked for more: `measure` keeps the cells that are whole
            known = {k: v for k, v in previous.inputs.items() if k not in ADDED}
            previous = previous.model_copy(update={"inputs": known})

    kept = previous is not None  # in `path` there is something of these inputs

    def keep(result: Result) -> None:
        nonlocal kept
        if not kept and path.exists():
            earlier = results.set_aside(path)
            progress.note(f"{phase}: the earlier measurement is now {earlier}")
        results.write(path, result.model_copy(update={"phase": phase, "inputs": inputs}))
        kept = True

    log = path.parent / "logs" / f"{phase}.log"
    try:
        with _serving(rollout, phase, pool, log, progress) as base_url:
            at = settings.model_copy(update={"base_url": base_url})
            result = measure(at, progress, previous, keep)
    except KeyboardInterrupt:
        if kept:
            progress.note(f"{phase}: stopped; what was measured is in {path}, and the same command resumes")
        else:
            progress.note(f"{phase}: stopped before anything was measured")
        raise
    keep(result)  # now that its server is known to have lived to the end
    if result.verdict == "no" and log.exists():
        progress.note(f"{phase}: the server's log is {log}")
    return Step(phase, path, results.read(path), reused=False)


@contextmanager
def _serving(rollout: Rollout, phase: Phase, pool: Pool, log: Path, progress: Progress) -> Iterator[str]:
    """The base URL of a pool, started for as long as the block lasts where specops is to start it."""
    if isinstance(pool, EndpointPool):
        yield pool.base_url
        return
    name = "standard" if phase == "baseline" else "speculative"
    command = embedded.command(pool, rollout.rollout)
    with running(name, command, ready=embedded.READY, log=log, progress=progress) as server:
        yield server.base_url


def _compare(path: Path, previous: Result | None, progress: Progress) -> Step:
    files = {name: path.parent / f"{name}.json" for name in ("baseline", "speculative")}
    standard, speculative = (measurement.read(file) for file in files.values())
    inputs = {name: sha256(file) for name, file in files.items()}
    if previous is not None:
        unlike = changed(previous, inputs)
        if unlike is None:
            return Step("compare", path, previous, reused=True)
        progress.note(f"compare: run again, since {unlike} changed")
    result = compare(standard, speculative).model_copy(update={"inputs": inputs})
    results.write(path, result)
    return Step("compare", path, result, reused=False)
