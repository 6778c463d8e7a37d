"""What is asked of the engine, and what comes back: plain data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Sampling:
    """How one sequence is sampled and when it ends. Defaults are greedy."""

    temperature: float = 0.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int | None = None  # None: fresh entropy; otherwise the output does not depend on the batch
    max_tokens: int = 128
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # None: none; k: each token's own and the k most likely ones


@dataclass(frozen=True)
class TokenLogprob:
    """log P of one emitted token under the target's unmodified distribution, and the top alternatives."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Emission:
    """What one step gave one sequence. `text` holds back what may yet become a stop string."""

    sequence_id: int
    tokens: list[int]
    text: str
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None  # the stop string or stop token id that ended it
    logprobs: list[TokenLogprob] = field(default_factory=list)


@dataclass
class Counters:
    """Totals since the engine was made; acceptance is computed from differences of these."""

    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    drafts: int = 0  # verifications that had a draft
    draft_tokens: int = 0  # nodes proposed (a tree's nodes without its root)
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)  # by depth, from 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0  # target forward and verification
    commit_seconds: float = 0.0
