"""A pool of vLLM as words: for every version flags and keys that it has, or a sentence that says why not.

What the words mean to vLLM itself is tested in tests/vllm.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specops.config import load
from specops.errors import ConfigError
from specops.serving.argv import Words
from specops.serving.vllm.pool import VllmPool
from specops.serving.vllm.settings import FLAGS, VllmSpeculation, command
from specops.serving.vllm.versions import Version, installed, table

VERSIONS = table().judged


def pool(speculation: dict[str, Any] | None = None, **settings: Any) -> VllmPool:
    asked = VllmSpeculation(**speculation) if speculation else None
    return VllmPool(engine="vllm", model="org/target", speculation=asked, **settings)


def words(version: str, **settings: Any) -> list[str]:
    return command(pool(**settings), port=8000, version=Version.parse(version))


# Versions


@pytest.mark.parametrize(
    ("text", "means"),
    [("0.33", "0.33.0"), ("v0.10.1.1", "0.10.1.1"), ("0.32.0+cpu", "0.32.0"), ("0.8.5.post1", "0.8.5")],
)
def test_a_version_is_read_without_its_tail(text, means) -> None:
    assert str(Version.parse(text)) == means


@pytest.mark.parametrize("text", ["", "latest", "nightly", "x0.8", "7"])
def test_what_is_no_version_is_said(text) -> None:
    with pytest.raises(ConfigError, match=r"invalid version .* of vLLM"):
        Version.parse(text)


@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=4), st.lists(st.integers(0, 40), min_size=2, max_size=4)
)
def test_versions_are_ordered_as_numbers(one, other) -> None:
    padded = [(*numbers, 0, 0, 0)[:4] for numbers in (one, other)]
    left, right = Version(tuple(one)), Version(tuple(other))
    assert (left < right, left == right) == (padded[0] < padded[1], padded[0] == padded[1])
    assert left != right or hash(left) == hash(right)


def test_the_table_holds_the_releases_that_it_should() -> None:
    assert (str(VERSIONS[0]), str(VERSIONS[-1])) == ("0.8.0", "0.33.0")
    assert sorted(VERSIONS) == list(VERSIONS)
    assert {version.numbers[1] for version in VERSIONS} == set(range(8, 34))


@pytest.mark.parametrize(
    ("kind", "name", "history"),
    [
        ("flags", "--speculative-model", "up to 0.8.2"),
        ("flags", "--speculative-config", "0.8.2 and newer"),
        ("flags", "--use-v2-block-manager", "up to 0.9.2"),
        ("flags", "--tensor-parallel-size", "0.5.0 and newer"),
        ("flags", "--speculative-method", None),
        ("keys", "disable_by_batch_size", "0.8.2 to 0.16.0"),
        ("keys", "num_speculative_tokens_per_batch_size", "0.24.0 and newer"),
        ("keys", "speculative_token_tree", "0.9.0 to 0.20.2"),
        ("keys", "use_heterogeneous_vocab", "0.25.0 and newer"),
        ("methods", "medusa", "0.8.5 to 0.32.0"),
        ("methods", "dflash", "0.20.0 and newer"),
        ("choices", "rejection_sample_method=block", "0.25.0 and newer"),
    ],
)
def test_what_is_known_of_vllm_from_elsewhere_is_in_the_table(kind, name, history) -> None:
    assert table().history(kind, name) == history


def test_a_version_between_two_of_the_table_is_judged_as_the_one_before() -> None:
    release = table().release(Version.parse("0.20.9"))
    assert (str(release.version), str(release.requested)) == ("0.20.2", "0.20.9")
    with pytest.raises(ConfigError, match=r"0\.7\.3 is older than the known versions: expected 0\.8\.0 to"):
        table().release(Version.parse("0.7.3"))


# Words


def test_the_words_of_a_pool() -> None:
    speculation = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}
    made = words(
        "0.33.0",
        tensor_parallel_size=4,
        gpu_memory_utilization=0.92,
        enforce_eager=False,
        enable_prefix_caching=False,
        speculation=speculation,
        arguments=["--trust-remote-code"],
        environment={"VLLM_LOGGING_LEVEL": "WARNING"},
    )
    assert made[:3] == ["vllm", "serve", "org/target"]
    assert made[-1] == "--trust-remote-code"
    assert "--enforce-eager" not in made
    assert "--no-enable-prefix-caching" in made
    parsed = Words.parse(made)
    assert parsed.value("--host") == "127.0.0.1"
    assert parsed.value("--gpu-memory-utilization") == "0.92"
    assert json.loads(str(parsed.value("--speculative-config"))) == speculation
    assert not any("VLLM_LOGGING_LEVEL" in word for word in made)


def test_a_module_is_given_its_model_as_a_flag() -> None:
    made = words("0.33.0", program="env A=1 python -m vllm.entrypoints.openai.api_server")
    assert made[5:7] == ["--model", "org/target"]


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1", "0.8.2"])
def test_before_the_json_there_were_flags(version) -> None:
    draft = {"method": "draft_model", "model": "org/draft", "draft_tensor_parallel_size": 1}
    made = Words.parse(words(version, speculation=draft))
    assert made.value("--speculative-model") == "org/draft"
    assert made.value("--num-speculative-tokens") == "5"
    assert made.value("--speculative-draft-tensor-parallel-size") == "1"
    assert not made.has("--speculative-config")
    lookup = Words.parse(words(version, speculation={"method": "ngram", "prompt_lookup_max": 4}))
    assert lookup.value("--speculative-model") == "[ngram]"
    assert lookup.value("--ngram-prompt-lookup-max") == "4"


@pytest.mark.parametrize(
    ("version", "speculation", "says"),
    [
        (
            "0.20.2",
            {"method": "ngram", "num_speculative_tokens_per_batch_size": [[1, 4, 3]]},
            "_per_batch_size is not for vLLM 0.20.2: 0.24.0 and newer have it",
        ),
        (
            "0.33.0",
            {"method": "medusa", "model": "m"},
            "method medusa is not for vLLM 0.33.0: 0.8.5 to 0.32.0",
        ),
        (
            "0.19.1",
            {"method": "dflash", "model": "m"},
            "method dflash is not for vLLM 0.19.1: 0.20.0 and newer",
        ),
        ("0.8.1", {"method": "suffix"}, "method suffix is not for vLLM 0.8.1"),
        (
            "0.8.1",
            {"method": "ngram", "enforce_eager": True},
            "speculation.enforce_eager is not for vLLM 0.8.1",
        ),
        ("0.33.0", {"method": "ngram", "more": {"tree": 1}}, "speculation.tree .* no version of vLLM has it"),
    ],
)
def test_what_a_version_lacks_is_not_rendered(version, speculation, says) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        words(version, speculation=speculation)
    assert caught.value.hint


SETTINGS: dict[str, Any] = {
    "served_model_name": "m",
    "dtype": "bfloat16",
    "quantization": "fp8",
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 2,
    "max_model_len": 4096,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 8192,
    "gpu_memory_utilization": 0.9,
    "kv_cache_dtype": "fp8",
    "seed": 0,
    "enforce_eager": True,
    "enable_prefix_caching": False,
}
SPECULATION: dict[str, Any] = {
    "model": "org/draft",
    "num_speculative_tokens_per_batch_size": [[1, 7, 5], [8, 8, 0]],
    "draft_tensor_parallel_size": 1,
    "max_model_len": 2048,
    "quantization": "fp8",
    "prompt_lookup_min": 2,
    "prompt_lookup_max": 4,
    "suffix_decoding_min_token_prob": 0.1,
    "parallel_drafting": False,
    "rejection_sample_method": "block",
    "draft_sample_method": "greedy",
    "use_heterogeneous_vocab": False,
}


def test_the_settings_above_are_all_that_are_flags() -> None:
    assert SETTINGS.keys() == set(FLAGS)


@given(
    st.sampled_from(VERSIONS),
    st.sets(st.sampled_from(sorted(SETTINGS))),
    st.sets(st.sampled_from(sorted(SPECULATION))),
    st.sampled_from(["ngram", "draft_model", "eagle3", "medusa", "mtp", "dflash"]),
)
def test_for_every_version_words_that_it_knows_or_a_reason(version, settings, keys, method) -> None:
    speculation = {"method": method, "model": "m", **{key: SPECULATION[key] for key in keys}}
    release = table().release(version)
    try:
        made = Words.parse(
            command(pool(speculation, **{key: SETTINGS[key] for key in settings}), port=1, version=version)
        )
    except ConfigError as error:
        assert f"is not for vLLM {version}" in error.message  # noqa: PT017
        return
    for option in made.options:
        assert option.flag.replace("--no-", "--") in release.flags
    written = json.loads(made.value("--speculative-config") or "{}")
    assert written.keys() <= release.keys
    assert not written or not release.methods or written["method"] in release.methods


# The rollout file


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"speculation": {"method": "eagle3"}}, "method eagle3 has no draft"),
        ({"speculation": {"method": "ngram", "more": {"method": "x"}}}, "more holds method"),
        ({"arguments": ["--api-key", "x"]}, "--api-key is a secret"),
        ({"arguments": ["--api_key=x"]}, "is a secret"),
        ({"environment": {"HF_TOKEN": "x"}}, "HF_TOKEN is a secret"),
        ({"environment": {"A B": "x"}}, "invalid name of a variable"),
        ({"program": "HF_TOKEN=x vllm serve"}, "HF_TOKEN is a secret"),
        ({"program": "vllm 'serve"}, "no closing quotation"),
        ({"program": ""}, "it is empty"),
        ({"version": "latest"}, "pattern"),
    ],
)
def test_settings_that_cannot_be_meant(settings, says) -> None:
    with pytest.raises(ValidationError, match=says):
        VllmPool(engine="vllm", model="m", **settings)


def test_variables_whose_name_only_looks_like_a_secret_are_let_through() -> None:
    assert pool(environment={"TOKENIZERS_PARALLELISM": "false", "VLLM_CPU_KVCACHE_SPACE": "1"})


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_pools_that_differ_in_more_than_speculation_are_refused(tmp_path, engine) -> None:
    model = "model" if engine == "vllm" else "model_path"
    speculation = {"method": "ngram"} if engine == "vllm" else {"algorithm": "NGRAM"}
    standard = {"engine": engine, model: "m", "environment": {"A": "1", "CUDA_VISIBLE_DEVICES": "0"}}
    speculative = standard | {
        "speculation": speculation,
        "start_timeout_s": 900.0,
        "environment": {"A": "1", "CUDA_VISIBLE_DEVICES": "1"},
    }
    path = tmp_path / "rollout.yaml"

    def read() -> None:
        path.write_text(
            yaml.safe_dump({"rollout": "x", "pools": {"standard": standard, "speculative": speculative}})
        )
        load(path)

    read()
    speculative |= {"served_model_name": "other", "environment": {"A": "2"}}
    with pytest.raises(
        ConfigError, match=r"more than speculation: environment\.A, served_model_name"
    ) as caught:
        read()
    assert "same for both" in caught.value.message


# The program


def test_a_program_that_is_not_there_or_is_no_python_has_no_version(tmp_path) -> None:
    script = tmp_path / "vllm"
    script.write_text("#!/bin/sh\necho 0.1.0\n")
    script.chmod(0o755)
    for program in (["no-such-vllm", "serve"], [str(script), "serve"], ["env"], [], ["/bin/ls"]):
        assert installed(program) is None


def test_a_python_without_vllm_has_no_version() -> None:
    assert installed([sys.executable, "-m", "vllm.entrypoints.openai.api_server"]) is None
