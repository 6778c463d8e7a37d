"""Writes `index.html` of a run folder. `PageUpdates` does so after each result that is written into one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specops.errors import FileError, SpecopsError
from specops.phases import PHASES
from specops.phases.playbook.walk import RECORD
from specops.phases.run_page import INDEX
from specops.phases.run_page.document import document
from specops.phases.run_page.folder import read
from specops.render import files
from specops.render.report.html import GENERATOR, html
from specops.results import Result

RUNS = "runs"


def write_page(folder: Path) -> Path:
    """Write the page of `folder` and return its path. Raises FileError, also for a page that is not ours."""
    path = folder / INDEX
    if path.exists() and not _is_ours(path):
        raise FileError(
            f"could not write {path}: the file there was not written by specops",
            hint=f"rename it: mv {path} {path}.old",
        )
    files.write(folder, {INDEX: html(document(read(folder)))})
    return path


class PageUpdates:
    """Call it with each result that was written, and `flush` when the command ends.

    A partial result is written after every visit of a measurement, so its page waits for `flush`. A page that
    cannot be written never stops a measurement: `warn` gets the sentence.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._waiting: set[Path] = set()

    def __call__(self, path: Path, result: Result) -> None:
        names = [*(f"{phase}.json" for phase in PHASES), RECORD]
        if path.name in names and is_run_folder(path.parent):
            self._waiting.add(path.parent)
            if result.verdict != "partial":
                self.flush()

    def flush(self) -> None:
        for folder in self._waiting:
            try:
                write_page(folder)
            except SpecopsError as error:
                self._warn(error.message)
            except Exception as error:
                self._warn(f"could not write {folder / INDEX}: {type(error).__name__}: {error}")
        self._waiting.clear()


def is_run_folder(folder: Path) -> bool:
    """A folder that `run` has written into, or one of `runs/`. A phase's command may write elsewhere too."""
    return (folder / RECORD).exists() or folder.resolve().parent.name == RUNS


def _is_ours(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as page:
            return GENERATOR in page.read(4096)
    except OSError:
        return False
