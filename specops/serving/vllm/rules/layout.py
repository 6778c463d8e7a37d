"""Settings that do not go together with speculation: parallelism, metrics, the program."""

from __future__ import annotations

from collections.abc import Iterator

from specops.serving.argv import is_unknown
from specops.serving.vllm.given import Given
from specops.serving.vllm.rules.rule import Found, of_flag, of_key
from specops.serving.vllm.versions import V1_ALONE, Release, Version

SAME_TP = Version((0, 15, 0))
"""The first release whose draft_model refuses a tensor parallel size that is not the target's."""
MODULE_IS_GOING = Version((0, 29, 0))
PER_REQUEST = "--per-request-spec-decode-metrics"


def pipeline_parallel(given: Given, release: Release) -> Iterator[Found]:
    size = given.number("--pipeline-parallel-size", 1)
    if given.speculates and size > 1:
        yield of_flag(
            "error",
            "--pipeline-parallel-size",
            "with speculation it fails at start or later, depending on version and method (vllm#14117, "
            "vllm#49355); vLLM's configuration lets it through",
            f"--tensor-parallel-size {size * given.number('--tensor-parallel-size', 1)}",
        )


def draft_tensor_parallel(given: Given, release: Release) -> Iterator[Found]:
    key, keys = "draft_tensor_parallel_size", given.known
    size, target = keys.get(key), given.number("--tensor-parallel-size", 1)
    if size is None or size == target or is_unknown(given.value("--tensor-parallel-size")):
        return
    if size != 1:
        why = f"it is {size}, and may only be 1 or the target's, {target}: vLLM refuses to start"
        yield of_key("error", key, why, f"leave it out, which means {target}", lambda g: g.without_key(key))
    elif keys.get("method") == "draft_model" and release.version >= SAME_TP:
        why = (
            f"it is 1, and the target's is {target}: from {SAME_TP} on draft_model refuses to start unless "
            "they are the same"
        )
        yield of_key("error", key, why, f"leave it out, which means {target}", lambda g: g.without_key(key))
    elif release.version >= V1_ALONE and keys.get("method") != "mlp_speculator":
        why = f"from {V1_ALONE} on it does nothing: the draft runs as the target does (vllm#31345)"
        yield of_key("warning", key, why, "leave it out", lambda g: g.without_key(key))


def per_request_metrics(given: Given, release: Release) -> Iterator[Found]:
    if given.has(PER_REQUEST) and PER_REQUEST in release.flags and not given.speculates:
        yield of_flag(
            "error",
            PER_REQUEST,
            "without speculation there is nothing to report: vLLM refuses to start",
            "leave it out of the standard pool",
            lambda g: g.without(PER_REQUEST),
        )


def module(given: Given, release: Release) -> Iterator[Found]:
    if "vllm.entrypoints.openai.api_server" in given.program and release.version >= MODULE_IS_GOING:
        yield of_flag(
            "note",
            "python -m vllm.entrypoints.openai.api_server",
            f"from {MODULE_IS_GOING} on it warns that it is going",
            "vllm serve MODEL",
        )
    if "serve" in given.program and given.has("--model"):
        yield of_flag("note", "--model", "vllm serve warns that it is going", "vllm serve MODEL")
