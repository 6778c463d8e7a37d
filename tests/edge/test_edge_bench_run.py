"""`specops edge bench` as it is called: servers, relay and clients of a tiny pair, and nothing left over."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from calling import specops

from specops import results
from specops.assets import asset
from specops.config import load
from specops.errors import ConfigError, Exit
from specops.phases.edge_bench.judging import read
from specops.phases.edge_bench.records import EdgeWindows
from specops.phases.edge_bench.settings import AUTOREGRESSIVE, SERVER_ONLY, settings_of

STAND_IN = "{pass_ms: 2.0, token_ms: 0.05}"


@pytest.fixture
def rollout(tiny_pair: tuple[Path, Path], tmp_path: Path) -> Path:
    (tmp_path / "prompts.json").write_text(
        json.dumps([{"id": f"p{i}", "text": f"the server measures {i}"} for i in range(4)])
    )
    target, draft = tiny_pair
    path = tmp_path / "rollout.yaml"
    path.write_text(
        f"""rollout: tiny
prompts: prompts.json
pools:
  standard: {{engine: embedded, target: {target}}}
  speculative:
    {{engine: embedded, target: {target}, max_batch: 2, speculation: {{draft: {draft}, tree: "chain:2"}}}}
edge:
  nodes: 8
  heads: [0, 4]
  ahead: [0, 4]
  rtt_ms: 4.0
  clients: [1, 2]
  stand_in: {{verify: {STAND_IN}, server_draft: {STAND_IN}, edge_draft: {STAND_IN}}}
costs: {{standard_per_hour: 4.0, edge_per_hour: 0.4}}
"""
    )
    return path


def left_behind(rollout: Path) -> list[str]:
    """Processes that were started with this file, or forked from such."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(rollout).encode() in (place / "cmdline").read_bytes().split(b"\0"):
                found.append(place.name)
    return found


@pytest.mark.slow
def test_every_arm_says_the_same_and_is_measured(rollout: Path, tmp_path: Path) -> None:
    out = tmp_path / "edge.json"
    words = ["edge", "bench", str(rollout), "--count", "4", "--tokens", "8", "--out", str(out)]
    # By itself: it forks, and this process may have spoken gRPC.
    done = subprocess.run(
        [sys.executable, "-m", "specops", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.UNDECIDED, done.stdout + done.stderr  # six requests carry no interval
    assert "stand-in costs: the target on the server 2 ms a pass and 0.05 ms a token" in done.stderr
    assert "greedy answers are the same in all arms" in done.stdout
    assert left_behind(rollout) == []
    result = results.read(out)
    assert result.settings["stand_in_costs"] is True
    comparison = read(result, str(out))
    windows = EdgeWindows.model_validate(result.data).windows
    assert [w for w in windows if w.cell.failed] == []
    assert {(counts.equal, counts.compared) for counts in comparison.parity.values()} == {(12, 12)}
    assert len(comparison.parity) == 4
    for clients in (1, 2):
        plain, served = (
            comparison.figures_of(AUTOREGRESSIVE, clients),
            comparison.figures_of(SERVER_ONLY, clients),
        )
        assert plain.tokens_a_verification == 1
        assert served.effort.nodes == 0
        assert plain.tpot_ms.mean is not None
        assert plain.tpot_ms.mean >= 2.0  # never faster than declared
        for arm in ("0 heads", "4 heads", "4 heads, 4 ahead"):
            edge = comparison.figures_of(f"edge, {arm}", clients)
            assert edge.tokens == served.tokens == plain.tokens == 6 * 8
            effort = edge.effort
            if "ahead" not in arm:
                assert effort.network_s / effort.rounds >= 0.004  # the relay's way there and back
                assert effort.taken == 0
            assert effort.step_s / effort.verdicts >= 0.002
            assert 0 < effort.up_bytes / effort.rounds < 1024
            assert edge.cost_per_million is not None
        assert comparison.figures_of("edge, 0 heads", clients).effort.wasted == 0
    claims = {finding.claim for each in comparison.decisions for finding in each.findings}
    assert claims == {"wait", "length", "first token", "failures", "answers", "speculation"}
    assert "requests failed, were refused or were late" in result.reason


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--clients", "none"], "invalid --clients 'none'"),
        (["--clients", "0"], "invalid --clients '0'"),
        (["--depth", "deep"], "'deep'"),
        (["--ahead", "all"], "invalid --ahead 'all'"),
        (["--rtt", "inf"], "--rtt"),
        (["--temperature", "inf"], "--temperature"),
        (["--count", "1", "--clients", "2"], "could not bench 2 clients on 1 prompts"),
    ],
)
def test_what_cannot_be_asked_is_said(rollout: Path, words: list[str], message: str) -> None:
    done = specops("edge", "bench", str(rollout), *words)
    assert done.returncode == Exit.USAGE, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_head_cannot_draft_at_the_edge() -> None:
    with pytest.raises(ConfigError, match="reads the target's features") as error:
        settings_of(load(asset("playbooks", "embedded", "rollout.yaml")))
    assert "Expected a model of its own" in error.value.message
    assert "edge.yaml" in str(error.value.hint)
