"""One sequence in the engine."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from specops.engine.request import Emission, FinishReason, Sampling, TokenLogprob
from specops.engine.rng import Chance, Dice
from specops.engine.text import TextStream


class Sequence:
    """A prompt and its output so far.

    `tokens` holds both; the first `cached` of them are in the target's KV cache. At least the last token is
    never cached: it is the root of the next tree.
    """

    def __init__(
        self,
        id: int,
        prompt: list[int],
        sampling: Sampling,
        *,
        room: int,  # tokens, the prompt included
        chunk: int,  # of the prompt to read in one step
        eos: frozenset[int],
        tokenizer: Any,
    ) -> None:
        self.id = id
        self.chunk = chunk
        self.tokens = list(prompt)
        self.prompt_length = len(prompt)
        self.sampling = sampling
        self.chance: Chance = Dice(sampling.seed)
        self.cached = 0
        self.restored = 0  # of these, tokens that came from the prefix cache
        self.features: list[Tensor] = []  # the target's, of its prompt, until the prefix cache has them
        self.row = -1  # in the cache; -1 while waiting
        self.held: int | None = None  # it waits for somebody else, and since which hold
        self.finish_reason: FinishReason | None = None
        self._stop_reason: str | int | None = None
        self._end = min(self.prompt_length + sampling.max_tokens, room)
        self._eos = frozenset() if sampling.ignore_eos else eos
        self._stop_ids = frozenset(sampling.stop_token_ids)
        self._text = TextStream(tokenizer, sampling.stop, prompt)

    @property
    def greedy(self) -> bool:
        """Return whether it is decoded at temperature 0."""
        return self.sampling.temperature == 0

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        return self._end - len(self.tokens)

    @property
    def depth_left(self) -> int:
        """Levels of a draft that can be of use: the token after the draft is the target's own."""
        return self.remaining - 1

    @property
    def ends(self) -> frozenset[int]:
        """Token ids that end it."""
        return self._eos | self._stop_ids

    @property
    def uncached(self) -> int:
        """Tokens that are not in the target's KV cache."""
        return len(self.tokens) - self.cached

    @property
    def reading(self) -> bool:
        """Return whether its prompt does not end within this step, so that nothing is drafted or verified."""
        return len(self.tokens) > self.chunk_end(self.cached)

    def chunk_end(self, start: int) -> int:
        """Tokens that this step reads up to while it is reading, where `start` of them have been read.

        The first chunk after a restored beginning ends where a chunk ends without it. So all later steps are
        those of a sequence that was read from its first token.
        """
        begun = self.restored % self.chunk if self.cached == self.restored else 0
        return min(start, self.cached - begun) + self.chunk

    def fail(self, error: str) -> Emission:
        """End it without a token. Returns the emission."""
        self.finish_reason = "error"
        return Emission(self.id, [], "", "error", error=error)

    def extend(
        self,
        tokens: list[int],
        logprobs: list[TokenLogprob],
        *,
        drafted: int = 0,
        accepted: int = 0,
        restored: int | None = None,
    ) -> Emission:
        """Append verified tokens up to the sequence's end, which may lie in the middle of them. Returns the
        emission, with what was drafted for it and accepted, and what was restored of the prompt."""
        count, text = 0, ""
        for token in tokens:
            count += 1
            self.tokens.append(token)
            if token in self._eos:
                self.finish_reason = "stop"
                break
            if token in self._stop_ids:  # a token of the output, but no part of its text, as in vLLM
                self.finish_reason, self._stop_reason = "stop", token
                break
            text += self._text.push(token)
            if self._text.stopped_by is not None:
                self.finish_reason, self._stop_reason = "stop", self._text.stopped_by
                break
            if self.remaining == 0:
                self.finish_reason = "length"
                break
        if self.finish_reason is not None and self._text.stopped_by is None:
            text += self._text.finish()
        return Emission(
            self.id,
            tokens[:count],
            text,
            self.finish_reason,
            self._stop_reason,
            logprobs[:count],
            drafted=drafted,
            accepted=accepted,
            restored=restored,
        )
