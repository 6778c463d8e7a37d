"""Where a sweep's servers run: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specops.launch.pools import check
from specops.phases.sweep.here import Here
from specops.phases.sweep.jobs import Executor
from specops.phases.sweep.wanted import Wanted
from specops.progress import Progress


@contextmanager
def machines(wanted: Wanted, on: str | None, logs: Path, progress: Progress) -> Iterator[Executor]:
    """What measures the jobs of `wanted`: on the Ray cluster `on`, else here, one after the other.

    Raises ConfigError for pools that cannot be started here, and what `connection.connected` raises.
    """
    if on is None:
        for setting in wanted.settings:
            check(setting.pool)
        yield Here(wanted.asked, wanted.prompts.prompts, logs, progress)
        return
    from specops.phases.sweep.on_ray import OnRay

    with OnRay(on, wanted.settings, wanted.asked, wanted.prompts.prompts, progress) as cluster:
        yield cluster
