"""Each rule of vLLM's lint: what it says of a command line that it is about.

That vLLM itself refuses the same is tested in tests/vllm.
"""

from __future__ import annotations

import pytest
from vllm_words import draft, found, ngram, serve

from specops.serving.vllm.arguments import ParsedCommand
from specops.serving.vllm.lint import corrected
from specops.serving.vllm.versions import Version

CASES = [
    # version, words, level and flag, pieces of why and instead
    (
        "0.33.0",
        serve("--swap-space", "4"),
        "error --swap-space",
        "does not have it (up to 0.17.1 do)",
        "computed again",
    ),
    ("0.33.0", serve("--max-num-seq", "8"), "note --max-num-seq", "short for", "--max-num-seqs"),
    ("0.33.0", serve("--tensr-parallel-size", "2"), "error --tensr-parallel-size", "no version", "--tensor-"),
    ("0.33.0", serve("--no-such-thing"), "error --no-such-thing", "no version of vLLM from 0.5.0 to 0.33.0"),
    ("0.20.0", serve("--spec-method", "mtp"), "error --spec-method", "0.22.0 and newer do"),
    ("0.12.0", serve("--num-scheduler-steps", "8"), "error --num-scheduler-steps", "V0", "leave it out"),
    (
        "0.33.0",
        serve("--disable-frontend-multiprocessing"),
        "error --disable-frontend-multiprocessing",
        "bursts",
    ),
    ("0.12.0", serve("--disable-log-requests"), "warning --disable-log-requests", "deprecated:"),
    ("0.12.0", serve("--task", "generate"), "warning --task", "deprecated:"),
    ("0.33.0", serve("--model", "m"), "note --model", "deprecated:", "vllm serve MODEL"),
    ("0.33.0", serve("--api-key", "sk-1"), "warning --api-key", "the secret is visible", "VLLM_API_KEY"),
    (
        "0.33.0",
        serve("--speculative-config", "{method: x}"),
        "error --speculative-config",
        "not a JSON object",
        "quotes",
    ),
    (
        "0.33.0",
        serve("--speculative-config", "3"),
        "error --speculative-config",
        "not a JSON object: it is 3",
    ),
    ("0.33.0", ngram(prompt_lookup=4), "error prompt_lookup", "no version", "prompt_lookup_m"),
    ("0.33.0", ngram(speculative_model="x"), "error speculative_model", "no version", "; model"),
    ("0.16.0", ngram(**{"max-model-len": 9}), "error max-model-len", "no version", "max_model_len"),
    ("0.33.0", draft(tensor_parallel_size=4), "error tensor_parallel_size", "leave it out, which means 1"),
    (
        "0.12.0",
        draft(acceptance_method="typical"),
        "error acceptance_method",
        "0.8.2 to 0.9.2",
        "leave it out",
    ),
    ("0.24.0", draft(use_heterogeneous_vocab=True), "error use_heterogeneous_vocab", "0.25.0 and newer"),
    ("0.21.0", draft(speculative_token_tree="[(0,)]"), "error speculative_token_tree", "0.9.0 to 0.20.2"),
    ("0.33.0", ["VLLM_ATTENTION_BACKEND=TREE_ATTN", *draft()], "error TREE_ATTN", "went in 0.21.0"),
    ("0.33.0", ngram("--spec-tokens", "3"), "error --spec-tokens", "refuses to start with both"),
    ("0.33.0", serve(model="org/x", num_speculative_tokens=3), "warning method", "guesses", "draft_model"),
    ("0.33.0", serve(model="EAGLE3-x", num_speculative_tokens=3), "warning method", "guesses", "eagle3"),
    (
        "0.33.0",
        serve(model="[ngram]", num_speculative_tokens=3),
        "warning method",
        "place of a draft",
        "ngram",
    ),
    ("0.33.0", serve(num_speculative_tokens=3), "error method", "neither a method nor a model", "ngram"),
    ("0.33.0", ngram(method="n-gram"), "error method", "no version of vLLM has the method", "; ngram"),
    ("0.33.0", draft(method="medusa"), "error method", "0.8.5 to 0.32.0 do", "eagle3"),
    ("0.33.0", draft(method="mlp_speculator"), "error method", "0.8.5 to 0.32.0 do", "eagle3"),
    ("0.19.0", draft(method="dflash"), "error method", "0.20.0 and newer do"),
    ("0.10.0", draft(), "error method", "do not implement draft_model", "0.15.0 or newer"),
    ("0.14.1", draft(), "error method", "do not implement draft_model", "0.15.0 or newer"),
    (
        "0.33.0",
        serve(method="deepseek_mtp", num_speculative_tokens=1),
        "warning method",
        "mtp takes its place",
    ),
    ("0.33.0", serve(method="suffix"), "note method", "a package", "arctic-inference"),
    ("0.33.0", draft(model="org/my-dflash-draft"), "error model", "'dflash' in its path", "method dflash"),
    ("0.33.0", draft(model="org/eagle-tiny"), "error model", "'eagle-' in its path", "method eagle"),
    ("0.33.0", draft(model="org/EAGLE3-8B", method="eagle"), "warning method", "EAGLE-1", "; eagle3"),
    ("0.33.0", serve(method="eagle3", num_speculative_tokens=3), "error model", "needs a draft"),
    (
        "0.33.0",
        serve(method="ngram"),
        "error num_speculative_tokens",
        "needs num_speculative_tokens",
        "sweep",
    ),
    ("0.33.0", ngram(num_speculative_tokens=0), "error num_speculative_tokens", "at least 1"),
    ("0.8.5", ngram(num_speculative_tokens="5"), "error num_speculative_tokens", "the text '5'", "without q"),
    ("0.33.0", ngram(num_speculative_tokens="five"), "error num_speculative_tokens", "whole number"),
    ("0.33.0", ngram(prompt_lookup_min=9), "error prompt_lookup_min", "more than prompt_lookup_max"),
    ("0.33.0", ngram(prompt_lookup_max=0), "error prompt_lookup_max", "at least 1"),
    ("0.33.0", serve(method="ngram", num_speculative_tokens=3), "note prompt_lookup_min", "5 tokens"),
    ("0.33.0", draft(max_model_len=2048), "note max_model_len", "vllm#52258", "route"),
    ("0.33.0", ngram(rejection_sample_method="synthetic"), "error rejection_sample_method", "load tests"),
    ("0.20.0", ngram(rejection_sample_method="fly"), "error rejection_sample_method", "0.33.0 and newer do"),
    ("0.33.0", ngram(draft_sample_method="best"), "error draft_sample_method", "greedy or probabilistic"),
    ("0.33.0", ngram(rejection_sample_method="fly"), "warning rejection_sample_method", "differ", "lossless"),
    ("0.33.0", ngram(synthetic_acceptance_length=2), "error synthetic_acceptance_length", "refuses"),
    ("0.33.0", ngram(use_heterogeneous_vocab=True), "error use_heterogeneous_vocab", "draft_model"),
    ("0.33.0", ngram("-pp", "2"), "error --pipeline-parallel-size", "#14117", "--tensor-parallel-size 2"),
    ("0.8.0", serve("--speculative-model", "d", "-pp=2"), "error --pipeline-parallel-size", "fails at start"),
    (
        "0.33.0",
        draft(use_heterogeneous_vocab=True, draft_sample_method="probabilistic"),
        "error draft_sample_method",
        "greedy drafts only",
    ),
    (
        "0.33.0",
        draft("-tp", "4", draft_tensor_parallel_size=2),
        "error draft_tensor_parallel_size",
        "may only be 1 or the target's, 4",
    ),
    (
        "0.33.0",
        draft("-tp", "4", draft_tensor_parallel_size=1),
        "error draft_tensor_parallel_size",
        "refuses to start unless they are the same",
    ),
    (
        "0.33.0",
        draft("-tp", "4", draft_tensor_parallel_size=1, method="eagle"),
        "warning draft_tensor_parallel_size",
        "does nothing",
    ),
    (
        "0.33.0",
        serve("--per-request-spec-decode-metrics", "summary"),
        "error --per-request-spec-decode-metrics",
        "nothing to report",
    ),
    ("0.12.0", ngram(disable_by_batch_size=8), "error disable_by_batch_size", "ignore it", "route.max"),
    ("0.17.0", ngram(disable_by_batch_size=8), "error disable_by_batch_size", "refuse", "route.max"),
    ("0.24.0", ngram(disable_by_batch_size=8), "error disable_by_batch_size", "route.max_in_flight"),
    (
        "0.33.0",
        serve(method="mtp"),
        "error num_speculative_tokens",
        "needs num_speculative_tokens",
        "1 to start",
    ),
    ("0.33.0", serve("-O.level=3"), "error -O.level", "refuses to start", "--compilation-config.mode"),
    ("0.12.0", serve("-O.level=3"), "warning -O.level", "0.12.0 warns", "--compilation-config.mode"),
    ("0.33.0", serve("-O", '{"level": 3}'), "error -O", "has the keys", "--compilation-config"),
    (
        "0.33.0",
        serve("--enable-chunked-prefill", "False"),
        "error --enable-chunked-prefill",
        "switch",
        "--no-",
    ),
    (
        "0.33.0",
        serve("--cuda-graph-sizes", "8"),
        "error --cuda-graph-sizes",
        "0.9.0 to 0.12.0",
        "--cudagraph-c",
    ),
    (
        "0.18.0",
        serve("--compilation-config", '{"level": 3}'),
        "error --compilation-config level",
        "became mode",
    ),
    (
        "0.32.0",
        serve("--attention_config.use_fp4_indexer_cache", "True"),
        "error --attention-config.use_fp4_indexer_cache",
        "0.20.0 to 0.29.0",
    ),
    (
        "0.33.0",
        serve("--attention-config", '{"use_cudnn_prefill": true}'),
        "error --attention-config use_cudnn_prefill",
        "0.13.0 to 0.21.0",
    ),
    ("0.32.0", ngram("--async-scheduling"), "error --async-scheduling", "method ngram is without it"),
    ("0.11.0", ngram("--async-scheduling"), "error --async-scheduling", "before 0.11.1"),
    (  # 0.33 refuses it for its V1 runner alone (v1_async_sched_incompat in vllm/config/vllm.py)
        "0.33.0",
        ["VLLM_USE_V2_MODEL_RUNNER=0", *ngram("--async-scheduling")],
        "error --async-scheduling",
        "method ngram is without it on Model Runner V1",
    ),
    (
        "0.33.0",
        ["VLLM_USE_V2_MODEL_RUNNER=1", *serve(method="suffix")],
        "error VLLM_USE_V2_MODEL_RUNNER",
        "V2 does not have method suffix",
        "leave VLLM_USE_V2_MODEL_RUNNER out",
    ),
    (
        "0.33.0",
        serve(method="suffix"),
        "note --speculative-config",
        "on Model Runner V1 (V2 does not have method suffix)",
        "VLLM_USE_V2_MODEL_RUNNER=0",
    ),
    ("0.33.0", ["VLLM_USE_V1=0", *serve()], "warning VLLM_USE_V1", "no V0 engine any more", "leave it out"),
    ("0.33.0", ["VLLM_USE_V1=1", *serve()], "note VLLM_USE_V1", "the only engine"),
    ("0.10.2", ["VLLM_USE_V1=0", *ngram()], "error VLLM_USE_V1", "does not speculate"),
    ("0.9.2", ["VLLM_USE_V1=0", *ngram()], "note VLLM_USE_V1", "metrics have other names"),
    (
        "0.33.0",
        ["VLLM_ATTENTION_BACKEND=FLASHINFER", *serve()],
        "warning VLLM_ATTENTION_BACKEND",
        "up to 0.14.1 do",
        "--attention-backend",
    ),
    (
        "0.33.0",
        ["VLLM_LOGING_LEVEL=DEBUG", *serve()],
        "warning VLLM_LOGING_LEVEL",
        "no version",
        "VLLM_LOGGING",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]} {case[3][:20]}")
def test_a_rule_says_what_is_wrong_and_what_instead(case) -> None:
    version, words, heading, *pieces = case
    level, flag = heading.split(" ", 1)
    findings = found(words, version)[flag]
    assert [finding.level for finding in findings] == [level]
    for piece in pieces:
        assert piece in f"{findings[0].why}; {findings[0].replacement}"


RIGHT = {
    # words that an earlier lint was wrong about, and what it should say nothing of
    "mtp by a model's name": (serve(method="deepseek_mtp", num_speculative_tokens=1), "model"),
    "mtp of a newer model": (serve(method="qwen3_next_mtp", num_speculative_tokens=2), "model"),
    "a number in quotes": (ngram(num_speculative_tokens="5"), "num_speculative_tokens"),
    "a variable for the number": (
        serve("--speculative-config", '{"method": "ngram", "num_speculative_tokens": $K}'),
        "num_speculative_tokens",
    ),
    "a variable for it all": (serve("--speculative-config", "${SPEC}"), "--speculative-config"),
    "a variable for the key": (serve("--api-key", "$KEY"), "--api-key"),
    "async with ngram on V2": (ngram("--async-scheduling"), "--async-scheduling"),
    "a key of attention": (serve("-ac.flex-attn-block-m", "64"), "-ac.flex-attn-block-m"),
    "async with a draft": (draft("--async-scheduling"), "--async-scheduling"),
    "another program's variable": (["VLLM_ADDITIONAL_ARGS=x", *serve()], "VLLM_ADDITIONAL_ARGS"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_found(name) -> None:
    words, flag = RIGHT[name]
    assert [entry for entry in found(words, "0.33.0").get(flag, []) if entry.level != "note"] == []


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "--speculative-config", '{"method": "ngram"}', "org/m"],
        ["vllm", "serve", "--enforce-eager", "org/m", "--speculative-config", '{"method": "ngram"}'],
        ["vllm", "serve", "--seed", "1", "org/m", "--speculative-config.method", "ngram"],
    ],
)
def test_a_model_may_stand_behind_a_flag(words) -> None:
    given = ParsedCommand.parse(words)
    assert given.program == ("vllm", "serve", "org/m")
    assert given.keys == {"method": "ngram"}
    made = corrected(words, Version.parse("0.33.0")) or []
    assert made[:3] == ["vllm", "serve", "org/m"]


def test_a_variable_stays_a_variable_in_what_is_corrected() -> None:
    words = [
        *serve("--max-model-len", "$LENGTH"),
        "--num-speculative-tokens",
        "$K",
        "--speculative-model",
        "d",
    ]
    text = ParsedCommand.parse(corrected(words, Version.parse("0.33.0")) or []).as_words().text()
    assert '--max-model-len "$LENGTH"' in text
    assert r"\"num_speculative_tokens\": $K" in text


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ("1-7", "expected a list"),
        ([], "expected a list"),
        ([[1, 7]], "is not [FIRST, LAST, TOKENS]"),
        ([[1, 7, True]], "is not [FIRST, LAST, TOKENS]"),
        ([[0, 7, 3]], "must have 1 <= FIRST"),
        ([[7, 1, 3]], "must have 1 <= FIRST"),
        ([[1, 7, -1]], "must have 1 <= FIRST"),
        ([[2, 7, 3]], "starts at 2 requests, not at 1"),
        ([[1, 8, 3], [8, 16, 1]], "overlap"),
        ([[1, 8, 9]], "caps it at 3"),
    ],
)
def test_a_schedule_that_vllm_would_refuse_at_start_or_cap(schedule, says) -> None:
    words = ngram(num_speculative_tokens_per_batch_size=schedule)
    finding = found(words, "0.33.0")["num_speculative_tokens_per_batch_size"][0]
    assert says in finding.why


@pytest.mark.parametrize(("extra", "more"), [(["-dp", "2"], {}), ([], {"method": "suffix"})])
def test_a_schedule_that_vllm_would_ignore(extra, more) -> None:
    words = ngram(*extra, num_speculative_tokens_per_batch_size=[[1, 7, 3], [9, 16, 1]], **more)
    assert "ignores it" in found(words, "0.33.0")["num_speculative_tokens_per_batch_size"][0].why


def test_a_value_that_is_not_known_lacks_nothing() -> None:
    """The JSON is a variable: it may have the method that stands beside no shortcut."""
    words = ["vllm", "serve", "m", "--spec-tokens", "3"]
    assert "method" in found(words, "0.33.0")
    assert "method" not in found([*words, "--speculative-config", "$SPECULATION"], "0.33.0")
