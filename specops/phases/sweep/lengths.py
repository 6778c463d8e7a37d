"""Classes of prompt length, in tokens as nearly as they can be known before a server runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from specops.config import Pool
from specops.load.answer import token_counter
from specops.load.workload import Prompt
from specops.phases.sweep.jobs import ANY_LENGTH

CHARACTERS_A_TOKEN = 4
"""Where there is no tokenizer: usual of English, too many of most other scripts and of code."""


@dataclass(frozen=True)
class Lengths:
    classes: dict[str, tuple[Prompt, ...]]
    """From the shortest; a class without prompts is left out."""

    counted_by: str
    """In words."""


def lengths_of(
    prompts: Sequence[Prompt], bounds: Sequence[int], tokenizer: Path | None, pool: Pool
) -> Lengths:
    """The prompts by the class that they fall into: a class begins at each bound. Tokens of a chat template
    are not counted.

    They are counted by `tokenizer`, else by that of the model of `pool` where it is a folder here, else
    guessed from the characters. UsageError for a tokenizer that cannot be read.
    """
    if not bounds:
        return Lengths({ANY_LENGTH: tuple(prompts)}, "not counted")
    path = tokenizer or _tokenizer_of(pool)
    count = token_counter(path) if path else _guess
    counted_by = f"the tokenizer {path}" if path else f"guessed: {CHARACTERS_A_TOKEN} characters a token"
    edges = sorted(set(bounds))
    classes: dict[str, list[Prompt]] = {name: [] for name in _names(edges)}
    names = list(classes)
    for prompt in prompts:
        tokens = len(prompt.content) if _is_ids(prompt) else count(_text(prompt))
        classes[names[sum(edge <= tokens for edge in edges)]].append(prompt)
    return Lengths({name: tuple(of) for name, of in classes.items() if of}, counted_by)


def _names(edges: Sequence[int]) -> list[str]:
    between = [f"{low} to {high - 1} tokens" for low, high in pairwise(edges)]
    return [f"under {edges[0]} tokens", *between, f"{edges[-1]} tokens and more"]


def _tokenizer_of(pool: Pool) -> Path | None:
    folder = pool.target_folder
    return folder if folder is not None and (folder / "tokenizer.json").is_file() else None


def _is_ids(prompt: Prompt) -> bool:
    return isinstance(prompt.content, tuple) and isinstance(prompt.content[0], int)


def _text(prompt: Prompt) -> str:
    """What a model reads of a prompt, but for its template."""
    if isinstance(prompt.content, str):
        return prompt.content
    parts = [message.get("content") for message in prompt.messages()]
    return "\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts if part)


def _guess(text: str) -> int:
    return -(-len(text) // CHARACTERS_A_TOKEN)
