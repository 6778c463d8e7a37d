"""What `verify-draft` is asked: checked before any file is read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

ServingEngine = Literal["vllm", "sglang", "embedded"]


class VerifySettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str = Field(min_length=1)
    draft: str = Field(min_length=1)
    """A folder, a hub id, `exit:LAYERS`, or `ngram` or `suffix`."""

    engine: ServingEngine = "vllm"
    engine_version: str | None = None
    """None: the newest one that this specops knows."""

    gpu: str | None = None
    """A name of specops.phases.verify_draft.gpus, or a number of GiB."""

    tensor_parallel: int = Field(default=1, ge=1)
    allow_degraded: bool = False
