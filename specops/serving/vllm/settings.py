"""The settings of a pool of vLLM, in its own words, and the command line that starts it, for a version."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.errors import ConfigError
from specops.hints import in_rollout
from specops.quantities import Count, Factor, MeanTokens, Seed, Share
from specops.section import Program, Section
from specops.serving.argv import flag_of
from specops.serving.configured_pool import ConfiguredPool, Length, Size
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
    """deepseek_mtp and similar names stand for mtp."""
    return "mtp" if method.endswith("_mtp") else method


def needs_draft(method: str) -> bool:
    return plain(method) not in WITHOUT_A_DRAFT


class VllmSpeculation(Section):
    """Keys of vLLM's --speculative-config, under the same names."""

    method: VllmMethod = Field(
        description="Method, always named, since vLLM would guess it from the model's path."
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Folder or hub id of the draft; default: none, for ngram and the like.",
    )
    num_speculative_tokens: Length = Field(default=5, description="Number of tokens drafted per step.")
    num_speculative_tokens_per_batch_size: list[list[Count]] | None = Field(
        default=None,
        min_length=1,
        description="Draft lengths by batch size, [FIRST, LAST, TOKENS] each, from "
        "1 request on, 0 tokens: off; default: the same at all sizes.",
    )
    draft_tensor_parallel_size: Size | None = Field(
        default=None,
        description="Number of GPUs that share each layer of the "
        "draft, 1 or the target's; default: the target's.",
    )
    max_model_len: Length | None = Field(
        default=None,
        description="Length in tokens above which sequences are not speculated on; default: vLLM's choice.",
    )
    quantization: str | None = Field(
        default=None, description="Quantization of the draft's weights; default: the one the draft states."
    )
    revision: str | None = Field(
        default=None, description="Branch, tag or commit of the draft's hub id; default: the main branch."
    )
    enforce_eager: bool | None = Field(
        default=None, description="Run the draft without CUDA graphs; default: as the target."
    )
    prompt_lookup_min: Length | None = Field(
        default=None,
        description="Length of the shortest n-gram to look up, in tokens; default: vLLM's choice.",
    )
    prompt_lookup_max: Length | None = Field(
        default=None,
        description="Length of the longest n-gram to look up, in tokens; default: vLLM's choice.",
    )
    suffix_decoding_max_tree_depth: Length | None = Field(
        default=None, description="Depth of the suffix tree, in tokens; default: vLLM's choice."
    )
    suffix_decoding_max_cached_requests: Annotated[Count, Field(ge=0)] | None = Field(
        default=None, description="Number of requests stored in the suffix tree; default: vLLM's choice."
    )
    suffix_decoding_max_spec_factor: Annotated[Factor, Field(ge=0.0)] | None = Field(
        default=None,
        description="Ratio of drafted to matched tokens at most, with suffix; default: vLLM's choice.",
    )
    suffix_decoding_min_token_prob: Annotated[Share, Field(ge=0.0, le=1.0)] | None = Field(
        default=None,
        description="Lowest estimated probability of a drafted token, with suffix; default: vLLM's choice.",
    )
    disable_padded_drafter_batch: bool | None = Field(
        default=None, description="Turn off padding of the draft's batch, with EAGLE; default: vLLM's choice."
    )
    parallel_drafting: bool | None = Field(
        default=None,
        description="Draft all tokens in one pass, with drafts trained for it; default: vLLM's choice.",
    )
    draft_sample_method: Literal["greedy", "probabilistic", "gumbel"] | None = Field(
        default=None,
        description="Sampling of draft tokens; gumbel is 0.21's "
        "name of probabilistic; default: vLLM's choice.",
    )
    rejection_sample_method: (
        Literal["standard", "block", "strict", "probabilistic", "synthetic", "fly"] | None
    ) = Field(
        default=None,
        description="Verification; strict and probabilistic: 0.18 to 0.20, "
        "synthetic and fly change the output; default: vLLM's choice.",
    )
    synthetic_acceptance_rates: list[Annotated[Share, Field(ge=0.0, le=1.0)]] | None = Field(
        default=None,
        min_length=1,
        description="Acceptance rates by position for synthetic "
        "verification, in load tests only; default: none.",
    )
    synthetic_acceptance_length: Annotated[MeanTokens, Field(ge=1.0)] | None = Field(
        default=None,
        description="Mean accepted length for synthetic verification, in load tests only; default: none.",
    )
    use_heterogeneous_vocab: bool | None = Field(
        default=None,
        description="Accept a draft_model with another vocabulary than the target's; default: vLLM's choice.",
    )
    more: dict[str, Any] = Field(
        default={}, description="Keys of --speculative-config that have no key here."
    )

    @model_validator(mode="after")
    def _a_draft_where_one_is_needed(self) -> VllmSpeculation:
        if self.model is None and needs_draft(self.method):
            raise PydanticCustomError(
                "pools", f"method {self.method} has no draft", {"advice": "add model: its folder or hub id"}
            )
        clash = sorted(set(self.more) & set(type(self).model_fields))
        if clash:
            raise PydanticCustomError(
                "pools", f"more holds {clash[0]}", {"advice": f"write {clash[0]} beside `more`, not in it"}
            )
        return self

    def keys(self) -> dict[str, Any]:
        """Return what is set, as vLLM's JSON has it."""
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
        description="Version of vLLM; default: the one that `program` reports.",
    )
    program: Program = Field(
        default="vllm serve", description="Command that calls vLLM, with any words before it."
    )
    served_model_name: str | None = Field(
        default=None, min_length=1, description="Name of the model for clients; default: `model`."
    )
    dtype: str | None = Field(
        default=None,
        description="Number format of the weights, such as auto, bfloat16 or float32; default: the model's.",
    )
    tensor_parallel_size: Size | None = Field(
        default=None, description="Number of GPUs that share each layer; default: vLLM's choice, 1."
    )
    pipeline_parallel_size: Size | None = Field(
        default=None,
        description="Number of GPU groups that share the layers, 1 "
        "with speculation; default: vLLM's choice, 1.",
    )
    data_parallel_size: Size | None = Field(
        default=None,
        description="Number of copies of the model behind one address; default: vLLM's choice, 1.",
    )
    max_model_len: Length | None = Field(
        default=None, description="Limit on prompt and output tokens of one sequence; default: the model's."
    )
    max_num_seqs: Size | None = Field(
        default=None, description="Limit on sequences decoded at a time; default: vLLM's choice."
    )
    max_num_batched_tokens: Length | None = Field(
        default=None, description="Limit on tokens of one forward pass; default: vLLM's choice."
    )
    gpu_memory_utilization: Annotated[Share, Field(gt=0.0, le=1.0)] | None = Field(
        default=None,
        description="Share of GPU memory for weights and KV cache, 0 to 1; default: vLLM's choice.",
    )
    quantization: str | None = Field(
        default=None, description="Quantization of the target's weights; default: the one the model states."
    )
    kv_cache_dtype: str | None = Field(
        default=None, description="Number format of the KV cache, such as fp8; default: vLLM's choice."
    )
    enforce_eager: bool | None = Field(
        default=None, description="Run without CUDA graphs; default: vLLM's choice, false."
    )
    enable_prefix_caching: bool | None = Field(
        default=None,
        description="Reuse the KV cache of repeated prompts, which "
        "makes them faster; default: vLLM's choice.",
    )
    seed: Seed | None = Field(
        default=None, description="Seed of sampling for requests without one; default: vLLM's choice."
    )
    speculation: VllmSpeculation | None = Field(
        default=None, description="Speculation of the pool; default: none, one token a step."
    )


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
"""Flags before --speculative-config, and in 0.8.2, which has both but reads the JSON as a Python literal."""


def command(
    pool: VllmSettings, *, port: int | str, host: str = "127.0.0.1", version: Version | None = None
) -> list[str]:
    """The words; `pool.environment` is not among them. `version`: of the program, None: the newest known.

    Raises ConfigError for a setting that this version does not have.
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
    """The words that turn `speculation` on in this release. Raises ConfigError where it lacks a key or a
    method."""
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
        hint=in_rollout("version", f"name the version that will serve, or remove {name}"),
    )
