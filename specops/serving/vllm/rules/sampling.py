"""Rules on how drafts are looked up, sampled and accepted, and under which load speculation is to stop: by
the old key, or by the schedule that took its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from specops.serving.vllm.arguments import ParsedCommand
from specops.serving.vllm.execution import execution
from specops.serving.vllm.rules.rule import Found, is_whole, of_key
from specops.serving.vllm.settings import plain
from specops.serving.vllm.versions import V1_ALONE, Release, Version

OLD_SCHEDULE, SCHEDULE = "disable_by_batch_size", "num_speculative_tokens_per_batch_size"
WITHOUT_OLD = Version((0, 17, 0))
WITH_SCHEDULE = ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash")
"""Methods that follow a schedule on Model Runner V1 (vllm/config/vllm.py, 0.33.0)."""


def ngrams(command: ParsedCommand, release: Release) -> Iterator[Found]:
    keys = command.literals
    if keys.get("method") not in ("ngram", "ngram_gpu"):
        return
    low, high = keys.get("prompt_lookup_min"), keys.get("prompt_lookup_max")
    for key, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if value is not None and (not is_whole(value) or value < 1):
            yield of_key("error", key, f"it is {value!r}, and must be at least 1", "1 or more")
            return
    if not {"prompt_lookup_min", "prompt_lookup_max"} & command.speculation.keys():
        why = "both left out: vLLM looks up n-grams of 5 tokens and no shorter"
        yield of_key("note", "prompt_lookup_min", why, "measure 2 to 5")
    elif low is not None and high is not None and low > high:
        yield of_key(
            "error",
            "prompt_lookup_min",
            f"it is {low}, more than prompt_lookup_max, {high}: vLLM refuses to start",
            f"prompt_lookup_min {high}, prompt_lookup_max {low}",
            lambda g: g.with_key("prompt_lookup_min", high).with_key("prompt_lookup_max", low),
        )


def lengths(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if "max_model_len" in command.speculation:
        yield of_key(
            "note",
            "max_model_len",
            "longer sequences may be drafted for all the same, and accepted hardly (vllm#52258)",
            "measure prompts of the length you serve, or route long ones to the standard pool",
        )


def acceptance(command: ParsedCommand, release: Release) -> Iterator[Found]:
    keys = command.literals
    rule = keys.get("rejection_sample_method")
    rates, length = keys.get("synthetic_acceptance_rates"), keys.get("synthetic_acceptance_length")
    if rule == "synthetic":
        yield of_key(
            "error",
            "rejection_sample_method",
            "synthetic accepts drafts by chance, whatever the target says: answers are not the target's. "
            "It is for load tests",
            "standard",
            lambda g: (
                g.without_key("rejection_sample_method")
                .without_key("synthetic_acceptance_rates")
                .without_key("synthetic_acceptance_length")
                .without_key("synthetic_acceptance_rate")
            ),
        )
    elif rates is not None or length is not None:
        key = "synthetic_acceptance_rates" if rates is not None else "synthetic_acceptance_length"
        why = "it is for rejection_sample_method synthetic alone: vLLM refuses to start"
        yield of_key("error", key, why, "leave it out", lambda g: g.without_key(key))
    if rule == "fly" and not release.refuses("rejection_sample_method", rule):
        why = "fly accepts drafts that the target would not generate: answers differ from the target's"
        yield of_key("warning", "rejection_sample_method", why, "standard or block, which are lossless")


def vocabularies(command: ParsedCommand, release: Release) -> Iterator[Found]:
    keys = command.literals
    if not keys.get("use_heterogeneous_vocab"):
        return
    if keys.get("method", "draft_model") != "draft_model":
        why = f"it is for method draft_model; with {keys['method']} vLLM refuses to start"
        yield of_key(
            "error", "use_heterogeneous_vocab", why, None, lambda g: g.without_key("use_heterogeneous_vocab")
        )
    elif keys.get("draft_sample_method", "greedy") != "greedy":
        why = "with use_heterogeneous_vocab vLLM takes greedy drafts only, and refuses to start"
        yield of_key(
            "error",
            "draft_sample_method",
            why,
            "greedy",
            lambda g: g.with_key("draft_sample_method", "greedy"),
        )


def disable_by_batch_size(command: ParsedCommand, release: Release) -> Iterator[Found]:
    keys = command.literals
    if OLD_SCHEDULE not in command.speculation or release.version < V1_ALONE:
        return
    if release.version < WITHOUT_OLD:
        why = (
            f"vLLM {V1_ALONE} to 0.16 take it and ignore it (vllm#25112): speculation goes on under any load"
        )
    else:
        why = f"the V0 engine's; vLLM {WITHOUT_OLD} and newer refuse to start with it"
    limit, tokens = keys.get(OLD_SCHEDULE), keys.get("num_speculative_tokens")
    beyond = f"{limit} requests" if is_whole(limit) else "that many requests"
    routing = (
        f"leave it out; the router sends load beyond {beyond} to the standard pool (route.max_in_flight)"
    )
    if SCHEDULE in release.keys and is_whole(limit) and limit > 1 and is_whole(tokens):
        # V0 stopped at this many requests, not above it (spec_decode_worker.py, 0.8.0). The last entry
        # holds for all that is above it.
        schedule = [[1, limit - 1, tokens], [limit, limit, 0]]
        replacement = f"{SCHEDULE} {schedule}"
        yield replace(
            of_key(
                "error",
                OLD_SCHEDULE,
                why,
                replacement,
                lambda g: g.without_key(OLD_SCHEDULE).with_key(SCHEDULE, schedule),
            ),
            otherwise=(routing, lambda g: g.without_key(OLD_SCHEDULE)),
        )
    else:
        yield of_key("error", OLD_SCHEDULE, why, routing, lambda g: g.without_key(OLD_SCHEDULE))


def by_batch_size(command: ParsedCommand, release: Release) -> Iterator[Found]:
    keys = command.literals
    if SCHEDULE not in keys or SCHEDULE not in release.keys:
        return
    problem = problem_of(keys[SCHEDULE])
    if problem is not None:
        right = "[[1, 7, 5], [8, 8, 2]]: 5 tokens up to 7 requests, 2 from 8 on"
        yield of_key("error", SCHEDULE, f"{problem}: vLLM refuses to start", right)
        return
    most, tokens = max(k for _, _, k in keys[SCHEDULE]), keys.get("num_speculative_tokens")
    if is_whole(tokens) and most > tokens:
        why = f"it asks for {most} tokens, and num_speculative_tokens caps it at {tokens}"
        fix = f"num_speculative_tokens {most}"
        yield of_key("warning", SCHEDULE, why, fix, lambda g: g.with_key("num_speculative_tokens", most))
    if command.number("--data-parallel-size", 1) > 1:
        yield of_key(
            "error",
            SCHEDULE,
            "with data parallel vLLM ignores it: ranks that choose differently would wait for each other",
            "servers of one rank each behind the router, or routing by load",
        )
    method, runner = plain(str(keys.get("method", ""))), execution(command, release).runner
    if method and runner.value != "V2" and method not in WITH_SCHEDULE:
        yield of_key(
            "warning", SCHEDULE, f"with method {method} Model Runner V1 ignores it", "another method"
        )


def problem_of(value: Any) -> str | None:
    """Return what vLLM would refuse a schedule for (v1/spec_decode/dynamic/utils.py, 0.32.0); None:
    nothing."""
    if not isinstance(value, list) or not value:
        return "expected a list of [FIRST, LAST, TOKENS]"
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
