"""One of the two checkpoints, and what is read of it: each part once, and only when it is asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from specops import results
from specops.checkpoints.config import Config, config_of
from specops.checkpoints.headers import Weights, weights_of
from specops.checkpoints.source import Checkpoint, read_json
from specops.checkpoints.tokenizer import Tokenizer, tokenizer_of

READ = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)


class Side:
    """Raises ModelError where a file that is asked for is damaged."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.config: Config = config_of(checkpoint)
        self.generation: dict[str, Any] = read_json(checkpoint, "generation_config.json") or {}

    @cached_property
    def weights(self) -> Weights | None:
        return weights_of(self.checkpoint)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        return tokenizer_of(self.checkpoint)

    def told(self) -> dict[str, Any]:
        return {
            "name": self.checkpoint.name,
            "revision": self.checkpoint.revision,
            "architectures": self.config.architectures,
            "vocab_size": self.config.vocab_size,
            "tokenizer": self.tokenizer.read_from if self.tokenizer else None,
            "tokens": len(self.tokenizer.tokens) if self.tokenizer else None,
            "quantization": self.config.quantization,
        }

    def sha256(self) -> str:
        """Of the small files that are read. Of weights, nothing is but their sizes."""
        files = {name: self.checkpoint.file(name) for name in READ}
        return results.sha256(
            {name: results.sha256(path) for name, path in files.items() if path is not None}
        )
