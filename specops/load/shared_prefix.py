"""A prefix that many prompts share, such as the system prompt of a service. Pure."""

from __future__ import annotations

from pathlib import Path

from specops.errors import PromptsError
from specops.hints import beginning
from specops.load.answer import CountTokens
from specops.load.workload import PromptSet
from specops.results import sha256

CHARACTERS_A_TOKEN = 4
"""Where there is no tokenizer."""


def characters_a_token(text: str, count_tokens: CountTokens | None) -> float:
    """Return how many characters of `text` a token has, on average."""
    if count_tokens is None or not text:
        return float(CHARACTERS_A_TOKEN)
    return len(text) / max(1, count_tokens(text))


def shared_prefix(prompts: PromptSet, tokens: int, run: str, count_tokens: CountTokens | None) -> str:
    """Return a text of about `tokens` tokens from the texts of `prompts`, repeated where they are shorter.

    It begins with a nonce that follows from `run`: a server has it in its cache from this run alone. Raises
    PromptsError for prompts of token ids, in front of which no text can be put.
    """
    texts = [prompt.text() for prompt in prompts.prompts]
    if not all(texts):
        raise PromptsError(
            f"{prompts.path} has prompts of token ids, in front of which no shared prefix can be put: "
            "expected texts or messages",
            hint=beginning(Path(prompts.path)),
        )
    text = "\n".join(texts) + "\n"
    length = round(tokens * characters_a_token(text, count_tokens))
    repeated = text * (1 + length // len(text))
    return f"[{sha256([run, 'prefix'])[:8]}] {repeated}"[:length] + "\n\n"
