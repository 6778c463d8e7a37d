"""Text and tokens: a model folder's tokenizer, and text that is decoded while tokens arrive.

A plain tokenizer is read from its files, any other by transformers, whose import takes a second of CPU: a
third of the time in which a server starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from specops.checkpoints.templates import Render, rendering
from specops.errors import ModelError
from specops.hints import listing

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
        """The text that became final with `token`. Once a stop string is complete, `stopped_by` names it."""
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
        matches = [(self._held.find(s), s) for s in self._stop]
        matches = [(position, s) for position, s in matches if position >= 0]
        if matches:
            position, self.stopped_by = min(matches, key=lambda pair: (pair[0], -len(pair[1])))
            final, self._held = self._held[:position], ""
            return final
        keep = max((_overlap(self._held, s) for s in self._stop), default=0)
        cut = len(self._held) - keep
        final, self._held = self._held[:cut], self._held[cut:]
        return final

    def _after_prompt(self) -> DecodeStream:
        """A decoder that continues the prompt: its output may begin with a space that separate text would
        lose."""
        text = self._tokenizer.decode(self._before, skip_special_tokens=True)
        # A prompt that ends within a character: the stream would repeat what stands before it.
        whole = not text.endswith("\N{REPLACEMENT CHARACTER}")
        return DecodeStream(ids=self._before if whole else [], skip_special_tokens=True)

    def finish(self) -> str:
        """The text that was held back, when the sequence ended without a stop string; a broken last character
        is U+FFFD."""
        rest = self._held
        if self._pending:
            rest += self._tokenizer.decode(self._pending, skip_special_tokens=True)
        self._held, self._pending = "", []
        return rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, and not all of it."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0


_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Two names of one class; transformers 5 saves the second."""

_HARMLESS = {"tokenizer_class", "backend", "model_max_length", "padding_side", "truncation_side"}
"""Entries of tokenizer_config.json that change neither tokens nor texts.

`_SPECIAL` and chat_template are read, and clean_up_tokenization_spaces must be off. Any other entry makes a
tokenizer that is not plain.
"""

_ELSEWHERE = ("special_tokens_map.json", "added_tokens.json", "additional_chat_templates")
"""Files of older or richer tokenizers, which transformers reads."""

_LARGE = 100_000
"""Entries of a vocabulary above which transformers looks for a fault of one family, and fixes it."""


@dataclass
class PlainTokenizer:
    """A tokenizer for the engine and the server, with transformers' names."""

    backend_tokenizer: Tokenizer
    special_tokens_map: Mapping[str, str]
    """Special tokens by name, such as bos_token, which chat templates may use."""

    chat_template: str | None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        text: str = self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def get_vocab(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self.backend_tokenizer.get_vocab(with_added_tokens=True)
        return vocabulary

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, tokenize: bool, add_generation_prompt: bool = False
    ) -> str:
        """The text of at least one message. `tokenize` must be False. Raises ValueError otherwise, and what
        the template raises."""
        if tokenize or not messages or self.chat_template is None:
            raise ValueError("a chat template needs at least one message, and gives a text")
        render = _rendering(self.chat_template, tuple(self.special_tokens_map.items()))
        return render(messages, add_generation_prompt)


@lru_cache(maxsize=8)
def _rendering(template: str, special: tuple[tuple[str, str], ...]) -> Render:
    return rendering(template, dict(special))


def load_tokenizer(folder: Path) -> Any:
    """The folder's fast tokenizer: a PlainTokenizer, or transformers' own. Raises ModelError for a folder
    without one."""
    return read_plain(folder) or _load_by_transformers(folder)


def read_plain(folder: Path) -> PlainTokenizer | None:
    """The tokenizer if its files need nothing of transformers; None for any other, and for damaged files."""
    if any((folder / name).exists() for name in _ELSEWHERE):
        return None
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        special = _special_tokens(config)
        if special is None:
            return None
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        path = folder / "chat_template.jinja"
        template = path.read_text(encoding="utf-8") if path.is_file() else config.get("chat_template")
    except Exception:  # tokenizers raises bare ones; transformers says what is wrong with the folder
        return None
    special_texts = {str(token) for token in backend.get_added_tokens_decoder().values() if token.special}
    cut_or_padded = backend.truncation is not None or backend.padding is not None
    if cut_or_padded or not special_texts.issuperset(special.values()) or backend.get_vocab_size() > _LARGE:
        return None
    if template is not None and not isinstance(template, str):  # several, by name
        return None
    return PlainTokenizer(backend, special, template)


def _special_tokens(config: Any) -> dict[str, str] | None:
    """Special tokens by name; None if tokenizer_config.json has entries that are not read here."""
    if not isinstance(config, dict) or config.get("tokenizer_class") not in _PLAIN_CLASSES:
        return None
    read = {*_SPECIAL, "chat_template", "clean_up_tokenization_spaces"}
    if config.keys() - _HARMLESS - read or config.get("clean_up_tokenization_spaces"):
        return None
    tokens = {name: config[name] for name in _SPECIAL if config.get(name) is not None}
    return tokens if all(isinstance(token, str) for token in tokens.values()) else None


def _load_by_transformers(folder: Path) -> Any:
    import transformers

    # AutoTokenizer looks at the model's config too, whose classes take seconds to import: not where the
    # tokenizer's own file says that there is nothing to look up.
    path = folder / "tokenizer_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        plain = isinstance(config, dict) and config.get("tokenizer_class") in _PLAIN_CLASSES
        kind = transformers.PreTrainedTokenizerFast if plain else transformers.AutoTokenizer
        tokenizer = kind.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"could not load a tokenizer from {folder}: {reason}") from error
    if not tokenizer.is_fast:
        raise ModelError(
            f"could not use the tokenizer of {folder}: expected tokenizer.json, as transformers writes a "
            "fast tokenizer",
            hint=listing(folder),
        )
    return tokenizer
