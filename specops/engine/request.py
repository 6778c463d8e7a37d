"""Requests to an engine and its results, as plain data; and the interface that every engine has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import Any, Literal

from specops.errors import ServerError, UsageError

FinishReason = Literal["stop", "length", "cancelled", "error"]

LEAST_TEMPERATURE = 1e-5
"""The least temperature above 0, as in vLLM. A much lower one takes the divided logits out of float32's
range; at this one the most likely token is all but certain."""


@dataclass(frozen=True)
class Sampling:
    """Sampling of one sequence, and its end. The defaults are greedy."""

    temperature: float = 0.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int | None = None  # None: fresh entropy; otherwise the output does not depend on the batch
    max_tokens: int = 128
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # None: none; k: each token's own and the k most likely ones


def refuse_bad(prompt: list[int], sampling: Sampling, *, room: int, vocabulary: int) -> None:
    """Raises UsageError for a request that a model with that vocabulary cannot decode in `room` tokens."""
    if not prompt:
        raise UsageError("a prompt must have at least one token")
    if len(prompt) >= room:
        raise UsageError(f"a prompt of {len(prompt)} tokens leaves no room: a sequence holds {room} tokens")
    if min(prompt) < 0 or max(prompt) >= vocabulary:
        raise UsageError(f"a prompt's token ids must be from 0 to {vocabulary - 1}")
    if sampling.max_tokens < 1:
        raise UsageError(f"max_tokens must be at least 1, not {sampling.max_tokens}")
    if not (sampling.temperature == 0 or sampling.temperature >= LEAST_TEMPERATURE):
        raise UsageError(
            f"a temperature must be 0 or at least {LEAST_TEMPERATURE}, not {sampling.temperature}"
        )
    if not (0 < sampling.top_p <= 1 and sampling.top_k >= 0):
        raise UsageError(
            "top_k must be at least 0, and top_p above 0 and at most 1, not "
            f"{sampling.top_k} and {sampling.top_p}"
        )


@dataclass(frozen=True)
class TokenLogprob:
    """The log-probability of an emitted token under the target's unmodified distribution, and the top
    alternatives."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Emission:
    """The result of one step for one sequence. `text` lacks characters that may yet become a stop string."""

    sequence_id: int
    tokens: list[int]
    text: str
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None  # the stop string or stop token id that ended it
    logprobs: list[TokenLogprob] = field(default_factory=list)
    error: str | None = None  # why a sequence ended that nobody had cancelled, and that is not complete
    drafted: int = 0  # nodes proposed for this step; 0: it had no draft
    accepted: int = 0  # of them; a sequence's end may cut off some of these
    restored: int | None = None  # tokens of the prompt that came from the prefix cache; None without one


@dataclass(frozen=True)
class StepTimes:
    """Seconds that the parts of a step took, by the engine's clock."""

    draft: float
    verify: float  # target forward and verification
    commit: float


@dataclass
class Counters:
    """Totals since the engine was made. Acceptance is computed from differences of these."""

    steps: int = 0
    prompt_tokens: int = 0  # of prompts that were read to their end
    queried_tokens: int = 0  # of them, those that were looked up in the prefix cache
    restored_tokens: int = 0  # and those that came from it
    generated_tokens: int = 0
    drafts: int = 0  # verifications that had a draft
    draft_tokens: int = 0  # nodes proposed (a tree's nodes without its root)
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)  # by depth, from 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0  # target forward and verification
    commit_seconds: float = 0.0
    not_finite: int = 0  # sequences that failed since logits were not finite
    evictions: int = 0  # sequences that lost their row while they were held
    steps_by_tree: dict[str, int] = field(default_factory=dict)  # that a planner chose; empty without one

    @property
    def computed_tokens(self) -> int:
        """Tokens of prompts that were read, and of answers."""
        return self.prompt_tokens - self.restored_tokens + self.generated_tokens

    def __add__(self, other: Counters) -> Counters:
        """The totals of both."""
        total = Counters()
        for item in fields(self):
            mine, its = getattr(self, item.name), getattr(other, item.name)
            total_value: Any
            if isinstance(mine, list):
                total_value = [a + b for a, b in zip_longest(mine, its, fillvalue=0)]
            elif isinstance(mine, dict):
                total_value = {key: mine.get(key, 0) + its.get(key, 0) for key in {**mine, **its}}
            else:
                total_value = mine + its
            setattr(total, item.name, total_value)
        return total

    def add(self, times: StepTimes) -> None:
        """Count a step that took `times`."""
        self.steps += 1
        self.draft_seconds += times.draft
        self.verify_seconds += times.verify
        self.commit_seconds += times.commit


@dataclass(frozen=True)
class Completion:
    """The whole output of one sequence."""

    tokens: list[int]
    text: str
    finish_reason: FinishReason
    logprobs: list[TokenLogprob]


class Streaming(ABC):
    """The interface of every engine, and decoding of a single sequence on top of `submit`, `step` and
    `cancel`."""

    tokenizer: Any
    max_length: int  # prompt and output tokens of one sequence
    counters: Counters

    @property
    @abstractmethod
    def running(self) -> int:
        """Sequences that are being decoded."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Sequences that wait for a place."""

    @property
    @abstractmethod
    def kv_usage(self) -> float:
        """Share of the KV cache in use."""

    @property
    def model(self) -> str | None:
        """The name of the model, if only the engine knows it."""
        return None

    @property
    def unavailable(self) -> str | None:
        """Return why nothing can be generated at the moment; None if it can."""
        return None

    @property
    def looks_up(self) -> float | None:
        """Seconds after which even an idle engine needs a step, to check on what it depends on; None for
        never."""
        return None

    @property
    def extra(self) -> object:
        """Counters that only this kind of engine has."""
        return None

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Return whether no sequence needs a step."""

    @abstractmethod
    def submit(self, prompt: list[int], sampling: Sampling) -> int:
        """Queue a sequence and return its id. Raises UsageError for a request that cannot be decoded."""

    @abstractmethod
    def step(self) -> list[Emission]:
        """Run one iteration and return its results."""

    @abstractmethod
    def cancel(self, sequence_id: int) -> None:
        """Drop a sequence; unknown ids are ignored."""

    def stream(self, prompt: str | list[int], sampling: Sampling) -> Iterator[Emission]:
        """Decode one sequence, with one emission a step. Raises UsageError if the engine is busy: use
        `submit` and `step` to decode several sequences together."""
        if not self.idle:
            raise UsageError(
                "an engine streams one sequence at a time: expected submit and step for several",
            )
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        sequence_id = self.submit(tokens, sampling)
        try:
            while True:
                for emission in self.step():
                    yield emission
                    if emission.finish_reason is not None:
                        return
        finally:
            self.cancel(sequence_id)

    def generate(self, prompt: str | list[int], sampling: Sampling) -> Completion:
        """Decode one sequence to its end. Raises ServerError if it was cut off by a verifier elsewhere."""
        tokens: list[int] = []
        logprobs: list[TokenLogprob] = []
        text = ""
        reason: FinishReason = "cancelled"
        for emission in self.stream(prompt, sampling):
            if emission.error is not None:
                raise ServerError(emission.error)
            tokens += emission.tokens
            logprobs += emission.logprobs
            text += emission.text
            reason = emission.finish_reason or reason
        return Completion(tokens, text, reason, logprobs)
