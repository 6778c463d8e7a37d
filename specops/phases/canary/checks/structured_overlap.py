"""JSON and tools while requests overlap: each answer follows the schema, or calls the tool, of its own
request.

Every request has a schema or a tool that no other has, so that an answer says whose it is. Copies of one
request could be crossed without a trace.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from specops.config.rollout import CheckName
from specops.phases.canary.checks.structured_output import begun
from specops.phases.canary.client import CanaryRequest, PoolClient, Reply
from specops.phases.canary.pool_pair import (
    CheckOutcome,
    ConformanceCheck,
    PoolOutcome,
    PoolPair,
    Status,
    held,
    trouble,
)
from specops.phases.canary.two_samples import same_share

ANSWERS = 48
"""Overlapping answers: of a fault of one in ten, one is among them in 99 of 100 runs."""
TOKENS = 64
NEIGHBOURS = 12
"""Plain requests among them."""
SURE = 1e-3
"""p of as many invalid answers as the standard's, which has some itself."""
REPEATED = 2
"""Invalid answers that are no accident where the standard has none."""
LOOKS = 2
"""Times that all are sent where the first time leaves it open."""
SHOWN = 3
"""Requests that are printed beside the one that shows a failure."""
_OWNED = re.compile(r"\bT([0-9]{3})\b|\bopen_ticket_([0-9]+)\b")

Owner = Callable[[Reply], int | None]
"""The index of the request whose schema or tool an answer follows; None: of none of them."""


def _schema(number: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"ticket": {"enum": [_ticket(number)]}},
        "required": ["ticket"],
        "additionalProperties": False,
    }


def _ticket(number: int) -> str:
    return f"T{number:03}"


def _number(text: str) -> int | None:
    """Return the number of the ticket in the only object that its schema allows."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    ticket = value.get("ticket") if isinstance(value, dict) and len(value) == 1 else None
    digits = ticket[1:] if isinstance(ticket, str) and ticket[:1] == "T" else ""
    return int(digits) if digits.isdecimal() and ticket == _ticket(int(digits)) else None


def _with_schema(pool: PoolClient, number: int) -> CanaryRequest:
    form = {"name": f"ticket_{number}", "schema": _schema(number), "strict": True}
    return _question(pool, number).with_fields(response_format={"type": "json_schema", "json_schema": form})


def _with_tool(pool: PoolClient, number: int) -> CanaryRequest:
    name = f"open_ticket_{number}"
    function = {"name": name, "description": "Open a ticket.", "parameters": _schema(number)}
    return _question(pool, number).with_fields(
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "function", "function": {"name": name}},
    )


def _question(pool: PoolClient, number: int) -> CanaryRequest:
    return pool.chat_request(
        f"Write the ticket {_ticket(number)} as a JSON object.", max_tokens=TOKENS, temperature=0
    )


def of_schema(reply: Reply) -> int | None:
    return _number(reply.text)


def of_tool(reply: Reply) -> int | None:
    """Return the number of the call; a name and arguments of two requests are of neither."""
    calls = reply.first.calls
    number = _number(calls[0].arguments) if len(calls) == 1 else None
    return number if number is not None and calls[0].name == f"open_ticket_{number}" else None


def tickets(reply: Reply) -> set[int]:
    """Return the numbers of all tickets in an answer, and of the tools that it calls."""
    calls = reply.first.calls
    text = " ".join([reply.text, *(f"{call.arguments} {call.name}" for call in calls)])
    found = {int(ticket or tool) for ticket, tool in _OWNED.findall(text)}
    return {number for number in found if number < ANSWERS}


def judge(
    standard: Sequence[Reply], speculative: Sequence[Reply], owner: Owner, ask: CanaryRequest
) -> CheckOutcome:
    """Judge the answers to the requests 0 to ANSWERS - 1, and again from 0 on. One answer with another
    request's ticket is enough, where the standard has none."""
    crossed = [n for n, reply in enumerate(speculative) if tickets(reply) - {n % ANSWERS}]
    if any(tickets(reply) - {n % ANSWERS} for n, reply in enumerate(standard)):
        return CheckOutcome("undecided", "the standard pool itself answers with another request's", ask)
    invalid = invalid_answers(speculative, owner)
    control = invalid_answers(standard, owner)
    total = len(speculative)
    evidence = {"answers": total, "crossed": len(crossed), "invalid": len(invalid), "control": len(control)}
    if crossed:
        message = f"{len(crossed)} of {total} overlapping answers have another request's content"
        return CheckOutcome("fail", message, ask, evidence=evidence | {"example": crossed[0] % ANSWERS})
    message = f"{len(invalid)} of {total} overlapping answers are invalid; {len(control)} of the standard's"
    if invalid:
        sure = (
            same_share(len(invalid), total, len(control), len(standard)) < SURE
            if control
            else (len(invalid) >= REPEATED)
        )
        worse = sure and len(invalid) > len(control)
        status: Status = "fail" if worse else "undecided"
        return CheckOutcome(status, message, ask, evidence=evidence | {"example": invalid[0] % ANSWERS})
    whole = sum(owner(reply) is not None for reply in speculative)
    if whole < total / 2:
        message = f"{total - whole} of {total} answers are cut off by max_tokens, so they show nothing"
        return CheckOutcome("undecided", message, ask, evidence=evidence)
    return CheckOutcome(
        "pass", f"{whole} of {total} overlapping answers are whole, each its own", ask, evidence=evidence
    )


def invalid_answers(replies: Sequence[Reply], owner: Owner) -> list[int]:
    """Return the indices of answers that are neither their own request's nor the beginning of one."""
    return [n for n, reply in enumerate(replies) if owner(reply) != n % ANSWERS and not begun(reply)]


def _side(replies: Sequence[Reply], owner: Owner, parameter: str, ask: CanaryRequest) -> PoolOutcome:
    """Return how a pool did by itself: `ignored` where no answer is of any request."""
    if side := next((side for reply in replies if (side := trouble(reply, ask))), None):
        return side
    crossed = any(tickets(reply) - {n % ANSWERS} for n, reply in enumerate(replies))
    if len(invalid_answers(replies, owner)) == len(replies) and not crossed:
        return PoolOutcome("ignored", f"no answer follows its {parameter}", ask)
    return PoolOutcome("ok", ask=ask)


def _own(
    name: CheckName,
    about: str,
    request: Callable[[PoolClient, int], CanaryRequest],
    owner: Owner,
    parameter: str,
) -> ConformanceCheck:
    async def answers(pool: PoolClient, pair: PoolPair) -> list[Reply]:
        asks = [request(pool, number) for number in range(ANSWERS)]
        plain = [pool.greedy(pair.prompts[n % len(pair.prompts)], TOKENS) for n in range(NEIGHBOURS)]
        every = ANSWERS // NEIGHBOURS
        mixed: list[CanaryRequest] = []
        for n, neighbour in enumerate(plain):
            mixed += [*asks[n * every : (n + 1) * every], neighbour]
        replies = await pool.ask_all(mixed)
        return [reply for index, reply in enumerate(replies) if (index + 1) % (every + 1)]

    async def run(pair: PoolPair) -> CheckOutcome:
        first = request(pair.speculative, 0)
        standard: list[Reply] = []
        speculative: list[Reply] = []
        for _ in range(LOOKS):
            replies = await asyncio.gather(answers(pair.standard, pair), answers(pair.speculative, pair))
            sides = [_side(pool_replies, owner, parameter, first) for pool_replies in replies]
            if any(side.state != "ok" for side in sides):
                return held(sides[0], sides[1], "")
            standard, speculative = [*standard, *replies[0]], [*speculative, *replies[1]]
            outcome = judge(standard, speculative, owner, first)
            if outcome.status != "undecided":
                break
        number = int((outcome.evidence or {}).get("example", 0))
        among = [request(pair.speculative, (number + n) % ANSWERS) for n in range(1, SHOWN + 1)]
        return replace(outcome, ask=request(pair.speculative, number), among=tuple(among))

    return ConformanceCheck(name, about, run, parameter)


CHECKS: tuple[ConformanceCheck, ...] = (
    _own(
        "own_schema",
        "overlapping answers follow their own schema",
        _with_schema,
        of_schema,
        "response_format",
    ),
    _own("own_tool", "overlapping answers call their own tool", _with_tool, of_tool, "tools"),
)
