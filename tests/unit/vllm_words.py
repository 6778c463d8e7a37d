"""Command lines of vLLM for tests of its lint."""

from __future__ import annotations

import json
from typing import Any

from specops.serving.argv import Finding
from specops.serving.vllm.lint import lint
from specops.serving.vllm.versions import Version


def found(words: list[str], version: str) -> dict[str, list[Finding]]:
    """By flag, without the name of the JSON's."""
    by_flag: dict[str, list[Finding]] = {}
    for finding in lint(words, Version.parse(version)):
        by_flag.setdefault(finding.flag.removeprefix("--speculative-config "), []).append(finding)
    return by_flag


def serve(*words: str, **keys: Any) -> list[str]:
    return ["vllm", "serve", "m", *words, *(["--speculative-config", json.dumps(keys)] if keys else [])]


def ngram(*words: str, **more: Any) -> list[str]:
    base = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    return serve(*words, **base | more)


def draft(*words: str, **more: Any) -> list[str]:
    return serve(
        *words, **{"method": "draft_model", "model": "org/small", "num_speculative_tokens": 5} | more
    )
