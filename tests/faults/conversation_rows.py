"""Faults that only conversations show: late turns, lost history, the state of the prefix cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fault_rows import EQUAL, FASTER, STANDARD, ab, baseline
from fault_runs import Row
from zoo_knobs import Server

CACHING = replace(STANDARD, prefix_cache=True, prefill_ms=8.0)
FOUR_TURNS: dict[str, Any] = {"turns": 4, "prompts": 24, "classes": ("chat",)}


def caching(server: Server) -> Server:
    return replace(server, prefix_cache=True, prefill_ms=8.0)


CONVERSATIONS: list[Row] = [
    ab(
        "conversation_faster",
        "1.55 times as fast in each of four turns; both servers cache what they were sent",
        caching(FASTER),
        "deploy",
        r"prompt tokens from the cache",
        standard=CACHING,
        never=(r"depends on the turn", r"equal cache state"),
        **FOUR_TURNS,
    ),
    ab(
        "conversation_equal",
        "two equal servers, four turns; both cache what they were sent",
        caching(EQUAL),
        "not deploy",
        standard=CACHING,
        never=(r"equal cache state",),
        **FOUR_TURNS,
    ),
    ab(
        "slower_from_turn_3",
        "1.55 times as fast in the first two turns, and from the third one on half as fast",
        replace(FASTER, from_turn=(3, 3.0)),
        "not deploy",
        r"slower|from the 3rd turn on",
        **FOUR_TURNS,
    ),
    ab(
        "gain_in_early_turns_alone",
        "three times as fast in the first two turns, and from the third one on 0.8 times as fast",
        replace(STANDARD, ttft_ms=3.3, token_ms=2.1, from_turn=(3, 3.75)),
        "not deploy",
        r"depends on the turn[^\n]*from the 3rd turn on",
        **FOUR_TURNS,
    ),
    ab(
        "loses_history",
        "1.55 times as fast; the challenger answers as if only the last message had come",
        replace(FASTER, loses_history=True),
        "no",
        r"answers (differ|are)",
        fast=True,
        **FOUR_TURNS,
    ),
    ab(
        "cache_of_the_challenger_misses",
        "1.55 times as fast in decoding; of four turns, the challenger has nothing in its cache",
        replace(caching(FASTER), prefix_cache=False, prefill_ms=40.0),
        "no",
        r"TTFT",
        r"the challenger had 0% of its prompt tokens in its cache[^\n]*reports none",
        standard=replace(CACHING, prefill_ms=40.0),
        **FOUR_TURNS,
    ),
    ab(
        "cache_of_the_standard_misses",
        "equal in decoding; of four turns, the standard has nothing in its cache",
        caching(EQUAL),
        "not deploy",
        r"first tokens can be compared only at equal cache state",
        standard=replace(CACHING, prefix_cache=False),
        **FOUR_TURNS,
    ),
    baseline(
        "conversation_baseline",
        "a server that caches what it was sent, four turns at 4 streams: late turns take longer to begin",
        replace(CACHING, from_turn=(3, 1.5)),
        "yes",
        r"96 turns of 24 conversations",
        options=("--concurrency=4",),
        **FOUR_TURNS,
    ),
]
