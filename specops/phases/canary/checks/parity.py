"""The check that at temperature 0 both pools say the same: alone, and while sampled requests share the batch.

Judged as `ab` judges it: the standard answers twice. Where two answers part, the standard's margin at that
token separates rounding from a fault. What differs is sent again before it counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from specops.experiment.answers import NEAR_TIE, margin_at
from specops.load.arrivals import Level
from specops.load.workload import Prompt
from specops.phases.canary.client import CanaryRequest, Pool, Reply, Token
from specops.phases.canary.pool_pair import PLAIN_TOKENS, Check, Outcome, Pair, Status, trouble
from specops.phases.sweep.greedy_answers import (
    SURE_WITNESSES,
    Matches,
    Parity,
    Witness,
    margins_needed,
    with_margins,
)

CHALLENGER = "speculative"
CONFIDENCE = 0.999
TEMPERATURES = (0.7, 1.0)
TOP = 5
"""Likeliest tokens that are requested where answers part: a near tie may be of more than two."""
_SHOWN = 40

Replies = Mapping[str, Reply]
"""Replies by prompt."""


def matches(ours: Replies, theirs: Replies) -> Matches:
    """Return the prompts that both answered, and a witness for each that they answered differently."""
    shared = [name for name in ours if ours[name].ok and name in theirs and theirs[name].ok]
    unlike = [name for name in shared if ours[name].compared_parts != theirs[name].compared_parts]
    return Matches(
        frozenset(shared), tuple(_witness(name, ours[name].text, theirs[name].text) for name in unlike)
    )


def verdict(parity: Parity, again: Parity, requested: int) -> tuple[Status, str]:
    """Return the status and the reason. `again`: the prompts that differed, sent once more."""
    found, control = parity.arms, parity.control
    assert control is not None
    message = f"{found} answers are equal; the standard's own, repeated, {control}"
    if not found.witnesses:
        return (
            ("pass", message)
            if found.compared == requested
            else ("undecided", f"{message}; the others failed")
        )
    assert again.control is not None
    steady = parity.steady - again.control.unlike
    # a fault of a batch may not come again: then several prompts with it separate it from rounding
    repeated = steady & again.arms.surely_unlike
    if repeated or len(steady) >= SURE_WITNESSES or parity.surely_lower(CONFIDENCE):
        return "fail", f"{message}; {len(found.unlike & again.arms.unlike)} differ when repeated too"
    if control.witnesses or again.control.witnesses:
        return "undecided", f"{message}: the standard differs from itself"
    near = sum(witness.near_tie for witness in found.witnesses)
    if near == len(found.witnesses):
        return "pass", f"{message}; the rest part where two tokens are as likely as each other"
    return "undecided", f"{message}; what differed does not do so reliably, or its margin is not known"


async def _alone(pair: Pair) -> Outcome:
    async def ask(pool: Pool, prompts: Sequence[Prompt]) -> Replies:
        asks = [pool.greedy(prompt, PLAIN_TOKENS) for prompt in prompts]
        return {p.id: r for p, r in zip(prompts, await pool.ask_all(asks), strict=True)}

    async def rounds(prompts: Sequence[Prompt]) -> tuple[Replies, Replies, Replies]:
        async def twice() -> tuple[Replies, Replies]:
            return await ask(pair.standard, prompts), await ask(pair.standard, prompts)

        (first, second), other = await asyncio.gather(twice(), ask(pair.speculative, prompts))
        return first, second, other

    first, second, other = await rounds(pair.prompts)
    if outcome := _unanswered(pair, first, other):
        return outcome
    parity = _parity(first, second, other, mixed=False)
    again = parity
    if parity.arms.witnesses:
        wanted = [prompt for prompt in pair.prompts if prompt.id in parity.arms.unlike]
        once, _, more = await rounds(wanted)
        again = _parity(first, once, more, mixed=False)
    return await _judged(pair, parity, again, ())


async def _mixed(pair: Pair) -> Outcome:
    """The control is the standard's own mixed batch."""
    prompts = pair.prompts

    async def ask(pool: Pool, prompts: Sequence[Prompt]) -> Replies:
        """Every prompt greedily between two sampled requests, so that whoever goes first, they meet."""
        asks: list[CanaryRequest] = []
        for seed, prompt in enumerate(prompts):
            before, behind = _partners(pool, prompt, seed)
            asks += [before, pool.greedy(prompt, PLAIN_TOKENS), behind]
        replies = await pool.ask_all(asks)
        return {prompt.id: reply for prompt, reply in zip(prompts, replies[1::3], strict=True)}

    async def plain() -> Replies:
        asks = [pair.standard.greedy(prompt, PLAIN_TOKENS) for prompt in prompts]
        replies = await asyncio.gather(*map(pair.standard.plain, asks))
        return {prompt.id: reply for prompt, reply in zip(prompts, replies, strict=True)}

    first = await plain()
    control, other = await asyncio.gather(ask(pair.standard, prompts), ask(pair.speculative, prompts))
    if outcome := _unanswered(pair, first, other):
        return outcome
    parity = _parity(first, control, other, mixed=True)
    again = parity
    if parity.arms.witnesses:
        wanted = [prompt for prompt in prompts if prompt.id in parity.arms.unlike]
        control, other = await asyncio.gather(ask(pair.standard, wanted), ask(pair.speculative, wanted))
        again = _parity(first, control, other, mixed=True)
    among = [
        ask for seed, prompt in enumerate(prompts[:2]) for ask in _partners(pair.speculative, prompt, seed)
    ]
    return await _judged(pair, parity, again, tuple(among))


def _partners(pool: Pool, prompt: Prompt, seed: int) -> list[CanaryRequest]:
    """Return what shares the batch with a greedy request."""
    fields = {"max_tokens": PLAIN_TOKENS, "seed": seed}
    return [pool.asking(prompt, temperature=temperature, **fields) for temperature in TEMPERATURES]


def _unanswered(pair: Pair, first: Replies, other: Replies) -> Outcome | None:
    """Return where a pool did not answer what the other did."""
    for prompt in pair.prompts:
        ask = pair.standard.greedy(prompt, PLAIN_TOKENS)
        if side := trouble(first[prompt.id], ask):
            return Outcome("undecided", f"the standard pool: {side.message}", ask)
        ask = pair.speculative.greedy(prompt, PLAIN_TOKENS)
        if side := trouble(other[prompt.id], ask):
            status: Status = "undecided" if side.state == "unsure" else "fail"
            return Outcome(status, f"the speculative pool: {side.message}", ask)
    return None


def _parity(first: Replies, control: Replies, other: Replies, *, mixed: bool) -> Parity:
    return Parity(CHALLENGER, mixed, Level(), matches(first, other), matches(first, control))


async def _judged(pair: Pair, parity: Parity, again: Parity, among: tuple[CanaryRequest, ...]) -> Outcome:
    prompts = {prompt.id: prompt for prompt in pair.prompts}
    margins: dict[tuple[str, int], float | None] = {}
    written = {witness.place: witness.other for one in (parity, again) for witness in one.arms.witnesses}
    for name, character in margins_needed([parity, again]):
        ask = pair.standard.greedy(prompts[name], PLAIN_TOKENS).with_logprobs(TOP)
        tokens = (await pair.standard.plain(ask)).first.tokens or ()
        margin = margin_at([(token.text, token.top) for token in tokens], character)
        # Near two tokens, the standard could have written the other one, and nothing else.
        possible = could_write(tokens, character, written.get((name, character), ""))
        if margin is None or margin >= NEAR_TIE or possible:
            margins[name, character] = margin
    parity, again = with_margins(parity, margins), with_margins(again, margins)
    status, message = verdict(parity, again, len(pair.prompts))
    assert parity.control is not None
    shown = next((w for w in parity.arms.witnesses if not w.near_tie), None) or next(
        iter(parity.arms.witnesses), None
    )
    prompt = prompts[shown.prompt] if shown else pair.prompts[0]
    return Outcome(
        status,
        message,
        pair.speculative.greedy(prompt, PLAIN_TOKENS),
        among,
        evidence={
            "equal": str(parity.arms),
            "control": str(parity.control),
            "witnesses": [witness.model_dump() for witness in parity.arms.witnesses],
        },
    )


def could_write(tokens: Sequence[Token], character: int, other: str) -> bool:
    """Return whether `other`, which begins at `character` of the standard's answer, begins there with a token
    that was nearly as likely as the standard's. `tokens` are those of the standard's answer."""
    end, text = 0, ""
    for token in tokens:
        start, end, text = end, end + len(token.text), text + token.text
        if end > character:
            begun = text[start:character] + other
            near = [
                likely
                for value, likely in zip(token.top, token.top_texts, strict=False)
                if token.top[0] - value < NEAR_TIE and likely != token.text
            ]
            # What ends an answer has no text, or one that is not written; nor has a part of a character.
            partial = any("\ufffd" in likely or likely.startswith("bytes:") for likely in near)
            fits = any(begun.startswith(likely[: len(begun)]) for likely in near if likely)
            return fits or partial or not other or not token.top_texts
    return False


def _witness(prompt: str, ours: str, theirs: str) -> Witness:
    pairs = zip(ours, theirs, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
    shown = slice(same, same + _SHOWN)
    return Witness(prompt=prompt, character=same, standard=ours[shown], other=theirs[shown])


PARITY = Check("parity", "greedy answers are the standard's", _alone)
MIXED = Check("mixed", "greedy answers are the standard's among sampled requests", _mixed)
