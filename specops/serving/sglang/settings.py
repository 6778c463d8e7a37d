"""The settings of a pool of SGLang, in SGLang's own words, and the command line that starts it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from specops.quantities import Count, Seed, Share, Tokens
from specops.section import Arguments, Program, Section
from specops.serving.argv import flag_of
from specops.serving.configured_pool import ConfiguredPool, Length, Size, Text, unfit


class SglangSpeculation(Section):
    """SGLang's --speculative-* flags. num_steps counts draft tokens for every algorithm."""

    algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK"] = Field(
        description="Algorithm of --speculative-algorithm."
    )
    draft_model_path: str | None = Field(
        default=None,
        min_length=1,
        description="Folder or hub id of the draft; default: none, for NGRAM and drafts inside the target.",
    )
    num_steps: Length = Field(default=5, description="Number of tokens drafted per step, the tree's depth.")
    eagle_topk: Size = Field(default=1, description="Number of branches per step; 1: a chain.")
    num_draft_tokens: Annotated[Count, Field(ge=2)] | None = Field(
        default=None, description="Number of tree nodes, root included; default: num_steps + 1, a chain."
    )
    arguments: Arguments = Field(
        default=[],
        description="Further arguments for speculation, such as "
        "--speculative-draft-attention-backend and its value.",
    )

    @model_validator(mode="after")
    def _as_sglang_has_it(self) -> SglangSpeculation:
        # Each is an error of SGLang 0.5.23 at start, or a silent change of what was requested
        # (srt/arg_groups/speculative_hook.py).
        problem = hint = None
        if self.algorithm in ("EAGLE3", "STANDALONE", "DFLASH") and self.draft_model_path is None:
            problem, hint = f"{self.algorithm} needs a draft", "add draft_model_path"
        elif self.algorithm == "NGRAM" and self.draft_model_path is not None:
            problem, hint = "NGRAM drafts from the text itself", "remove draft_model_path"
        elif self.eagle_topk == 1 and self.num_draft_tokens not in (None, self.num_steps + 1):
            problem = (
                f"a chain of {self.num_steps} steps has {self.num_steps + 1} tokens, its root among them"
            )
            hint = "remove num_draft_tokens, or ask for a tree with eagle_topk"
        elif self.eagle_topk > 1 and self.algorithm in ("DFLASH", "DSPARK"):
            problem, hint = f"{self.algorithm} drafts one chain", "remove eagle_topk"
        elif self.eagle_topk > 1 and self.num_draft_tokens is None:
            problem, hint = "the size of the tree is missing", "add num_draft_tokens, such as 8"
        if problem:
            raise unfit(problem, hint)
        return self


class SglangSettings(ConfiguredPool):
    """The fields of a pool of SGLang; SglangPool (pool.py) answers with them."""

    TARGET: ClassVar[str] = "model_path"
    DRAFT: ClassVar[str] = "draft_model_path"
    METHOD: ClassVar[str] = "algorithm"
    SIDE_BY_SIDE: ClassVar[Mapping[str, Any]] = {"mem_fraction_static": 0.45, "disable_radix_cache": True}

    engine: Literal["sglang"]
    model_path: str = Field(min_length=1, description="Folder or hub id of the target.")
    version: str | None = Field(
        default=None,
        pattern=r"^[0-9]+\.[0-9]+[0-9A-Za-z.]*$",
        description="Version of SGLang; default: the newest that specops knows.",
    )
    program: Program = Field(
        default="python -m sglang.launch_server",
        description="Command that calls SGLang, with any words before it.",
    )
    served_model_name: Text | None = Field(
        default=None, description="Name of the model for clients; default: its path."
    )
    revision: Text | None = Field(
        default=None, description="Branch, tag or commit of a hub id; default: the main branch."
    )
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] | None = Field(
        default=None, description="Number format of the weights; default: SGLang's choice."
    )
    quantization: Text | None = Field(
        default=None, description="Quantization of the target's weights; default: the one the model states."
    )
    kv_cache_dtype: Text | None = Field(
        default=None, description="Number format of the KV cache, such as fp8_e4m3; default: SGLang's choice."
    )
    tp_size: Size | None = Field(
        default=None, description="Number of GPUs that share each layer; default: SGLang's choice, 1."
    )
    pp_size: Size | None = Field(
        default=None, description="Number of GPU groups that share the layers; default: SGLang's choice, 1."
    )
    dp_size: Size | None = Field(
        default=None,
        description="Number of copies of the model behind one address; default: SGLang's choice, 1.",
    )
    mem_fraction_static: Annotated[Share, Field(gt=0.0, lt=1.0)] | None = Field(
        default=None,
        description="Share of GPU memory for weights and KV cache, 0 to 1; default: SGLang's choice.",
    )
    context_length: Length | None = Field(
        default=None, description="Limit on prompt and output tokens of one sequence; default: the model's."
    )
    max_running_requests: Size = Field(
        default=48,
        description="Limit on concurrent requests, always set, since "
        "SGLang's own default is far higher without speculation.",
    )
    chunked_prefill_size: Annotated[Tokens, Field(ge=-1)] | None = Field(
        default=None,
        description="Limit on prompt tokens in one forward pass, "
        "-1: whole prompts; default: SGLang's choice.",
    )
    schedule_policy: Text | None = Field(
        default=None, description="Scheduling policy; default: SGLang's choice, fcfs."
    )
    attention_backend: Text | None = Field(
        default=None, description="Attention backend, such as flashinfer; default: SGLang's choice."
    )
    disable_radix_cache: bool = Field(
        default=False, description="Turn off reuse of the KV cache, so that repeated prompts are not faster."
    )
    trust_remote_code: bool = Field(default=False, description="Run code that comes with the model.")
    random_seed: Annotated[Seed, Field(ge=0)] | None = Field(
        default=None, description="Seed of sampling; default: SGLang's choice."
    )
    speculation: SglangSpeculation | None = Field(
        default=None, description="Speculation of the pool; default: none, one token a step."
    )


EAGLE_FAMILY = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
"""Algorithms that draft step by step, several branches a step where `eagle_topk` says so."""
VERSION = "0.5.23"
"""The release whose flags these are: the newest one known."""

_NAMED = (
    "served_model_name",
    "revision",
    "tp_size",
    "pp_size",
    "dp_size",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "mem_fraction_static",
    "context_length",
    "chunked_prefill_size",
    "schedule_policy",
    "attention_backend",
    "random_seed",
)
"""Settings that are SGLang's own to choose where they are left out."""

_SWITCHES = ("disable_radix_cache", "trust_remote_code")


def command(pool: SglangSettings, *, port: int | str, host: str = "127.0.0.1") -> list[str]:
    """The words that serve `pool`.

    `--max-running-requests` is always among them, since SGLang's default differs with and without
    speculation; and `--enable-metrics`, without which it exposes none.
    """
    words = [*shlex.split(pool.program), "--model-path", pool.model_path]
    words += ["--host", host, "--port", str(port), "--enable-metrics"]
    words += ["--max-running-requests", str(pool.max_running_requests)]
    words += pool.flags(_NAMED)
    words += [flag_of(name) for name in _SWITCHES if getattr(pool, name)]
    words += pool.arguments
    if pool.speculation is not None:
        words += _speculative(pool.speculation)
    return words


def _speculative(speculation: SglangSpeculation) -> list[str]:
    steps, branches = speculation.num_steps, speculation.eagle_topk
    nodes = speculation.num_draft_tokens or steps + 1
    flags: dict[str, str | int | None] = {
        "algorithm": speculation.algorithm,
        "draft_model_path": speculation.draft_model_path,
    }
    if speculation.algorithm in EAGLE_FAMILY:
        flags |= {"num_steps": steps, "eagle_topk": branches, "num_draft_tokens": nodes}
    elif speculation.algorithm == "NGRAM":  # has its own word for the branches, and copies it to topk
        flags |= {"num_steps": steps, "ngram_max_bfs_breadth": branches, "num_draft_tokens": nodes}
    elif speculation.algorithm == "DFLASH":  # a block of masks behind the last token; its steps are fixed
        flags |= {"num_draft_tokens": nodes}
    else:
        flags |= {"dspark_block_size": steps}
    words = [
        word
        for name, value in flags.items()
        if value is not None
        for word in (flag_of(f"speculative_{name}"), str(value))
    ]
    return words + speculation.arguments
