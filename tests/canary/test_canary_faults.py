"""On the shipped pair: nothing is wrong with it, and each seeded fault is found by the check for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty import FAULTS, Servers, found

from specops.phases.canary.checks import CHECKS, endings

LACKING = {
    "min_p": "min_p",
    "logit_bias": "logit_bias",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repetition_penalty",
    "json_object": "response_format",
    "json_schema": "response_format",
    "tools": "tools",
    "tools_stream": "tools",
    "own_schema": "response_format",
    "own_tool": "tools",
    "reasoning": "reasoning",
    "grammar": "response_format",
    "beside_schemas": "response_format",
    "cached_tokens": "cached tokens",
}
"""What the embedded engine does not have, by check: the parameter that it refuses, or what it does not
report."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_is_well_with_the_shipped_pair(servers: Servers, tmp_path: Path) -> None:
    result = servers.canary(tmp_path, samples=32, prompts=4)
    found = {check["name"]: check for check in result.data["checks"]}
    told = {name: (check["status"], check["message"]) for name, check in found.items()}
    assert list(found) == [check.name for check in CHECKS]
    assert {name for name, (status, _) in told.items() if status != "pass"} == LACKING.keys(), told
    assert all(told[name][0] == "unsupported" and LACKING[name] in told[name][1] for name in LACKING)
    assert (result.verdict, result.data["unsupported"]) == ("yes", [])
    assert all("curl" in check["request"] for check in found.values())


@pytest.mark.quick(2)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(
    fault: str, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "SETTLE_S", 1.0)  # a slot that leaked is never freed
    result = found(servers, fault, tmp_path, samples=32, prompts=6)
    check = result.data["checks"][0]
    assert (result.verdict, check["name"], check["status"]) == ("no", FAULTS[fault], "fail"), check
    assert "curl" in check["request"]


OVERLAPPING = ("cross_talk", "ignored_temperature", "stop_is_lost_in_a_batch")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("fault", OVERLAPPING)
def test_a_fault_of_overlapping_requests_is_found_each_time(
    fault: str, number: int, servers: Servers, tmp_path: Path
) -> None:
    """Of other prompts each time; and without the fault the same check passes."""
    with getattr(servers, fault)():
        result = servers.canary(tmp_path, FAULTS[fault], turned=7 * number, prompts=12)
    (check,) = result.data["checks"]
    assert (result.verdict, check["status"]) == ("no", "fail"), check
    well = servers.canary(tmp_path, FAULTS[fault], turned=7 * number, prompts=12)
    assert well.verdict == "yes", well.data["checks"]


def test_a_parameter_that_fails_is_a_rule_of_the_router(servers: Servers, tmp_path: Path) -> None:
    result = found(servers, "ignored_top_p", tmp_path)
    (entry,) = result.data["unsupported"]
    assert (entry["parameter"], entry["pool"]) == ("top_p", "speculative")
    assert entry["request"] == result.data["checks"][0]["request"]
