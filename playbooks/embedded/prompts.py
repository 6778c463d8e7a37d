"""The prompts that ship with the pair."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from text import SEED, Text, edit_document, functions


def prompts(text: Text) -> Iterator[dict[str, object]]:
    """64 prompts of 128 to 176 tokens from held-out files: 22 short, 21 long, 21 edit."""
    rng = random.Random(f"{SEED}/prompts")
    pool = functions(text.held)

    def length(part: str) -> int:
        return len(text.tokenizer.encode(part).ids)

    def completion() -> str:
        while True:
            lines = rng.choice(text.held).splitlines(keepends=True)
            start = rng.randrange(len(lines))
            stop = start + 1
            while stop < len(lines) and length("".join(lines[start:stop])) < 128:
                stop += 1
            part, following = "".join(lines[start:stop]), "".join(lines[stop : stop + 1])
            # In the middle of a function, where there is something to go on with.
            if 128 <= length(part) <= 176 and re.match(r" {4,}\S", following):
                return part

    def edit() -> str:
        while True:
            part, _ = edit_document(rng, pool)
            if 128 <= length(part) <= 176:
                return part

    seen: set[str] = set()
    for name, count, max_tokens, make in (
        ("short", 22, 24, completion),
        ("long", 21, 192, completion),
        ("edit", 21, 160, edit),
    ):
        for index in range(count):
            part = make()
            while part in seen:
                part = make()
            seen.add(part)
            yield {"id": f"{name}-{index:02d}", "class": name, "text": part, "max_tokens": max_tokens}
