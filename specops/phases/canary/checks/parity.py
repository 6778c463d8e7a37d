"""The check that at temperature 0 both pools say the same: alone, and while sampled requests share the batch.

The standard answers twice. Where two answers part, the standard's margin at that
token separates rounding from a fault. What differs is sent again before it counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specops import stats
from specops.experiment.answers import NEAR_TIE, Difference, margin_at
from specops.load.workload import Prompt
from specops.phases.canary.client import CanaryRequest, PoolClient, Reply, Token
from specops.phases.canary.pool_pair import (
    PLAIN_TOKENS,
    CheckOutcome,
    ConformanceCheck,
    PoolPair,
    Status,
    trouble,
)

SURE_DIFFERENCES = 2
"""For one prompt, rounding may be the reason whatever the margin; for two prompts it does not explain it."""

CONFIDENCE = 0.999
TEMPERATURES = (0.7, 1.0)
TOP = 5
"""Likeliest tokens that are requested where answers part: a near tie may be of more than two."""
TRIES = 4
"""Times that a standard that differs from itself gets a request for the answer that is compared."""
_SHOWN = 40

Replies = Mapping[str, Reply]
"""Replies by prompt."""


@dataclass(frozen=True)
class Matches:
    """The prompts that were answered twice, and each difference between their two answers."""

    prompts: frozenset[str]
    differences: tuple[Difference, ...]

    @property
    def unlike(self) -> frozenset[str]:
        return frozenset(difference.prompt for difference in self.differences)

    @property
    def surely_unlike(self) -> frozenset[str]:
        """The prompts whose answers differ, without near ties."""
        return frozenset(difference.prompt for difference in self.differences if not difference.near_tie)

    @property
    def known_unlike(self) -> frozenset[str]:
        """The prompts whose answers differ where the standard reported that it was sure of its token."""
        return frozenset(
            difference.prompt
            for difference in self.differences
            if difference.margin is not None and not difference.near_tie
        )

    def __str__(self) -> str:
        return f"{len(self.prompts) - len(self.differences)}/{len(self.prompts)}"


@dataclass(frozen=True)
class Parity:
    """Greedy answers of the speculative pool beside the standard's, and the standard's beside its own."""

    pools: Matches
    control: Matches

    @property
    def steady(self) -> frozenset[str]:
        """Prompts on which the standard agrees with itself, and the other pool is known to be unlike it."""
        return self.pools.known_unlike - self.control.unlike

    def surely_lower(self) -> bool:
        """Return whether the pools are equal less often than the control, by more than chance (McNemar,
        exact).

        Only prompts on which the two disagree count. Where speculation changed nothing, each would be as
        likely to differ in the control as between the pools. Near ties do not count.
        """
        shared = self.pools.prompts & self.control.prompts
        lost = len(shared & (self.pools.surely_unlike - self.control.unlike))
        gained = len(shared & (self.control.unlike - self.pools.unlike))
        return lost > gained and stats.share_lower(lost, lost + gained, CONFIDENCE) > 0.5

    def with_margins(self, margins: Mapping[tuple[str, int], float | None]) -> Parity:
        """Return the same with the standard's margins where answers differ."""
        differences = tuple(
            difference.model_copy(update={"margin": margins.get((difference.prompt, difference.character))})
            for difference in self.pools.differences
        )
        return replace(self, pools=replace(self.pools, differences=differences))


def matches(standard: Replies, candidate: Replies) -> Matches:
    """Return the prompts that both answered, with the difference of each that they answered differently."""
    shared = [name for name in standard if standard[name].ok and name in candidate and candidate[name].ok]
    return Matches(
        frozenset(shared),
        tuple(
            difference(name, standard[name].text, candidate[name].text)
            for name in shared
            if standard[name].compared_parts != candidate[name].compared_parts
        ),
    )


def verdict(parity: Parity, again: Parity, requested: int) -> tuple[Status, str]:
    """Return the status and the reason. `again`: the prompts that differed, sent once more."""
    pools, control = parity.pools, parity.control
    message = f"{pools} answers are equal; the standard's own, repeated, {control}"
    if not pools.differences:
        whole = len(pools.prompts) == requested
        return ("pass", message) if whole else ("undecided", f"{message}; the others failed")
    steady = parity.steady - again.control.unlike
    # a fault of a batch may not come again: then several prompts with it separate it from rounding
    repeated = steady & again.pools.surely_unlike
    if repeated or len(steady) >= SURE_DIFFERENCES or parity.surely_lower():
        return "fail", f"{message}; {len(pools.unlike & again.pools.unlike)} differ when repeated too"
    if control.differences or again.control.differences:
        return "undecided", f"{message}: the standard differs from itself"
    if all(difference.near_tie for difference in pools.differences):
        return "pass", f"{message}; the rest part where two tokens are as likely as each other"
    return "undecided", f"{message}; what differed does not do so reliably, or its margin is not known"


async def _alone(pair: PoolPair) -> CheckOutcome:
    async def rounds(prompts: Sequence[Prompt]) -> tuple[Replies, Replies, Replies]:
        async def twice() -> tuple[Replies, Replies]:
            return await ask_greedily(pair.standard, prompts), await ask_greedily(pair.standard, prompts)

        (first, second), speculative = await asyncio.gather(twice(), ask_greedily(pair.speculative, prompts))
        return first, second, speculative

    first, second, speculative = await rounds(pair.prompts)
    if outcome := _unanswered(pair, first, speculative):
        return outcome
    parity = _parity(first, second, speculative)
    again = parity
    if parity.pools.differences:
        differing = [prompt for prompt in pair.prompts if prompt.id in parity.pools.unlike]
        once, _, more = await rounds(differing)
        again = _parity(first, once, more)
    return await _judged(pair, first, parity, again, ())


async def _mixed(pair: PoolPair) -> CheckOutcome:
    """The control is the standard's own mixed batch."""
    prompts = pair.prompts

    async def ask(pool: PoolClient, prompts: Sequence[Prompt]) -> Replies:
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

    among = [
        ask for seed, prompt in enumerate(prompts[:2]) for ask in _partners(pair.speculative, prompt, seed)
    ]
    return await judge_answers(pair, await plain(), ask, tuple(among))


async def judge_answers(
    pair: PoolPair,
    first: Replies,
    ask: Callable[[PoolClient, Sequence[Prompt]], Awaitable[Replies]],
    among: tuple[CanaryRequest, ...] = (),
) -> CheckOutcome:
    """Judge what `ask` gets of the speculative pool by `first`, the standard's own answers. The control is
    what `ask` gets of the standard. What differs is requested again. `among`: what is in flight meanwhile."""
    prompts = pair.prompts
    control, speculative = await asyncio.gather(ask(pair.standard, prompts), ask(pair.speculative, prompts))
    if outcome := _unanswered(pair, first, speculative):
        return outcome
    parity = _parity(first, control, speculative)
    again = parity
    if parity.pools.differences:
        differing = [prompt for prompt in prompts if prompt.id in parity.pools.unlike]
        control, speculative = await asyncio.gather(
            ask(pair.standard, differing), ask(pair.speculative, differing)
        )
        again = _parity(first, control, speculative)
    return await _judged(pair, first, parity, again, among)


async def ask_greedily(pool: PoolClient, prompts: Sequence[Prompt]) -> Replies:
    """Return the pool's greedy answers to all of `prompts`, as many at a time as it may be sent."""
    asks = [pool.greedy(prompt, PLAIN_TOKENS) for prompt in prompts]
    return {p.id: r for p, r in zip(prompts, await pool.ask_all(asks), strict=True)}


def _partners(pool: PoolClient, prompt: Prompt, seed: int) -> list[CanaryRequest]:
    """Return what shares the batch with a greedy request."""
    fields = {"max_tokens": PLAIN_TOKENS, "seed": seed}
    return [pool.asking(prompt, temperature=temperature, **fields) for temperature in TEMPERATURES]


def _unanswered(pair: PoolPair, first: Replies, speculative: Replies) -> CheckOutcome | None:
    """Return where a pool did not answer what the other did."""
    for prompt in pair.prompts:
        ask = pair.standard.greedy(prompt, PLAIN_TOKENS)
        if side := trouble(first[prompt.id], ask):
            return CheckOutcome("undecided", f"the standard pool: {side.message}", ask)
        ask = pair.speculative.greedy(prompt, PLAIN_TOKENS)
        if side := trouble(speculative[prompt.id], ask):
            status: Status = "undecided" if side.state == "unsure" else "fail"
            return CheckOutcome(status, f"the speculative pool: {side.message}", ask)
    return None


def _parity(first: Replies, control: Replies, speculative: Replies) -> Parity:
    return Parity(matches(first, speculative), matches(first, control))


async def _judged(
    pair: PoolPair, first: Replies, parity: Parity, again: Parity, among: tuple[CanaryRequest, ...]
) -> CheckOutcome:
    prompts = {prompt.id: prompt for prompt in pair.prompts}
    margins: dict[tuple[str, int], float | None] = {}
    differences = (*parity.pools.differences, *again.pools.differences)
    written = {(difference.prompt, difference.character): difference.challenger for difference in differences}
    for name, character in sorted(written):
        ask = pair.standard.greedy(prompts[name], PLAIN_TOKENS)
        text = first[name].text
        margins[name, character] = await margin_of(pair, ask, text, character, written[name, character])
    parity, again = parity.with_margins(margins), again.with_margins(margins)
    status, message = verdict(parity, again, len(pair.prompts))
    example = min(parity.pools.differences, key=lambda difference: difference.near_tie, default=None)
    prompt = prompts[example.prompt] if example else pair.prompts[0]
    return CheckOutcome(
        status,
        message,
        pair.speculative.greedy(prompt, PLAIN_TOKENS),
        among,
        evidence={
            "equal": str(parity.pools),
            "control": str(parity.control),
            "witnesses": [difference.model_dump() for difference in parity.pools.differences],
        },
    )


async def margin_of(
    pair: PoolPair, ask: CanaryRequest, text: str, character: int, continuation: str
) -> float | None:
    """Return the standard's margin at `character` of `text`, its answer to `ask`, in nats, where another
    answer goes on with `continuation`.

    None where it reports no margin, and where it begins its answer otherwise each time. None too for a near
    tie with an answer that goes on with none of the likely tokens: it explains nothing.
    """
    ask = ask.with_logprobs(TOP)
    for attempt in range(TRIES):
        reply = await (pair.standard.ask(ask) if attempt else pair.standard.plain(ask))
        if reply.text.startswith(text[:character]):
            break
    else:
        return None
    tokens = reply.first.tokens or ()
    margin = margin_at([(token.text, token.top) for token in tokens], character)
    # Near two tokens, the standard could have written the other one, and nothing else.
    possible = could_write(tokens, character, continuation)
    return margin if margin is None or margin >= NEAR_TIE or possible else None


def could_write(tokens: Sequence[Token], character: int, continuation: str) -> bool:
    """Return whether `continuation`, which begins at `character` of the standard's answer, begins there with
    a token that was nearly as likely as the standard's. `tokens` are those of the standard's answer."""
    end, text = 0, ""
    for token in tokens:
        start, end, text = end, end + len(token.text), text + token.text
        if end > character:
            begun = text[start:character] + continuation
            near = [
                likely
                for value, likely in zip(token.top, token.top_texts, strict=False)
                if token.top[0] - value < NEAR_TIE
            ]
            # What ends an answer has no text, or one that is not written; nor has a part of a character.
            partial = any("\ufffd" in likely or likely.startswith("bytes:") for likely in near)
            fits = any(begun.startswith(likely[: len(begun)]) for likely in near if likely)
            return fits or partial or not continuation or not token.top_texts
    return False


def difference(prompt: str, standard: str, challenger: str) -> Difference:
    pairs = zip(standard, challenger, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(standard), len(challenger)))
    excerpt = slice(same, same + _SHOWN)
    return Difference(
        prompt=prompt, variant="", character=same, standard=standard[excerpt], challenger=challenger[excerpt]
    )


PARITY = ConformanceCheck("parity", "greedy answers are the standard's", _alone)
MIXED = ConformanceCheck("mixed", "greedy answers are the standard's among sampled requests", _mixed)
