"""Results of the phases of `run`, read back with checks; and partial results, stored while a phase runs.

`results.read` knows the frame of a result, not what a phase keeps in `data`. A file that someone edited by
hand is refused here, by its path and the field, before anything is built on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from specops import results
from specops.errors import FileError, SpecopsError, Stopped, UsageError
from specops.hints import with_options
from specops.load.record import Acceptance, CellRecord, Errors, Latencies, LevelFigures
from specops.load.replay import ReplayFacts
from specops.load.settings import StoredCounting
from specops.load.validity import LatencyChange
from specops.load.workload import StoredProvenance
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
    replay: ReplayFacts | None = None
    """What was replayed; None for other arrivals."""


Model = TypeVar("Model", bound=BaseModel)


def read(path: Path) -> Result:
    """The result of a measurement at `path`. Raises FileError for another file, or a damaged one."""
    result = results.read(path)
    checked(BaselineData, result.data, f"{path} is damaged: data")
    return result


def levels_of(result: Result, name: str) -> list[LevelFigures]:
    """The levels of a baseline that is called `name` in the message of the FileError."""
    return checked(BaselineLevels, result.data, f"{name} is damaged: data").by_concurrency


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
