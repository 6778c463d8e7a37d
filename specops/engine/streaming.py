"""One sequence at a time, for whoever has only one: on top of what takes many and steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specops.engine.request import Counters, Emission, FinishReason, Sampling, TokenLogprob
from specops.errors import ServerError, UsageError


@dataclass(frozen=True)
class Completion:
    tokens: list[int]
    text: str
    finish_reason: FinishReason
    logprobs: list[TokenLogprob]


class Streaming(ABC):
    """What all engines are asked, and what one adds to `submit`, `step` and `cancel`."""

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
        """What generates, where whoever made the engine cannot know."""
        return None

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be generated at the moment."""
        return None

    @property
    def looks_up(self) -> float | None:
        """Seconds after which even an idle engine wants a step, to see what became of what it stands on."""
        return None

    @property
    def extra(self) -> object:
        """What only this kind of engine counts."""
        return None

    @property
    @abstractmethod
    def idle(self) -> bool:
        """There is nothing to step for."""

    @abstractmethod
    def submit(self, prompt: list[int], sampling: Sampling) -> int:
        """Queue a sequence -> its id."""

    @abstractmethod
    def step(self) -> list[Emission]:
        """What came of one iteration."""

    @abstractmethod
    def cancel(self, sequence_id: int) -> None:
        """Drop a sequence; unknown ids are ignored."""

    def stream(self, prompt: str | list[int], sampling: Sampling) -> Iterator[Emission]:
        """Decode one sequence, an emission a step. For several at a time there are `submit` and `step`."""
        if not self.idle:
            raise UsageError(
                "an engine streams one sequence at a time",
                hint="use submit and step to decode several together",
            )
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        wanted = self.submit(tokens, sampling)
        try:
            while True:
                for emission in self.step():
                    yield emission
                    if emission.finish_reason is not None:
                        return
        finally:
            self.cancel(wanted)

    def generate(self, prompt: str | list[int], sampling: Sampling) -> Completion:
        """The whole of one sequence. ServerError where it could not be ended: what verifies is elsewhere."""
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
