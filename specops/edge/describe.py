"""What makes a draft fit a target: the same tokens by the same numbers."""

from __future__ import annotations

import hashlib
from typing import Any


def tokenizer_digest(tokenizer: Any) -> bytes:
    """SHA-256 of a transformers tokenizer's map from tokens to ids, in the order of the ids."""
    digest = hashlib.sha256()
    for token, number in sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])):
        digest.update(f"{number}\0{token}\0".encode("utf-8", "surrogatepass"))
    return digest.digest()
