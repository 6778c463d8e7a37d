"""Where an answer ends, how its tokens are counted, and that a stream says what the whole answer says."""

from __future__ import annotations

import asyncio

from specops.phases.canary.asking import Ask, Pool
from specops.phases.canary.finding import Side, trouble
from specops.phases.canary.pair import PLAIN_TOKENS, Check, Pair, of_each, same_text
from specops.phases.canary.reply import Reply

SHORT = 8
STOP = 3
"""Characters of a stop string: so short a one mostly lies across tokens somewhere."""
ENDED = ("stop", "length")


def stop_string(text: str) -> str | None:
    """One that is met in the middle of `text` and not before; None where there is none."""
    for start in range(len(text) // 3, len(text) - STOP):
        found = text[start : start + STOP]
        if text.find(found) == start and found.strip() and "\N{REPLACEMENT CHARACTER}" not in found:
            return found
    return None


async def stops(pool: Pool, pair: Pair) -> Side:
    met = 0
    shown: Ask | None = None
    for prompt in pair.few:
        plain = pool.greedy(prompt, PLAIN_TOKENS)
        before = await pool.plain(plain)
        if side := trouble(before, plain):
            return side
        stop = stop_string(before.text)
        if stop is None:
            continue
        for ask in (plain.having(stop=[stop]), plain.having(stop=[stop]).streaming()):
            shown = ask
            reply = await pool.ask(ask)
            if side := trouble(reply, ask) or stopped(reply, before, stop, ask):
                again = await pool.ask(plain)
                if side.state in ("refused", "unsure") or again.text == before.text:
                    return side
                continue  # the answer itself is not steady
            met += 1
    if not met:
        return Side("unsure", "no answer is long or steady enough to be stopped in", shown)
    return Side("ok", ask=shown)


def stopped(reply: Reply, plain: Reply, stop: str, ask: Ask) -> Side | None:
    """What is wrong with an answer that was to end before `stop`; None where nothing is."""
    how = "streamed" if ask.body.get("stream") else "whole"
    if stop in reply.text:
        state = "ignored" if reply.text.startswith(plain.text) else "wrong"
        return Side(state, f"the {how} answer goes on over the stop string {stop!r}", ask)  # type: ignore[arg-type]
    if reply.text != plain.text[: plain.text.find(stop)]:
        return Side("wrong", f"the {how} answer does not end where the stop string {stop!r} begins", ask)
    if reply.first.finish_reason != "stop":
        told = f"the {how} answer met its stop string and says finish_reason {reply.first.finish_reason!r}"
        return Side("wrong", told, ask)
    return None


async def length(pool: Pool, pair: Pair) -> Side:
    asks = [pool.greedy(prompt, SHORT) for prompt in pair.few]
    longer = [pool.greedy(prompt, PLAIN_TOKENS) for prompt in pair.few]
    plain = await asyncio.gather(*map(pool.plain, longer))
    for ask, before, reply in zip(asks, plain, await pool.ask_all(asks), strict=True):
        if side := trouble(reply, ask):
            return side
        counted = reply.usage.completion if reply.usage else None
        reason = reply.first.finish_reason
        if (counted is not None and counted > SHORT + 1) or len(reply.text) > len(before.text) > 0:
            return Side("wrong", f"{SHORT} tokens were requested, and {counted} came", ask)
        if reason not in ENDED:
            return Side("wrong", f"an answer ends with finish_reason {reason!r}", ask)
        cut = len(before.text) > len(reply.text) and before.text.startswith(reply.text)
        if cut and reason != "length":
            return Side("wrong", f"an answer that max_tokens cut off says finish_reason {reason!r}", ask)
    return Side("ok", ask=asks[0])


async def usage(pool: Pool, pair: Pair) -> Side:
    """Counted tokens are max_tokens where those ended the answer, and as many as there are logprobs."""
    for prompt in pair.few:
        plain = pool.greedy(prompt, SHORT)
        seen = []
        for ask in (plain, plain.streaming(), plain.telling(1)):
            reply = await pool.ask(ask)
            if ask.body.get("logprobs") is not None and reply.refused:
                continue
            if side := trouble(reply, ask):
                return side
            if side := miscounted(reply, ask):
                return side
            assert reply.usage is not None
            seen.append(reply.usage.prompt)
        if len(set(seen)) > 1:
            return Side("wrong", f"one prompt is counted as {' and '.join(map(str, seen))} tokens", plain)
    return Side("ok", ask=plain)


def miscounted(reply: Reply, ask: Ask) -> Side | None:
    used, most = reply.usage, int(ask.body["max_tokens"])
    how = "in a stream" if ask.body.get("stream") else "of a whole answer"
    if used is None:
        return Side("ignored", f"it tells no usage {how}", ask)
    if used.prompt + used.completion != used.total:
        return Side("wrong", f"{used.prompt} + {used.completion} tokens are counted as {used.total}", ask)
    if reply.first.finish_reason == "length" and used.completion != most:
        return Side("wrong", f"{most} tokens {how} are counted as {used.completion}", ask)
    tokens = reply.first.tokens
    if tokens is not None and len(tokens) != used.completion:
        return Side("wrong", f"{len(tokens)} tokens with logprobs are counted as {used.completion}", ask)
    return None


async def streams(pool: Pool, pair: Pair) -> Side:
    for prompt in pair.few:
        plain = pool.greedy(prompt, PLAIN_TOKENS)
        ask = plain.streaming()
        first = await pool.ask(ask)
        if side := trouble(first, ask):
            return side
        same = await same_text(pool, plain, ask)
        if same is None:
            return Side("unsure", "its answers at temperature 0 differ between repeats", ask)
        if not same:
            before = (await pool.plain(plain)).text
            told = f"a stream's chunks make {len(first.text)} characters, the whole answer {len(before)}"
            return Side(
                "wrong", told if len(first.text) != len(before) else "a stream says something else", ask
            )
    return Side("ok", ask=ask)


CHECKS: tuple[Check, ...] = (
    of_each("stop", "answers end before their stop string, streamed or not", stops, "stop"),
    of_each("length", "answers end at max_tokens, and say so", length),
    of_each("usage", "tokens are counted right, streamed or not", usage),
    of_each("stream", "a stream says what the whole answer says", streams, "stream"),
)
