"""Values of speculative_config that TensorRT-LLM refuses or ignores since 1.3.

Read in the validators of tensorrt_llm/llmapi/llm_args.py (the decoding types' own, and TorchLlmArgs'
validate_speculative_config) at commit 0004396720054fd8e205cbf616f21f0b57c6b412.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from operator import methodcaller
from typing import Any, TypeAlias

from specops.serving import argv
from specops.serving.argv import Finding
from specops.serving.trtllm.arguments import SPECULATIVE, ParsedCommand
from specops.serving.trtllm.releases import OF_TODAY, Release

Found: TypeAlias = argv.RuleFinding[ParsedCommand]

LEAST = {
    "max_draft_len": 0,
    "max_concurrency": 1,
    "acceptance_rate_threshold": 0,
    "acceptance_rate_window_size": 0,
    "relaxed_topk": 1,
    "relaxed_delta": 0,
    "begin_thinking_phase_token": 0,
    "end_thinking_phase_token": 0,
    "global_pool_size": 1,
    "block_size": 1,
    "sa_config.threshold": 1,
}
MOST = {"acceptance_rate_threshold": 1}
CHOICES = {
    "advanced_sampling_mode": ("full", "no_topk", "no_topp", "no_topk_no_topp"),
    "eagle3_model_arch": ("llama3", "mistral_large3"),
    "attention_backend": ("VANILLA", "TRTLLM"),
    "markov_head_type": ("vanilla", "gated", "rnn"),
}
NO_EFFECT = {
    "allow_advanced_sampling": "sampling is chosen by request",
    "eagle3_one_model": "the drafter is always part of the model",
    "mtp_eagle_one_model": "the drafter is always part of the model",
    "greedy_sampling": "sampling is chosen by request",
    "posterior_threshold": "sampling is chosen by request",
    "num_eagle_layers": "it becomes max_draft_len",
}
"""Keys without an effect, which later releases do not have, and why."""

LONGEST_IN_POOL = 64
"""Tokens of an n-gram that SA's pool of all requests can look up; -1 is the longest match."""
REJECTION_BRANCHES = 32
"""Branches a step that the kernel of rejection sampling can try."""
GUIDED = ("MTP", "PARD", "DFlash", "DSpark", "DraftTarget", "Draft_Target")
"""Types whose rejection sampling excludes further settings. EAGLE-3 is free of them."""


def values(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Yield findings on single values."""
    speculation = command.speculation
    if speculation is None or release.version < OF_TODAY:
        return
    own = speculation.get("sa_config")
    nested = {f"sa_config.{key}": value for key, value in own.items()} if isinstance(own, Mapping) else {}
    for key, value in {**speculation, **nested}.items():
        least, most, choices = LEAST.get(key), MOST.get(key), CHOICES.get(key)
        if choices and isinstance(value, str) and value not in choices and not argv.is_unknown(value):
            yield _refused(key, f"'{value}' is not one of {', '.join(choices)}")
        if (amount := number(value)) is None:
            continue
        if least is not None and amount < least:
            yield _refused(key, f"{value} is below {least}, the least")
        elif most is not None and amount > most:
            yield _refused(key, f"{value} is above {most}, the most: it is a share")


def ignored(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Yield findings on keys without an effect."""
    speculation = command.speculation
    if speculation is None or release.version < OF_TODAY:
        return
    allowed = release.base | release.types.get(str(speculation.get("decoding_type")), frozenset())
    for key, why in NO_EFFECT.items():
        if key in speculation and key in allowed:
            yield _unused(key, f"TensorRT-LLM {release} ignores it: {why}")
    tree = "dynamic_tree_max_topK"
    if tree in speculation and tree in allowed and not speculation.get("use_dynamic_tree"):
        yield _unused("dynamic_tree_max_topK", "without use_dynamic_tree: true it is ignored")
    if speculation.get("decoding_type") == "Eagle" and "Eagle3" in release.types:
        why = "it is read as Eagle3; heads of EAGLE 1 and 2 do not work"
        yield Found(
            Finding("warning", f"{SPECULATIVE}.decoding_type Eagle", why, "Eagle3"),
            methodcaller("typed", "Eagle3"),
        )


def combinations(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Yield findings on values that exclude each other, or need one another."""
    speculation = command.speculation
    if speculation is None or release.version < OF_TODAY:
        return
    type_ = speculation.get("decoding_type")
    yield from _schedule(speculation)
    yield from _tree(speculation)
    if type_ in ("NGram", "SA"):
        yield from _n_grams(speculation, command)
    if type_ == "DSpark":
        block, length = number(speculation.get("block_size")), number(speculation.get("max_draft_len"))
        if block is not None and length is not None and block != length:
            yield _refused("block_size", f"it must equal max_draft_len, {length:g}")
    if type_ == "SaveState" and not speculation.get("output_directory"):
        yield _refused("output_directory", "type SaveState needs the folder that it writes to")
    if speculation.get("use_rejection_sampling") is True:
        for why in _against_rejection(speculation, command):
            yield _refused("use_rejection_sampling", why)


def _schedule(speculation: Mapping[str, Any]) -> Iterator[Found]:
    schedule, most = speculation.get("draft_len_schedule"), number(speculation.get("max_draft_len"))
    for size, length in schedule.items() if isinstance(schedule, Mapping) else ():
        batch, drafts = number(size), number(length)
        if batch is not None and batch < 1:
            yield _refused("draft_len_schedule", f"invalid batch size {size}: expected at least 1")
        elif drafts is not None and drafts < 0:
            yield _refused(
                "draft_len_schedule", f"invalid draft length {length}: expected 0 (no drafting) or more"
            )
        elif drafts is not None and most is not None and drafts > most:
            yield _refused("draft_len_schedule", f"{length} at batch size {size} is above max_draft_len")


def _tree(speculation: Mapping[str, Any]) -> Iterator[Found]:
    length, branches = (
        number(speculation.get("max_draft_len")),
        number(speculation.get("dynamic_tree_max_topK")),
    )
    nodes = number(speculation.get("max_total_draft_tokens"))
    if not speculation.get("use_dynamic_tree") or length is None or not branches or nodes is None:
        return
    if not length <= nodes <= length * branches:
        why = f"a tree of {length:g} levels and {branches:g} branches has {length:g} to {length * branches:g}"
        yield _refused("max_total_draft_tokens", f"{why} draft tokens, and not {nodes:g}")


def _n_grams(speculation: Mapping[str, Any], command: ParsedCommand) -> Iterator[Found]:
    longest, pooled = (
        number(speculation.get("max_matching_ngram_size")),
        speculation.get("enable_global_pool") is True,
    )
    if speculation["decoding_type"] == "NGram":
        if longest is not None and longest < 1:
            yield _refused("max_matching_ngram_size", f"{longest:g} is below 1, the least")
        return
    if longest == 0:
        yield _refused("max_matching_ngram_size", "0 is refused; -1 is the longest match")
    elif pooled and longest is not None and longest != -1 and not 1 <= longest <= LONGEST_IN_POOL:
        why = f"with enable_global_pool it is -1 or 1 to {LONGEST_IN_POOL}"
        yield _refused("max_matching_ngram_size", why)
    size = number(speculation.get("global_pool_size"))
    if size is None:
        return
    if not pooled:
        yield _refused("global_pool_size", "it needs enable_global_pool: true")
    batch = number((command.config or {}).get("max_batch_size")) or number(command.value("--max_batch_size"))
    if batch is not None and size < batch:
        yield _refused("global_pool_size", f"{size:g} is below max_batch_size, {batch:g}")


def _against_rejection(speculation: Mapping[str, Any], command: ParsedCommand) -> Iterator[str]:
    if speculation.get("sa_config") is not None:
        yield "it and sa_config exclude each other"
    branches = number(speculation.get("dynamic_tree_max_topK"))
    if speculation.get("use_dynamic_tree") and branches is not None and branches > REJECTION_BRANCHES:
        yield f"with it dynamic_tree_max_topK is at most {REJECTION_BRANCHES}"
    type_ = speculation.get("decoding_type")
    if type_ not in GUIDED:
        return
    config = command.config or {}
    if speculation.get("use_relaxed_acceptance_for_thinking") is True:
        yield "it and use_relaxed_acceptance_for_thinking exclude each other"
    if (number(config.get("context_parallel_size")) or 1) > 1:
        yield f"with type {type_} it excludes context parallelism"
    if config.get("guided_decoding_backend") is not None:
        yield f"with type {type_} it excludes guided_decoding_backend"


def number(value: Any) -> float | None:
    """Return `value` as a number, also of "3", which TensorRT-LLM reads as 3; None: it is not written as a
    number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        parsed = float(value)
    except (ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) else None


def _refused(key: str, why: str) -> Found:
    return Found(Finding("error", f"{SPECULATIVE}.{key}", f"{why}: the server does not start"))


def _unused(key: str, why: str) -> Found:
    drop = partial(ParsedCommand.moved, old=(SPECULATIVE, key), new=None)
    return Found(Finding("warning", f"{SPECULATIVE}.{key}", why, "leave it out"), drop)
