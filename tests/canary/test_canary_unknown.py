"""What a pool did not answer is never a pass. The canary's positive sentences are its checks that pass: each
of them, against pools that are silent, that answer without a text, or of which one alone answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from specops.config.rollout import Canary
from specops.load.arrivals import Pace
from specops.load.settings import Endpoint
from specops.load.workload import Prompt
from specops.phases.canary import conclude, judged
from specops.phases.canary.checks import CHECKS
from specops.phases.canary.client import (
    PASSING,
    AnswerChoice,
    CanaryRequest,
    Failure,
    PoolClient,
    Reply,
    Usage,
)
from specops.phases.canary.pool_pair import (
    CheckOutcome,
    ConformanceCheck,
    ConformanceFinding,
    PoolPair,
    Status,
)
from specops.prometheus.exposition import Scrape

PROMPTS = tuple(Prompt(str(n), "c", f"tell me of the number {n}") for n in range(4))
WELL = Reply({0: AnswerChoice("one two three", "length")}, Usage(3, 8, 11))
EMPTY = {"no choice": Reply(), "no text": Reply({0: AnswerChoice("", None)}, Usage(3, 8, 11))}
"""The second is how a model answers that spends all its tokens on reasoning."""


class Scripted(PoolClient):
    """Gives the same reply to each request."""

    reply: Reply = WELL

    async def ask(self, ask: CanaryRequest, *, leave_after: int | None = None) -> Reply:
        await asyncio.sleep(0)  # requests beside it have their turn
        return self.reply

    async def longest(self) -> int | None:
        return None

    async def gauges(self) -> Scrape | None:
        return None

    async def draft_fields(self) -> Mapping[str, Any]:
        return {}


def made(check: ConformanceCheck, standard: Reply, speculative: Reply) -> CheckOutcome:
    one, other = (
        Scripted(name, Endpoint("http://127.0.0.1:1/v1", "m"), 4, Pace(None))
        for name in ("standard", "speculative")
    )
    one.reply, other.reply = standard, speculative
    return asyncio.run(conclude(check, PoolPair(one, other, PROMPTS, Canary())))


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_no_answer_is_no_pass(check: ConformanceCheck, kind: str) -> None:
    silent = Reply(failure=Failure(kind, "made up"))
    for pair in ((silent, silent), (WELL, silent), (silent, WELL)):
        assert made(check, *pair).status != "pass", pair


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_an_answer_without_content_is_no_pass(check: ConformanceCheck, name: str) -> None:
    for pair in ((EMPTY[name], EMPTY[name]), (WELL, EMPTY[name]), (EMPTY[name], WELL)):
        assert made(check, *pair).status != "pass", pair


def test_answers_with_a_text_are_compared() -> None:
    parity = next(check for check in CHECKS if check.name == "parity")
    assert made(parity, WELL, WELL).status == "pass"
    nothing = made(parity, EMPTY["no text"], EMPTY["no text"])
    assert nothing.status == "undecided"
    assert "no answer of the standard pool to a plain prompt has any text" in nothing.message


@pytest.mark.parametrize("status", sorted(set(get_args(Status)) - {"pass"}))
def test_the_verdict_is_positive_only_where_a_check_passed(status: Status) -> None:
    alone = ConformanceFinding(name="parity", status=status, message="m")
    beside = [alone, ConformanceFinding(name="seed", status="pass", message="m")]
    assert judged([alone])[0] != "yes"
    assert (judged(beside)[0] == "yes") == (status in ("unsupported", "differs"))
