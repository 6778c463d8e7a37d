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
from specops.serving.trtllm.arguments import SPECULATIVE, GivenCommand
from specops.serving.trtllm.releases import OF_TODAY, Release

Found: TypeAlias = argv.RuleFinding[GivenCommand]

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


def values(given: GivenCommand, release: Release) -> Iterator[Found]:
    """Yield findings on single values."""
    said = given.speculation
    if said is None or release.version < OF_TODAY:
        return
    own = said.get("sa_config")
    nested = {f"sa_config.{key}": value for key, value in own.items()} if isinstance(own, Mapping) else {}
    for key, value in {**said, **nested}.items():
        least, most, choices = LEAST.get(key), MOST.get(key), CHOICES.get(key)
        if choices and isinstance(value, str) and value not in choices and not argv.is_unknown(value):
            yield _refused(key, f"'{value}' is not one of {', '.join(choices)}")
        if (amount := number(value)) is None:
            continue
        if least is not None and amount < least:
            yield _refused(key, f"{value} is below {least}, the least")
        elif most is not None and amount > most:
            yield _refused(key, f"{value} is above {most}, the most: it is a share")


def ignored(given: GivenCommand, release: Release) -> Iterator[Found]:
    """Yield findings on keys without an effect."""
    said = given.speculation
    if said is None or release.version < OF_TODAY:
        return
    known = release.base | release.types.get(str(said.get("decoding_type")), frozenset())
    for key, why in NO_EFFECT.items():
        if key in said and key in known:
            yield _unused(key, f"TensorRT-LLM {release} ignores it: {why}")
    tree = "dynamic_tree_max_topK"
    if tree in said and tree in known and not said.get("use_dynamic_tree"):
        yield _unused("dynamic_tree_max_topK", "without use_dynamic_tree: true it is ignored")
    if said.get("decoding_type") == "Eagle" and "Eagle3" in release.types:
        why = "it is read as Eagle3; heads of EAGLE 1 and 2 do not work"
        yield Found(
            Finding("warning", f"{SPECULATIVE}.decoding_type Eagle", why, "Eagle3"),
            methodcaller("typed", "Eagle3"),
        )


def combinations(given: GivenCommand, release: Release) -> Iterator[Found]:
    """Yield findings on values that exclude each other, or need one another."""
    said = given.speculation
    if said is None or release.version < OF_TODAY:
        return
    type_ = said.get("decoding_type")
    yield from _schedule(said)
    yield from _tree(said)
    if type_ in ("NGram", "SA"):
        yield from _n_grams(said, given)
    if type_ == "DSpark":
        block, length = number(said.get("block_size")), number(said.get("max_draft_len"))
        if block is not None and length is not None and block != length:
            yield _refused("block_size", f"it must equal max_draft_len, {length:g}")
    if type_ == "SaveState" and not said.get("output_directory"):
        yield _refused("output_directory", "type SaveState needs the folder that it writes to")
    if said.get("use_rejection_sampling") is True:
        for why in _against_rejection(said, given):
            yield _refused("use_rejection_sampling", why)


def _schedule(said: Mapping[str, Any]) -> Iterator[Found]:
    schedule, most = said.get("draft_len_schedule"), number(said.get("max_draft_len"))
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


def _tree(said: Mapping[str, Any]) -> Iterator[Found]:
    length, branches = number(said.get("max_draft_len")), number(said.get("dynamic_tree_max_topK"))
    nodes = number(said.get("max_total_draft_tokens"))
    if not said.get("use_dynamic_tree") or length is None or not branches or nodes is None:
        return
    if not length <= nodes <= length * branches:
        why = f"a tree of {length:g} levels and {branches:g} branches has {length:g} to {length * branches:g}"
        yield _refused("max_total_draft_tokens", f"{why} draft tokens, and not {nodes:g}")


def _n_grams(said: Mapping[str, Any], given: GivenCommand) -> Iterator[Found]:
    longest, pooled = number(said.get("max_matching_ngram_size")), said.get("enable_global_pool") is True
    if said["decoding_type"] == "NGram":
        if longest is not None and longest < 1:
            yield _refused("max_matching_ngram_size", f"{longest:g} is below 1, the least")
        return
    if longest == 0:
        yield _refused("max_matching_ngram_size", "0 is refused; -1 is the longest match")
    elif pooled and longest is not None and longest != -1 and not 1 <= longest <= LONGEST_IN_POOL:
        why = f"with enable_global_pool it is -1 or 1 to {LONGEST_IN_POOL}"
        yield _refused("max_matching_ngram_size", why)
    size = number(said.get("global_pool_size"))
    if size is None:
        return
    if not pooled:
        yield _refused("global_pool_size", "it needs enable_global_pool: true")
    batch = number((given.config or {}).get("max_batch_size")) or number(given.value("--max_batch_size"))
    if batch is not None and size < batch:
        yield _refused("global_pool_size", f"{size:g} is below max_batch_size, {batch:g}")


def _against_rejection(said: Mapping[str, Any], given: GivenCommand) -> Iterator[str]:
    if said.get("sa_config") is not None:
        yield "it and sa_config exclude each other"
    branches = number(said.get("dynamic_tree_max_topK"))
    if said.get("use_dynamic_tree") and branches is not None and branches > REJECTION_BRANCHES:
        yield f"with it dynamic_tree_max_topK is at most {REJECTION_BRANCHES}"
    type_ = said.get("decoding_type")
    if type_ not in GUIDED:
        return
    config = given.config or {}
    if said.get("use_relaxed_acceptance_for_thinking") is True:
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
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _refused(key: str, why: str) -> Found:
    return Found(Finding("error", f"{SPECULATIVE}.{key}", f"{why}: the server does not start"))


def _unused(key: str, why: str) -> Found:
    drop = partial(GivenCommand.moved, old=(SPECULATIVE, key), new=None)
    return Found(Finding("warning", f"{SPECULATIVE}.{key}", why, "leave it out"), drop)
