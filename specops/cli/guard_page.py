"""The guard's status for people."""

from __future__ import annotations

from datetime import UTC, datetime

from specops.guard.guard import Status
from specops.render.figures import NONE, aligned

WORDS = {"no_data": "no data", "no_traffic": "no traffic"}


def page(rollout: str, found: Status) -> list[str]:
    """The page's lines."""
    state = found.state
    runs = f"running, pid {found.running}" if found.running else "not running"
    rows = [["  state", f"{state.mode}{_rows(found)}"], ["  target", f"{found.target_percent}% speculative"]]
    if state.override is not None:
        pin = state.override
        left = f", {pin.left_s / 60:.0f} min left" if pin.left_s is not None else ""
        rows.append(["  override", f"{pin.pool}, by {pin.by}{left}: {pin.why}"])
    if state.mode == "fallen":
        rows.append(["  next step", f"in at least {state.wait_s:.0f} s"])
    if found.capacity:
        rows.append(["  capacity", found.capacity])
    if found.unconfirmed:
        rows.append(["  unconfirmed", found.unconfirmed])
    if found.evaluation is not None:
        rows += [[f"  {WORDS.get(one.verdict, one.verdict)}", one.why] for one in found.evaluation.findings]
    when = (
        f"{datetime.fromtimestamp(found.decided_at, UTC):%Y-%m-%d %H:%M:%S} UTC" if found.decided_at else NONE
    )
    marked = " · dry run" if found.dry_run else ""
    return [f"guard · {rollout} · {runs} · {when}{marked}", *aligned(rows), f"{found.why}."]


def _rows(found: Status) -> str:
    state = found.state
    said = []
    if state.bad_in_a_row:
        said.append(f"{state.bad_in_a_row} bad in a row")
    if state.mode == "canary":
        said.append(f"at {state.percent}%, {state.healthy_in_a_row} healthy")
    if state.attempts:
        said.append(f"{state.attempts} attempts to return")
    return f" ({', '.join(said)})" if said else ""
