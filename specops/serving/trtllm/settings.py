"""The settings of a pool of TensorRT-LLM, the words that start it, and its YAML file, for a release."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import Field, model_validator

from specops.errors import ConfigError
from specops.hints import in_rollout, with_value
from specops.quantities import Count, MeanTokens, Share, Tokens
from specops.section import Arguments, Program, Section
from specops.serving.configured_pool import ConfiguredPool, Length, Size, Text, unfit
from specops.serving.trtllm.releases import Release, Version

Keys = dict[str, Any]

DecodingType = Literal["Eagle3", "MTP", "DraftTarget", "NGram", "SA", "PARD", "DFlash", "DSpark", "AUTO"]
WITH_DRAFT = ("Eagle3", "DraftTarget", "PARD", "DFlash")
"""Decoding types that load a draft of their own. DSpark and MTP may be inside the target."""
WITHOUT_DRAFT = ("NGram", "SA", "AUTO")


class TrtllmSpeculation(Section):
    """The keys of `speculative_config`. `max_draft_len` counts alike in all releases; up to 1.2, MTP calls it
    num_nextn_predict_layers, and Eagle3 is called Eagle."""

    decoding_type: DecodingType = Field(description="Decoding type, by its name in releases from 1.3 on.")
    speculative_model: Text | None = Field(
        default=None, description="Folder or hub id of the draft; default: none, for NGram, SA and AUTO."
    )
    max_draft_len: Length = Field(default=3, description="Number of tokens drafted per step.")
    max_matching_ngram_size: Length | None = Field(
        default=None,
        description="Length of the longest n-gram to look up, in tokens, "
        "with NGram and SA; default: TensorRT-LLM's choice.",
    )
    max_concurrency: Size | None = Field(
        default=None, description="Batch size above which speculation is off; default: none, always on."
    )
    draft_len_schedule: dict[Count, Annotated[Tokens, Field(ge=0)]] | None = Field(
        default=None, description="Draft lengths by batch size, in tokens; default: the same at all sizes."
    )
    use_rejection_sampling: bool | None = Field(
        default=None,
        description="Verify without loss at temperatures above 0, since 1.3; default: TensorRT-LLM's choice.",
    )
    acceptance_rate_window_size: Size | None = Field(
        default=None, description="Window of the acceptance gate, in iterations, since 1.3; default: no gate."
    )
    acceptance_rate_threshold: Annotated[Share, Field(gt=0.0, le=1.0)] | None = Field(
        default=None,
        description="Acceptance rate below which the gate ends "
        "speculation for good, since 1.3; default: no gate.",
    )
    acceptance_window: Size | None = Field(
        default=None, description="Window of the acceptance gate, in requests, up to 1.2; default: no gate."
    )
    acceptance_length_threshold: Annotated[MeanTokens, Field(gt=0.0)] | None = Field(
        default=None,
        description="Accepted tokens per step below which the gate ends "
        "speculation for good, up to 1.2; default: no gate.",
    )
    more: Keys = Field(
        default={}, description="Keys of speculative_config that have no key here, such as eagle3_model_arch."
    )

    @property
    def gate(self) -> str | None:
        """Return which settings may end speculation until the server is restarted. None: none do."""
        pairs = (
            ("acceptance_rate_threshold", "acceptance_rate_window_size"),
            ("acceptance_length_threshold", "acceptance_window"),
        )
        for threshold, window in pairs:
            below, over = (getattr(self, name) or self.more.get(name) for name in (threshold, window))
            if below and over:
                return f"{threshold} {below:g} over {window} {over}"
        return None

    @model_validator(mode="after")
    def _as_trtllm_has_it(self) -> TrtllmSpeculation:
        problem = hint = None
        ngram = self.decoding_type in ("NGram", "SA")
        if self.decoding_type in WITH_DRAFT and self.speculative_model is None:
            problem, hint = f"{self.decoding_type} needs a draft", "add speculative_model"
        elif self.decoding_type in WITHOUT_DRAFT and self.speculative_model is not None:
            problem, hint = f"{self.decoding_type} drafts without a model", "remove speculative_model"
        elif self.max_matching_ngram_size is not None and not ngram:
            problem = f"max_matching_ngram_size is of NGram and SA, and the type is {self.decoding_type}"
            hint = "remove it"
        elif self.max_concurrency is not None and self.draft_len_schedule is not None:
            problem, hint = "max_concurrency and draft_len_schedule exclude each other", "remove one of them"
        if problem:
            raise unfit(problem, hint)
        return self


class TrtllmSettings(ConfiguredPool):
    """The fields of a pool of TensorRT-LLM; TrtllmPool (pool.py) answers with them."""

    TARGET: ClassVar[str] = "model"
    DRAFT: ClassVar[str] = "speculative_model"
    METHOD: ClassVar[str] = "decoding_type"
    SIDE_BY_SIDE: ClassVar[Mapping[str, Any]] = {"free_gpu_memory_fraction": 0.45}

    engine: Literal["trtllm"]
    model: Text = Field(description="Folder or hub id of the target.")
    version: str | None = Field(
        default=None,
        pattern=r"^\d+\.\d+(\.\d+)?(rc\d+)?(\.post\d+)?$",
        description="Version of TensorRT-LLM, such as 1.2.1; default: the "
        "one that `program` reports, else the newest known.",
    )
    program: Program = Field(
        default="trtllm-serve",
        description="Command that calls trtllm-serve, with any words before it, such as mpirun.",
    )
    arguments: Arguments = Field(default=[], description="Further arguments at the end of the command.")
    tensor_parallel_size: Size | None = Field(
        default=None, description="Number of GPUs that share each layer; default: TensorRT-LLM's choice, 1."
    )
    pipeline_parallel_size: Size | None = Field(
        default=None,
        description="Number of GPU groups that share the layers; default: TensorRT-LLM's choice, 1.",
    )
    expert_parallel_size: Size | None = Field(
        default=None, description="Number of GPUs that share the experts; default: TensorRT-LLM's choice."
    )
    max_batch_size: Size | None = Field(
        default=None, description="Limit on concurrent requests; default: TensorRT-LLM's choice."
    )
    max_num_tokens: Length | None = Field(
        default=None, description="Limit on tokens of one forward pass; default: TensorRT-LLM's choice."
    )
    max_seq_len: Length | None = Field(
        default=None, description="Limit on prompt and output tokens of one sequence; default: the model's."
    )
    free_gpu_memory_fraction: Annotated[Share, Field(gt=0.0, lt=1.0)] | None = Field(
        default=None,
        description="Share of the free GPU memory for the KV cache, 0 to 1; default: TensorRT-LLM's choice.",
    )
    enable_chunked_prefill: bool = Field(
        default=False, description="Split long prompts over several forward passes."
    )
    trust_remote_code: bool = Field(default=False, description="Run code that comes with the model.")
    reasoning_parser: Text | None = Field(
        default=None, description="Parser of reasoning in answers, such as deepseek-r1; default: none."
    )
    tool_parser: Text | None = Field(
        default=None, description="Parser of tool calls in answers, such as qwen3; default: none."
    )
    config: Keys = Field(
        default={}, description="Further keys of the YAML file, such as kv_cache_config: {dtype: fp8}."
    )
    speculation: TrtllmSpeculation | None = Field(
        default=None, description="Speculation of the pool; default: none, one token a step."
    )


FLAGS = {
    "tensor_parallel_size": "--tp_size",
    "pipeline_parallel_size": "--pp_size",
    "expert_parallel_size": "--ep_size",
    "max_batch_size": "--max_batch_size",
    "max_num_tokens": "--max_num_tokens",
    "max_seq_len": "--max_seq_len",
    "free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    "reasoning_parser": "--reasoning_parser",
    "tool_parser": "--tool_parser",
}
SWITCHES = ("enable_chunked_prefill", "trust_remote_code")
CONFIG = "--config"
MEASURED = {"return_perf_metrics": True, "enable_iter_perf_stats": True}
"""Without them /prometheus/metrics has neither latencies nor counters of drafts."""
END = "CONFIG"
RENDERED = Version((1, 2, 1))
"""The first version whose flags and keys were read whole, so that a pool can be rendered for it."""
NAMES = {
    ("Eagle3", False): "Eagle",  # up to 1.2 there is one name for both, and only EAGLE-3 is served
    ("DraftTarget", True): "Draft_Target",
}
"""A decoding type's name, by whether the release has Eagle3."""


def config(pool: TrtllmSettings, release: Release) -> dict[str, Any]:
    """The content of the YAML file. Raises ConfigError for a setting that the release lacks."""
    if release.version < RENDERED:
        raise ConfigError(
            f"no pool of TensorRT-LLM {release.requested} is rendered: expected {RENDERED} or newer",
            hint=in_rollout("version", f"name {RENDERED} or a newer version"),
        )
    content: dict[str, Any] = dict(MEASURED) | dict(pool.config)
    if pool.speculation is not None:
        content["speculative_config"] = speculative(pool.speculation, release)
    return content


def speculative(speculation: TrtllmSpeculation, release: Release) -> dict[str, Any]:
    of_today = "Eagle3" in release.types
    type_ = NAMES.get((speculation.decoding_type, of_today), speculation.decoding_type)
    if type_ not in release.types:
        raise ConfigError(
            f"TensorRT-LLM {release} has no decoding_type {type_}: expected "
            f"{', '.join(sorted(release.types))}",
            hint=with_value(type_, sorted(release.types)[0]),
        )
    keys = speculation.model_dump(exclude_none=True, exclude={"more", "decoding_type"})
    if type_ == "AUTO":  # it ignores whatever else is given
        keys.pop("max_draft_len")
    if type_ == "MTP" and not of_today:
        keys["num_nextn_predict_layers"] = keys.pop("max_draft_len")
    keys |= speculation.more
    unknown = sorted(key for key in keys if release.reads(type_, key) is False)
    if unknown:
        raise ConfigError(
            f"TensorRT-LLM {release} has no {', '.join(unknown)} in speculative_config of type {type_}",
            hint=in_rollout(unknown[0], "remove it, or name a version that has it"),
        )
    return {"decoding_type": type_, **keys}


def server(pool: TrtllmSettings, *, port: int | str, host: str, file: str) -> list[str]:
    """The words of trtllm-serve itself."""
    words = [*shlex.split(pool.program), pool.model, "--host", host, "--port", str(port)]
    for name, flag in FLAGS.items():
        if (value := getattr(pool, name)) is not None:
            words += [flag, str(value)]
    words += [f"--{name}" for name in SWITCHES if getattr(pool, name)]
    return [*words, CONFIG, file, *pool.arguments]


def command(pool: TrtllmSettings, *, port: int | str, release: Release, host: str = "127.0.0.1") -> list[str]:
    """The words that write the YAML file and serve `pool` with `release`."""
    file = f"/tmp/trtllm-{port}.yaml"
    text = yaml.safe_dump(config(pool, release), sort_keys=False)
    words = shlex.join(server(pool, port=port, host=host, file=file))
    return ["bash", "-c", f"cat > {file} <<'{END}'\n{text}{END}\nexec {words}"]
