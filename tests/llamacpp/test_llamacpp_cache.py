"""llama.cpp's own prompt cache, as a comparison of a server with it and one without measures it."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from conftest import Serve

from specops.assets import asset
from specops.errors import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CONVERSATIONS = 6


def processed_tokens(base_url: str) -> int:
    """Prompt tokens that the server has computed, by its counter."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/metrics", timeout=60) as page:
        (count,) = re.findall(r"^llamacpp:prompt_tokens_total (\S+)", page.read().decode(), re.MULTILINE)
    return int(float(count))


def test_cached_tokens_of_each_turn_are_stored_by_arm(serve: Serve, standard, tmp_path: Path) -> None:
    shipped = asset("playbooks", "embedded", "prompts-conversations.json").read_text(encoding="utf-8")
    chosen = json.loads(shipped)[:CONVERSATIONS]
    for session in chosen:
        session["turns"] = [turn | {"max_tokens": 8} for turn in session["turns"]]
    prompts = tmp_path / "conversations.json"
    prompts.write_text(json.dumps(chosen), encoding="utf-8")
    with serve(standard) as plain, serve(standard | {"cache_prompt": True}) as cached:
        urls = {"plain": plain.base_url, "cached": cached.base_url}
        before = {name: processed_tokens(url) for name, url in urls.items()}
        arms = [f"--arm={name}={url}" for name, url in urls.items()]
        little = ["--requests", "24", "--looks", "1", "--min-duration", "0", "--warmup", "0"]
        out = ["--out", str(tmp_path / "ab.json"), "--json", "--quiet"]
        done = specops("ab", *arms, "--prompts", str(prompts), "--concurrency", "1", *little, *out)
        processed = {name: processed_tokens(url) - before[name] for name, url in urls.items()}
    assert done.returncode in (Exit.YES, Exit.NO, Exit.UNDECIDED), done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in urls}
    measured: list[dict[str, Any]] = []  # and not what is repeated, to see whether it gets faster
    for window in result["data"]["windows"]:
        rows[window["arm"]] += window["cell"]["rows"]
        if (window["arm"], window["kind"]) == ("cached", "measured"):
            measured += window["cell"]["rows"]
    assert all(not row["cached_tokens"] for row in rows["plain"])
    later = [row for row in measured if row["turn"] > 1]
    assert len(later) >= 8
    assert all(0 < row["cached_tokens"] < row["prompt_tokens"] for row in later)
    first = [row for row in measured if row["turn"] == 1]
    assert all(row["cached_tokens"] < 8 for row in first), "a nonce divides it from all earlier sessions"
    for name, answered in rows.items():
        computed = sum(row["prompt_tokens"] - (row["cached_tokens"] or 0) for row in answered)
        probes = processed[name] - computed  # what the comparison sends before it measures
        assert 0 <= probes <= 4 * max(row["prompt_tokens"] for row in answered)
