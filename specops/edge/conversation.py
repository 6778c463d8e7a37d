"""The state of a chat: the prompt for the next answer, and the figures of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specops.edge.client_metrics import EdgeCounters
from specops.errors import UsageError


class Conversation:
    """A chat with a model. Without a chat template, each question is a separate text to be continued."""

    def __init__(self, tokenizer: Any, system: str | None = None) -> None:
        self.has_template = bool(tokenizer.chat_template)
        if system is not None and not self.has_template:
            raise UsageError("--system is unsupported: this model has no chat template")
        self._tokenizer = tokenizer
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[dict[str, str]] = []

    def ask(self, text: str) -> list[int]:
        """Tokens of the prompt for `text`. Until `answered` the question is not part of the conversation."""
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
        """Clear the conversation, except for the system prompt."""
        self._turns.clear()


@dataclass(frozen=True)
class ConversationFigures:
    """Figures of one answer."""

    tokens: int
    seconds: float
    verifications: int
    rounds: int  # trees of ours that were verified
    hits: int  # of these, after which the next tree went on from what was drafted ahead
    taken: int  # of these, which had been sent ahead of the verdict before them
    network_s: float

    @staticmethod
    def between(
        before: EdgeCounters, after: EdgeCounters, tokens: int, seconds: float
    ) -> ConversationFigures:
        return ConversationFigures(
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
        """Mean round-trip time in seconds, without the server's wait and step, of rounds that were not
        sent ahead; None without such rounds."""
        waited = self.rounds - self.taken
        return self.network_s / waited if waited > 0 else None
