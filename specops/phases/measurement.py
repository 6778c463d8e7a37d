"""Results of the phases of `run`, read back with checks; and partial results, stored while a phase runs.

`results.read` knows the frame of a result, not what a phase keeps in `data`. A file that someone edited by
hand is refused here, by its path and the field, before anything is built on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from specops import results
from specops.errors import FileError, SpecopsError, Stopped, UsageError
from specops.hints import ROLLOUT, with_options
from specops.load.record import Acceptance, CellRecord, Errors, Latencies, LevelFigures
from specops.load.settings import StoredCounting
from specops.load.validity import LatencyChange
from specops.load.workload import StoredProvenance
from specops.phases import PhaseName, phase_named
from specops.progress import Progress
from specops.results import Result
from specops.validation import problem


class BaselineLevels(BaseModel):
    by_concurrency: list[LevelFigures]


class _Cells(BaseModel):
    cells: list[CellRecord]


class BaselineSteadiness(BaseModel):
    steadiness: list[LatencyChange] = Field(default_factory=list)
    """How the server changed while it was measured."""


class BaselineData(BaselineLevels, BaselineSteadiness, _Cells):
    """`data` of baseline.json."""

    run: str
    """Names the run in the nonces of its prompts."""

    percentiles: str
    """How quantiles are computed."""

    prompts: StoredProvenance
    endpoint: StoredCounting
    by_class: dict[str, list[Latencies]]
    acceptance: Acceptance | None
    acceptance_missing: str | None
    errors: Errors


Model = TypeVar("Model", bound=BaseModel)


def read(path: Path) -> Result:
    """The result of a measurement at `path`. Raises FileError for another file, or a damaged one."""
    result = results.read(path)
    checked(BaselineData, result.data, f"{path} is damaged: data")
    return result


@dataclass(frozen=True)
class StoredResult:
    """A finished result of a phase in a run folder."""

    result: Result
    path: Path
    sha256: str

    @property
    def source(self) -> str:
        return f"{self.path.name} of {self.result.created:%Y-%m-%d} (sha256 {self.sha256[:12]})"


def finished(folder: Path, name: PhaseName, unfit: Mapping[str, str] = MappingProxyType({})) -> StoredResult:
    """The result of the phase `name` in a run folder, if its figures may be used. `unfit`: by phase, why a
    result is not of the rollout. Raises FileError otherwise; its hint is the command that makes one."""
    phase, path = phase_named(name), folder / f"{name}.json"
    hint = f"specops {phase.remake.format(rollout=ROLLOUT)}"
    if not path.exists():
        raise FileError(f"there is no {path.name}", hint=hint)
    result = results.read(path)
    if result.phase != phase.result_name:
        raise FileError(f"{path.name} is a result of {result.phase}", hint=hint)
    why = unfit.get(name) or (None if phase.usable(result) else result.reason)
    if why is not None:
        raise FileError(f"{path.name} is not used: {why}", hint=hint)
    return StoredResult(result, path, results.sha256(path))


def cells_of(result: Result, name: str) -> list[CellRecord]:
    """The cells of a measurement that is called `name` in the message of the FileError."""
    return checked(_Cells, result.data, f"{name} is damaged: data").cells


def checked(model: type[Model], value: dict[str, Any], where: str) -> Model:
    """`value` as a `model`. Raises FileError, which begins with `where` and names the field that does not
    fit."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([where, *map(str, first["loc"])])
        again = f"{with_options({'--fresh': True})}  # measures it again"
        raise FileError(f"{place} {problem(first)}", hint=again) from None


Keep = Callable[[Result], None]


@contextmanager
def partial_results(
    path: Path, progress: Progress, *, resumed: bool = False, before_first: Callable[[], None] = lambda: None
) -> Iterator[Keep]:
    """A function that writes a result to `path`; `before_first` runs before it writes for the first time.

    `resumed` says that `path` already holds partial results of the same measurement. Where Ctrl-C or SIGTERM
    ends the block and `path` holds partial results, Stopped with that path takes the place of
    KeyboardInterrupt. An error passes through, after a note that says where the partial results are.
    """
    saved = resumed

    def keep(result: Result) -> None:
        nonlocal saved
        if not saved:
            before_first()
        results.write(path, result)
        saved = True

    try:
        yield keep
    except KeyboardInterrupt:
        if saved:
            raise Stopped(path) from None
        raise
    except SpecopsError:
        if saved:
            progress.note(f"partial results are in {path}; the same command without --fresh resumes")
        raise


def resumable(
    out: Path,
    kind: str,
    inputs: Callable[[], dict[str, str]],
    check: Callable[[Result, str], object],
    *,
    fresh: bool,
    hint: Mapping[str, str | bool] | None = None,
) -> Result | None:
    """The earlier result at `out`; None without one, or with `fresh`.

    Raises UsageError for one of other `inputs`: it cannot be resumed, and is not to be lost for a forgotten
    option. `check` raises where it is damaged, before the first request.
    """
    from specops.phases.inputs import changed  # which reads results of phases, too

    if fresh or not out.exists():
        return None
    previous = results.read(out)
    if unlike := changed(previous, inputs()):
        raise UsageError(
            f"{out} holds another {kind}: {unlike} changed; --fresh measures again",
            hint=with_options(hint or {"--out": f"{out.with_suffix('')}-2{out.suffix}"}),
        )
    check(previous, str(out))
    return previous
