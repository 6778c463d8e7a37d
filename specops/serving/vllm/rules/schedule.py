"""Speculation that is to stop under load: the old key, and the schedule that took its place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from specops.serving.vllm.execution import execution
from specops.serving.vllm.given import Given
from specops.serving.vllm.rules.rule import Found, is_whole, of_key
from specops.serving.vllm.settings import plain
from specops.serving.vllm.versions import V1_ALONE, Release, Version

OLD, NEW = "disable_by_batch_size", "num_speculative_tokens_per_batch_size"
WITHOUT_OLD = Version((0, 17, 0))
WITH_SCHEDULE = ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash")
"""Methods that follow a schedule on Model Runner V1 (vllm/config/vllm.py, 0.33.0)."""


def disable_by_batch_size(given: Given, release: Release) -> Iterator[Found]:
    keys = given.known
    if OLD not in given.speculation or release.version < V1_ALONE:
        return
    if release.version < WITHOUT_OLD:
        why = (
            f"vLLM {V1_ALONE} to 0.16 take it and ignore it (vllm#25112): speculation goes on under any load"
        )
    else:
        why = f"the V0 engine's; vLLM {WITHOUT_OLD} and newer refuse to start with it"
    limit, tokens = keys.get(OLD), keys.get("num_speculative_tokens")
    if NEW in release.keys and is_whole(limit) and limit > 1 and is_whole(tokens):
        # V0 stopped at this many requests, not above it (spec_decode_worker.py, 0.8.0). The last entry
        # holds for all that is above it.
        schedule = [[1, limit - 1, tokens], [limit, limit, 0]]
        replacement = f"{NEW} {schedule}"
        yield of_key("error", OLD, why, replacement, lambda g: g.without_key(OLD).with_key(NEW, schedule))
    else:
        beyond = f"{limit} requests" if is_whole(limit) else "that many requests"
        replacement = f"{NEW} of vLLM 0.24.0, or routing: beyond {beyond} to the standard pool"
        yield of_key("error", OLD, why, replacement, lambda g: g.without_key(OLD))


def by_batch_size(given: Given, release: Release) -> Iterator[Found]:
    keys = given.known
    if NEW not in keys or NEW not in release.keys:
        return
    problem = problem_of(keys[NEW])
    if problem is not None:
        right = "[[1, 7, 5], [8, 8, 0]]: 5 tokens up to 7 requests, none from 8 on"
        yield of_key("error", NEW, f"{problem}: vLLM refuses to start", right)
        return
    most, tokens = max(k for _, _, k in keys[NEW]), keys.get("num_speculative_tokens")
    if is_whole(tokens) and most > tokens:
        why = f"it asks for {most} tokens, and num_speculative_tokens caps it at {tokens}"
        fix = f"num_speculative_tokens {most}"
        yield of_key("warning", NEW, why, fix, lambda g: g.with_key("num_speculative_tokens", most))
    if given.number("--data-parallel-size", 1) > 1:
        yield of_key(
            "error",
            NEW,
            "with data parallel vLLM ignores it: ranks that choose differently would wait for each other",
            "servers of one rank each behind the router, or routing by load",
        )
    method, runner = plain(str(keys.get("method", ""))), execution(given, release).runner
    if method and runner.value != "V2" and method not in WITH_SCHEDULE:
        yield of_key("warning", NEW, f"with method {method} Model Runner V1 ignores it", "another method")


def problem_of(value: Any) -> str | None:
    """What vLLM would refuse a schedule for (v1/spec_decode/dynamic/utils.py, 0.32.0); None: nothing."""
    if not isinstance(value, list) or not value:
        return "it is no list of [FIRST, LAST, TOKENS]"
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 3 or not all(is_whole(part) for part in entry):
            return f"{entry!r} is not [FIRST, LAST, TOKENS]"
        first, last, tokens = entry
        if not 1 <= first <= last or tokens < 0:
            return f"{entry!r} must have 1 <= FIRST <= LAST and TOKENS of at least 0"
    ordered = sorted(value)
    if ordered[0][0] != 1:
        return f"it starts at {ordered[0][0]} requests, not at 1"
    for (_, last, _), (first, _, _) in pairwise(ordered):
        if first <= last:
            return f"the ranges that start at {first} and end at {last} overlap"
    return None
