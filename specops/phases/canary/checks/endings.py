"""Checks of where an answer ends, how its tokens are counted, and that a stream says what the whole answer
says."""

from __future__ import annotations

import asyncio

from specops.phases.canary.client import CanaryRequest, PoolClient, Reply
from specops.phases.canary.pool_pair import (
    PLAIN_TOKENS,
    ConformanceCheck,
    PoolOutcome,
    PoolPair,
    of_each,
    same_text,
    trouble,
)
from specops.prometheus.exposition import Scrape
from specops.serving import tables

SHORT = 8
STOP = 3
"""Characters of a stop string: so short a one mostly lies across tokens somewhere."""
ENDED = ("stop", "length")


def stop_string(text: str) -> str | None:
    """A stop string that occurs in the middle of `text` and not before; None without one."""
    for start in range(len(text) // 3, len(text) - STOP):
        candidate = text[start : start + STOP]
        if (
            text.find(candidate) == start
            and candidate.strip()
            and "\N{REPLACEMENT CHARACTER}" not in candidate
        ):
            return candidate
    return None


async def stops(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    met = 0
    last_ask: CanaryRequest | None = None
    for prompt in pair.few:
        plain = pool.greedy(prompt, PLAIN_TOKENS)
        before = await pool.plain(plain)
        if side := trouble(before, plain):
            return side
        stop = stop_string(before.text)
        if stop is None:
            continue
        for ask in (plain.with_fields(stop=[stop]), plain.with_fields(stop=[stop]).streaming()):
            last_ask = ask
            reply = await pool.ask(ask)
            if side := trouble(reply, ask) or stopped(reply, before, stop, ask):
                again = await pool.ask(plain)
                if side.state in ("refused", "unsure") or again.text == before.text:
                    return side
                continue  # the answer itself is not steady
            met += 1
    if not met:
        return PoolOutcome("unsure", "no answer is long or steady enough to be stopped in", last_ask)
    return PoolOutcome("ok", ask=last_ask)


def stopped(reply: Reply, plain: Reply, stop: str, ask: CanaryRequest) -> PoolOutcome | None:
    """Return what is wrong with an answer that was to end before `stop`; None where nothing is."""
    how = "streamed" if ask.body.get("stream") else "whole"
    if stop in reply.text:
        state = "ignored" if reply.text.startswith(plain.text) else "wrong"
        return PoolOutcome(state, f"the {how} answer goes on over the stop string {stop!r}", ask)  # type: ignore[arg-type]
    if reply.text != plain.text[: plain.text.find(stop)]:
        return PoolOutcome(
            "wrong", f"the {how} answer does not end where the stop string {stop!r} begins", ask
        )
    if reply.first.finish_reason != "stop":
        message = f"the {how} answer met its stop string and says finish_reason {reply.first.finish_reason!r}"
        return PoolOutcome("wrong", message, ask)
    return None


async def length(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    asks = [pool.greedy(prompt, SHORT) for prompt in pair.few]
    longer = [pool.greedy(prompt, PLAIN_TOKENS) for prompt in pair.few]
    plain = await asyncio.gather(*map(pool.plain, longer))
    for ask, before, reply in zip(asks, plain, await pool.ask_all(asks), strict=True):
        if side := trouble(reply, ask):
            return side
        counted = reply.usage.completion if reply.usage else None
        reason = reply.first.finish_reason
        if (counted is not None and counted > SHORT + 1) or len(reply.text) > len(before.text) > 0:
            return PoolOutcome("wrong", f"{SHORT} tokens were requested, and {counted} came", ask)
        if reason not in ENDED:
            return PoolOutcome("wrong", f"an answer ends with finish_reason {reason!r}", ask)
        cut = len(before.text) > len(reply.text) and before.text.startswith(reply.text)
        if cut and reason != "length":
            return PoolOutcome(
                "wrong", f"an answer that max_tokens cut off says finish_reason {reason!r}", ask
            )
    return PoolOutcome("ok", ask=asks[0])


async def usage(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    """Counted tokens are max_tokens where those ended the answer, and as many as there are logprobs."""
    for prompt in pair.few:
        plain = pool.greedy(prompt, SHORT)
        observed = []
        for ask in (plain, plain.streaming(), plain.with_logprobs(1)):
            reply = await pool.ask(ask)
            if ask.body.get("logprobs") is not None and reply.refused:
                continue
            if side := trouble(reply, ask):
                return side
            if side := miscounted(reply, ask):
                return side
            assert reply.usage is not None
            observed.append(reply.usage.prompt)
        if len(set(observed)) > 1:
            return PoolOutcome(
                "wrong", f"one prompt is counted as {' and '.join(map(str, observed))} tokens", plain
            )
    return PoolOutcome("ok", ask=plain)


def miscounted(reply: Reply, ask: CanaryRequest) -> PoolOutcome | None:
    used, most = reply.usage, int(ask.body["max_tokens"])
    how = "in a stream" if ask.body.get("stream") else "of a whole answer"
    if used is None:
        return PoolOutcome("ignored", f"it reports no usage {how}", ask)
    if used.prompt + used.completion != used.total:
        return PoolOutcome(
            "wrong", f"{used.prompt} + {used.completion} tokens are counted as {used.total}", ask
        )
    if reply.first.finish_reason == "length" and used.completion != most:
        return PoolOutcome("wrong", f"{most} tokens {how} are counted as {used.completion}", ask)
    tokens = reply.first.tokens
    if tokens is not None and len(tokens) != used.completion:
        return PoolOutcome(
            "wrong", f"{len(tokens)} tokens with logprobs are counted as {used.completion}", ask
        )
    return None


async def streams(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
    for prompt in pair.few:
        plain = pool.greedy(prompt, PLAIN_TOKENS)
        ask = plain.streaming()
        first = await pool.ask(ask)
        if side := trouble(first, ask):
            return side
        same = await same_text(pool, plain, ask)
        if same is None:
            return PoolOutcome("unsure", "its answers at temperature 0 differ between repeats", ask)
        if not same:
            before = (await pool.plain(plain)).text
            message = f"a stream's chunks make {len(first.text)} characters, the whole answer {len(before)}"
            return PoolOutcome(
                "wrong",
                message
                if len(first.text) != len(before)
                else "the streamed text differs from the unstreamed text",
                ask,
            )
    return PoolOutcome("ok", ask=ask)


CHECKS: tuple[ConformanceCheck, ...] = (
    of_each("stop", "answers end before their stop string, streamed or not", stops, "stop"),
    of_each("length", "answers end at max_tokens, and say so", length),
    of_each("usage", "tokens are counted right, streamed or not", usage),
    of_each("stream", "the streamed text equals the unstreamed text", streams, "stream"),
)

LEAVING = 3
EVENTS = 3
"""Number of events of a stream, after which its client leaves."""
LONG_TOKENS = 192
SETTLE_S = 10.0
POLL_S = 0.1


def in_flight(scrape: Scrape | None) -> float | None:
    """Requests that a server has, by its own gauges; None where it does not export them."""
    if scrape is None:
        return None
    gauges = {name for series in tables() for name in (series.running, series.waiting)}
    counts = [value for (name, _), value in scrape.items() if name in gauges]
    return sum(counts) if counts else None


async def cancelled(pool: PoolClient, pair: PoolPair) -> PoolOutcome:
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
            return PoolOutcome(side.state, f"beside a client that left, {side.message}", leave[0])
        plain = pool.greedy(prompt, PLAIN_TOKENS)
        if reply.text != (await pool.plain(plain)).text and await same_text(pool, plain, ask):
            return PoolOutcome(
                "wrong", "an answer changed when another client left in the middle of its own", leave[0]
            )
    if side := trouble(left[0], leave[0]):
        return side
    return await _freed(pool, before, leave[0])


async def _freed(pool: PoolClient, before: float | None, ask: CanaryRequest) -> PoolOutcome:
    if before is None:
        return PoolOutcome(
            "ok", "it exposes no gauge of running requests, so only concurrent answers were checked", ask
        )
    if before > 0:
        return PoolOutcome(
            "ok", "other clients send requests too, so only concurrent answers were checked", ask
        )
    now: float | None = before
    for _ in range(int(SETTLE_S / POLL_S)):
        now = in_flight(await pool.gauges())
        if now is None or now <= before:
            return PoolOutcome("ok", ask=ask)
        await asyncio.sleep(POLL_S)
    if now is not None and now > before + LEAVING:
        return PoolOutcome(
            "ok", "other clients began to send requests, so only concurrent answers were checked", ask
        )
    return PoolOutcome("wrong", f"{now:g} requests still run {SETTLE_S:g} s after their clients left", ask)


CANCEL: ConformanceCheck = of_each(
    "cancel", "a cancelled request is ended, and other requests are unaffected", cancelled, feature=False
)
