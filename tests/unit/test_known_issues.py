"""Known issues: each has a case that fires and a near one that stays silent; the data is whole."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from specops.config.rollout import CheckName
from specops.phases.diagnose import findings
from specops.phases.diagnose.finding import Finding
from specops.phases.diagnose.observations import Canary, CanaryCheck, DeployedSettings, Live, Observations
from specops.serving.argv import Call, Words
from specops.serving.known_issues import (
    KnownIssue,
    applying,
    flat,
    issues,
    matching,
    numbers,
    of_check,
    published,
    reference_acceptances,
    settings_of,
    with_keys,
)
from specops.serving.llamacpp import builds as llamacpp
from specops.serving.sglang import releases as sglang
from specops.serving.sglang.lint import CALL as SGLANG
from specops.serving.trtllm import releases as trtllm
from specops.serving.vllm import versions as vllm
from specops.serving.vllm.arguments import GivenCommand

CASES = yaml.safe_load(Path(__file__).with_name("known_issue_cases.yaml").read_text(encoding="utf-8"))
BY_ID = {issue.id: issue for issue in issues()}


LLAMA_SERVER = Call(mark="llama", programs=(("llama-server",),), modules=())


def settings(issue: KnownIssue, case: str | Mapping[str, Any]) -> Mapping[str, str]:
    if not isinstance(case, str):
        return flat(case)
    words = shlex.split(case)
    if issue.engine == "vllm":
        return settings_of(GivenCommand.parse(words).as_words(), GivenCommand.CALL)
    call = LLAMA_SERVER if issue.engine == "llamacpp" else SGLANG
    return settings_of(Words.parse(words), call)


def test_every_issue_has_its_cases() -> None:
    assert CASES.keys() == BY_ID.keys()
    assert len(BY_ID) == len(issues()) >= 40


OLDEST = {
    "vllm": str(vllm.OLDEST),
    "sglang": sglang.table().oldest,
    "llamacpp": str(llamacpp.table().builds[0]),
    "trtllm": str(trtllm.table().versions[0]),
}
"""The oldest release that each lint judges."""


@pytest.mark.parametrize("name", BY_ID)
def test_no_issue_is_of_releases_alone_that_are_not_judged(name: str) -> None:
    issue = BY_ID[name]
    assert issue.before is None or numbers(issue.before) > numbers(OLDEST[issue.engine])
    assert issue.status not in ("fixed", "closed") or issue.before is not None  # else it would never end
    assert issue.status != "open" or issue.before is None  # versions after the report have it too


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
    assert of_check("vllm", "0.31.0", "mixed") == []


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
    assert [one.length for one in published("MiniMaxAI/MiniMax-M3", "eagle3", 3)] == [2.83, 2.93]
    assert published("MiniMaxAI/MiniMax-M3", "eagle3", 9) == []
    assert published("Qwen/Qwen3.8-27B", "mtp", 7) == [], "the snapshot has no such row"
    assert published("deepseek-ai/DeepSeek-V4-Pro", "dspark", 3) == []
    assert all(1 < one.length <= one.k + 1 for one in reference_acceptances())


def observed(acceptance: float, **deployed: object) -> Observations:
    live = Live(source="a server", over="5m", answers=1000, drafted=1e7, acceptance=acceptance)
    pool = {"engine": "vllm", "version": "0.33", "model": "MiniMaxAI/MiniMax-M3", "method": "eagle3", "k": 3}
    return Observations(rollout="made", live=live, deployed=DeployedSettings(**(pool | deployed)))


def draft_quality(seen: Observations) -> Finding:
    return next(one for one in findings(seen) if one.id == "draft-quality")


def test_acceptance_far_below_the_published_is_a_fault_and_not_hard_traffic() -> None:
    found = draft_quality(observed(0.24))  # 1.72 tokens a step, where 2.83 are published
    assert found.severity == "cause"
    assert found.message.startswith(
        "1.7 tokens a step; published 2.83 (coding, T = 1, top_p 0.95, thinking on; InferenceX"
    )
    assert found.cause is not None
    assert "broken" in found.cause
    assert found.fix == "specops issues --engine vllm --engine-version 0.33"


@pytest.mark.parametrize(
    ("acceptance", "deployed"),
    [
        (0.58, {}),  # 2.74 tokens a step: a little harder traffic
        (0.24, {"k": 9}),  # nothing is published for this K
        (0.24, {"model": None}),
        (0.24, {"method": "mtp"}),
    ],
)
def test_otherwise_the_break_even_decides(acceptance: float, deployed: dict[str, object]) -> None:
    found = draft_quality(observed(acceptance, **deployed))
    assert found.cause is None or "broken" not in found.cause


def test_a_failed_check_of_the_canary_names_known_issues() -> None:
    checks = (CanaryCheck(name="tools", status="fail", message="arguments are empty", request=None),)
    seen = observed(0.6, version="0.28.0").model_copy(
        update={"canary": Canary(source="canary.json", checks=checks)}
    )
    found = next(one for one in findings(seen) if one.id == "requests-that-break")
    named = [one.what for one in found.evidence]
    assert "known issue vllm#56077" in named
    assert "known issue vllm#53912" not in named  # it shows in another check


LOGS = [
    one
    for one in yaml.safe_load(
        Path(__file__).with_name("public_inputs").joinpath("inputs.yaml").read_text(encoding="utf-8")
    )
    if one["kind"] == "log" and one["half"] == "developed"
]


@pytest.mark.parametrize("log", LOGS, ids=[log["id"] for log in LOGS])
def test_a_log_finds_the_issues_whose_error_it_shows(log: Mapping[str, Any]) -> None:
    assert [issue.id for issue in matching(log["text"])] == log["right"]


def test_matches_are_newest_first_and_dated() -> None:
    both = "layer input tensor is null\nLoRA is only compatible with NGRAM speculative decoding"
    assert [issue.id for issue in matching(both)] == ["sglang#34337", "llama.cpp#24541"]
    assert all(issue.reported for issue in issues() if issue.errors)
    assert matching("") == []


def test_at_least_thirty_issues_are_of_this_year() -> None:
    assert sum((issue.reported or "").startswith("2026") for issue in issues()) >= 30


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"speculative-config.num_speculative_tokens": "5"}, {"k": "5"}),
        ({"spec-draft-n-max": "3", "model": "Qwen3-Q4_K_M.gguf"}, {"k": "3", "quantisation": "q4_k_m"}),
        ({"model": "org/Qwen3.6-27B-NVFP4"}, {"quantisation": "nvfp4"}),
        ({"model": "org/Qwen3-8B", "lora-paths": "a=b"}, {"adapters": "true"}),
        ({"env.VLLM_USE_V2_MODEL_RUNNER": "1"}, {"runner": "v2"}),
        ({"model": "org/Qwen3-8B"}, {}),
    ],
)
def test_keys_are_read_from_several_settings(settings: dict[str, str], keys: dict[str, str]) -> None:
    assert with_keys(settings) == {**settings, **keys}


def test_a_device_makes_a_finding_a_note() -> None:
    issue = BY_ID["vllm#47548"]
    assert issue.finding().level == "note", "no command shows the device"
    assert "on rocm" in issue.finding().why
    assert issue.of_key("device", "rocm")
    assert not issue.of_key("device", "cuda")
    assert BY_ID["llama.cpp#25618"].of_key("k", "3")
    assert not BY_ID["llama.cpp#25618"].of_key("k", "1")
