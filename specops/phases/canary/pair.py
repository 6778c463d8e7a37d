"""The two pools of a canary and what they are asked with; and how a check is made of one look at a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from specops.config.canary import Canary, CheckName
from specops.load.workload import Prompt, PromptSet
from specops.phases.canary.asking import Ask, Pool
from specops.phases.canary.finding import Outcome, Side, held

PLAIN_TOKENS = 48
"""Of an answer that others are compared with."""
FEW = 4
"""Prompts that tell whether a parameter is taken."""


@dataclass(frozen=True)
class Pair:
    standard: Pool
    speculative: Pool
    prompts: tuple[Prompt, ...]
    settings: Canary

    @property
    def few(self) -> tuple[Prompt, ...]:
        return self.prompts[:FEW]


Look = Callable[[Pool, Pair], Awaitable[Side]]


@dataclass(frozen=True)
class Check:
    name: CheckName
    about: str
    """What holds where it passes."""

    run: Callable[[Pair], Awaitable[Outcome]]
    parameter: str | None = None


def of_each(name: CheckName, about: str, look: Look, parameter: str | None = None) -> Check:
    """A check of what each pool does by itself: the standard pool is what the other is held against."""

    async def run(pair: Pair) -> Outcome:
        standard, speculative = await asyncio.gather(look(pair.standard, pair), look(pair.speculative, pair))
        return held(standard, speculative, about)

    return Check(name, about, run, parameter)


def spread(prompts: PromptSet, count: int) -> tuple[Prompt, ...]:
    """The first of each class in turn."""
    classes = [[p for p in prompts.prompts if p.traffic_class == name] for name in prompts.classes]
    return tuple(p for p in chain(*zip_longest(*classes)) if p is not None)[:count]


async def same_text(pool: Pool, plain: Ask, other: Ask) -> bool | None:
    """As `same_texts`, of one."""
    return (await same_texts(pool, [plain], [other]))[0]


async def same_texts(pool: Pool, plain: Sequence[Ask], other: Sequence[Ask]) -> list[bool | None]:
    """Whether each of `other` is answered as the plain request beside it, by their texts.

    A server may differ from itself, since sums of floating point depend on the batch. So what differs is
    asked again, both ways, and None says that the plain answer is not steady, or that one of them is none.
    Plain requests never share a batch with the others here: what comes of that is told by itself.
    """
    before = [await pool.plain(ask) for ask in plain]
    once = await pool.ask_all(other)
    again = {i: await pool.ask(plain[i]) for i in range(len(plain)) if once[i].text != before[i].text}
    twice = dict(zip(again, await pool.ask_all([other[i] for i in again]), strict=True))

    def same(i: int) -> bool | None:
        if not before[i].ok or not once[i].ok:
            return None
        if i not in again:
            return True
        return twice[i].text == before[i].text if again[i].text == before[i].text else None

    return [same(i) for i in range(len(plain))]
