"""The two pools of a canary and the prompts for them; and how a check is made of one look at a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

from pydantic import Field

from specops.config.rollout import Canary, CheckName
from specops.load.workload import Prompt, PromptSet, StoredProvenance
from specops.phases.canary.client import PASSING, CanaryRequest, PoolClient, Reply
from specops.phases.measurement import checked
from specops.results import Result
from specops.section import Frozen

Status = Literal["pass", "fail", "unsupported", "differs", "undecided"]
"""`unsupported`: by neither pool. `differs`: one pool takes what the other does not."""


class ConformanceFinding(Frozen):
    """The result of one check."""

    name: CheckName
    status: Status
    message: str
    request: str | None = None
    """Request that shows it, ready to paste into a shell."""

    parameter: str | None = None
    """Parameter of the API, by which requests of this kind are recognised; None without one."""

    standard: str = ""
    speculative: str = ""
    """What each pool did, where the two differ."""

    evidence: dict[str, Any] = Field(default={})


class Unsupported(Frozen):
    """A parameter with which requests are not to go to `pool`."""

    parameter: str
    pool: Literal["standard", "speculative"]
    request: str
    why: str


class Conformance(Frozen):
    """`data` of canary.json."""

    checks: list[ConformanceFinding]
    unsupported: list[Unsupported]
    requests: dict[str, int]
    """Number of requests that were sent, by pool."""

    prompts: StoredProvenance


def conformance_of(result: Result, name: str) -> Conformance:
    """The observations of the canary that is called `name` in the message of the FileError."""
    return checked(Conformance, result.data, f"{name} is damaged: data")


@dataclass(frozen=True)
class PoolOutcome:
    """The answer of one pool to a check. `ignored`: it answered as if the parameter had not been
    requested."""

    state: Literal["ok", "refused", "ignored", "wrong", "unsure"]
    message: str = ""
    ask: CanaryRequest | None = None


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check, before the request that shows it is written out."""

    status: Status
    message: str
    ask: CanaryRequest | None = None
    among: tuple[CanaryRequest, ...] = ()
    """Requests that must be in flight for it to show."""

    standard: str = ""
    speculative: str = ""
    evidence: dict[str, Any] | None = None


def trouble(reply: Reply, ask: CanaryRequest) -> PoolOutcome | None:
    """Return why a reply is not an answer; None if it is an answer."""
    if reply.failure is None:
        return None
    kind, detail = reply.failure.kind, reply.failure.detail
    if reply.refused:
        return PoolOutcome("refused", f"it refused ({kind.removeprefix('http_')}): {detail}", ask)
    if kind in PASSING:
        return PoolOutcome("unsure", f"it gave no answer ({kind}): {detail}", ask)
    return PoolOutcome("wrong", f"it failed ({kind}): {detail}", ask)


def held(standard: PoolOutcome, speculative: PoolOutcome, well: str) -> CheckOutcome:
    """Return what follows from how both did; `well` is the message where both did well."""
    status, message = _held(standard, speculative, well)
    ask = speculative.ask if speculative.state != "ok" else standard.ask
    return CheckOutcome(status, message, ask or speculative.ask, (), standard.message, speculative.message)


def _held(standard: PoolOutcome, speculative: PoolOutcome, well: str) -> tuple[Status, str]:
    standard_state, speculative_state = standard.state, speculative.state
    lacks = ("refused", "ignored")
    if "unsure" in (standard_state, speculative_state):
        side, pool = (standard, "standard") if standard_state == "unsure" else (speculative, "speculative")
        return "undecided", f"the {pool} pool: {side.message}"
    if standard_state == "wrong":
        return "undecided", f"the standard pool itself: {standard.message}"
    if standard_state in lacks and speculative_state in lacks:
        return "unsupported", f"neither pool has it: {speculative.message}"
    if speculative_state == "wrong" or (standard_state == "ok" and speculative_state == "ignored"):
        return "fail", f"the speculative pool: {speculative.message}"
    if standard_state == "ok" and speculative_state == "ok":
        return "pass", well
    side, pool = (speculative, "speculative") if speculative_state == "refused" else (standard, "standard")
    return "differs", f"only the {pool} pool lacks it: {side.message}"


PLAIN_TOKENS = 48
"""Number of tokens of an answer that others are compared with."""
FEW = 4
"""Prompts that show whether a parameter is taken."""


@dataclass(frozen=True)
class PoolPair:
    standard: PoolClient
    speculative: PoolClient
    prompts: tuple[Prompt, ...]
    settings: Canary

    @property
    def few(self) -> tuple[Prompt, ...]:
        return self.prompts[:FEW]


CheckFunction = Callable[[PoolClient, PoolPair], Awaitable[PoolOutcome]]


@dataclass(frozen=True)
class ConformanceCheck:
    name: CheckName
    about: str
    """What holds where it passes."""

    run: Callable[[PoolPair], Awaitable[CheckOutcome]]
    parameter: str | None = None
    feature: bool = False
    """It is of a feature of the API: it is made again while other requests overlap."""


def of_each(
    name: CheckName, about: str, look: CheckFunction, parameter: str | None = None, *, feature: bool = True
) -> ConformanceCheck:
    """A check of what each pool does by itself: the standard pool is what the other is held against."""

    async def run(pair: PoolPair) -> CheckOutcome:
        standard, speculative = await asyncio.gather(look(pair.standard, pair), look(pair.speculative, pair))
        return held(standard, speculative, about)

    return ConformanceCheck(name, about, run, parameter, feature)


def spread(prompts: PromptSet, count: int) -> tuple[Prompt, ...]:
    """The first of each class in turn."""
    classes = [[p for p in prompts.prompts if p.traffic_class == name] for name in prompts.classes]
    return tuple(p for p in chain(*zip_longest(*classes)) if p is not None)[:count]


async def same_text(pool: PoolClient, plain: CanaryRequest, variant: CanaryRequest) -> bool | None:
    """Return for one pair of requests what `same_texts` returns for several."""
    return (await same_texts(pool, [plain], [variant]))[0]


async def same_texts(
    pool: PoolClient, plain: Sequence[CanaryRequest], variant: Sequence[CanaryRequest]
) -> list[bool | None]:
    """Return whether each of `variant` is answered as the plain request beside it, by their texts.

    A server may differ from itself, since sums of floating point depend on the batch. So what differs is sent
    again, both ways, and None says that the plain answer is not steady, or that a request has no answer.
    Plain requests never share a batch with the others here: the effect of that is reported separately.
    """
    before = [await pool.plain(ask) for ask in plain]
    once = await pool.ask_all(variant)
    again = {i: await pool.ask(plain[i]) for i in range(len(plain)) if once[i].text != before[i].text}
    twice = dict(zip(again, await pool.ask_all([variant[i] for i in again]), strict=True))

    def same(i: int) -> bool | None:
        if not before[i].ok or not once[i].ok:
            return None
        if i not in again:
            return True
        return twice[i].text == before[i].text if again[i].text == before[i].text else None

    return [same(i) for i in range(len(plain))]
