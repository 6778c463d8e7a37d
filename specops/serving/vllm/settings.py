"""The settings of a pool of vLLM, in its own words, and the command line that starts it, for a version."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.errors import ConfigError
from specops.section import Program, Section
from specops.serving.argv import flag_of
from specops.serving.configured_pool import ConfiguredPool, Size
from specops.serving.vllm.versions import LAST_OF_THE_OLD, Release, Version, table

VllmMethod = Literal[
    "ngram",
    "ngram_gpu",
    "draft_model",
    "suffix",
    "eagle",
    "eagle3",
    "medusa",
    "mlp_speculator",
    "mtp",
    "dflash",
    "dspark",
    "custom_class",
    "extract_hidden_states",
]
WITHOUT_A_DRAFT = ("ngram", "ngram_gpu", "suffix", "mtp", "dspark", "extract_hidden_states")
"""mtp's and dspark's weights may be the target's own."""


def plain(method: str) -> str:
    """deepseek_mtp and the like are mtp by another name."""
    return "mtp" if method.endswith("_mtp") else method


def needs_draft(method: str) -> bool:
    return plain(method) not in WITHOUT_A_DRAFT


Share = Annotated[float, Field(ge=0.0, le=1.0)]


class VllmSpeculation(Section):
    """Keys of vLLM's --speculative-config, by its names; serving/vllm says which version has which."""

    method: VllmMethod = Field(description="Always named: vLLM would guess it from the path's text.")
    model: str | None = Field(
        default=None, min_length=1, description="Folder or hub id of the draft; ngram has none."
    )
    num_speculative_tokens: Size = Field(default=5, description="Tokens drafted ahead.")
    num_speculative_tokens_per_batch_size: list[list[int]] | None = Field(
        default=None,
        min_length=1,
        description="[FIRST, LAST, TOKENS] by requests in the batch; the first starts at 1, 0 tokens is off.",
    )
    draft_tensor_parallel_size: Size | None = Field(
        default=None, description="1 or the target's; left out: the target's."
    )
    max_model_len: Size | None = Field(default=None, description="Longer sequences are not speculated on.")
    quantization: str | None = Field(default=None, description="Of the draft's weights.")
    revision: str | None = Field(default=None, description="Of the draft on the hub.")
    enforce_eager: bool | None = Field(default=None, description="The draft without CUDA graphs.")
    prompt_lookup_min: Size | None = Field(default=None, description="Shortest n-gram that is looked up.")
    prompt_lookup_max: Size | None = Field(default=None, description="Longest n-gram that is looked up.")
    suffix_decoding_max_tree_depth: Size | None = None
    suffix_decoding_max_cached_requests: Annotated[int, Field(ge=0)] | None = None
    suffix_decoding_max_spec_factor: Annotated[float, Field(ge=0.0)] | None = None
    suffix_decoding_min_token_prob: Share | None = None
    disable_padded_drafter_batch: bool | None = Field(default=None, description="Of EAGLE.")
    parallel_drafting: bool | None = Field(default=None, description="For drafts that were trained for it.")
    draft_sample_method: Literal["greedy", "probabilistic", "gumbel"] | None = Field(
        default=None, description="gumbel is probabilistic's name in 0.21."
    )
    rejection_sample_method: (
        Literal["standard", "block", "strict", "probabilistic", "synthetic", "fly"] | None
    ) = Field(
        default=None,
        description="strict and probabilistic: 0.18 to 0.20. synthetic and fly change what is answered.",
    )
    synthetic_acceptance_rates: list[Share] | None = Field(
        default=None, min_length=1, description="By position; for load tests, never for users."
    )
    synthetic_acceptance_length: Annotated[float, Field(ge=1.0)] | None = None
    use_heterogeneous_vocab: bool | None = Field(
        default=None, description="For a draft_model whose vocabulary is not the target's."
    )
    more: dict[str, Any] = Field(default={}, description="Keys that are not named above.")

    @model_validator(mode="after")
    def _a_draft_where_one_is_needed(self) -> VllmSpeculation:
        if self.model is None and needs_draft(self.method):
            raise PydanticCustomError(
                "pools", f"method {self.method} has no draft", {"hint": "add model: its folder or hub id"}
            )
        clash = sorted(set(self.more) & set(type(self).model_fields))
        if clash:
            raise PydanticCustomError(
                "pools", f"more holds {clash[0]}", {"hint": f"write {clash[0]} beside `more`, not in it"}
            )
        return self

    def keys(self) -> dict[str, Any]:
        """What is set, as vLLM's JSON has it."""
        return self.model_dump(exclude_none=True, exclude={"more"}) | self.more


class VllmSettings(ConfiguredPool):
    """The fields of a pool of vLLM; VllmPool (pool.py) answers with them."""

    TARGET: ClassVar[str] = "model"
    DRAFT: ClassVar[str] = "model"
    METHOD: ClassVar[str] = "method"
    SIDE_BY_SIDE: ClassVar[Mapping[str, Any]] = {
        "gpu_memory_utilization": 0.45,
        "enable_prefix_caching": False,
    }

    engine: Literal["vllm"]
    model: str = Field(min_length=1, description="Folder or hub id of the target.")
    version: str | None = Field(
        default=None,
        pattern=r"^\d+\.\d+(\.\d+)*$",
        description="vLLM's; left out: the one that `program` says it has.",
    )
    program: Program = Field(
        default="vllm serve", description="How vLLM is called, with what comes before it."
    )
    served_model_name: str | None = Field(default=None, min_length=1, description="Left out: `model`.")
    dtype: str | None = Field(default=None, description="auto, bfloat16, float16, float32, …")
    tensor_parallel_size: Size | None = None
    pipeline_parallel_size: Size | None = None
    data_parallel_size: Size | None = None
    max_model_len: Size | None = Field(default=None, description="Prompt and output tokens of one sequence.")
    max_num_seqs: Size | None = Field(default=None, description="Sequences decoded at a time.")
    max_num_batched_tokens: Size | None = Field(default=None, description="Tokens of one forward pass.")
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    quantization: str | None = Field(default=None, description="Of the target's weights.")
    kv_cache_dtype: str | None = None
    enforce_eager: bool | None = Field(default=None, description="Without CUDA graphs.")
    enable_prefix_caching: bool | None = Field(
        default=None, description="false: repeated prompts are not faster."
    )
    seed: int | None = None
    speculation: VllmSpeculation | None = Field(default=None, description="Left out: one token a step.")


FLAGS = (
    "served_model_name",
    "dtype",
    "quantization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "seed",
    "enforce_eager",
    "enable_prefix_caching",
)
"""Settings of a pool that are flags of the same name."""
ONLY_ON = ("enforce_eager",)
"""Switches that are off where they are not named, and have no --no- form before 0.8.5."""

OLD_FLAGS = {
    "model": "--speculative-model",
    "num_speculative_tokens": "--num-speculative-tokens",
    "draft_tensor_parallel_size": "--speculative-draft-tensor-parallel-size",
    "max_model_len": "--speculative-max-model-len",
    "quantization": "--speculative-model-quantization",
    "prompt_lookup_min": "--ngram-prompt-lookup-min",
    "prompt_lookup_max": "--ngram-prompt-lookup-max",
}
"""Before --speculative-config, and in 0.8.2, which has both but reads the JSON as a Python literal."""


def command(
    pool: VllmSettings, *, port: int | str, host: str = "127.0.0.1", version: Version | None = None
) -> list[str]:
    """The words; `pool.environment` is not among them. `version`: of the program, None: the newest known.

    ConfigError for a setting that this version does not have.
    """
    release = table().release(version)
    words = shlex.split(pool.program)
    words += [pool.model] if words[-1] == "serve" else ["--model", pool.model]
    words += ["--host", host, "--port", str(port)]
    for name in FLAGS:
        words += _flag(name, getattr(pool, name), release)
    if pool.speculation is not None:
        words += speculating(pool.speculation, release)
    return words + pool.arguments


def speculating(speculation: VllmSpeculation, release: Release) -> list[str]:
    """The words that turn `speculation` on in this release. ConfigError where it lacks a key or a method."""
    keys = speculation.keys()
    if release.version <= LAST_OF_THE_OLD:
        return _old_words(keys, release)
    for key in keys:
        if key not in release.keys:
            raise _lacking(f"speculation.{key}", release, table().history("keys", key))
        if release.refuses(key, keys[key]):
            history = table().history("choices", f"{key}={keys[key]}")
            raise _lacking(f"speculation.{key} {keys[key]}", release, history)
    if release.methods and speculation.method not in release.methods:
        history = table().history("methods", speculation.method)
        raise _lacking(f"speculation.method {speculation.method}", release, history)
    return ["--speculative-config", json.dumps(keys)]


def _flag(name: str, value: Any, release: Release) -> list[str]:
    flag = flag_of(name)
    if value is None or (value is False and name in ONLY_ON):
        return []
    if flag not in release.flags:
        raise _lacking(name, release, table().history("flags", flag))
    if value is True:
        return [flag]
    if value is False:
        return [f"--no-{flag.removeprefix('--')}"]
    return [flag, str(value)]


def _old_words(keys: dict[str, Any], release: Release) -> list[str]:
    method = keys.pop("method")
    if method == "ngram":
        keys = {"model": "[ngram]"} | keys
    elif method not in ("draft_model", "eagle", "medusa", "mlp_speculator"):
        history = table().history("methods", method)
        raise _lacking(f"speculation.method {method}", release, history)
    words = []
    for key, value in keys.items():
        if key not in OLD_FLAGS:
            raise _lacking(f"speculation.{key}", release, table().history("keys", key))
        words += [OLD_FLAGS[key], str(value)]
    return words


def _lacking(name: str, release: Release, history: str | None) -> ConfigError:
    where = f"{history} have it" if history else "no version of vLLM has it"
    return ConfigError(
        f"{name} is not for vLLM {release.requested}: {where}",
        hint="leave it out, or set the pool's version to the one that will serve",
    )
