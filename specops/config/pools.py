"""The pools of a rollout: what serves, as it is written in the rollout file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.config.section import Command, Draft, ExistingPath, Section, Tree
from specops.config.sglang import SglangPool
from specops.config.vllm import VllmPool
from specops.exits import exit_layers
from specops.trees import parse_tree


class Speculation(Section):
    draft: Draft | None = Field(
        default=None,
        description="Folder of the draft, a model or heads, or exit:LAYERS, the target's own first layers; "
        "the shipped draft model where the target is. Trees that copy need none.",
    )
    tree: Tree = Field(
        default="chain:3",
        description="chain:K, adaptive:K, expand:K1,K2,…, dynamic:NODES:DEPTH, shape:PARENTS, ngram:K, "
        "suffix:N; unions with +; a copy or else a model's tree with /; auto: planned as it goes.",
    )
    verifier: Literal["naive", "mss", "block", "traversal", "ranked"] | None = Field(
        default=None, description="How drafts are accepted; left out: the best that is lossless for the tree."
    )

    @property
    def folder(self) -> Path | None:
        """Of the draft; None of one that has none of its own."""
        return None if self.draft is None or exit_layers(str(self.draft)) else self.draft


class EmbeddedPool(Section):
    """A pool that specops starts and stops itself: `specops serve`."""

    engine: Literal["embedded"]
    target: ExistingPath | None = Field(
        default=None, description="Folder of the target model; left out: the pair that ships with specops."
    )
    speculation: Speculation | None = Field(default=None, description="Left out: one token a step.")
    max_batch: int = Field(default=8, ge=1, le=256, description="Sequences decoded at a time.")
    max_length: int | None = Field(
        default=None, ge=2, description="Prompt and output tokens of one sequence."
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads; left out: PyTorch's choice.")
    device: str = Field(
        default="cpu",
        pattern=r"^(cpu|cuda(:[0-9]+)?)$",
        description="Where target and draft run: cpu, cuda or cuda:1.",
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(default="float32", description="Of both.")
    attention: Literal["reference", "kernel"] = Field(
        default="reference",
        description="reference, which is PyTorch's, or kernel, the Triton kernel on a GPU.",
    )
    graphs: bool = Field(
        default=True, description="With the kernel, passes of a few tokens as CUDA graphs; false: without."
    )

    @model_validator(mode="after")
    def _a_draft_for_the_target(self) -> EmbeddedPool:
        speculation = self.speculation
        if self.target and speculation and not speculation.draft and parse_tree(speculation.tree).needs_draft:
            raise PydanticCustomError(
                "pools",
                "a target of your own has no draft",
                {"hint": "add speculation.draft, or take a tree that needs none, such as ngram:8"},
            )
        return self


class EndpointPool(Section):
    """An OpenAI-compatible server that is already running. Its key comes from the environment."""

    engine: Literal["endpoint"]
    base_url: str = Field(pattern=r"^https?://", description="Such as http://127.0.0.1:8000/v1.")
    model: str = Field(min_length=1, description="What the endpoint calls the model.")


class CommandPool(Section):
    """A server that specops starts with a command of yours, and stops: vLLM, SGLang and their like."""

    engine: Literal["command"]
    command: Command = Field(
        description="Such as: vllm serve MODEL --port {port}. No shell reads it; it must listen on "
        "127.0.0.1. Where it says {k}, a sweep writes the K that it tries."
    )
    model: str | None = Field(
        default=None, min_length=1, description="What it calls the model; left out: the first that it lists."
    )
    start_timeout_s: float = Field(default=600.0, gt=0.0, description="Longest time for it to come up.")


Pool = Annotated[
    EmbeddedPool | EndpointPool | CommandPool | VllmPool | SglangPool, Field(discriminator="engine")
]
Switchable = EmbeddedPool | VllmPool | SglangPool
"""Pools whose speculation specops sets itself."""
Rendered = VllmPool | SglangPool
"""Pools whose every setting is in the rollout file, so that two of them can be held to be equal."""
PLACES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "VLLM_CPU_OMP_THREADS_BIND",
)
"""Variables that say where a server runs: two that run at once cannot share them."""


class Pools(Section):
    standard: Pool = Field(description="Without speculation: what the other is compared with.")
    speculative: Pool = Field(description="With speculation.")

    @model_validator(mode="after")
    def _one_speculates(self) -> Pools:
        if isinstance(self.standard, Switchable) and self.standard.speculation is not None:
            raise PydanticCustomError(
                "pools",
                "the standard pool must not have speculation",
                {"hint": "remove pools.standard.speculation: it is what the other pool is compared with"},
            )
        if isinstance(self.speculative, Switchable) and self.speculative.speculation is None:
            raise PydanticCustomError(
                "pools",
                "the speculative pool has no speculation",
                {"hint": "add pools.speculative.speculation, such as tree: chain:3"},
            )
        return self

    @model_validator(mode="after")
    def _nothing_else_differs(self) -> Pools:
        standard, speculative = self.standard, self.speculative
        if isinstance(standard, Rendered) and type(standard) is type(speculative):
            unlike = _unlike(standard, speculative)
            if unlike:
                raise PydanticCustomError(
                    "pools",
                    "the pools differ in more than speculation: {keys}",
                    {
                        "keys": ", ".join(unlike),
                        "hint": "write the same for both: what else differs would be measured as speculation",
                    },
                )
        return self


def _unlike(standard: VllmPool | SglangPool, speculative: Section) -> list[str]:
    """Keys in which they differ, but for those that may: speculation, where it runs, how long it may take."""

    def compared(pool: Section) -> dict[str, Any]:
        fields = pool.model_dump(exclude={"speculation", "start_timeout_s", "environment"})
        variables: dict[str, str] = getattr(pool, "environment", {})
        return fields | {f"environment.{name}": variables[name] for name in variables if name not in PLACES}

    one, other = compared(standard), compared(speculative)
    return sorted(key for key in one | other if one.get(key) != other.get(key))
