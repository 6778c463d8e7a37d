"""The settings of a pool of vLLM, in vLLM's own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.section import Program, Section
from specops.serving.configured_pool import ConfiguredPool, Size

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
