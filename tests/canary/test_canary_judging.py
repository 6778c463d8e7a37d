"""What is made of answers, however they look: replies are read, pools held against each other. Pure."""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.access import Access
from specops.experiment.answers import Difference
from specops.load.settings import Endpoint
from specops.phases import canary
from specops.phases.canary.checks import CHECKS, distribution, endings, parity, sampling, structured_output
from specops.phases.canary.checks.overlap import belongs_to_another
from specops.phases.canary.client import (
    COMPLETIONS,
    AnswerChoice,
    CanaryRequest,
    Reply,
    Token,
    ToolCall,
    Usage,
    curl_of,
    streamed,
    whole,
)
from specops.phases.canary.pool_pair import ConformanceFinding, PoolOutcome, held
from specops.phases.canary.two_samples import SampledAnswer, same_share

ASK = CanaryRequest(COMPLETIONS, {"model": "m", "prompt": "it's", "max_tokens": 8})


def completion(text: str, reason: str = "length", tokens: int = 8, told: int | None = None) -> Reply:
    listed = tuple(Token("t", -0.1, (-0.1,)) for _ in range(told)) if told is not None else None
    return Reply({0: AnswerChoice(text, reason, listed)}, Usage(3, tokens, 3 + tokens))


def chunk(text: str | None = None, reason: str | None = None, index: int = 0, **delta: Any) -> str:
    content = {"content": text} if text is not None else {}
    return json.dumps({"choices": [{"index": index, "delta": content | delta, "finish_reason": reason}]})


@given(st.text(max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_a_stream_reads_as_the_whole_answer(text: str, cuts: list[int]) -> None:
    bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[a:b] for a, b in pairwise(bounds)]
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    last = json.dumps({"choices": [], "usage": usage})
    stream = streamed([*map(chunk, parts), chunk(reason="stop"), last, "[DONE]"])
    message = {"content": text}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    assert stream == whole(body)
    assert stream.text == text


def test_a_tool_s_arguments_are_put_together_from_a_stream() -> None:
    def part(**function: str) -> str:
        return chunk(tool_calls=[{"index": 0, "function": function}])

    events = [
        part(name="send", arguments=""),
        part(arguments='{"a":'),
        part(arguments="1}"),
        chunk(reason="stop"),
    ]
    assert streamed(events).first.calls == (ToolCall("send", '{"a":1}'),)


KEYS = ("choices", "usage", "index", "message", "logprobs", "text", "content", "delta", "tool_calls")
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
NONSENSE = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
)


@given(NONSENSE)
def test_nonsense_is_a_failure_and_not_an_error(value: Any) -> None:
    for reply in (whole(value), streamed([json.dumps(value), "[DONE]"]), whole({"choices": [value]})):
        assert isinstance(reply, Reply)
    assert streamed(["no json"]).failure is not None
    assert streamed([chunk("cut")]).failure is not None


STATES = ("ok", "refused", "ignored", "wrong", "unsure")


def test_the_standard_decides_what_the_speculative_pool_is_held_to() -> None:
    found = {
        (one, other): held(PoolOutcome(one, "s"), PoolOutcome(other, "t"), "well").status  # type: ignore[arg-type]
        for one, other in product(STATES, STATES)
    }
    assert {pair for pair, status in found.items() if status == "pass"} == {("ok", "ok")}
    assert {pair for pair, status in found.items() if status == "fail"} == {
        ("ok", "wrong"),
        ("ok", "ignored"),
        ("refused", "wrong"),
        ("ignored", "wrong"),
    }
    assert {
        other for (one, other), status in found.items() if one == "wrong" and status != "undecided"
    } == set()
    assert found["ok", "refused"] == "differs" == found["refused", "ok"]
    assert found["refused", "refused"] == "unsupported" == found["ignored", "ignored"]


def witness(margin: float | None) -> Difference:
    return Difference(prompt="p0", variant="", character=3, standard="a", challenger="b", margin=margin)


def compared(
    pools: tuple[Difference, ...], control: tuple[Difference, ...] = (), of: int = 12
) -> parity.Parity:
    prompts = frozenset(f"p{i}" for i in range(of))
    return parity.Parity(parity.Matches(prompts, pools), parity.Matches(prompts, control))


@pytest.mark.parametrize(
    ("first", "again", "status"),
    [
        (compared(()), compared(()), "pass"),
        (compared((witness(2.0),)), compared((witness(2.0),)), "fail"),
        (compared((witness(0.1),)), compared((witness(0.1),)), "pass"),
        (compared((witness(2.0),)), compared(()), "undecided"),
        (compared((witness(None),)), compared((witness(None),)), "undecided"),
        (compared((witness(2.0),), (witness(2.0),)), compared((witness(2.0),)), "undecided"),
        (compared((), of=11), compared(()), "undecided"),
    ],
)
def test_parity_fails_where_it_differs_surely_and_again(
    first: parity.Parity, again: parity.Parity, status: str
) -> None:
    assert parity.verdict(first, again, 12)[0] == status


def test_a_stop_string_that_is_passed_leaked_or_ended_by_something_else() -> None:
    plain = completion("alpha beta gamma delta")
    stop = endings.stop_string(plain.text)
    assert stop is not None
    right = plain.text[: plain.text.find(stop)]
    states = {
        text: (side.state if (side := endings.stopped(completion(text, reason), plain, stop, ASK)) else None)
        for text, reason in [
            (right, "stop"),
            (right + stop, "stop"),
            (plain.text, "length"),
            (right[:-1], "stop"),
        ]
    }
    assert list(states.values()) == [None, "wrong", "ignored", "wrong"]
    side = endings.stopped(completion(right, "length"), plain, stop, ASK)
    assert side is not None
    assert "finish_reason" in side.message


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (completion("x"), None),
        (completion("x", "stop", 5), None),
        (completion("x", tokens=9), "wrong"),
        (completion("x", "stop", 5, told=6), "wrong"),
        (Reply({0: AnswerChoice("x", "length")}), "ignored"),
        (Reply({0: AnswerChoice("x", "length")}, Usage(3, 8, 12)), "wrong"),
    ],
)
def test_counted_tokens(reply: Reply, state: str | None) -> None:
    side = endings.miscounted(reply, ASK)
    assert (side.state if side else None) == state


def test_log_probabilities_by_themselves() -> None:
    def side(*tokens: Token, counted: int = 1) -> str:
        return sampling.sound(
            Reply({0: AnswerChoice("x", "length", tokens)}, Usage(1, counted, 1)), ASK
        ).state

    assert side(Token("x", -0.5, (-0.5, -2.0))) == "ok"
    assert side(Token("x", -3.0, (-0.5, -2.0))) == "wrong", "no greedy token"
    assert side(Token("x", 0.5)) == "wrong"
    assert side(Token("x", -0.5), counted=2) == "wrong"
    assert sampling.sound(completion("x"), ASK).state == "ignored"
    # As llama.cpp answers: of tokens that were drafted, a logprob of 0 and no others beside it.
    assert side(Token("a", -0.5, (-0.5, -2.0)), Token("b", 0.0), counted=2) == "wrong"
    assert side(Token("a", -0.5), Token("b", -1.0), counted=2) == "ok", "a server that tells none at all"
    assert sampling.logprob_distances(
        [Token("a", -1.0), Token("b", -1.0)], [Token("a", -1.5), Token("c", -9.0)]
    ) == [0.5]


def test_answers_without_all_log_probabilities_are_compared_by_their_text_alone() -> None:
    whole = Token("a", -0.5, (-0.5, -2.0))
    both = Reply({0: AnswerChoice("ab", "length", (whole, whole))})
    drafted = Reply({0: AnswerChoice("ab", "length", (whole, Token("b", 0.0)))})
    assert distribution._drawn(both).surprise is not None
    assert distribution._drawn(drafted) == SampledAnswer("ab")


def test_a_penalty_that_is_ignored_by_one_pool() -> None:
    plain, changed = [completion("a")] * 6, [completion("b")] * 6

    def states(*replies: list[Reply]) -> tuple[str, str]:
        standard, speculative = sampling.judge("presence_penalty", *replies)
        return standard.state, speculative.state

    assert states(plain, changed, changed, changed) == ("ok", "ok")
    assert states(plain, changed, changed, plain) == ("ok", "ignored")
    assert states(plain, changed, changed, [completion("c")] * 6) == ("ok", "wrong")
    assert states(plain, plain, plain, plain)[0] == "ignored"
    assert states(plain, changed, plain, changed)[0] == "unsure"


def test_json_and_calls_by_their_schema() -> None:
    assert structured_output.fits('{"size": "small", "ready": true}')
    assert not structured_output.fits('{"size": "small", "ready": 1}')
    assert not structured_output.fits('{"size": "small"}')
    cut = Reply({0: AnswerChoice('{"size": "sm', "length")})
    assert structured_output.begun(cut)
    assert not structured_output.begun(Reply({0: AnswerChoice("a parcel", "length")}))
    good = Reply(
        {0: AnswerChoice("", "stop", None, (ToolCall("send_parcel", '{"size":"large","ready":false}'),))}
    )
    assert structured_output.called(good, ASK) is None
    torn = Reply({0: AnswerChoice("", "stop", None, (ToolCall("send_parcel", '{"size":"lar'),))})
    assert (side := structured_output.called(torn, ASK)) is not None
    assert side.state == "wrong"


def test_a_request_is_pasted_as_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "secret")
    credentials = Access(api_key_env="GATEWAY_KEY").credentials()
    endpoint = Endpoint("http://127.0.0.1:1/v1", "m", credentials=credentials)
    text = curl_of(ASK, endpoint, str, [ASK])
    assert "secret" not in text
    assert text.count("Bearer $GATEWAY_KEY") == 2
    assert text.count("curl") == 2
    script = "curl() { printf '%s\\n' \"$@\"; }\n" + curl_of(ASK, endpoint, str)
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1]) == ASK.body
    assert "http://127.0.0.1:1/v1/completions" in ran.stdout


def test_what_the_router_is_told() -> None:
    def finding(name: Any, status: Any, told_of: str = "speculative") -> ConformanceFinding:
        told = {"standard": "", "speculative": "", told_of: "it refused"}
        return ConformanceFinding(
            name=name, status=status, message="t", request="curl", parameter=name, **told
        )

    checks = [
        finding("tools", "fail"),
        finding("min_p", "differs"),
        finding("seed", "unsupported"),
        finding("n", "differs", "standard"),
    ]
    found = {(one.parameter, one.pool) for one in canary.unsupported(checks)}
    assert found == {("tools", "speculative"), ("min_p", "speculative"), ("n", "standard")}
    assert canary.judged(checks)[0] == "no"
    assert canary.judged([*checks[1:], finding("stop", "pass")])[0] == "yes"
    assert canary.judged([*checks[1:], finding("stop", "undecided")])[0] == "undecided"
    assert canary.judged(checks[1:])[0] == "undecided"  # nothing tells


def test_every_check_of_the_rollout_file_is_made() -> None:
    from typing import get_args

    from specops.config.rollout import CheckName

    assert {check.name for check in CHECKS} == set(get_args(CheckName))
    assert len(CHECKS) == len(get_args(CheckName))


@pytest.mark.parametrize(
    ("other", "possible"),
    [
        (" red car", True),  # the runner-up
        (" r", True),  # cut off within it
        ("", True),  # it ended: no text says so
        (" green car", False),  # the third, far less likely
        ("Paris is", False),  # another prompt's answer
    ],
)
def test_a_near_tie_explains_only_what_the_standard_could_write(other: str, possible: bool) -> None:
    tokens = [
        Token("The", -0.1, (-0.1, -9.0), ("The", "A")),
        Token(" blue", -0.7, (-0.7, -0.71, -4.0), (" blue", " red", " green")),
    ]
    assert parity.could_write(tokens, 3, other) is possible


def test_without_the_texts_of_likely_tokens_a_near_tie_is_believed() -> None:
    assert parity.could_write([Token("a", -0.7, (-0.7, -0.71))], 0, "b")


def test_an_answer_that_is_another_prompt_s_is_found_and_a_late_difference_is_none() -> None:
    answers = {
        "a": frozenset({"The capital of France is Paris."}),
        "b": frozenset({"def sort(numbers): return sorted(numbers)"}),
    }
    assert belongs_to_another("a", "def sort(numbers): return", answers) == "b"
    assert belongs_to_another("a", "The capital of France, which is", answers) is None
    assert belongs_to_another("a", "something quite different from all", answers) is None
    assert belongs_to_another("b", "The", answers) is None  # too short to say


@given(st.integers(0, 30), st.integers(0, 30))
def test_shares_that_are_alike_are_not_told_apart(first: int, second: int) -> None:
    p = same_share(first, 30, second, 30)
    assert 0 < p <= 1
    assert p == pytest.approx(same_share(second, 30, first, 30))
    assert p == pytest.approx(same_share(30 - first, 30, 30 - second, 30))
    if first == second:
        assert p == pytest.approx(1)
    if abs(first - second) > 20:
        assert p < 1e-4
