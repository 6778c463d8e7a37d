"""vLLM's own prefix cache, as a comparison of a server with it and one without measures it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from real_vllm import PAIR, PREFIX_BLOCK, prefix_counts, specops

from specops.errors import Exit

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
CONVERSATIONS = 6


def test_cached_tokens_of_each_turn_are_stored_by_arm(prefix_caches: dict[str, str], tmp_path: Path) -> None:
    chosen = json.loads((PAIR / "prompts-conversations.json").read_text(encoding="utf-8"))[:CONVERSATIONS]
    for session in chosen:
        session["turns"] = [turn | {"max_tokens": 8} for turn in session["turns"]]
    prompts = tmp_path / "conversations.json"
    prompts.write_text(json.dumps(chosen), encoding="utf-8")
    before = {name: prefix_counts(url) for name, url in prefix_caches.items()}
    arms = [f"--arm={name}={url}" for name, url in prefix_caches.items()]
    little = ("--requests", "24", "--looks", "1", "--min-duration", "0", "--warmup", "0")
    out = ("--timeout", "300", "--out", tmp_path / "ab.json", "--json", "--quiet")
    done = specops("ab", *arms, "--prompts", prompts, "--concurrency", "1", *little, *out)
    grown = {name: prefix_counts(url) - before[name] for name, url in prefix_caches.items()}
    assert done.returncode in (Exit.YES, Exit.NO, Exit.UNDECIDED), done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in prefix_caches}
    for window in result["data"]["windows"]:
        rows[window["arm"]] += window["cell"]["rows"]
    assert all(not row["cached_tokens"] for row in rows["plain"])
    assert grown["plain"]["hits"] == 0
    later = [row for row in rows["cached"] if row["turn"] > 1]
    assert len(later) >= 8
    assert all((row["cached_tokens"] or 0) % PREFIX_BLOCK == 0 for row in rows["cached"])
    assert all(0 < row["cached_tokens"] < row["prompt_tokens"] for row in later if row["prompt_tokens"] > 160)
    # The rest is of what the comparison sends before it measures.
    for name, field in (("queries", "prompt_tokens"), ("hits", "cached_tokens")):
        answered = sum(row[field] or 0 for row in rows["cached"])
        probes = grown["cached"][name] - answered
        assert answered > 0
        assert 0 <= probes <= 4 * max(row["prompt_tokens"] for row in rows["cached"])
