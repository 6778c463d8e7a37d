"""A pool of vLLM, in vLLM's own words, and what it answers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.section import Arguments, Environment, Program, Section
from specops.serving.argv import Finding
from specops.serving.engine import (
    EVERYWHERE,
    Container,
    Grid,
    PairQuestion,
    Pool,
    Rendering,
    Start,
    Variant,
    by_k,
    check_program,
    comparable,
    with_environment,
)
from specops.serving.metrics import Series
from specops.serving.vllm import command, lint
from specops.serving.vllm.metrics import BEFORE_0_11, CURRENT
from specops.serving.vllm.versions import Version, installed, table, version_of

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
IMAGE = "vllm/vllm-openai"
DRAINS = "--shutdown-timeout"
"""Since 0.18: without it SIGTERM ends running requests at once."""
WITHOUT_A_DRAFT = ("ngram", "ngram_gpu", "suffix", "mtp", "dspark", "extract_hidden_states")
"""mtp's and dspark's weights may be the target's own."""
Size = Annotated[int, Field(ge=1)]
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
        if self.model is None and self.method not in WITHOUT_A_DRAFT:
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


class VllmPool(Pool):
    """Servers of vLLM that specops configures: it renders how to start them, and can start one itself."""

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
        default=None, description="false: answers do not get faster by being asked again."
    )
    seed: int | None = None
    arguments: Arguments = Field(
        default=[], description="Words for the end of the command, for what is not named above."
    )
    environment: Environment = Field(
        default={}, description="Variables of the server; secrets are left to specops's own environment."
    )
    speculation: VllmSpeculation | None = Field(default=None, description="Left out: one token a step.")
    start_timeout_s: float = Field(default=600.0, gt=0.0, description="Longest time for it to come up.")

    def start(self, port: int, name: str) -> Start:
        """For the version that the program says it has."""
        check_program(shlex.split(self.program)[0])
        words = command.command(self, port=port, version=version_of(self))
        return Start(with_environment(self, words), timeout_s=self.start_timeout_s)

    def rendering(self, port: int | str, name: str) -> Rendering:
        """For the rollout file's version before the program's: it need not be rendered where it serves."""
        chosen = Version.parse(self.version) if self.version else installed(shlex.split(self.program))
        version = chosen or table().newest
        words = command.command(self, port=port, version=version)
        why = f"no version is set and '{self.program}' is not here to be asked; taken: {version}"
        return Rendering(
            words,
            str(version),
            judged=f"vLLM {version}",
            findings=lint.lint(words, version),
            notes=[] if chosen else [Finding(level="note", flag="version", why=why)],
        )

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        release = table().release(Version.parse(version) if version else None)
        called = self.model_copy(update={"program": "vllm serve"})
        words = command.command(called, port=port, host=EVERYWHERE, version=release.asked)
        drains = DRAINS in release.flags
        if drains and DRAINS not in words:
            words += [DRAINS, str(drain_s)]
        return Container(f"{IMAGE}:v{release.asked}", words, self.gpus, downloads=True, drains=drains)

    @property
    def environment_variables(self) -> Mapping[str, str]:
        return self.environment

    @property
    def models(self) -> Mapping[str, str]:
        draft = self.speculation and self.speculation.model
        return {"model": self.model} | ({"speculation.model": draft} if draft else {})

    @property
    def target_folder(self) -> Path:
        return Path(self.model)

    @property
    def programs(self) -> Sequence[str]:
        return (self.program,)

    @property
    def gpus(self) -> int:
        tensor, pipeline = self.tensor_parallel_size or 1, self.pipeline_parallel_size or 1
        return tensor * pipeline * (self.data_parallel_size or 1)

    @property
    def series(self) -> Series:
        if self.version is not None and Version.parse(self.version) < Version((0, 11, 0)):
            return BEFORE_0_11
        return CURRENT

    @property
    def speculates(self) -> bool:
        return self.speculation is not None

    @property
    def comparable(self) -> Mapping[str, Any]:
        return comparable(self)

    @property
    def method(self) -> str | None:
        return self.speculation.method if self.speculation else None

    def variants(self, grid: Grid) -> list[Variant]:
        return by_k(self, grid, partial(_at, self))

    @property
    def pair(self) -> PairQuestion:
        assert self.speculation is not None  # Pools refuses a speculative pool without it
        method = self.speculation.method
        without_model = {"ngram": "ngram", "ngram_gpu": "ngram", "suffix": "suffix"}
        version = self.version or installed(shlex.split(self.program))
        return PairQuestion(
            target=self.model,
            draft=without_model.get(method) or self.speculation.model or self.model,
            version=str(version) if version else None,
            tensor_parallel=self.tensor_parallel_size or 1,
        )


def _at(pool: VllmPool, k: int, draft: str | None) -> VllmPool:
    assert pool.speculation is not None
    # A schedule by batch size would set K itself.
    update: dict[str, object] = {"num_speculative_tokens": k, "num_speculative_tokens_per_batch_size": None}
    update |= {"model": draft} if draft else {}
    return pool.model_copy(update={"speculation": pool.speculation.model_copy(update=update)})
