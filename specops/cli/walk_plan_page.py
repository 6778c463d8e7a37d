"""The page of `specops run --plan`."""

from __future__ import annotations

from collections.abc import Iterator

from specops.cli.progress import duration
from specops.phases.playbook.forecast import ASSUMED_START_S, ASSUMED_TOKEN_S, WalkForecast


def plan_page(plan: WalkForecast, run_command: str) -> Iterator[str]:
    yield "phase         starts  requests   about"
    for one in plan.phases:
        if one.reused:
            yield f"{one.phase:12}       -         -       -   reused: its inputs have not changed"
            continue
        time = "-" if not one.seconds else duration(one.seconds)
        yield f"{one.phase:12}  {one.starts:6}  {one.requests:8}  {time:>12}   {one.note}".rstrip()
    yield ""
    yield f"In all about {duration(plan.total_s)}; a comparison that is decided early takes less."
    if plan.assumed:
        yield (
            f"Nothing is measured yet: a token is assumed to take {ASSUMED_TOKEN_S * 1000:.0f} ms, "
            f"a server start {ASSUMED_START_S:.0f} s."
        )
    yield f"next: {run_command}"
