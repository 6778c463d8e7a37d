"""A pool of vLLM -> the words that start it, in the flags of a version."""

from __future__ import annotations

import json
import shlex
from typing import Any

from specops.errors import ConfigError
from specops.serving.vllm.settings import VllmSettings, VllmSpeculation
from specops.serving.vllm.versions import LAST_OF_THE_OLD, Release, Version, table

FLAGS = (
    "served_model_name",
    "dtype",
    "quantization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "seed",
    "enforce_eager",
    "enable_prefix_caching",
)
"""Settings of a pool that are flags of the same name."""
ONLY_ON = ("enforce_eager",)
"""Switches that are off where they are not named, and have no --no- form before 0.8.5."""

OLD_FLAGS = {
    "model": "--speculative-model",
    "num_speculative_tokens": "--num-speculative-tokens",
    "draft_tensor_parallel_size": "--speculative-draft-tensor-parallel-size",
    "max_model_len": "--speculative-max-model-len",
    "quantization": "--speculative-model-quantization",
    "prompt_lookup_min": "--ngram-prompt-lookup-min",
    "prompt_lookup_max": "--ngram-prompt-lookup-max",
}
"""Before --speculative-config, and in 0.8.2, which has both but reads the JSON as a Python literal."""


def command(
    pool: VllmSettings, *, port: int | str, host: str = "127.0.0.1", version: Version | None = None
) -> list[str]:
    """The words; `pool.environment` is not among them. `version`: of the program, None: the newest known.

    ConfigError for a setting that this version does not have.
    """
    release = table().release(version)
    words = shlex.split(pool.program)
    words += [pool.model] if words[-1] == "serve" else ["--model", pool.model]
    words += ["--host", host, "--port", str(port)]
    for name in FLAGS:
        words += _flag(name, getattr(pool, name), release)
    if pool.speculation is not None:
        words += speculating(pool.speculation, release)
    return words + pool.arguments


def speculating(speculation: VllmSpeculation, release: Release) -> list[str]:
    """The words that turn `speculation` on in this release. ConfigError where it lacks a key or a method."""
    keys = speculation.keys()
    if release.version <= LAST_OF_THE_OLD:
        return _old_words(keys, release)
    for key in keys:
        if key not in release.keys:
            raise _lacking(f"speculation.{key}", release, table().history("keys", key))
        if release.refuses(key, keys[key]):
            history = table().history("choices", f"{key}={keys[key]}")
            raise _lacking(f"speculation.{key} {keys[key]}", release, history)
    if release.methods and speculation.method not in release.methods:
        history = table().history("methods", speculation.method)
        raise _lacking(f"speculation.method {speculation.method}", release, history)
    return ["--speculative-config", json.dumps(keys)]


def _flag(name: str, value: Any, release: Release) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None or (value is False and name in ONLY_ON):
        return []
    if flag not in release.flags:
        raise _lacking(name, release, table().history("flags", flag))
    if value is True:
        return [flag]
    if value is False:
        return [f"--no-{flag.removeprefix('--')}"]
    return [flag, str(value)]


def _old_words(keys: dict[str, Any], release: Release) -> list[str]:
    method = keys.pop("method")
    if method == "ngram":
        keys = {"model": "[ngram]"} | keys
    elif method not in ("draft_model", "eagle", "medusa", "mlp_speculator"):
        history = table().history("methods", method)
        raise _lacking(f"speculation.method {method}", release, history)
    words = []
    for key, value in keys.items():
        if key not in OLD_FLAGS:
            raise _lacking(f"speculation.{key}", release, table().history("keys", key))
        words += [OLD_FLAGS[key], str(value)]
    return words


def _lacking(name: str, release: Release, history: str | None) -> ConfigError:
    where = f"{history} have it" if history else "no version of vLLM has it"
    return ConfigError(
        f"{name} is not for vLLM {release.requested}: {where}",
        hint="leave it out, or set the pool's version to the one that will serve",
    )
