"""What has changed: against the window before, and against what was measured before it went live. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from specops.phases.monitor.before import Figure
from specops.phases.report.earlier import Compared
from specops.phases.report.report import Acceptance, Drift, Speedup, SpeedupOf

LEAST = 0.02
"""Of a share, or of a ratio: less is nothing that anyone would act on, however surely it is there."""
BEFORE = "the window before"
AT_POSITION = "acceptance at position"
BEYOND = 1.25
"""Times the heaviest load of the comparison, above which its speed-ups are not compared with the window's."""


def drift(
    now: Acceptance | None,
    then: Acceptance | None,
    recorded: Figure | None,
    faster: Speedup,
    faster_then: Speedup,
    compared: Sequence[Compared],
    load: float | None,
) -> list[Drift]:
    """`load`: the one that the window's requests met on average; the comparison's nearest to it is taken."""
    found = [*_acceptance(now, then, recorded)]
    e2e, e2e_then = faster.by["e2e"], faster_then.by["e2e"]
    if e2e.ratio is not None:
        if e2e_then.ratio is not None:
            noise = _noise(e2e.error, e2e_then.error)
            found.append(_drift("speed-up end to end", e2e_then.ratio, e2e.ratio, noise, BEFORE))
        found += _against_comparison(e2e, compared, load)
    return found


def _acceptance(now: Acceptance | None, then: Acceptance | None, recorded: Figure | None) -> Iterator[Drift]:
    if now is None or now.rate is None:
        return
    if then is not None and then.rate is not None:
        yield _drift("acceptance", then.rate, now.rate, _noise(now.error, then.error), BEFORE)
        pairs = zip(then.per_position, now.per_position, strict=False)
        for at, (before, after) in enumerate(pairs, start=1):
            if before is not None and after is not None:
                yield _drift(f"{AT_POSITION} {at}", before, after, None, BEFORE)
    if recorded is not None:
        yield _drift("acceptance", recorded.value, now.rate, _noise(now.error, 0.0), recorded.source)


def _against_comparison(e2e: SpeedupOf, compared: Sequence[Compared], load: float | None) -> Iterator[Drift]:
    if not compared or load is None or e2e.ratio is None:
        return
    if load > BEYOND * max(each.concurrency for each in compared):
        return  # a speed-up at a light load says nothing of a heavier one
    nearest = min(compared, key=lambda each: abs(each.concurrency - load))
    source = f"{nearest.speedup.source}, {nearest.concurrency} at a time"
    yield _drift("speed-up end to end", nearest.speedup.value, e2e.ratio, _noise(e2e.error, 0.0), source)


def _noise(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else 2 * math.hypot(one, other)


def _drift(what: str, then: float, now: float, noise: float | None, source: str) -> Drift:
    beyond = noise is not None and abs(now - then) > max(noise, LEAST)
    return Drift(what=what, then=then, now=now, noise=noise, beyond=beyond, source=source)
