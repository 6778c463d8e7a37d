"""SGLang: a pool's settings -> the command line that starts it.

Flags as in SGLang 0.5.23's released source (`srt/arg_groups/fields/*.py`).
"""

from __future__ import annotations

import shlex

from specops.serving.sglang.settings import SglangSettings, SglangSpeculation

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
"""Algorithms that draft step by step, several branches a step where `eagle_topk` says so."""
VERSION = "0.5.23"
"""The release whose flags these are: the newest one known."""

_NAMED = (
    "served_model_name",
    "revision",
    "tp_size",
    "pp_size",
    "dp_size",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "mem_fraction_static",
    "context_length",
    "chunked_prefill_size",
    "schedule_policy",
    "attention_backend",
    "random_seed",
)
"""Settings that are SGLang's own to choose where they are left out."""

_SWITCHES = ("disable_radix_cache", "trust_remote_code")


def command(pool: SglangSettings, *, port: int | str, host: str = "127.0.0.1") -> list[str]:
    """The words that serve `pool`.

    `--max-running-requests` is always among them, since SGLang's default differs with and without
    speculation; and `--enable-metrics`, without which it exposes none.
    """
    words = [*shlex.split(pool.program), "--model-path", pool.model_path]
    words += ["--host", host, "--port", str(port), "--enable-metrics"]
    words += ["--max-running-requests", str(pool.max_running_requests)]
    for name in _NAMED:
        if getattr(pool, name) is not None:
            words += [_flag(name), str(getattr(pool, name))]
    words += [_flag(name) for name in _SWITCHES if getattr(pool, name)]
    words += pool.arguments
    if pool.speculation is not None:
        words += _speculative(pool.speculation)
    return words


def _speculative(speculation: SglangSpeculation) -> list[str]:
    steps, branches = speculation.num_steps, speculation.eagle_topk
    nodes = speculation.num_draft_tokens or steps + 1
    flags: dict[str, str | int | None] = {
        "algorithm": speculation.algorithm,
        "draft_model_path": speculation.draft_model_path,
    }
    if speculation.algorithm in EAGLE_FAMILY:
        flags |= {"num_steps": steps, "eagle_topk": branches, "num_draft_tokens": nodes}
    elif speculation.algorithm == "NGRAM":  # has its own word for the branches, and copies it to topk
        flags |= {"num_steps": steps, "ngram_max_bfs_breadth": branches, "num_draft_tokens": nodes}
    elif speculation.algorithm == "DFLASH":  # a block of masks behind the last token; its steps are fixed
        flags |= {"num_draft_tokens": nodes}
    else:
        flags |= {"dspark_block_size": steps}
    words = [
        word
        for name, value in flags.items()
        if value is not None
        for word in (_flag(f"speculative_{name}"), str(value))
    ]
    return words + speculation.arguments


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
