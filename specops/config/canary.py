"""What `specops canary` asks both pools, and how much of it; the prompts are those of `measure`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specops.section import Section

CheckName = Literal[
    "parity",
    "mixed",
    "distribution",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "stop",
    "length",
    "usage",
    "stream",
    "json_object",
    "json_schema",
    "tools",
    "tools_stream",
    "long_prompt",
    "too_long",
    "cancel",
]


class Canary(Section):
    prompts: int = Field(
        default=12,
        ge=4,
        le=200,
        description="Prompts whose greedy answers are compared.",
    )
    samples: int = Field(
        default=192,
        ge=32,
        le=20000,
        description="Sampled answers of each pool; the result says how small a difference they would show.",
    )
    concurrency: int = Field(default=8, ge=2, le=256, description="Requests that each pool has at a time.")
    long_prompt_tokens: int = Field(
        default=4096, ge=64, description="Longest prompt that is sent, where the model would take more."
    )
    skip: list[CheckName] = Field(default=[], description="Checks to leave out.")
