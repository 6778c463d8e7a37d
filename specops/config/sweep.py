"""What `specops sweep` tries; the requests are those of `measure`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specops.section import Section, Tree


class Sweep(Section):
    k: list[Annotated[int, Field(ge=0, le=64)]] = Field(
        default=[3, 4, 5, 6, 7, 8],
        min_length=1,
        description="Tokens drafted ahead. 0, no speculation, is always measured, first and again last.",
    )
    trees: list[Tree] | None = Field(
        default=None, min_length=1, description="In place of k, on the embedded engine."
    )
    drafts: dict[str, str] | None = Field(
        default=None,
        min_length=1,
        description="Drafts to compare: a name of yours, and a folder or hub id. Left out: the pool's own.",
    )
    concurrency: list[Annotated[int, Field(ge=1, le=1000)]] | None = Field(
        default=None, min_length=1, description="Streams at a time; left out: those of `measure`."
    )
    temperature: list[Annotated[float, Field(ge=0.0)]] | None = Field(
        default=None, min_length=1, description="Left out: that of `measure`."
    )
    prompt_tokens: list[Annotated[int, Field(ge=1)]] = Field(
        default=[],
        description="Bounds between classes of prompt length, such as [512, 4096]; left out: one class.",
    )
    budget_min: float | None = Field(
        default=None, gt=0.0, description="Minutes to spend where the answer is open; left out: all cells."
    )
    cluster: str | None = Field(
        default=None,
        pattern=r"^(local|(ray://)?[^\s/:]+:\d{1,5})$",
        description="Of Ray, to measure on: ray://HOST:10001, HOST:6379 or local; left out: this machine.",
    )
