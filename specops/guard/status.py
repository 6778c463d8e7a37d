"""How the guard stands: by one that runs, or by the journal of one that does not."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from specops.guard.evaluation import Evaluation
from specops.guard.journal import Result, Standing
from specops.guard.state import State


class Status(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    running: int | None
    """Its pid; None where no guard runs, and all this is from its journal."""

    dry_run: bool = False
    state: State
    wanted: int
    """The percentage that all targets should have."""

    unconfirmed: str | None
    """What is not so, or not known to be."""

    decided_at: float | None
    """Seconds since the epoch; None where nothing was decided yet."""

    why: str
    capacity: str | None
    """What the capacity gate said to that, where it was asked."""

    evaluation: Evaluation | None
    """The last one."""

    result: Result | None
    """Of the last action."""


def status(
    standing: Standing,
    *,
    running: int | None = None,
    unconfirmed: str | None = None,
    dry_run: bool = False,
) -> Status:
    last, action, wanted = standing.last, standing.last_action, standing.state.wanted
    if unconfirmed is None and standing.confirmed != wanted:
        unconfirmed = f"{wanted}% was decided, and is not confirmed"
    return Status(
        running=running,
        dry_run=dry_run,
        state=standing.state,
        wanted=wanted,
        unconfirmed=unconfirmed,
        decided_at=last.ts if last else None,
        why=last.evidence.why if last else "nothing was decided yet: the journal is empty",
        capacity=last.evidence.capacity if last else None,
        evaluation=standing.evaluation,
        result=action.result if action is not None else None,
    )
