"""`specops baseline` asks a real vLLM, and agrees with what that says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from real_vllm import MODEL, acceptance_rate, complete, counted, counters, of_a_probe, specops
from reported_drafts import CLOSE, counted_and_reported

from specops.errors import Exit

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

Prompts = list[dict[str, Any]]


def baseline(base_url: str, prompts_file: Path) -> dict[str, Any]:
    asked = ("--base-url", base_url, "--endpoint", "completions", "--prompts", prompts_file)
    load = ("--concurrency", "1,4", "--repeats", "1", "--warmup", "0", "--same-prompts")
    out = prompts_file.with_name("baseline.json")
    done = specops("baseline", *asked, *load, "--out", out, "--json", "--quiet")
    assert done.returncode in (Exit.YES, Exit.UNDECIDED), done.stderr  # beside other tests it is not steady
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_without_speculation_tokens_are_those_of_usage(
    standard: str, prompts: Prompts, prompts_file: Path
) -> None:
    result = baseline(standard, prompts_file)
    answers = {p["id"]: complete(standard, p["text"], p["max_tokens"]) for p in prompts}
    for cell in result["data"]["cells"]:
        assert {row["tokens_from"] for row in cell["rows"]} == {"usage"}
        assert {row["prompt"]: (row["text"], row["tokens"]) for row in cell["rows"]} == answers
        assert cell["tokens"] == cell["server_tokens"] == sum(tokens for _, tokens in answers.values())
    assert result["environment"]["server"] == "0.32.0"
    assert result["data"]["acceptance"] is None
    assert all(cell["verified"] == 0 for cell in result["data"]["cells"]), "surely it does not speculate"


def test_acceptance_is_what_the_counters_grew_by(
    speculative: str, prompts: Prompts, prompts_file: Path
) -> None:
    probe = of_a_probe(speculative, prompts)
    before = counters(speculative)
    result = baseline(speculative, prompts_file)
    grown = counters(speculative) - before - probe
    cells = result["data"]["cells"]
    assert counted(cells) == grown
    assert grown["generation_tokens_total"] == sum(row["tokens"] for cell in cells for row in cell["rows"])
    rate = acceptance_rate(grown)
    assert 0 < rate < 1
    assert result["data"]["acceptance"]["rate"] == pytest.approx(rate)


def test_pooled_answers_equal_the_counters(reporting: str, prompts: Prompts, prompts_file: Path) -> None:
    for counts, answers in counted_and_reported(reporting, MODEL, prompts_file):
        assert (answers.requests, answers.silent) == (len(prompts), 0)
        assert answers.drafted == pytest.approx(counts.draft_tokens, rel=CLOSE)
        assert answers.accepted == pytest.approx(counts.accepted_tokens, rel=CLOSE)
        assert answers.steps == pytest.approx(counts.drafts, rel=CLOSE)
        assert 0 < answers.accepted < answers.drafted
