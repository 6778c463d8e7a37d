"""Results of the phases of `run`, read back with checks; and partial results, stored while a phase runs.

`results.read` knows the frame of a result, not what a phase keeps in `data`. A file that someone edited by
hand is refused here, by its path and the field, before anything is built on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from specops import results
from specops.errors import FileError, SpecopsError, Stopped
from specops.hints import with_options
from specops.load.record import CellRecord, Spread
from specops.load.validity import Change
from specops.progress import Progress
from specops.results import Result
from specops.validation import problem


class OverRepeats(BaseModel):
    """A mean over repeats with the ends of its interval; of one repeat it has none."""

    estimate: float
    low: float | None
    high: float | None
    n: int


class Throughput(BaseModel):
    requests_per_sec: OverRepeats | None
    tokens_per_sec: OverRepeats | None


class BaselineLevel(BaseModel):
    """A level of load in `data` of baseline.json, as far as other phases read it."""

    concurrency: int | None
    requests: int
    failed: int
    total_tokens: int | None
    ttft_ms: Spread
    tpot_ms: Spread
    e2e_ms: Spread
    e2e_with_retries_ms: Spread
    over_repeats: Throughput


class BaselineLevels(BaseModel):
    by_concurrency: list[BaselineLevel]


class _Prompts(BaseModel):
    count: int


class _Acceptance(BaseModel):
    rate: float | None
    length: float | None
    per_position: list[float | None]


class _Cells(BaseModel):
    cells: list[CellRecord]


class BaselineSteadiness(BaseModel):
    steadiness: list[Change] = Field(default_factory=list)
    """How the server changed while it was measured."""


class BaselineData(BaselineLevels, BaselineSteadiness, _Cells):
    """`data` of baseline.json, as far as it is read. What else is there is nobody's but a person's."""

    prompts: _Prompts
    by_class: dict[str, list[Any]]
    acceptance: _Acceptance | None
    acceptance_missing: str | None


Model = TypeVar("Model", bound=BaseModel)


def read(path: Path) -> Result:
    """The result of a measurement at `path`. Raises FileError for another file, or a damaged one."""
    result = results.read(path)
    checked(BaselineData, result.data, f"{path} is damaged: data")
    return result


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
