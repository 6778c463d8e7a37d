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


SHARED = ("--prefix-share=0.5", "--prefix-tokens=100")


def silent(server: Server) -> Server:
    """It caches, and only its counters say so."""
    return replace(caching(server), cache_usage=False, metrics=True)


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
        r"first tokens can be compared only at equal cache state|tokens from the cache [^\n]*not shown",
        standard=replace(CACHING, prefix_cache=False),
        **FOUR_TURNS,
    ),
    ab(
        "cache_off_by_the_counters",
        "1.55 times as fast in decoding; of four turns, the challenger has nothing in its cache, as only the "
        "servers' counters say",
        replace(silent(FASTER), prefix_cache=False, prefill_ms=40.0, speculates=True),
        "no",
        r"the challenger had 0% of its prompt tokens in its cache[^\n]*TTFT is",
        r"by its counters",
        r"the standard had more in its cache",
        never=(r"reports none",),
        standard=replace(silent(STANDARD), prefill_ms=40.0),
        **FOUR_TURNS,
    ),
    ab(
        "cache_of_the_standard_off_by_the_counters",
        "equal in decoding; of four turns, the standard has nothing in its cache, as the counters say",
        replace(silent(EQUAL), speculates=True),
        "not deploy",
        r"first tokens can be compared only at equal cache state|tokens from the cache [^\n]*not shown",
        r"the challenger had more in its cache",
        standard=replace(silent(STANDARD), prefix_cache=False),
        **FOUR_TURNS,
    ),
    ab(
        "shared_prefix_faster",
        "1.55 times as fast; half of the prompts begin with a prefix that both servers cache",
        caching(FASTER),
        "deploy",
        r"shared prefix, 2 streams",
        standard=CACHING,
        never=(r"depends on what", r"equal cache state: "),
        options=SHARED,
    ),
    ab(
        "fast_at_cache_hits_alone",
        "three times as fast where a shared prefix is in the cache, and else 0.8 times as fast",
        replace(CACHING, ttft_ms=12.5, token_ms=8.1, hit_factor=0.26),
        "not deploy",
        r"depends on what of the prompt is cached[^\n]*cold prompts",
        standard=CACHING,
        options=SHARED,
    ),
    ab(
        "cache_returns_another_prefix",
        "1.55 times as fast; of a prompt whose prefix is in the cache, the challenger answers another one",
        replace(caching(FASTER), other_prefix=True),
        "no",
        r"answers (differ|are)",
        standard=CACHING,
        options=SHARED,
    ),
    ab(
        "live_answers_faster",
        "1.55 times as fast in each of four turns, each on the arm's own answers, which are the same",
        caching(FASTER),
        "deploy",
        standard=CACHING,
        options=("--live-answers",),
        **FOUR_TURNS,
    ),
    ab(
        "live_answers_of_another_model",
        "1.55 times as fast; another model, so that from the first answer on each arm has its own history",
        replace(caching(FASTER), other_model=True),
        "no",
        r"answers (differ|are)",
        standard=CACHING,
        options=("--live-answers",),
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
