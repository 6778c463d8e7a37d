"""SGLang: settings -> words, held against the flags of its released source."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specops.launch.command_files import command_of, judge
from specops.serving import issues
from specops.serving.sglang import pool as sglang
from specops.serving.sglang.lint import lint
from specops.serving.sglang.pool import SglangPool
from specops.serving.sglang.releases import table
from specops.serving.sglang.settings import SglangSpeculation

ISSUES = {issue.id for issue in issues()}
"""Known issues have tests of their own; these are of the rules."""

NEWEST = table().newest
ALGORITHMS = get_args(SglangSpeculation.model_fields["algorithm"].annotation)
DRAFTS = {"NGRAM": None}


def pool(speculation: dict[str, Any] | None = None, **settings: Any) -> SglangPool:
    return SglangPool.model_validate(
        {"engine": "sglang", "model_path": "org/model", "speculation": speculation, **settings}
    )


def speculating(algorithm: str, **settings: Any) -> list[str]:
    draft = DRAFTS.get(algorithm, "org/draft")
    words = sglang.command(
        pool({"algorithm": algorithm, "draft_model_path": draft} | settings), port=1, host="::1"
    )
    return words[words.index("--speculative-algorithm") :]


def value(words: list[str], flag: str) -> str | None:
    return words[words.index(flag) + 1] if flag in words else None


def flags_in(words: list[str]) -> set[str]:
    return {word for word in words if word.startswith("--")}


EVERYTHING: dict[str, Any] = {
    "served_model_name": "m",
    "revision": "main",
    "dtype": "bfloat16",
    "quantization": "fp8",
    "kv_cache_dtype": "fp8_e4m3",
    "tp_size": 2,
    "pp_size": 2,
    "dp_size": 2,
    "mem_fraction_static": 0.8,
    "context_length": 8192,
    "max_running_requests": 64,
    "chunked_prefill_size": -1,
    "schedule_policy": "lpm",
    "attention_backend": "fa3",
    "disable_radix_cache": True,
    "trust_remote_code": True,
    "random_seed": 0,
}


def test_every_named_setting_is_said_once_in_a_flag_of_the_release() -> None:
    words = sglang.command(pool(**EVERYTHING), port=30000)
    for name, setting in EVERYTHING.items():
        flag = "--" + name.replace("_", "-")
        assert words.count(flag) == 1
        if setting is not True:
            assert value(words, flag) == str(setting)
    others = {"engine", "version", "program", "arguments", "environment", "speculation", "start_timeout_s"}
    assert set(SglangPool.model_fields) == set(EVERYTHING) | {"model_path"} | others
    assert flags_in(words) <= NEWEST.flags
    assert not flags_in(words) & set(NEWEST.deprecated)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_said_in_flags_of_the_release(algorithm: str, k: int) -> None:
    words = speculating(algorithm, num_steps=k)
    assert flags_in(words) <= NEWEST.flags
    assert value(words, "--speculative-algorithm") == algorithm
    assert value(words, "--speculative-draft-model-path") == DRAFTS.get(algorithm, "org/draft")


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("EAGLE3", {"num-steps": 4, "eagle-topk": 1, "num-draft-tokens": 5}),
        ("STANDALONE", {"num-steps": 4, "eagle-topk": 1, "num-draft-tokens": 5}),
        ("NGRAM", {"num-steps": 4, "ngram-max-bfs-breadth": 1, "num-draft-tokens": 5}),
        ("DFLASH", {"num-draft-tokens": 5}),
        ("DSPARK", {"dspark-block-size": 4}),
    ],
)
def test_four_tokens_ahead_in_each_algorithms_own_count(algorithm: str, said: dict[str, int]) -> None:
    # 0.5.23: a verify window has the draft and the token before it; DSPARK alone counts without that token.
    words = speculating(algorithm, num_steps=4)
    numbers = {
        flag.removeprefix("--speculative-"): int(number)
        for flag, number in pairwise(words)
        if flag.startswith("--speculative-") and number.isdigit()
    }
    assert numbers == said


def test_the_cap_on_requests_is_said_with_and_without_speculation() -> None:
    plain = sglang.command(pool(), port=1)
    speculative = sglang.command(pool({"algorithm": "NGRAM"}), port=1)
    assert value(plain, "--max-running-requests") == value(speculative, "--max-running-requests") == "48"
    assert speculative[: len(plain)] == plain  # equal in everything but speculation


def test_a_tree() -> None:
    words = speculating("EAGLE", num_steps=3, eagle_topk=4, num_draft_tokens=16)
    assert value(words, "--speculative-eagle-topk") == "4"
    assert value(words, "--speculative-num-draft-tokens") == "16"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"algorithm": "EAGLE3"}, "EAGLE3 needs a draft"),
        ({"algorithm": "STANDALONE"}, "STANDALONE needs a draft"),
        ({"algorithm": "DFLASH"}, "DFLASH needs a draft"),
        ({"algorithm": "NGRAM", "draft_model_path": "d"}, "drafts from the text"),
        ({"algorithm": "NEXTN", "num_steps": 3, "num_draft_tokens": 8}, "a chain of 3 steps has 4 tokens"),
        ({"algorithm": "DSPARK", "eagle_topk": 2}, "drafts one chain"),
        ({"algorithm": "NGRAM", "eagle_topk": 2}, "size of the tree"),
        ({"algorithm": "MEDUSA"}, "Input should be"),
    ],
)
def test_what_sglang_would_refuse_or_silently_change_is_an_error(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        pool(settings)


def test_secrets_are_refused_where_they_would_be_written_down() -> None:
    with pytest.raises(ValidationError):
        pool(arguments=["--api-key", "x"])
    with pytest.raises(ValidationError):
        pool(environment={"HF_TOKEN": "x"})


def test_lint_says_nothing_of_what_specops_renders() -> None:
    for algorithm in ALGORITHMS:
        draft = DRAFTS.get(algorithm, "d")
        words = sglang.command(
            pool(
                {"algorithm": algorithm, "draft_model_path": draft},
                # DFLASH and DSPARK have no pipelines
                **EVERYTHING | ({"pp_size": 1} if algorithm.startswith("D") else {}),
            ),
            port=1,
        )
        assert [found for found in lint(words) if found.level != "note"] == []  # notes: known issues


def test_lint_names_what_is_gone_deprecated_or_changed_by_speculation() -> None:
    words = "--model m --speculative-algorithm NGRAM --enable-mixed-chunk --speculative-num-stepz=3"
    found = {finding.flag: finding for finding in lint([*words.split(), "--disable-cuda-graph"])}
    assert found.keys() - ISSUES == {
        "--max-running-requests",
        "--enable-mixed-chunk",
        "--speculative-num-stepz",
        "--disable-cuda-graph",
    }
    assert found["--speculative-num-stepz"].level == "error"
    assert found["--speculative-num-stepz"].replacement == "--speculative-num-steps"
    assert "48" in found["--max-running-requests"].why


@given(st.lists(st.text(min_size=1, max_size=12), max_size=8))
def test_lint_reads_any_words(words: list[str]) -> None:
    assert {finding.flag for finding in lint(words)} <= {
        *(word.partition("=")[0] for word in words),
        "--max-running-requests",
    }


RULES = [
    # words, and of each finding that is no note its level, flag and a piece of what to write instead
    ("--speculative-algorithm MEDUSA", [("error", "--speculative-algorithm", "EAGLE3")]),
    ("--speculative-algo EAGLE3", [("error", "--speculative-draft-model-path", "path")]),
    (
        "--speculative-algorithm NEXTN --speculative-num-steps 3",
        [("error", "--speculative-eagle-topk", "--speculative-num-draft-tokens 4")],
    ),
    (
        "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 8",
        [("warning", "--speculative-num-draft-tokens", "4")],
    ),
    ("--tp 8 --speculative-algorithm NGRAM", []),
    ("--speculative", [("error", "--speculative", "or")]),
    ("--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1", []),
    (
        "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 4",
        [("error", "--speculative-num-draft-tokens", "give it too")],
    ),
    (
        "--speculative-algorithm NGRAM --enable-dp-attention",
        [("error", "--enable-dp-attention", "leave"), ("warning", "--enable-dp-attention", "--attn-dp-size")],
    ),
    ("--speculative-algorithm DFLASH --speculative-draft-model d", []),
    ("--speculative-algorithm NONE", []),
    (
        "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 4 "
        "--speculative-num-draft-tokens 8 --page-size 64 --attention-backend flashmla",
        [("error", "--page-size", "--page-size 1")],
    ),
    (
        "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 4 "
        "--speculative-num-draft-tokens 8 --page-size 64 --attention-backend fa3",
        [],
    ),
    (
        "--speculative-algorithm NGRAM --page-size 16 --attention-backend fa3",
        [("error", "--page-size", "flashinfer")],
    ),
    (
        "--speculative-algorithm NGRAM --page-size 16 --attention-backend fa3 "
        "--speculative-ngram-max-bfs-breadth 1",
        [],
    ),
    (
        "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 2 "
        "--speculative-num-draft-tokens 6 --decode-attention-backend trtllm_mha",
        [("error", "--decode-attention-backend", "another backend")],
    ),
    (
        "--speculative-algorithm STANDALONE --speculative-draft-model-path d "
        "--speculative-use-rejection-sampling",
        [("error", "--speculative-use-rejection-sampling", "leave")],
    ),
    (
        "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 2 "
        "--speculative-num-draft-tokens 6 --speculative-use-rejection-sampling "
        "--speculative-accept-threshold-single 0.9",
        [
            ("error", "--speculative-use-rejection-sampling", "--speculative-eagle-topk 1"),
            ("error", "--speculative-accept-threshold-single", "leave"),
        ],
    ),
    (
        "--speculative-algorithm DFLASH --speculative-draft-model d --pp-size 2 "
        "--speculative-dflash-block-size 16 --speculative-num-draft-tokens 8",
        [
            ("error", "--speculative-num-draft-tokens", "16"),
            ("error", "--pp-size", "1"),
        ],
    ),
    # Without the mode of a decode server the flag does nothing, and is not refused
    (
        "--speculative-algorithm NGRAM --disaggregation-decode-enable-radix-cache",
        [],
    ),
    ("--cuda-graph-max-bs 32", [("error", "--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")]),
]


@pytest.mark.parametrize(("words", "wanted"), RULES)
def test_lint_knows_what_sglang_refuses_of_speculation(words, wanted) -> None:
    command = ["--model-path", "m", "--max-running-requests", "48", *words.split()]
    found = [one for one in lint(command) if one.level != "note" and one.flag not in ISSUES]
    assert [(finding.level, finding.flag) for finding in found] == [case[:2] for case in wanted]
    for finding, (_, _, piece) in zip(found, wanted, strict=True):
        assert piece in (finding.replacement or "")


BY_RELEASE = [
    # words; releases, and for each the flags of its errors
    ("--speculative-algorithm DSPARK", {"0.5.15": ["--speculative-algorithm"], "0.5.16": []}),
    ("--speculative-algorithm ngram", {"0.5.11": ["--speculative-algorithm"], "0.5.12": []}),
    ("--cuda-graph-bs 1", {"0.5.10": [], "0.5.19": [], "0.5.20": ["--cuda-graph-bs"]}),
    ("--enable-ep-moe", {"0.5.3": [], "0.5.5": ["--enable-ep-moe"]}),
    (
        "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 4 "
        "--speculative-num-draft-tokens 8 --page-size 64 --attention-backend triton",
        {"0.5.1": [], "0.5.12": ["--page-size"], "0.5.13": []},
    ),
    (
        "--speculative-algorithm DSPARK --disaggregation-mode prefill --pp-size 2",
        {"0.5.20": ["--pp-size"], "0.5.21": []},
    ),
    ("--speculative-algorithm DSPARK --pp-size 2", {"0.5.23": ["--pp-size"]}),
    (
        "--speculative-algorithm NEXTN --disaggregation-mode decode "
        "--disaggregation-decode-enable-radix-cache",
        {"0.5.22": ["--disaggregation-decode-enable-radix-cache"], "0.5.23": []},
    ),
]


@pytest.mark.parametrize(("words", "wanted"), BY_RELEASE)
def test_a_command_is_judged_by_the_flags_and_rules_of_its_release(words, wanted) -> None:
    for release, flags in wanted.items():
        found = lint(["--model-path", "m", *words.split()], release)
        assert [finding.flag for finding in found if finding.level == "error"] == flags, release


def test_mixed_chunks_stay_on_with_eagle_since_0_5_19() -> None:
    words = "--model-path m --speculative-algorithm NEXTN --enable-mixed-chunk --max-running-requests 48"
    assert "--enable-mixed-chunk" in {found.flag for found in lint(words.split(), "0.5.18")}
    assert "--enable-mixed-chunk" not in {found.flag for found in lint(words.split(), "0.5.19")}


def test_the_flags_that_are_rendered_are_the_newest_releases() -> None:
    assert table().newest.version == sglang.VERSION
    assert len(table().versions) == 23


def test_a_table_says_in_which_releases_a_flag_was() -> None:
    known = table()
    assert known.history("flags", "--model-path") == "0.5.1 and newer"
    assert known.history("flags", "--cuda-graph-bs") == "up to 0.5.19"
    assert known.history("flags", "--enable-piecewise-cuda-graph") == "0.5.4 to 0.5.13"
    assert known.history("flags", "--no-such-flag") is None
    assert known.history("algorithms", "UNO") == "0.5.20 and newer"
    assert known.release("0.5.10.post1").version == "0.5.10"
    assert known.release("0.6").version == known.newest.version


@pytest.mark.parametrize(
    ("tag", "version", "because"),
    [
        ("v0.5.20", "0.5.20", "as the image's tag says"),
        ("v0.5.10.post1-cu130", "0.5.10", "as the image's tag says"),
        ("v0.9.0", "0.5.23", "newer than any known"),
        ("v0.4.6", "0.5.23", "older than 0.5.1, the oldest known"),
        ("25.10-py3", "0.5.23", "not a release of SGLang"),
        ("latest", "0.5.23", "no version was given"),
    ],
)
def test_only_words_behind_the_image_are_the_servers_and_a_command_is_corrected(
    tag: str, version: str, because: str
) -> None:
    words = f"docker run --gpus all --shm-size 32g lmsysorg/sglang:{tag} --model-path m --tp 2 "
    words += "--max-running-requests 8 --speculative-algorithm NEXTN --speculative-num-steps 3"
    judged = judge(command_of(words.split()))
    flags = [one.flag for one in judged.findings if one.level != "note" and one.flag not in ISSUES]
    assert flags == ["--speculative-eagle-topk"]
    assert judged.version == version
    assert because in judged.because
    assert judged.corrected is not None
    written = "v0.5.23" if tag == "v0.4.6" else tag  # a translated command needs the release it is for
    assert f"lmsysorg/sglang:{written} " in judged.corrected
    assert "--tp 2" in judged.corrected
    assert "--speculative-num-draft-tokens 4" in judged.corrected
    assert judged.left == []
