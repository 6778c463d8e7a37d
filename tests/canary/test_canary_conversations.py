"""Conversations, overlapping schemas and tools, grammars and acceptance, against servers with a cache, slots
and drafts: each seeded fault is found, and a quirk that both pools have is nobody's fault."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from conversing import CONVERSATIONS, HEALTHY, SEEDED, Pool, Seeded, Toys, tokens_of

from specops.phases.canary.checks import acceptance, grammar, structured_overlap
from specops.phases.canary.checks.acceptance import Acceptance
from specops.phases.canary.checks.grammar import STRINGS
from specops.phases.canary.checks.structured_overlap import ANSWERS, of_schema, of_tool
from specops.phases.canary.client import (
    CHAT,
    AnswerChoice,
    CanaryRequest,
    Reply,
    Token,
    ToolCall,
    Usage,
    streamed,
    whole,
)

ASK = CanaryRequest(CHAT, {})


@pytest.fixture(scope="module")
def toys() -> Iterator[Toys]:
    started = Toys()
    yield started
    started.close()


@pytest.mark.quick(8)
@pytest.mark.parametrize("seeded", SEEDED, ids=lambda seeded: f"{seeded.check}-{seeded.fault}")
def test_a_fault_is_found_by_its_check(seeded: Seeded, toys: Toys, tmp_path: Path) -> None:
    result = seeded.canary(toys, tmp_path)
    (check,) = result.data["checks"]
    assert (result.verdict, check["name"], check["status"]) == ("no", seeded.check, "fail"), check
    assert "curl" in check["request"]


@pytest.mark.slow
@pytest.mark.parametrize("quirks", HEALTHY, ids=lambda quirks: "-".join(quirks) or "plain")
def test_a_quirk_of_both_pools_is_no_fault(quirks: tuple[str, ...], toys: Toys, tmp_path: Path) -> None:
    with toys.having(quirks, quirks):
        result = toys.canary(tmp_path, *CONVERSATIONS, turned=100, samples=64)
    statuses = {check["name"]: check["status"] for check in result.data["checks"]}
    assert "fail" not in statuses.values(), result.data["checks"]
    if "near_ties" not in quirks:  # where a standard differs from itself, an answer may stay open
        assert "undecided" not in statuses.values(), result.data["checks"]
    assert ("reasons" in quirks) == (statuses["reasoning"] == "pass")


def test_what_both_pools_do_is_not_the_speculative_one_s_fault(toys: Toys, tmp_path: Path) -> None:
    with toys.having(("disturber_rows",), ("disturber_rows",)):
        result = toys.canary(tmp_path, "after_conversation")
    (check,) = result.data["checks"]
    assert (result.verdict, check["status"]) == ("undecided", "undecided"), check
    with toys.having(("no_cached_tokens",), ("no_cached_tokens",)):
        (check,) = toys.canary(tmp_path, "cached_tokens").data["checks"]
    assert check["status"] == "unsupported"


# --- what answers hold ------------------------------------------------------------------------------------


def test_reasoning_cached_tokens_and_drafts_are_read() -> None:
    message = {"content": "yes", "reasoning": "I think"}
    usage = {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35}
    drafts = {"speculative_decoding": {"num_draft_tokens": 9, "num_accepted_draft_tokens": 4}}
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage | {"prompt_tokens_details": {"cached_tokens": 16}},
        "metrics": drafts,
    }
    reply = whole(body)
    assert (reply.text, reply.first.reasoning) == ("yes", "I think")
    assert reply.usage == Usage(30, 5, 35, 16)
    assert reply.drafts is not None
    assert (reply.drafts.drafted, reply.drafts.accepted) == (9, 4)
    silent = whole(body | {"usage": usage | {"prompt_tokens_details": None}, "metrics": None})
    assert silent.usage == Usage(30, 5, 35)
    assert silent.drafts is None
    parts = [
        '{"choices": [{"index": 0, "delta": {"reasoning_content": "I "}}]}',
        '{"choices": [{"index": 0, "delta": {"reasoning_content": "think"}}]}',
        '{"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}',
    ]
    assert streamed(parts).first.reasoning == "I think"


# --- the exact distribution of a grammar ------------------------------------------------------------------


def draw(traits: Sequence[str], number: int, seed: int = 0) -> list[Reply]:
    """Answers of the scripted model to one prompt, under the grammar."""
    pool, dice = Pool("standard", frozenset(traits)), Random(seed)
    row, _ = pool.prefill(tokens_of(f"<user>{grammar.QUESTION}"))
    texts = [f'"{string}"' for string in STRINGS]
    replies = []
    for _ in range(number):
        written = pool.follow(row, texts, 1.0, dice)
        tokens = tuple(
            Token(text, logprob) for text, (logprob, _) in zip(written.tokens, written.tops, strict=True)
        )
        replies.append(Reply({0: AnswerChoice(written.text, "stop", tokens)}))
    return replies


def counted(replies: Sequence[Reply]) -> Counter[str]:
    return Counter(grammar.string_of(reply.text) or "" for reply in replies)


def test_both_distributions_are_enumerated_from_log_probabilities() -> None:
    masked, conditional = draw((), 4000), draw(("conditional",), 4000)
    exact, again = grammar.enumerate_strings(masked), grammar.enumerate_strings(conditional)
    assert exact is not None
    assert again is not None
    assert exact.projected == pytest.approx(again.projected), "whatever is drawn"
    assert exact.conditional == pytest.approx(again.conditional)
    for replies, distribution in ((masked, exact.projected), (conditional, exact.conditional)):
        counts = counted(replies)
        assert math.isclose(sum(distribution.values()), 1)
        for string in STRINGS:
            assert counts[string] / counts.total() == pytest.approx(distribution[string], abs=0.03)
        assert grammar.p_of(counts, distribution) > 0.01
    assert grammar.p_of(counted(masked), exact.conditional) < 1e-3, "the two are far apart"
    assert grammar.enumerate_strings(masked[:1]) is None


def test_a_look_names_the_distribution_that_the_standard_draws_from() -> None:
    standard, same, other = draw((), 192), draw((), 192, 1), draw(("conditional",), 192, 2)
    assert grammar.compare_draws(standard, same).reference == "masked token by token"
    assert grammar.compare_draws(standard, same).p > 0.01
    assert grammar.compare_draws(standard, other).p < 1e-3
    bare = [Reply({0: AnswerChoice(reply.text, "stop")}) for reply in standard]
    look = grammar.compare_draws(bare, other)
    assert look.reference is None
    assert look.p < 1e-3, "two samples are enough"


def test_a_test_of_samples_is_wrong_as_often_as_it_says() -> None:
    pairs = [(counted(draw((), 60, 2 * n)), counted(draw((), 60, 2 * n + 1))) for n in range(60)]
    alarms = sum(grammar.p_same(left, right) < 0.1 for left, right in pairs)
    assert alarms <= 13  # of 60 at 0.1: more in one of 200 such tests


def test_an_answer_outside_the_grammar_is_excluded_by_it() -> None:
    distribution = dict.fromkeys(STRINGS, 0.25)
    even = Counter(dict.fromkeys(STRINGS, 20))
    assert grammar.p_of(even, distribution) > 0.9
    assert grammar.p_of(even + Counter({"": 1}), distribution) == 0.0


# --- whose answer it is -----------------------------------------------------------------------------------


def ticket(number: int, reason: str = "stop") -> Reply:
    return Reply({0: AnswerChoice(f'{{"ticket": "T{number:03}"}}', reason)})


def call(tool: int, number: int) -> Reply:
    calls = (ToolCall(f"open_ticket_{tool}", f'{{"ticket":"T{number:03}"}}'),)
    return Reply({0: AnswerChoice("", "tool_calls", None, calls)})


def test_an_answer_says_whose_it_is() -> None:
    assert [of_schema(ticket(n)) for n in (0, 7, 47)] == [0, 7, 47]
    assert of_tool(call(3, 3)) == 3
    assert of_tool(call(3, 4)) is None
    assert structured_overlap.tickets(call(3, 4)) == {3, 4}
    for text in ("", "null", "[]", '{"ticket": 4}', '{"ticket": "T4"}', '{"ticket": "T004", "a": 1}'):
        assert of_schema(Reply({0: AnswerChoice(text, "stop")})) is None, text


def test_one_crossed_answer_is_enough_and_one_invalid_is_not() -> None:
    right = [ticket(n) for n in range(ANSWERS)]
    prose = Reply({0: AnswerChoice("Here is it", "stop")})

    def status(standard: list[Reply], speculative: list[Reply]) -> str:
        return structured_overlap.judge(standard, speculative, of_schema, ASK).status

    assert status(right, right) == "pass"
    assert status(right, [*right[:-1], ticket(3)]) == "fail"
    assert status([*right[:-1], ticket(3)], [*right[:-1], ticket(3)]) == "undecided"
    assert status(right, [*right[:-1], prose]) == "undecided"
    assert status(right, [*right[:-2], prose, prose]) == "fail"
    assert status([*right[:-1], prose], [*right[:-2], prose, prose]) == "undecided", (
        "the standard does it too"
    )
    assert status(right, [Reply({0: AnswerChoice("{", "length")})] * ANSWERS) == "undecided"


# --- acceptance -------------------------------------------------------------------------------------------


def judged(control: Sequence[float], rounds: Sequence[float], drafted: float = 300) -> str:
    measured = [[Acceptance(drafted, rate * drafted) for rate in rates] for rates in (control, rounds)]
    return acceptance.judge(measured[0], measured[1], acceptance.FALL, "with 8 at a time", ASK).status


def test_only_a_fall_that_every_round_shows_counts() -> None:
    assert judged((0.6, 0.62), (0.6, 0.59)) == "pass"
    assert judged((0.6, 0.62), (0.8, 0.7)) == "pass"
    assert judged((0.6, 0.62), (0.4, 0.41)) == "fail"
    assert judged((0.6, 0.62), (0.4, 0.6)) == "undecided"
    assert judged((0.9, 0.5), (0.45, 0.45)) == "pass", "its own repeat is as low"
    assert judged((0.6, 0.6), (0.1, 0.1), drafted=20) == "unsupported", "too few drafts"
    assert judged((0.0, 0.0), (0.0, 0.0)) == "unsupported"
    stopped = acceptance.judge([Acceptance(300, 200)] * 2, [Acceptance(0, 0)] * 2, 0.75, "later", ASK)
    assert stopped.status == "undecided"
