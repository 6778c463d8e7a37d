"""Options of a benchmark of one pair of models: the shipped pair and prompts, or any on disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from specops.assets import asset
from specops.engine.load import Pair
from specops.load.workload import Prompt

PROMPT_TOKENS = 128
"""The last ones of each prompt are read."""


def pair_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shipped = asset("playbooks", "embedded")
    parser.add_argument("--target", type=Path, default=shipped / "target", help="folder of the target")
    parser.add_argument(
        "--draft", type=Path, default=shipped / "draft", help="folder of the draft, or exit:LAYERS"
    )
    parser.add_argument("--prompts", type=Path, default=shipped / "prompts.json", help="prompt set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


def encode(pair: Pair, prompt: Prompt) -> list[int]:
    """Return the tokens of a prompt, at most `PROMPT_TOKENS`."""
    content = prompt.completion_prompt()
    ids: list[int] = pair.tokenizer.encode(content) if isinstance(content, str) else content
    return ids[-PROMPT_TOKENS:]
