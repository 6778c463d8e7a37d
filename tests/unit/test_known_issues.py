"""Known issues: each has a case that fires and a near one that stays silent; the data is whole."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from specops.config.rollout import CheckName
from specops.phases.diagnose import findings
from specops.phases.diagnose.finding import DiagnosisFinding
from specops.phases.diagnose.observations import (
    CanaryCheck,
    CanaryFigures,
    DeployedSettings,
    Live,
    Observations,
)
from specops.serving.argv import CallPattern, Files, Words
from specops.serving.argv import Finding as Line
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
from specops.serving.llamacpp.lint import lint as llamacpp_lint
from specops.serving.sglang import releases as sglang
from specops.serving.sglang.lint import CALL as SGLANG
from specops.serving.sglang.lint import lint as sglang_lint
from specops.serving.trtllm import releases as trtllm
from specops.serving.trtllm.lint import lint as trtllm_lint
from specops.serving.vllm import versions as vllm
from specops.serving.vllm.arguments import ParsedCommand
from specops.serving.vllm.lint import lint as vllm_lint

CASES = yaml.safe_load(Path(__file__).with_name("known_issue_cases.yaml").read_text(encoding="utf-8"))
BY_ID = {issue.id: issue for issue in issues()}


LLAMA_SERVER = CallPattern(mark="llama", programs=(("llama-server",),), modules=())


def settings(issue: KnownIssue, case: str | Mapping[str, Any]) -> Mapping[str, str]:
    if not isinstance(case, str):
        return flat(case)
    words = shlex.split(case)
    if issue.engine == "vllm":
        return settings_of(ParsedCommand.parse(words).as_words(), ParsedCommand.CALL)
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


def draft_quality(seen: Observations) -> DiagnosisFinding:
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
        update={"canary": CanaryFigures(source="canary.json", checks=checks)}
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
    if one["kind"] == "log" and one["half"] in ("developed", "later")
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


def lint_of(issue: KnownIssue, case: str | Mapping[str, Any]) -> Callable[[Any], list[Line]]:
    """The lint of a case's command, by version."""
    words = shlex.split(case) if isinstance(case, str) else ["trtllm-serve", "m", "--config", "config.yaml"]
    match issue.engine:
        case "vllm":
            return lambda version: vllm_lint(words, version)
        case "sglang":
            return lambda version: sglang_lint(words, version)
        case "llamacpp":
            return lambda version: llamacpp_lint(words, llamacpp.table().around(version))
        case _:
            files = Files({"config.yaml": yaml.safe_dump(case)})
            return lambda version: trtllm_lint(words, trtllm.table().release(version), files)


VERSIONS: Mapping[str, Sequence[Any]] = {
    "vllm": [version for version in vllm.table().versions if version >= vllm.OLDEST],
    "sglang": sglang.table().versions,
    "llamacpp": llamacpp.table().builds,
    "trtllm": trtllm.table().versions,
}
LACKS = re.compile(r"does not have|has no |do not implement")


@pytest.mark.parametrize("name", CASES)
def test_a_page_says_nothing_twice_and_nothing_against_itself(name: str) -> None:
    """Each known issue beside all rules of the lint, for every version: what both are about is one line with
    both sources, and no issue is of a setting that the version does not have."""
    issue, case = BY_ID[name], CASES[name]["fires"][1]
    judged = lint_of(issue, case)
    for version in VERSIONS[issue.engine]:
        lines = judged(version)
        about = [line for line in lines if issue.source in line.why]
        assert len(about) <= 1, (version, about)
        if not about:
            continue
        others = [line for line in lines if line not in about]
        assert not [line for line in others if issue.is_of(line)], (version, lines)
        lacking = [line for line in others if LACKS.search(line.why) and line.level == "error"]
        named = (line.flag.lstrip("-") for line in lacking)
        absent = {part for flag in named for part in (flag.replace(" ", "."), flag.partition(" ")[0])}
        assert absent.isdisjoint(issue.when.keys() - {"speculative-config"}), (version, lines)


def test_one_line_has_the_lints_words_and_the_issues_source() -> None:
    command = CASES["sglang#34361"]["fires"][1]
    lines = [
        line for line in sglang_lint(shlex.split(command), "0.5.18") if "topk" in f"{line.flag} {line.why}"
    ]
    assert len(lines) == 1
    assert lines[0].level == "error"
    assert "takes all of" in lines[0].why
    assert "https://github.com/sgl-project/sglang/pull/34361" in lines[0].why
    assert lines[0].replacement == "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4, a chain"


def test_a_workaround_is_written_with_a_flags_new_name() -> None:
    command = CASES["sglang#30437"]["fires"][1]
    lines = [line for line in sglang_lint(shlex.split(command), "0.5.14") if "mamba" in line.flag]
    assert [line.replacement for line in lines] == ["--mamba-radix-cache-strategy extra_buffer"]


def test_another_flag_is_another_line() -> None:
    """An issue of what is served is none of a finding about how."""
    words = shlex.split("python -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3")
    lines = sglang_lint(words, "0.5.20")
    assert [line for line in lines if line.flag == "--speculative-draft-model-path"]
    about_the_flag = "sglang#36528"  # what happens without this flag, on releases that do not refuse it
    joined = [line.why for line in lines if "known issue" in line.why and "#" not in line.flag]
    assert all(about_the_flag.partition("#")[2] in why for why in joined)
