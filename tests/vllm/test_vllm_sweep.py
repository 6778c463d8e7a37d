"""`specops sweep` starts real vLLM servers one after the other: each K, the standard first and again last.

No speed is claimed of a build for CPUs, and no test here looks at one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_vllm import FORKED, PAIR, UNFORKED, K, command, specops

from specops.errors import Exit
from specops.phases.sweep.measure import LOG_LINES

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


def with_k(program: Sequence[str], method: str, **more: Any) -> str:
    """A command line with a placeholder where the sweep writes K."""
    keys = {"method": method, "num_speculative_tokens": 0} | more
    return command("--speculative-config", json.dumps(keys), program=program).replace(
        '"num_speculative_tokens": 0', '"num_speculative_tokens": {k}'
    )


def sweep(folder: Path, prompts: list[dict[str, Any]], speculative: str) -> tuple[int, dict[str, Any]]:
    (folder / "prompts.json").write_text(json.dumps(prompts))
    pools = {
        "standard": {"engine": "command", "command": command()},
        "speculative": {"engine": "command", "command": speculative},
    }
    asked = {"endpoint": "completions", "concurrency": [1, 4], "repeats": 1, "warmup": 0, "max_tokens": 16}
    fields = {"rollout": "vllm", "prompts": "prompts.json", "pools": pools, "measure": asked}
    path = folder / "rollout.yaml"
    path.write_text(yaml.safe_dump(fields | {"sweep": {"k": [K]}, "ab": {"requests": 16}}))
    done = specops("sweep", path, "--out", folder, "--json", "--quiet")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def last_lines(log: str) -> list[str]:
    return [line.strip() for line in log.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("program", "method", "more"),
    [
        (UNFORKED, "ngram", {"prompt_lookup_min": 2, "prompt_lookup_max": 4}),
        (FORKED, "draft_model", {"model": str(PAIR / "draft")}),
    ],
    ids=["ngram", "draft_model"],
)
def test_k_is_set_and_greedy_answers_and_counters_are_the_servers_own(
    vllm: None,
    prompts: list[dict[str, Any]],
    tmp_path: Path,
    program: Sequence[str],
    method: str,
    more: dict[str, Any],
) -> None:
    code, result = sweep(tmp_path, prompts, with_k(program, method, **more))
    assert code in (Exit.YES, Exit.NO, Exit.UNDECIDED)
    kept = result["data"]["stored"]
    assert kept["failed"] == []
    cells = kept["cells"]
    assert [(cell["setting"], cell["turn"], cell["cell"]["concurrency"]) for cell in cells] == [
        (name, turn, streams)
        for name, turn in (("standard", 0), (f"k={K}", 0), (f"k={K}", 1), ("standard", 1))
        for streams in (1, 4)
    ]
    texts: dict[tuple[str, str], set[str]] = defaultdict(set)
    asked: dict[tuple[str, str], set[str]] = defaultdict(set)
    for cell in cells:
        for row in cell["cell"]["rows"]:
            texts[row["prompt"], row["variant"]].add(row["text"])
            asked[row["prompt"], row["variant"]].add(cell["setting"])
    assert {len(one) for one in texts.values()} == {1}
    assert {frozenset(one) for one in asked.values()} == {frozenset({"standard", f"k={K}"})}
    for cell in cells:
        drafts = cell["cell"]["drafts"]
        assert cell["server"] == "0.32.0"
        assert cell["up_s"] > 1
        if cell["setting"] == f"k={K}" and program == UNFORKED:  # forked, it is outside the command's group
            assert cell["memory"]["resident_gib"] > 1, "the KV cache alone takes 1 GiB"
        assert (drafts is not None) == (cell["setting"] == f"k={K}")
        if drafts:
            assert len(drafts["accepted_per_position"]) == K
            assert 0 < drafts["accepted_tokens"] <= drafts["draft_tokens"]


def test_healthy_then_dead_is_a_failed_cell_and_the_sweep_goes_on(
    vllm: None, prompts: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Synthetic acceptance in this build: the server comes up, and its engine dies of the first request."""
    synthetic = with_k(
        FORKED,
        "draft_model",
        model=str(PAIR / "draft"),
        rejection_sample_method="synthetic",
        synthetic_acceptance_length=2.0,
    )
    code, result = sweep(tmp_path, prompts, synthetic)
    assert code in (Exit.NO, Exit.UNDECIDED)
    kept = result["data"]["stored"]
    (failed,) = kept["failed"]
    assert (failed["setting"], failed["turn"]) == (f"k={K}", 0)
    assert failed["why"]
    log = (tmp_path / "logs" / "sweep" / f"0-k={K}-0.log").read_text()
    assert "Error" in log
    # vLLM prints more after the error, and not the same each time: it depends on which process ends first.
    assert [line.strip() for line in failed["log"].splitlines()] == last_lines(log)[-LOG_LINES:]
    measured = [(cell["setting"], cell["turn"]) for cell in kept["cells"]]
    assert measured == [("standard", 0)] * 2 + [("standard", 1)] * 2
