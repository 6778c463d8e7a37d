"""Prompt lookup as vLLM drafts it (vllm/v1/spec_decode/ngram_proposer.py): what followed the earliest place
at which the longest of the last n tokens, SHORTEST ≤ n ≤ LONGEST, occurred before.

A draft ends where the tokens so far end. The step that reads the prompt has none, since vLLM drafts after it
has sampled a token.
"""

from __future__ import annotations

from collections.abc import Sequence

from specops.serving.place_drafts import PlaceDrafts

ASSUMES = "vLLM's prompt lookup as read once in its main branch; a release may look up otherwise"


def lookup_drafts(
    prompt: Sequence[int], written: Sequence[int], shortest: int, longest: int, most: int
) -> PlaceDrafts:
    """Drafts of up to `most` tokens before each token of `written`, with n-grams of `shortest` to `longest`
    tokens. The limit of the context is not applied: answers that were served are within it."""
    text = [*prompt, *written]
    first: dict[tuple[int, ...], int] = {}  # of each n-gram: the place behind its earliest end
    drafted, accepted = [], []
    for place in range(1, len(text)):
        grams = [tuple(text[place - n : place]) for n in range(min(longest, place), shortest - 1, -1)]
        if place >= len(prompt):
            source = next((first[gram] for gram in grams if gram in first), place)
            length = min(most, place - source)
            right = 0
            while right < min(length, len(text) - place) and text[source + right] == text[place + right]:
                right += 1
            drafted.append(length)
            accepted.append(right)
        for gram in grams:
            first.setdefault(gram, place)
    return PlaceDrafts(drafted, accepted, opens_bare=True, assumes=ASSUMES)
