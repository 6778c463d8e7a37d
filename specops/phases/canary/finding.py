"""What a check found, and what follows from how each pool did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from specops.config.canary import CheckName
from specops.phases.canary.asking import Ask
from specops.phases.canary.reply import PASSING, Reply

Status = Literal["pass", "fail", "unsupported", "differs", "undecided"]
"""`unsupported`: by neither pool. `differs`: one pool takes what the other does not."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Finding(_Record):
    """Of one check."""

    name: CheckName
    status: Status
    message: str
    request: str | None = None
    """That shows it, ready to paste into a shell."""

    parameter: str | None = None
    """Of the API, by which requests of this kind are told; None where there is none."""

    standard: str = ""
    speculative: str = ""
    """What each pool did, where that is to be told apart."""

    evidence: dict[str, Any] = {}


class Unsupported(_Record):
    """A parameter with which requests are not to go to `pool`."""

    parameter: str
    pool: Literal["standard", "speculative"]
    request: str
    why: str


class Conformance(_Record):
    """`data` of canary.json."""

    checks: list[Finding]
    unsupported: list[Unsupported]
    requests: dict[str, int]
    """That were sent, by pool."""

    prompts: dict[str, Any]


@dataclass(frozen=True)
class Side:
    """How one pool did. `ignored`: it answered as if it had not been asked for it."""

    state: Literal["ok", "refused", "ignored", "wrong", "unsure"]
    told: str = ""
    ask: Ask | None = None


@dataclass(frozen=True)
class Outcome:
    """Of a check, before the request that shows it is written out."""

    status: Status
    told: str
    ask: Ask | None = None
    among: tuple[Ask, ...] = ()
    """Requests that must be in flight for it to show."""

    standard: str = ""
    speculative: str = ""
    evidence: dict[str, Any] | None = None


def trouble(reply: Reply, ask: Ask) -> Side | None:
    """What is wrong with a reply that is no answer; None for one that is."""
    if reply.failure is None:
        return None
    kind, detail = reply.failure.kind, reply.failure.detail
    if reply.refused:
        return Side("refused", f"it refused ({kind.removeprefix('http_')}): {detail}", ask)
    if kind in PASSING:
        return Side("unsure", f"it gave no answer ({kind}): {detail}", ask)
    return Side("wrong", f"it failed ({kind}): {detail}", ask)


def held(standard: Side, speculative: Side, well: str) -> Outcome:
    """What follows from how both did; `well` is told where both did well."""
    status, told = _held(standard, speculative, well)
    ask = speculative.ask if speculative.state != "ok" else standard.ask
    return Outcome(status, told, ask or speculative.ask, (), standard.told, speculative.told)


def _held(standard: Side, speculative: Side, well: str) -> tuple[Status, str]:
    one, other = standard.state, speculative.state
    lacks = ("refused", "ignored")
    if "unsure" in (one, other):
        side, pool = (standard, "standard") if one == "unsure" else (speculative, "speculative")
        return "undecided", f"the {pool} pool: {side.told}"
    if one == "wrong":
        return "undecided", f"the standard pool itself: {standard.told}"
    if one in lacks and other in lacks:
        return "unsupported", f"neither pool has it: {speculative.told}"
    if other == "wrong" or (one == "ok" and other == "ignored"):
        return "fail", f"the speculative pool: {speculative.told}"
    if one == "ok" and other == "ok":
        return "pass", well
    side, pool = (speculative, "speculative") if other == "refused" else (standard, "standard")
    return "differs", f"only the {pool} pool lacks it: {side.told}"
