"""A checkpoint's tokenizer, as data and as an encoder.

`tokenizer.json` is read with `tokenizers`, without torch or transformers. transformers converts other
formats (sentencepiece, tiktoken, tekken), if it is installed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from specops.checkpoints.source import Checkpoint, access_check, read_json
from specops.errors import ModelError, install_command

FAST = "tokenizer.json"
OTHERS = ("tokenizer.model", "spiece.model", "tekken.json", "vocab.json", "vocab.txt")
"""Files that transformers can convert, beside any NAME.tiktoken and NAME.model."""

BESIDE = (
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer's files, and an encoder made of them."""

    content: dict[str, Any]
    """tokenizer.json, whole."""

    config: dict[str, Any]
    """The content of tokenizer_config.json; empty without this file."""

    special: dict[str, str]
    """Special tokens by name, such as bos_token, as text."""

    template: str | None
    """The chat template."""

    read_from: str
    """The file that it was read from, and the converter if there was one."""

    encoder: Any
    """A tokenizers.Tokenizer."""

    @property
    def model(self) -> dict[str, Any]:
        model: dict[str, Any] = self.content["model"]
        return model

    @cached_property
    def added(self) -> dict[int, dict[str, Any]]:
        """Added tokens by id: {content, special, normalized, lstrip, rstrip, single_word}."""
        tokens = {token["id"]: token for token in self.content.get("added_tokens") or []}
        named = self.config.get("added_tokens_decoder")
        for key, token in named.items() if isinstance(named, dict) else ():
            if key.isdigit() and isinstance(token, dict) and "content" in token:
                tokens.setdefault(int(key), token | {"id": int(key)})  # transformers adds these when loading
        return tokens

    @cached_property
    def tokens(self) -> dict[int, str]:
        """The token of each id, added tokens included."""
        vocab = self.model["vocab"]
        if isinstance(vocab, dict):
            tokens = {index: token for token, index in vocab.items()}
        else:  # Unigram: [[token, score], …]
            tokens = {index: entry[0] for index, entry in enumerate(vocab)}
        return tokens | {index: token["content"] for index, token in self.added.items()}

    def merges(self) -> list[tuple[str, str]]:
        """Merges of a BPE model, in order.

        Older files write a merge as one text with a space between its halves.
        """
        halves = [
            merge.split(" ", 1) if isinstance(merge, str) else merge
            for merge in self.model.get("merges") or []
        ]
        return [(first, second) for first, second in halves]

    def encode(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text. `special`: with the tokens that the post-processor adds, such as a first
        one."""
        return [
            encoding.ids
            for encoding in self.encoder.encode_batch_fast(list(texts), add_special_tokens=special)
        ]


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer | None:
    """The checkpoint's tokenizer; None if it has none, as most heads. Raises ModelError if it is damaged, or
    if only transformers could convert it and is not installed."""
    from tokenizers import Tokenizer as Encoder

    path = checkpoint.file(FAST)
    config = read_json(checkpoint, "tokenizer_config.json") or {}
    read_from = FAST
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(checkpoint, FAST, error) from error
    else:
        names = checkpoint.names()
        slow = next(
            (name for name in names if name in OTHERS or name.endswith((".tiktoken", ".model"))), None
        )
        if slow is None:
            return None
        text, read_from = _converted(checkpoint, slow), f"{slow}, converted by transformers"
    try:
        content = json.loads(text)
        encoder = Encoder.from_str(text)
        if not isinstance(content["model"]["vocab"], dict | list):
            raise ValueError("its model has no vocabulary")
    except Exception as error:  # tokenizers raises bare ones
        raise _unreadable(checkpoint, read_from, error) from error
    encoder.no_truncation()
    encoder.no_padding()
    return Tokenizer(
        content, config, _special(checkpoint, config), _template(checkpoint, config), read_from, encoder
    )


def _converted(checkpoint: Checkpoint, name: str) -> str:
    """tokenizer.json's text as transformers would write it. Takes seconds: it imports torch if installed."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise ModelError(
            f"could not read the tokenizer of {checkpoint.name}: it has {name} and no {FAST}",
            hint=f"{install_command('engine', 'sentencepiece', 'tiktoken')}  # transformers then converts it",
        ) from None
    path = checkpoint.file(name)
    for beside in BESIDE:  # of a repository, so that they lie in the same folder
        checkpoint.file(beside)
    assert path is not None  # the caller found it there
    try:
        loaded = AutoTokenizer.from_pretrained(path.parent, trust_remote_code=False)
        text: str = loaded.backend_tokenizer.to_str()
    except Exception as error:  # sentencepiece and tiktoken raise many kinds, and ImportError without them
        package = "tiktoken" if name.endswith(".tiktoken") else "sentencepiece"
        if find_spec(package) is None:
            raise ModelError(
                f"could not read the tokenizer of {checkpoint.name} from {name}: {package} is not installed",
                hint=f"pip install {package}",
            ) from error
        raise _unreadable(checkpoint, f"{name} through transformers", error) from error
    return text


def _special(checkpoint: Checkpoint, config: dict[str, Any]) -> dict[str, str]:
    named = (read_json(checkpoint, "special_tokens_map.json") or {}) | {
        key: value for key, value in config.items() if value is not None
    }
    special = {}
    for key in SPECIAL:
        value = named.get(key)
        token = value.get("content") if isinstance(value, dict) else value
        if isinstance(token, str):
            special[key] = token
    return special


def _template(checkpoint: Checkpoint, config: dict[str, Any]) -> str | None:
    """The chat template: from its own file, which newer checkpoints have, or from tokenizer_config.json."""
    path = checkpoint.file("chat_template.jinja")
    if path is not None:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(checkpoint, "chat_template.jinja", error) from error
    own = read_json(checkpoint, "chat_template.json") or {}
    template = own.get("chat_template") or config.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default") or next(iter(named.values()), None)
    return template if isinstance(template, str) else None


def _unreadable(checkpoint: Checkpoint, name: str, error: Exception) -> ModelError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ModelError(
        f"could not read the tokenizer of {checkpoint.name} from {name}: {reason}; "
        "copy or download the model again",
        hint=access_check(checkpoint.name),
    )
