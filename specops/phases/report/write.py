"""The report's files: what it is, for programs; and how it reads, on a screen and on paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specops import results
from specops.phases.measurement import checked
from specops.phases.report.document import document
from specops.phases.report.report import Report
from specops.phases.report.window import Window
from specops.render import files
from specops.render.report.document import Document
from specops.render.report.html import html
from specops.render.report.markdown import markdown
from specops.results import Result

REPORTS = "reports"


@dataclass(frozen=True)
class Written:
    json: Path
    markdown: Path
    html: Path
    document: Document


def read(result: Result) -> Report:
    return checked(Report, result.data, "the report is damaged: data")


def write(folder: Path, window: Window, result: Result) -> Written:
    """Into `folder`/reports, by the window's last day; one of the same day is replaced. Raises FileError."""
    reports, name = folder / REPORTS, f"{window.last_day:%Y-%m-%d}"
    results.write(reports / f"{name}.json", result)
    made = document(read(result), result)
    files.write(reports, {f"{name}.md": markdown(made), f"{name}.html": html(made)})
    return Written(reports / f"{name}.json", reports / f"{name}.md", reports / f"{name}.html", made)
