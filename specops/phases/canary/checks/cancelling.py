"""A client that goes away in the middle of its stream frees its place and harms no other."""

from __future__ import annotations

import asyncio

from specops.phases.canary.asking import Ask, Pool
from specops.phases.canary.finding import Side, trouble
from specops.phases.canary.pair import PLAIN_TOKENS, Check, Pair, of_each, same_text
from specops.prometheus.exposition import Scrape
from specops.serving import tables

LEAVING = 3
EVENTS = 3
"""Of a stream, after which its client leaves."""
LONG_TOKENS = 192
SETTLE_S = 10.0
POLL_S = 0.1


def in_flight(scrape: Scrape | None) -> float | None:
    """Requests that a server has, by its own gauges; None where it does not tell."""
    if scrape is None:
        return None
    gauges = {name for series in tables() for name in (series.running, series.waiting)}
    found = [value for (name, _), value in scrape.items() if name in gauges]
    return sum(found) if found else None


async def cancelled(pool: Pool, pair: Pair) -> Side:
    before = in_flight(await pool.gauges())
    stay = [pool.greedy(prompt, PLAIN_TOKENS).streaming() for prompt in pair.few]
    leave = [
        pool.greedy(prompt, LONG_TOKENS).streaming()  # sampled ones would show what `mixed` is for
        for prompt in pair.few[:LEAVING]
    ]
    staying = asyncio.gather(*map(pool.ask, stay))
    left = await asyncio.gather(*(pool.ask(ask, leave_after=EVENTS) for ask in leave))
    for ask, reply, prompt in zip(stay, await staying, pair.few, strict=True):
        if side := trouble(reply, ask):
            return Side(side.state, f"beside a client that left, {side.told}", leave[0])
        plain = pool.greedy(prompt, PLAIN_TOKENS)
        if reply.text != (await pool.plain(plain)).text and await same_text(pool, plain, ask):
            return Side(
                "wrong", "an answer changed when another client left in the middle of its own", leave[0]
            )
    if side := trouble(left[0], leave[0]):
        return side
    return await _freed(pool, before, leave[0])


async def _freed(pool: Pool, before: float | None, ask: Ask) -> Side:
    if before is None:
        return Side(
            "ok", "it exposes no gauge of running requests, so that only neighbours were looked at", ask
        )
    if before > 0:
        return Side("ok", "others ask it as well, so that only neighbours were looked at", ask)
    now: float | None = before
    for _ in range(int(SETTLE_S / POLL_S)):
        now = in_flight(await pool.gauges())
        if now is None or now <= before:
            return Side("ok", ask=ask)
        await asyncio.sleep(POLL_S)
    if now is not None and now > before + LEAVING:
        return Side("ok", "others began to ask it, so that only neighbours were looked at", ask)
    return Side("wrong", f"{now:g} requests still run {SETTLE_S:g} s after their clients left", ask)


CANCEL: Check = of_each("cancel", "a client that leaves frees its place and harms no other", cancelled)
