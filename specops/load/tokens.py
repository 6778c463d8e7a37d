"""Counting an answer's tokens with the model's own tokenizer, for endpoints that report no usage."""

from __future__ import annotations

from pathlib import Path

from specops.errors import UsageError
from specops.load.answer import CountTokens


def tokenizer_file(path: Path) -> Path:
    """The tokenizer.json that `path` names, itself or its folder. UsageError where there is none."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"there is no tokenizer at {file}", hint="give a tokenizer.json or its folder")
    return file


def token_counter(path: Path) -> CountTokens:
    """A function from text to its number of tokens, without special ones, by the tokenizer.json at `path`."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError(
            "counting tokens needs the tokenizers package, which is not installed",
            hint='pip install "specops[engine]", or pip install tokenizers',
        ) from None
    file = tokenizer_file(path)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises plain Exception
        raise UsageError(
            f"could not read the tokenizer {file}: {error}",
            hint="give the tokenizer.json of the served model",
        ) from error

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count
