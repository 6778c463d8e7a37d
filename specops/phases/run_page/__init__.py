"""`runs/NAME/index.html`: a run folder on one page, for people.

conclusion.py   the answer of a run and the state of each phase; the terminal page uses it too
document.py     the page, written after each result: the answer, the phases, the next step, the sections
sections.py     the sections: those of each phase's own document.py, and what only a run has
result.py       the document of any one result, for a notebook
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specops import results
from specops.results import Result

if TYPE_CHECKING:
    from specops.phases.run_page.document import PageUpdates

INDEX = "index.html"


@contextmanager
def run_pages() -> Iterator[None]:
    """Renew the page of a run folder whenever a result is written within the block. A failure is a note on
    stderr."""
    updates: PageUpdates | None = None

    def renew(path: Path, result: Result) -> None:
        nonlocal updates
        if updates is None:  # most commands write no result
            from specops.phases.run_page.document import PageUpdates

            updates = PageUpdates(lambda text: print(f"note: {text}", file=sys.stderr))
        updates(path, result)

    results.listeners.append(renew)
    try:
        yield
    finally:
        results.listeners.remove(renew)
        if updates is not None:
            updates.flush()
