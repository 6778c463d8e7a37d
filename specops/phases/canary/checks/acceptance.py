"""Acceptance of drafts, where nothing but the slot, the age or the context of a request changes.

The standard drafts nothing, so the control is the speculative pool by itself: greedy requests, sent one by
one and twice. Rates are accepted over drafted tokens, so that a schedule that drafts less under load is no
fall. Only a large fall counts, and one that every repeat shows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from specops.config.rollout import CheckName
from specops.load.workload import Prompt
from specops.phases.canary.checks.distribution import tail
from specops.phases.canary.checks.overlap import alternating
from specops.phases.canary.checks.prompts import long_prompt_size, long_prompts
from specops.phases.canary.client import CanaryRequest, PoolClient, Reply
from specops.phases.canary.pool_pair import (
    PLAIN_TOKENS,
    CheckOutcome,
    ConformanceCheck,
    PoolPair,
    Status,
    trouble,
)
from specops.prometheus.exposition import NoData, draft_counts

FALL = 0.75
"""Share of the lowest control below which the same requests do not get by chance."""
CONTEXT_FALL = 0.5
"""The same for long prompts, whose answers are others."""
ENOUGH = 60
"""Drafted tokens of a round: with fewer, a rate is chance."""
ROUNDS = 2
WEAR = 8
"""Times that all prompts are sent between the first and the last look."""
CONTEXTS = 6
"""Number of long prompts."""


@dataclass(frozen=True)
class Acceptance:
    drafted: float
    accepted: float
    reported: bool = False
    """By the answers themselves."""

    @property
    def rate(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


class Unmeasured(Exception):
    """A round whose acceptance is not known. Holds the outcome of the check that needs it."""

    def __init__(self, outcome: CheckOutcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


async def _one_by_one(pool: PoolClient, asks: Sequence[CanaryRequest]) -> list[Reply]:
    return [await pool.ask(ask) for ask in asks]


async def _first_answers(pool: PoolClient, asks: Sequence[CanaryRequest]) -> list[Reply]:
    """Return the answers to the first of such requests in this canary, where they report their drafts."""
    replies = [await pool.plain(ask) for ask in asks]
    return replies if any(reply.drafts for reply in replies) else await _one_by_one(pool, asks)


async def _concurrently(pool: PoolClient, asks: Sequence[CanaryRequest]) -> list[Reply]:
    return await pool.ask_all(asks)


async def _measure(
    pool: PoolClient,
    asks: Sequence[CanaryRequest],
    send: Callable[[PoolClient, Sequence[CanaryRequest]], Awaitable[list[Reply]]],
    control: Sequence[Acceptance] = (),
) -> Acceptance:
    """Return the acceptance of `asks`, by their answers, or else by the server's counters. Where the answers
    of `control` reported their drafts, an answer that does not had none.

    Raises Unmeasured where neither shows it.
    """
    before = await pool.gauges()
    replies = await send(pool, asks)
    for reply, ask in zip(replies, asks, strict=True):
        if side := trouble(reply, ask):
            status: Status = "fail" if side.state == "wrong" else "undecided"
            raise Unmeasured(CheckOutcome(status, f"the speculative pool: {side.message}", ask))
    drafts = [reply.drafts for reply in replies if reply.drafts is not None]
    reports = any(sample.reported for sample in control)
    if reports or len(drafts) > len(replies) / 2:  # an answer without any draft may have no such field
        drafted = sum(report.drafted for report in drafts)
        return Acceptance(drafted, sum(report.accepted for report in drafts), reported=True)
    after = await pool.gauges()
    if before is None or after is None:
        message = "the speculative pool reports no drafts, in its answers or at /metrics"
        raise Unmeasured(CheckOutcome("unsupported", message, asks[0]))
    counts = draft_counts(before, after, pool.endpoint.model)
    if isinstance(counts, NoData) and counts.drafts == 0:
        return Acceptance(0, 0)
    if isinstance(counts, NoData) or counts.estimated:
        why = counts.reason if isinstance(counts, NoData) else "its gauges show no single round"
        raise Unmeasured(CheckOutcome("unsupported", f"acceptance is not known: {why}", asks[0]))
    return Acceptance(counts.draft_tokens, counts.accepted_tokens)


def judge(
    control: Sequence[Acceptance], rounds: Sequence[Acceptance], fall: float, where: str, ask: CanaryRequest
) -> CheckOutcome:
    """Return whether `rounds` are accepted as the control's are; `where` says what was changed for them."""
    evidence = {
        name: [[acceptance.accepted, acceptance.drafted] for acceptance in measured]
        for name, measured in (("control", control), ("rounds", rounds))
    }
    before = sum(sample.accepted for sample in control) / max(1.0, sum(sample.drafted for sample in control))
    message = f"acceptance {before:.2f} one request at a time"
    if min(sample.drafted for sample in control) < ENOUGH or not before:
        drafted = min(sample.drafted for sample in control)
        message = f"{message}, of {drafted:.0f} drafted tokens: too few to compare"
        return CheckOutcome("unsupported", message, ask, evidence=evidence)
    after = sum(sample.accepted for sample in rounds) / max(1.0, sum(sample.drafted for sample in rounds))
    message += f", {after:.2f} {where}"
    if min(sample.drafted for sample in rounds) < ENOUGH:
        drafted = min(sample.drafted for sample in rounds)
        message += f", of only {drafted:.0f} drafted tokens: if it stops drafting on purpose, skip this check"
        return CheckOutcome("undecided", message, ask, evidence=evidence)
    limit = fall * min(sample.rate for sample in control)
    low = [sample.rate < limit for sample in rounds]
    if all(low):
        return CheckOutcome("fail", f"drafts are lost: {message}", ask, evidence=evidence)
    if any(low):
        return CheckOutcome("undecided", f"in some rounds drafts are lost: {message}", ask, evidence=evidence)
    return CheckOutcome("pass", message, ask, evidence=evidence)


async def _requests(pool: PoolClient, prompts: Sequence[Prompt]) -> list[CanaryRequest]:
    fields = await pool.draft_fields()
    return [pool.greedy(prompt, PLAIN_TOKENS).with_fields(**fields) for prompt in prompts]


async def _slots(pair: PoolPair) -> CheckOutcome:
    pool = pair.speculative
    asks = await _requests(pool, pair.prompts)
    full = [ask for _ in range(-(-pool.concurrency // len(asks))) for ask in asks]
    control = [await _measure(pool, asks, _one_by_one) for _ in range(ROUNDS)]
    rounds = [await _measure(pool, full, _concurrently, control) for _ in range(ROUNDS)]
    return judge(control, rounds, FALL, f"with {pool.concurrency} at a time", asks[0])


async def _uptime(pair: PoolPair) -> CheckOutcome:
    """Compare with the first answers of this canary, where those report their drafts."""
    pool = pair.speculative
    asks = await _requests(pool, pair.prompts)
    control = [await _measure(pool, asks, _first_answers)]
    request = alternating(pool, pair.prompts)
    await pool.ask_all([request(index) for index in range(WEAR * len(asks))])
    rounds = [await _measure(pool, asks, _one_by_one, control) for _ in range(ROUNDS)]
    return judge(control, rounds, FALL, f"after {pool.sent} requests", asks[0])


async def _context(pair: PoolPair) -> CheckOutcome:
    """Compare short endings alone with the same endings behind long texts."""
    pool = pair.speculative
    endings = [tail(prompt) for prompt in pair.prompts[:CONTEXTS]]
    contexts = [
        replace(ending, content=f"{text.content}\n\n{ending.content}")
        if isinstance(ending.content, str)
        else text
        for ending, text in zip(endings, await long_prompts(pair, len(endings), "context"), strict=True)
    ]
    short, long = await _requests(pool, endings), await _requests(pool, contexts)
    control = [await _measure(pool, short, _one_by_one) for _ in range(ROUNDS)]
    rounds = [await _measure(pool, long, _one_by_one, control) for _ in range(ROUNDS)]
    where = f"behind about {await long_prompt_size(pair)} tokens of context"
    return judge(control, rounds, CONTEXT_FALL, where, long[0])


def _measured(
    name: CheckName, about: str, run: Callable[[PoolPair], Awaitable[CheckOutcome]]
) -> ConformanceCheck:
    async def caught(pair: PoolPair) -> CheckOutcome:
        try:
            return await run(pair)
        except Unmeasured as error:
            return error.outcome

    return ConformanceCheck(name, about, caught)


CHECKS: tuple[ConformanceCheck, ...] = (
    _measured("acceptance_slots", "acceptance is the same with many requests at a time", _slots),
    _measured("acceptance_context", "acceptance lasts behind a long context", _context),
    _measured("acceptance_uptime", "acceptance is the same after many requests", _uptime),
)
