"""`specops ab` sets a real vLLM that speculates against one that does not.

No speed is claimed of a build for CPUs, and no test here looks at one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from real_vllm import acceptance_rate, command, counted, counters, of_a_probe, specops

from specops.errors import Exit

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


def compare(prompts_file: Path, *more: str) -> tuple[int, dict[str, Any]]:
    asked = ("--prompts", prompts_file, "--endpoint", "completions", "--warmup", "0", "--timeout", "300")
    little = ("--looks", "1", "--requests", "40", "--min-duration", "0")
    done = specops(
        "ab", *asked, *little, *more, "--out", prompts_file.with_name("ab.json"), "--json", "--quiet"
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_greedy_answers_are_the_same_and_acceptance_is_what_the_counters_grew_by(
    standard: str, speculative: str, prompts: list[dict[str, Any]], prompts_file: Path
) -> None:
    servers = {"standard": standard, "speculative": speculative}
    probes = {name: of_a_probe(base_url, prompts) for name, base_url in servers.items()}
    before = {name: counters(base_url) for name, base_url in servers.items()}
    arms = [f"--arm={name}={base_url}" for name, base_url in servers.items()]
    code, result = compare(
        prompts_file, *arms, "--concurrency", "1,4", "--mixed-prompts", "0", "--same-prompts"
    )  # so that the probe drafts what it drafted before
    assert code in (Exit.YES, Exit.NO, Exit.UNDECIDED)
    equal, compared = map(int, result["summary"]["parity"].split("/"))
    assert equal == compared > 0
    for name, base_url in servers.items():
        cells = [window["cell"] for window in result["data"]["windows"] if window["arm"] == name]
        assert [row["detail"] for cell in cells for row in cell["rows"] if row["error"]] == []
        assert counted(cells) == counters(base_url) - before[name] - probes[name]
        for cell in cells:
            assert cell["server_tokens"] == sum(row["tokens"] for row in (*cell["rows"], *cell["beside"]))
    for told in result["data"]["arms"]["speculative"]:
        streams = told["level"]["concurrency"]
        grown = counted([cell for cell in cells if cell["concurrency"] == streams])
        assert told["acceptance"]["rate"] == pytest.approx(acceptance_rate(grown))


def test_sampled_requests_in_the_batch_change_greedy_answers_and_the_verdict_is_no(
    standard: str, speculative: str, prompts: list[dict[str, Any]], prompts_file: Path
) -> None:
    """In this build: its emulation of a sampling kernel is at fault. Without speculation all is well."""
    arms = [f"--arm=standard={standard}", f"--arm=speculative={speculative}"]
    code, result = compare(prompts_file, *arms, "--mixed-prompts", "12", "--requests", "120")
    assert (code, result["verdict"]) == (Exit.NO, "no")
    against = result["data"]["challengers"]["speculative"]["findings"]
    assert {"answers", "sampled answers"} & {one["claim"] for one in against if one["verdict"] == "against"}


def test_options_that_vllm_no_longer_has_end_with_its_own_words(standard: str, prompts_file: Path) -> None:
    old = command("--speculative-model", "draft", "--num-speculative-tokens", "3")
    asked = ("--prompts", prompts_file, "--endpoint", "completions", "--quiet")
    arms = (f"--arm=standard={standard}", f"--arm=old=command:{old}")
    done = specops("ab", *asked, *arms, "--out", prompts_file.with_name("ab.json"))
    assert done.returncode == Exit.ENVIRONMENT
    assert "unrecognized arguments: --speculative-model" in done.stderr
    assert "the old server ended before it was up" in done.stderr
