"""Penalties change greedy answers, and change them as on the standard pool."""

from __future__ import annotations

import asyncio

from specops.phases.canary.asking import Pool
from specops.phases.canary.finding import Outcome, Side, held, trouble
from specops.phases.canary.pair import PLAIN_TOKENS, Check, Pair
from specops.phases.canary.reply import Reply

PROMPTS = 6
PENALTIES = {"presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 1.5}


def judge(
    parameter: str, plain: list[Reply], once: list[Reply], again: list[Reply], other: list[Reply]
) -> tuple[Side, Side]:
    """How the standard and the speculative pool did. `plain` is the standard's without the penalty, `once`
    and `again` with it, `other` the speculative pool's with it; all of the same prompts."""
    changed = [i for i, reply in enumerate(once) if reply.text != plain[i].text]
    steady = [i for i in changed if once[i].text == again[i].text]
    if not changed:
        return Side("ignored", f"{parameter} changes none of {len(once)} answers"), Side("ok")
    if not steady:
        return Side("unsure", "the standard differs from itself at temperature 0"), Side("ok")
    unlike = [i for i in steady if other[i].text != once[i].text]
    if 2 * len(unlike) <= len(steady):
        return Side("ok"), Side("ok")
    if all(other[i].text == plain[i].text for i in unlike):
        return Side("ok"), Side(
            "ignored", f"{parameter} changes nothing in {len(unlike)} of {len(steady)} answers"
        )
    return Side("ok"), Side("wrong", f"{len(unlike)} of {len(steady)} answers are not the standard's")


def penalty(parameter: str, value: float) -> Check:
    async def run(pair: Pair) -> Outcome:
        prompts = pair.prompts[:PROMPTS]

        async def ask(pool: Pool) -> tuple[list[Reply], Side | None]:
            fields = {await pool.called(parameter): value}
            asks = [pool.greedy(prompt, PLAIN_TOKENS).having(**fields) for prompt in prompts]
            replies = await pool.ask_all(asks)
            troubles = (trouble(reply, one) for reply, one in zip(replies, asks, strict=True))
            return replies, next((side for side in troubles if side), None)

        (once, bad), (other, worse) = await asyncio.gather(ask(pair.standard), ask(pair.speculative))
        shown = {await pair.speculative.called(parameter): value}
        shows = pair.speculative.greedy(prompts[0], PLAIN_TOKENS).having(**shown)
        if bad or worse:
            return held(bad or Side("ok", ask=shows), worse or Side("ok", ask=shows), "")
        again, _ = await ask(pair.standard)
        asks = [pair.standard.greedy(prompt, PLAIN_TOKENS) for prompt in prompts]
        plain = [await pair.standard.plain(one) for one in asks]
        standard, speculative = judge(parameter, plain, once, again, other)
        if standard.state == "ignored":  # then so it does for the speculative pool, or it is told apart there
            own = [await pair.speculative.plain(pair.speculative.greedy(p, PLAIN_TOKENS)) for p in prompts]
            same = all(a.text == b.text for a, b in zip(own, other, strict=True))
            speculative = Side("ignored", standard.told) if same else Side("ok")
        outcome = held(standard, speculative, f"{parameter} changes answers as the standard's")
        return Outcome(
            outcome.status,
            outcome.told,
            shows,
            (),
            outcome.standard,
            outcome.speculative,
            {"prompts": len(prompts)},
        )

    return Check(parameter, f"{parameter} works as on the standard pool", run, parameter)  # type: ignore[arg-type]


CHECKS = tuple(penalty(parameter, value) for parameter, value in PENALTIES.items())
