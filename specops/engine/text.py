"""From tokens to text while they arrive: incremental decoding, and stop strings across token borders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

CONTEXT = 8  # tokens of the prompt that the first token's text may depend on


class TextStream:
    """The text of one sequence. Characters that may yet become a stop string are held back."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer  # a tokenizers.Tokenizer
        self._before = list(prompt[-CONTEXT:])
        self._decoder: DecodeStream | None = None
        self._stop = tuple(s for s in stop if s)
        self._held = ""
        self._pending: list[int] = []  # tokens since the last whole character
        self.stopped_by: str | None = None

    def push(self, token: int) -> str:
        """Text that became final with `token`. After a stop string was met, `stopped_by` names it."""
        if self._decoder is None:
            self._decoder = self._after_prompt()
        try:
            piece = self._decoder.step(self._tokenizer, token)
        except Exception:  # no narrower one is raised where a token changes the text of those before it
            self._decoder = DecodeStream(skip_special_tokens=True)
            piece = self._decoder.step(self._tokenizer, token)
        if piece is None:
            self._pending.append(token)
            return ""
        self._pending.clear()
        self._held += piece
        found = [(self._held.find(s), s) for s in self._stop]
        found = [(at, s) for at, s in found if at >= 0]
        if found:
            at, self.stopped_by = min(found, key=lambda pair: (pair[0], -len(pair[1])))
            final, self._held = self._held[:at], ""
            return final
        keep = max((_overlap(self._held, s) for s in self._stop), default=0)
        cut = len(self._held) - keep
        final, self._held = self._held[:cut], self._held[cut:]
        return final

    def _after_prompt(self) -> DecodeStream:
        """What follows a prompt may begin with a space that a text of its own would lose."""
        text = self._tokenizer.decode(self._before, skip_special_tokens=True)
        # A prompt that ends within a character: the stream would repeat what stands before it.
        whole = not text.endswith("\N{REPLACEMENT CHARACTER}")
        return DecodeStream(ids=self._before if whole else [], skip_special_tokens=True)

    def finish(self) -> str:
        """What was held back, when the sequence ended otherwise; a broken last character as U+FFFD."""
        rest = self._held
        if self._pending:
            rest += self._tokenizer.decode(self._pending, skip_special_tokens=True)
        self._held, self._pending = "", []
        return rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with (and is not whole)."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
