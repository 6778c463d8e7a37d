"""The lint on whole command lines of vLLM: the playbook's two, right ones, and any that there may be."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_words import draft, found, ngram, serve

from specops.serving.vllm.arguments import ParsedCommand
from specops.serving.vllm.lint import corrected, lint
from specops.serving.vllm.versions import Version, table

PLAYBOOK_DRAFT = """
python -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.1-70B-Instruct
  --speculative-model meta-llama/Llama-3.1-8B-Instruct --num-speculative-tokens 5
  --speculative-disable-mqa-scorer --tensor-parallel-size 4 --gpu-memory-utilization 0.92
  --max-model-len 4096 --port 8000
"""
PLAYBOOK_EAGLE = """
python -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.1-70B-Instruct
  --speculative-model eagle3-llama3.1-70b-instruct --speculative-method eagle --num-speculative-tokens 5
  --tensor-parallel-size 4 --gpu-memory-utilization 0.92 --max-model-len 4096 --use-v2-block-manager
  --port 8000
"""
REST = ["--tensor-parallel-size", "4", "--gpu-memory-utilization", "0.92", "--max-model-len", "4096"]


# The playbook


@pytest.mark.parametrize("version", ["0.9.2", "0.16.0", "0.24.0", "0.33.0"])
def test_the_playbooks_draft_model_becomes_one_that_starts(version) -> None:
    words = shlex.split(PLAYBOOK_DRAFT)
    findings = found(words, version)
    for flag in ("--speculative-model", "--num-speculative-tokens", "--speculative-disable-mqa-scorer"):
        assert [finding.level for finding in findings[flag]] == ["error"]
    made = corrected(words, Version.parse(version)) or []
    keys = {"method": "draft_model", "model": "meta-llama/Llama-3.1-8B-Instruct", "num_speculative_tokens": 5}
    assert made == [*words[:5], "--speculative-config", json.dumps(keys), *REST, "--port", "8000"]
    assert not [finding for finding in lint(made, Version.parse(version)) if finding.level == "error"]


def test_the_playbooks_head_is_an_eagle3() -> None:
    words, version = shlex.split(PLAYBOOK_EAGLE), "0.33.0"
    findings = found(words, version)
    for flag in ("--speculative-method", "--speculative-model", "--use-v2-block-manager"):
        assert [finding.level for finding in findings[flag]] == ["error"]
    assert findings["method"][0].replacement == "eagle3"
    made = corrected(words, Version.parse(version)) or []
    keys = {"method": "eagle3", "model": "eagle3-llama3.1-70b-instruct", "num_speculative_tokens": 5}
    assert made == [*words[:5], "--speculative-config", json.dumps(keys), *REST, "--port", "8000"]


def test_the_playbooks_draft_model_was_right_in_its_time() -> None:
    words = shlex.split(PLAYBOOK_DRAFT)
    assert lint(words, Version.parse("0.8.1")) == []
    assert corrected(words, Version.parse("0.8.1")) is None


# Any command


@pytest.mark.parametrize(
    "words",
    [
        serve(),
        serve("--no-enable-prefix-caching", "-O3", "--seed", "-1"),
        serve("--compilation-config.mode", "3", "--compilation_config.cudagraph_mode=NONE"),
        serve("--spec-method", "mtp", "--spec-tokens", "1"),
        ngram(),
        ngram(num_speculative_tokens_per_batch_size=[[1, 7, 3], [9, 16, 1]]),
        draft("-tp", "4", draft_tensor_parallel_size=4),
        draft(model="org/eagle3-head", method="eagle3"),
        ["--speculative-config.method", "mtp", "--speculative-config.num-speculative-tokens", "1"],
    ],
)
def test_a_right_command_is_clean(words) -> None:
    assert [found for found in lint(words, None) if found.level != "note"] == []  # notes: known issues
    assert corrected(words, None) is None


def test_a_secret_is_taken_out_and_repeated_nowhere() -> None:
    words = [
        "docker",
        "run",
        "-e",
        "HF_TOKEN=hf-1",
        "vllm/vllm-openai:v0.33.0",
        "--model",
        "m",
        "--api_key=sk-2",
    ]
    made = corrected(words, None)
    assert made == ["docker", "run", "-e", "HF_TOKEN", "vllm/vllm-openai:v0.33.0", "--model", "m"]
    assert not [finding for finding in lint(words, None) if "hf-1" in str(finding) or "sk-2" in str(finding)]


def known(kind: str, *versions: str) -> set[str]:
    return {name for version in versions for name in getattr(table().release(Version.parse(version)), kind)}


FLAGS = sorted(
    {
        flag
        for flag in known("flags", "0.8.1", "0.12.0", "0.33.0")
        if "spec" in flag or "parallel-size" in flag
    }
    | {"--speculative-method"}
)
WORDS = st.sampled_from(["1", "2", "ngram", "[ngram]", "org/m"])
VALUES = (
    st.none() | st.booleans() | st.integers(-1, 9) | st.sampled_from(["ngram", "org/eagle3", "draft_model"])
)


@given(
    st.sampled_from(table().judged),
    st.lists(st.tuples(st.sampled_from(FLAGS), WORDS), max_size=5),
    st.none()
    | st.dictionaries(
        st.sampled_from(sorted(known("keys", "0.9.2", "0.33.0"))),
        VALUES | st.lists(st.lists(st.integers(-1, 9))),
        max_size=6,
    ),
)
def test_a_mended_command_has_nothing_left_that_a_rule_could_mend(version, flags, keys) -> None:
    words = ["vllm", "serve", "m", *(word for option in flags for word in option)]
    if keys is not None:
        words += ["--speculative-config", json.dumps(keys)]
    made = corrected(words, version)
    if made is None:
        return
    assert corrected(made, version) is None
    before, after = ([f for f in lint(w, version) if f.level == "error"] for w in (words, made))
    assert len(after) <= len(before)
    assert ParsedCommand.parse(made).words() == made


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_words_are_judged(words) -> None:
    lint(words, None)
    corrected(words, None)
