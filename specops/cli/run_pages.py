"""Keeps the page of a run folder current: whatever command writes a result there renews `index.html`."""

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


@contextmanager
def run_pages() -> Iterator[None]:
    """Within the block a written result renews the page of its run folder. A failure is a note on stderr."""
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
