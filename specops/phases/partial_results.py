"""Partial results on disk, for every command that can resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specops import results
from specops.errors import SpecopsError, Stopped
from specops.progress import Progress
from specops.results import Result

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
