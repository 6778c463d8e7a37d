"""From how many streams on speculation stops paying, both sides measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops.phases.ab.verdict import Decision, times


class Crossover(BaseModel):
    """Of one setting, in streams of one replica, which is what was measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    on_max: int | None
    """The most streams measured at which it surely pays, and at none fewer was surely slower."""

    off_min: int | None
    """The fewest streams measured above them, at which it does not surely pay; None where none were."""

    per: Literal["replica"] = "replica"
    message: str


def crossover(setting: str, measured: Sequence[tuple[int, Decision]]) -> Crossover:
    """Of `setting`, by what was decided at each concurrency, from the lightest; at least one.

    What is undecided between two loads at which it pays does not end it: there are few loads at which
    nothing changes but the noise. What is surely slower does.
    """
    on_max = off_min = None
    for concurrency, decision in measured:
        if decision.verdict == "no":
            off_min = concurrency if off_min is None else off_min
            break
        if decision.verdict == "yes":
            on_max, off_min = concurrency, None
        elif off_min is None:
            off_min = concurrency
    return Crossover(
        on_max=on_max, off_min=off_min, message=_message(setting, dict(measured), on_max, off_min)
    )


def _message(setting: str, measured: dict[int, Decision], on_max: int | None, off_min: int | None) -> str:
    if on_max is None:
        lightest = min(measured)
        below = f"; fewer than {lightest} were not measured" if lightest > 1 else ""
        return f"{setting} does not surely pay at any number of streams measured{below}"
    if off_min is None:
        return (
            f"{setting} pays up to {_streams(on_max)}, the most that were measured at all; "
            f"measure more, such as {2 * on_max}, to find where it stops"
        )
    after = measured[off_min]
    found = times(after.speedup) if after.speedup else after.reason
    how = "is slower at" if after.verdict == "no" else "is not shown to pay at"
    between = f"; nothing was measured between {on_max} and {off_min}" if off_min - on_max > 1 else ""
    return f"{setting} pays up to {_streams(on_max)} and {how} {off_min}: {found}{between}"


def _streams(count: int) -> str:
    return f"{count} stream{'s' if count > 1 else ''}"
