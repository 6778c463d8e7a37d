"""`specops predict`: what a log says, what it cannot say, and that a speed-up is never invented."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import specops
from hypothesis import given
from hypothesis import strategies as st
from made_predictions import ENTRIES, OWN, PAIR, costs_at, log_of, predicted, rollout_of
from made_windows import cell, row

from specops.errors import PromptsError
from specops.load.arrivals import Level
from specops.load.workload import Prompt, PromptSet, load_prompts
from specops.phases.predict.acceptance import count_steps, pooled, ratio_interval
from specops.phases.predict.batching import RequestWork, Server
from specops.phases.predict.costs import fit
from specops.phases.predict.log import read_log
from specops.results import Result, write
from specops.serving import pool_of

VLLM = {"engine": "vllm", "model": str(PAIR / "target"), "version": "0.33.0"}
LOOKUP = {"method": "ngram", "num_speculative_tokens": 3}
SIZES = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
CHAT = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "1 2 3"}]


def response(text: str, **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "choices": [{"message": message, "finish_reason": "stop"} | choice],
        "usage": {"completion_tokens": 4},
    }


@pytest.mark.parametrize(
    ("entry", "prompt", "text", "temperature"),
    [
        ({"messages": CHAT, "temperature": 0}, (CHAT[0],), "1 2 3", 0.0),
        (
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
            ({"role": "user", "content": "Hi"},),
            "Hello",
            None,
        ),
        (
            {"body": {"messages": CHAT[:1], "temperature": 0.7}, "response": {"body": response("1 2 3")}},
            (CHAT[0],),
            "1 2 3",
            0.7,
        ),
        ({"request": {"prompt": "Say"}, "response": {"choices": [{"text": " so"}]}}, "Say", " so", None),
        ({"custom_id": "a", "response": {"status_code": 200, "body": response("so")}}, "asked", "so", None),
        ({"prompt": [5, 6], "completion": "x", "token_ids": [7]}, (5, 6), "x", None),
        ({"messages": CHAT[:1], "response": "so"}, (CHAT[0],), "so", None),
    ],
)  # fmt: skip
def test_a_format_is_read(entry, prompt, text, temperature, tmp_path: Path) -> None:
    prompts = PromptSet((Prompt("a", "all", "asked"),), "prompts", "playbook", "0")
    if prompt == "asked":  # a chat answer to a prompt of text
        prompt = ({"role": "user", "content": "asked"},)
    (answer,) = read_log(log_of(tmp_path, entry), prompts, None).answers
    assert (answer.prompt, answer.text, answer.temperature) == (prompt, text, temperature)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"custom_id": "b", "response": {"status_code": 500, "body": {}}}, "the request failed"),
        ({"custom_id": "b", "response": {"body": response("so")}}, "give the prompts as --prompts"),
        ({"body": {"messages": CHAT[:1]}, "response": {"body": response("")}}, "no text"),
        ({"body": {"messages": CHAT[:1], "tools": [{}]}, "response": response("x")}, "has tools"),
        ({"body": {"messages": CHAT[:1]}, "response": {"choices": ["x"], "usage": []}}, "no choices"),
        ({"messages": [*CHAT, CHAT[0]]}, "an earlier turn of a conversation again"),
        (
            {"messages": [CHAT[0], {"role": "assistant", "tool_calls": [{}]}]},
            "tool calls and reasoning are not",
        ),
        ({"messages": [CHAT[0], CHAT[1] | {"reasoning": "so"}]}, "reasoning are not predicted"),
        ({"messages": [{"role": "user", "content": "Hi"}, CHAT[1]], "tools": [{}]}, "has tools"),
        ({"messages": CHAT[:1]}, "no answer"),
        ({"conversations": [{"from": "bing", "value": "x"}]}, "unknown role"),
        ({"text": "alone"}, "unknown format"),
        (["a", "list"], "not an object"),
    ],
)
def test_an_entry_without_a_usable_answer_is_counted(entry, reason: str, tmp_path: Path) -> None:
    log = read_log(log_of(tmp_path, {"messages": CHAT}, entry), None, None)
    (counted,) = log.left_out
    assert reason in counted
    assert len(log.answers) == 1


def test_a_log_without_answers_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(
        PromptsError, match=r"no answer to predict from: the conversation has no answer \(1\)"
    ):
        read_log(log_of(tmp_path, {"messages": CHAT[:1]}), None, None)


def test_an_answer_of_a_batch_follows_the_whole_request(tmp_path: Path) -> None:
    messages = [*CHAT, {"role": "user", "content": "More\u2028of it."}]
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps({"custom_id": "a", "body": {"messages": messages}}, ensure_ascii=False) + "\n")
    answered = {"custom_id": "a", "response": {"status_code": 200, "body": response("4")}}
    (answer,) = read_log(log_of(tmp_path, answered), load_prompts(path), None).answers
    assert answer.prompt == tuple(messages)


def test_every_turn_of_a_conversation_is_an_answer_of_one_cluster(tmp_path: Path) -> None:
    log = read_log(log_of(tmp_path, {"messages": [*CHAT, *CHAT], "id": "c"}), None, 0.0)
    assert [len(answer.prompt) for answer in log.answers] == [1, 3]
    assert {answer.conversation for answer in log.answers} == {"c"}
    assert {answer.temperature for answer in log.answers} == {0.0}


def test_measured_answers_are_read_with_the_prompts_that_were_sent(tmp_path: Path) -> None:
    """A greedy answer to the same request counts once, and other prompts are refused."""
    rows = [
        row(name, "all", 100.0, variant=variant) for name, variant in (("a", "1"), ("a", "1"), ("a", "2"))
    ]
    result = Result(
        phase="baseline",
        verdict="yes",
        reason="measured",
        settings={"endpoint": "completions"},
        data={
            "cells": [cell(rows, Level(concurrency=1), 0).model_dump(mode="json", by_alias=True)],
            "run": "r",
            "prompts": {"sha256": "0"},
        },
    )
    path = tmp_path / "baseline.json"
    write(path, result)
    prompts = PromptSet((Prompt("a", "all", "text"),), "prompts", "playbook", "0")
    log = read_log(path, prompts, None)
    sent = [Prompt("a", "all", "text").fresh("r", variant).content for variant in ("1", "2")]
    assert [answer.prompt for answer in log.answers] == sent
    assert [answer.text for answer in log.answers] == ["answer to a"] * 2
    assert {answer.conversation for answer in log.answers} == {"a"}
    assert log.left_out == {"a greedy answer to the same request again": 1}
    with pytest.raises(PromptsError, match="answers to other prompts"):
        read_log(path, replace(prompts, sha256="1"), None)


TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=24)


@given(TOKENS, TOKENS, st.integers(1, 2), st.integers(2, 4), st.integers(1, 5))
def test_a_lookup_is_the_earliest_place_of_the_longest_ngram(
    prompt, written, shortest, longest, most
) -> None:
    """By the plain rule, place by place."""
    keys = {"prompt_lookup_min": shortest, "prompt_lookup_max": longest}
    pool = pool_of(VLLM | {"speculation": LOOKUP | keys})
    drafts = pool.copied_drafts(prompt, written, most)
    assert drafts is not None
    assert drafts.opens_bare
    for index in range(len(written)):
        text = [*prompt, *written[:index]]
        draft: list[int] = []
        for n in range(min(longest, len(text)), shortest - 1, -1):
            starts = [i for i in range(len(text) - n) if text[i : i + n] == text[-n:]]
            if starts:
                draft = text[starts[0] + n :][:most]
                break
        right = 0
        while right < min(len(draft), len(written) - index) and draft[right] == written[index + right]:
            right += 1
        assert (drafts.drafted[index], drafts.accepted[index]) == (len(draft), right)


@pytest.mark.parametrize(
    "speculation",
    [LOOKUP, LOOKUP | {"prompt_lookup_max": 4}, {"method": "suffix", "num_speculative_tokens": 3}],
)
def test_a_rule_that_is_not_fully_known_drafts_nothing(speculation) -> None:
    assert pool_of(VLLM | {"speculation": speculation}).copied_drafts([1], [1], 1) is None


def test_counts_are_pooled_by_tokens_and_positions() -> None:
    one = count_steps("a", "all", 5, 6, [(0, 0), (3, 2), (2, 0), (0, 0)])
    two = count_steps("b", "all", 5, 2, [(4, 2)])  # ends within its draft: no token of the target's own
    acceptance = pooled([one, two])
    assert (acceptance.tokens, acceptance.steps, acceptance.tokens_per_step) == (8, 5, 1.6)
    assert (acceptance.draft_steps, acceptance.drafted, acceptance.accepted) == (3, 9, 4)
    assert acceptance.per_position == [round(2 / 3, 4), round(2 / 3, 4)]
    assert (one.beyond_end, two.beyond_end) == (0, 2)
    assert acceptance.interval is None, "two conversations are too few"


def test_an_interval_is_over_conversations() -> None:
    """Ten answers of one conversation are no ten answers."""
    chance = np.random.default_rng(1)
    tokens, steps = chance.integers(50, 150, 40).astype(float), np.full(40, 50.0)
    wide = ratio_interval(tokens, steps)
    assert wide is not None
    assert wide.estimate == pytest.approx(tokens.sum() / 2000)
    assert wide.low < wide.estimate < wide.high
    theory = 2 * 1.96 * tokens.std() / 50 / np.sqrt(40)
    assert wide.high - wide.low == pytest.approx(theory, rel=0.15)
    assert ratio_interval(tokens[:7], steps[:7]) is None


STEP, DRAFT, TOKEN = 10.0, 2.0, 0.5
POOLS = {
    "standard": pool_of({"engine": "embedded"}),
    "ngram:4": pool_of({"engine": "embedded", "speculation": {"tree": "ngram:4"}}),
}


def measured(arm: str, streams: int, *, reported: bool = True) -> Any:
    """A cell whose requests cost exactly STEP a step, DRAFT more with a draft, and TOKEN a drafted token."""
    chance = np.random.default_rng(streams)
    rows = []
    for number in range(20):
        tokens = int(chance.integers(20, 60))
        accepted, drafted, draft_steps = (
            (0, 0, 0) if arm == "standard" else (tokens // 2, tokens, tokens // 4)
        )
        steps = tokens - accepted
        share = (steps - 1) / steps
        decode = streams * (STEP * (steps - 1) + DRAFT * draft_steps * share + TOKEN * drafted * share)
        drafts = {"drafted": drafted, "accepted": accepted, "draft_steps": draft_steps}
        rows.append(
            row(
                f"p{number}", "all", decode + 20,
                ttft_ms=20.0, tpot_ms=decode / (tokens - 1), tokens=tokens, prompt_tokens=100,
                **(drafts if arm != "standard" and reported else {}),
            )
        )  # fmt: skip
    return POOLS[arm], cell(rows, Level(concurrency=streams), 0)


def test_the_costs_of_steps_are_recovered() -> None:
    costs = fit([measured(arm, streams) for arm in POOLS for streams in (1, 4)], "made")
    assert costs is not None
    assert set(costs.by_kind) == {"standard", "ngram"}
    for streams, level in zip((1, 4), costs.by_kind["ngram"], strict=True):
        assert (level.streams, level.largest_k) == (streams, 4)
        assert (level.step_ms, level.draft_ms, level.token_ms) == pytest.approx(
            (streams * STEP, streams * DRAFT, streams * TOKEN), rel=0.02
        )
        assert level.first_ms == pytest.approx(20)


def test_costs_of_drafts_that_nobody_counted_are_unknown() -> None:
    """Neither the answers nor the counters say what was drafted."""
    assert fit([measured("standard", 1), measured("ngram:4", 1, reported=False)], "made") is None
    assert fit([measured("ngram:4", 1)], "made") is None
    assert fit([measured("standard", 1)], "made") is None


def work(steps: int, number: int) -> RequestWork:
    return RequestWork.of_counts(
        [count_steps(str(i), "all", 5, steps, [(0, 0)] * steps) for i in range(number)]
    )


def test_requests_share_a_server_as_their_levels_were_measured() -> None:
    server = Server([costs_at(1, 1.0), costs_at(2, 3.0)], work(11, 2))
    lone = server.serve([0, 1], [0.0, 1000.0])
    assert lone.e2e_ms == pytest.approx([20, 20])
    both = server.serve([0, 1], [0.0, 0.0])
    assert both.e2e_ms == pytest.approx([40, 40])
    assert both.ttft_ms == pytest.approx([10, 10])
    waiting = server.serve([0, 1, 0], [0.0, 0.0, 0.0])  # two run, the third waits for a stream
    assert waiting.e2e_ms == pytest.approx([40, 40, 60])
    assert waiting.ttft_ms[2] == pytest.approx(50)


def test_capacity_is_at_the_objective_and_never_beyond_a_full_server() -> None:
    server = Server([costs_at(1, 1.0), costs_at(4, 1.0)], work(11, 3))
    full = 4 * 1000 / 20
    assert 0.9 * full < server.capacity({"e2e_ms": 1e9}, seed=0) <= full
    strict = server.capacity({"e2e_ms": 21.0}, seed=0)
    assert 0 < strict < server.capacity({"e2e_ms": 60.0}, seed=0) <= full
    assert server.capacity({"e2e_ms": 19.0}, seed=0) == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize(
    ("speculation", "pool", "settings"),
    [
        ({"tree": "ngram:4"}, OWN, {"ngram:2", "ngram:4", "suffix:2", "suffix:4"}),
        (LOOKUP | SIZES, VLLM, {"k=2", "k=4"}),
    ],
)
def test_a_log_alone_gives_acceptance_and_no_speedup(speculation, pool, settings, tmp_path: Path) -> None:
    file, log = rollout_of(tmp_path, speculation, pool), log_of(tmp_path, *ENTRIES)
    done = specops("predict", str(file), "--log", str(log), "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "yes")
    data = result["data"]
    assert {entry["setting"] for entry in data["settings"]} == settings
    assert all(entry["overall"]["tokens_per_step"] > 1.2 for entry in data["settings"])
    assert all(set(entry["by_class"]) == {"odd", "even"} for entry in data["settings"])
    assert (data["log"]["greedy"], data["log"]["sampled"], data["log"]["verified"]) == (9, 1, 0)
    assert not any(entry["exact"] for entry in data["settings"]), "an answer is sampled, none is verified"
    assert (data["speedups"], data["capacity"], data["costs"]) == ([], [], None)
    assert result["summary"]["speedup"] is None
    page = specops("predict", str(file), "--log", str(log))
    assert "Acceptance only, no speed-up" in page.stdout
    assert "1 of 10 answers are sampled" in page.stdout
    assert "×" not in page.stdout


@pytest.mark.parametrize(
    ("speculation", "pool", "reason"),
    [
        (LOOKUP | SIZES, VLLM | {"model": "org/model"}, "tokenizer is not known: org/model is not a folder"),
        (LOOKUP, VLLM, "does not follow from the text by a rule that is fully known"),
        ({"method": "suffix", "num_speculative_tokens": 3}, VLLM, "vllm with method suffix drafts"),
    ],
)
def test_what_cannot_be_known_is_undecided(speculation, pool, reason: str, tmp_path: Path) -> None:
    file, log = rollout_of(tmp_path, speculation, pool), log_of(tmp_path, *ENTRIES)
    done = specops("predict", str(file), "--log", str(log))
    assert done.returncode == 4
    assert reason in " ".join(done.stdout.split())


def test_an_answer_that_was_cut_otherwise_is_left_out(tmp_path: Path) -> None:
    """Its tokens are not those of the encoded text, so nothing of it is known."""
    wrong = ENTRIES[0] | {"id": "wrong", "tokens": 3, "temperature": 0}
    file = rollout_of(tmp_path, LOOKUP | SIZES, VLLM)
    done = specops("predict", str(file), "--log", str(log_of(tmp_path, *ENTRIES[:9], wrong)), "--json")
    facts = json.loads(done.stdout)["data"]["log"]
    assert facts["answers"] == 9
    assert list(facts["left_out"].values()) == [1]


def test_an_answer_to_another_prompt_than_the_logged_is_left_out(tmp_path: Path) -> None:
    """Such as one with tools or a system prompt that the log does not have."""
    wrong = ENTRIES[0] | {"id": "wrong", "prompt_tokens": 999}
    file = rollout_of(tmp_path, LOOKUP | SIZES, VLLM)
    done = specops("predict", str(file), "--log", str(log_of(tmp_path, *ENTRIES[1:], wrong)), "--json")
    facts = json.loads(done.stdout)["data"]["log"]
    assert facts["left_out"] == {"the server read another prompt than the one that is logged": 1}


def test_exact_is_greedy_and_verified(tmp_path: Path) -> None:
    ids = {
        "prompt": [5, 6, 7],
        "token_ids": [5, 6, 7, 5, 6, 7, 5],
        "finish_reason": "length",
        "temperature": 0,
    }
    file = rollout_of(tmp_path, {"tree": "ngram:4"}, OWN)
    done = specops("predict", str(file), "--log", str(log_of(tmp_path, *(ENTRIES[0] | ids,))), "--json")
    exact = {entry["setting"]: entry["exact"] for entry in json.loads(done.stdout)["data"]["settings"]}
    assert exact == {"ngram:2": True, "ngram:4": True, "suffix:2": False, "suffix:4": False}


def test_a_speedup_is_the_time_of_steps_over_the_same_answers() -> None:
    data = predicted().data
    speedups = {(entry["setting"], entry["streams"]): entry for entry in data["speedups"]}
    assert set(speedups) == {("ngram:2", 1), ("ngram:2", 2)}, "4 tokens and suffix trees have no costs"
    overall = next(entry["overall"] for entry in data["settings"] if entry["setting"] == "ngram:2")
    answers, tokens, steps = overall["answers"], overall["tokens"], overall["steps"]
    before, after = (10 * answers + 10 * (number - answers) for number in (tokens, steps))
    lone = speedups["ngram:2", 1]
    assert lone["estimate"] == pytest.approx(before / after, abs=1e-4)
    assert lone["requests_per_s"] == pytest.approx(1000 * answers / after, abs=1e-3)
    assert lone["e2e"]["estimate"] == pytest.approx(lone["estimate"], abs=1e-4)
    missing = {entry["setting"]: entry["why"] for entry in data["not_predicted"]}
    assert missing == {
        "ngram:4": "its speed-up: costs of ngram are measured up to 2 drafted tokens",
        "suffix:2": "its speed-up: no costs of suffix were measured",
        "suffix:4": "its speed-up: no costs of suffix were measured",
    }
    standard, drafted = data["capacity"]
    assert (standard["setting"], drafted["setting"]) == ("standard", "ngram:2")
    assert drafted["ratio"] == pytest.approx(drafted["requests_per_s"] / standard["requests_per_s"], abs=1e-3)
    assert drafted["ratio"] > 1


@pytest.mark.parametrize(("context", "why"), [(500.0, "at 500 tokens of context"), (None, "is not known")])
def test_costs_of_another_context_give_no_speedup(context, why: str) -> None:
    result = predicted(context)
    assert result.data["speedups"] == []
    assert result.summary["speedup"] is None
    assert why in result.data["costs_missing"]
    assert "no speed-up" in result.reason
