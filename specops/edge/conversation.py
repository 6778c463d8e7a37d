"""What a chat is about so far, as the prompt that asks for the next answer, and what the answer took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specops.edge.client_metrics import EdgeCounters
from specops.errors import UsageError


class Conversation:
    """Of a model with a chat template. Without one every question is a text of its own, to be continued."""

    def __init__(self, tokenizer: Any, system: str | None = None) -> None:
        self.has_template = bool(tokenizer.chat_template)
        if system is not None and not self.has_template:
            raise UsageError("this model has no chat template, so there is no place for --system")
        self._tokenizer = tokenizer
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[dict[str, str]] = []

    def ask(self, text: str) -> list[int]:
        """The prompt's tokens. Until `answered` the question is no part of the conversation."""
        if not self.has_template:
            return self._encode(text, special=True)
        messages = [*self._opening, *self._turns, {"role": "user", "content": text}]
        try:
            written = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template is the model's own program and may fail in any way
            raise UsageError(
                f"the model's chat template refused the messages: {type(error).__name__}: {error}"
            ) from error
        return self._encode(written, special=False)  # the template has written them

    def _encode(self, text: str, *, special: bool) -> list[int]:
        ids: list[int] = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def answered(self, question: str, answer: str) -> None:
        if self.has_template:
            self._turns += [
                {"role": "user", "content": question},
                {"role": "assistant", "content": answer},
            ]

    def forget(self) -> None:
        """Begin anew, under the same system prompt."""
        self._turns.clear()


@dataclass(frozen=True)
class Figures:
    """Of one answer."""

    tokens: int
    seconds: float
    verifications: int
    rounds: int  # trees of ours that were verified
    hits: int  # of these, after which the next tree went on from what was drafted ahead
    taken: int  # of these, which had been sent ahead of the verdict before them
    network_s: float

    @staticmethod
    def between(before: EdgeCounters, after: EdgeCounters, tokens: int, seconds: float) -> Figures:
        return Figures(
            tokens,
            seconds,
            after.verdicts - before.verdicts,
            after.rounds - before.rounds,
            after.hits - before.hits,
            after.taken - before.taken,
            after.network_s - before.network_s,
        )

    @property
    def rate(self) -> float | None:
        """Tokens a second."""
        return self.tokens / self.seconds if self.seconds > 0 else None

    @property
    def per_verification(self) -> float | None:
        return self.tokens / self.verifications if self.verifications else None

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.rounds if self.rounds else None

    @property
    def ahead_rate(self) -> float | None:
        return self.taken / self.rounds if self.rounds else None

    @property
    def rtt_s(self) -> float | None:
        """There and back, without the server's wait and step: of the rounds that went there when it was their
        turn. What was sent ahead has been there by then."""
        waited = self.rounds - self.taken
        return self.network_s / waited if waited > 0 else None
