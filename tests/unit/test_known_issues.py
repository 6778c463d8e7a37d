"""Known issues: each has a case that fires and a near one that stays silent; the data is whole."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from specops.config.canary import CheckName
from specops.serving.argv import Call, Words
from specops.serving.known_issues import (
    KnownIssue,
    applying,
    flat,
    issues,
    numbers,
    of_check,
    published,
    reference_acceptances,
    settings_of,
)
from specops.serving.sglang.command import CALL as SGLANG
from specops.serving.vllm.given import Given

CASES = yaml.safe_load(Path(__file__).with_name("known_issue_cases.yaml").read_text(encoding="utf-8"))
BY_ID = {issue.id: issue for issue in issues()}


LLAMA_SERVER = Call(mark="llama", programs=(("llama-server",),), modules=())


def settings(issue: KnownIssue, case: str | Mapping[str, Any]) -> Mapping[str, str]:
    if not isinstance(case, str):
        return flat(case)
    words = shlex.split(case)
    if issue.engine == "vllm":
        return settings_of(Given.parse(words).as_words(), Given.CALL)
    call = LLAMA_SERVER if issue.engine == "llamacpp" else SGLANG
    return settings_of(Words.parse(words), call)


def test_every_issue_has_its_cases() -> None:
    assert CASES.keys() == BY_ID.keys()
    assert len(BY_ID) == len(issues()) >= 40


@pytest.mark.parametrize("name", CASES)
def test_an_issue_fires_and_stays_silent(name: str) -> None:
    issue, case = BY_ID[name], CASES[name]
    version, command = case["fires"]
    assert issue in applying(issue.engine, version, settings(issue, command))
    version, command = case["silent"]
    assert issue not in applying(issue.engine, version, settings(issue, command))


def test_what_a_check_of_the_canary_may_be() -> None:
    checks = {issue.canary for issue in issues() if issue.canary}
    assert checks <= set(get_args(CheckName))
    assert [issue.id for issue in of_check("vllm", "0.32.0", "mixed")] == ["vllm-cpu-mixed-temperatures"]
    assert of_check("vllm", "0.33.0", "mixed") == []


def test_a_finding_says_status_source_and_workaround() -> None:
    found = BY_ID["vllm#52071"].finding()
    assert (found.level, found.flag) == ("warning", "vllm#52071")
    assert "open" in found.why
    assert "https://" in found.why
    assert found.replacement
    assert BY_ID["vllm#41838"].finding().level == "note"  # hours of uptime are not on the command line


@pytest.mark.parametrize(
    ("older", "newer"), [("0.9.1", "0.10"), ("1.2.0rc8", "1.2.1"), ("b9235", "b9236"), ("0.23", "0.23.1")]
)
def test_versions_are_ordered_by_their_numbers(older: str, newer: str) -> None:
    assert numbers(older) < numbers(newer)


def test_published_acceptance() -> None:
    assert [one.length for one in published("MiniMaxAI/MiniMax-M3", "eagle3", 3)] == [2.93]
    assert published("MiniMaxAI/MiniMax-M3", "eagle3", 4) == []
    assert all(1 < one.length <= one.k + 1 for one in reference_acceptances())
