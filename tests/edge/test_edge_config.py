"""The rollout file's `edge`: what it takes, what it refuses, and the file that ships."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.assets import asset
from specops.config import Edge, load
from specops.errors import ConfigError
from specops.phases.edge_bench.settings import settings_of, stands_in

POOLS = """rollout: x
pools:
  standard: {engine: embedded}
  speculative: {engine: embedded, speculation: {tree: "chain:3"}}
"""


def read(folder: Path, more: str, pools: str = POOLS) -> Path:
    path = folder / "rollout.yaml"
    path.write_text(pools + more)
    return path


def test_the_file_that_ships_says_where_every_cost_is_from() -> None:
    rollout = load(asset("playbooks", "edge.yaml"))
    settings = settings_of(rollout)
    assert settings.target.name == "target"
    assert settings.draft.name == "draft"
    assert (settings.edge.beams, settings.edge.heads, settings.edge.ahead) == (64, [0, 1, 64], [0, 32])
    assert settings.prices is not None
    assert settings.prices.server_per_hour == pytest.approx(0.0014028 * 3600, rel=0.01)
    assert settings.prices.edge_per_hour == pytest.approx(0.0000972 * 3600, rel=0.01)
    assert settings.edge.stand_in is not None
    said = stands_in(settings.edge.stand_in)
    assert [line.split(" ms")[0].rsplit(" ", 1)[0] for line in said] == [
        "the target on the server",
        "the draft on the server",
        "the draft at the edge",
    ]


def test_without_the_section_there_are_defaults_and_no_stand_ins(tmp_path: Path) -> None:
    settings = settings_of(load(read(tmp_path, "")))
    assert settings.edge == Edge()
    assert settings.edge.ahead == [0, 16]
    assert settings.edge.stand_in is None
    assert settings.prices is None
    assert settings.server_tree == "chain:3"


def test_the_command_line_takes_the_files_place(tmp_path: Path) -> None:
    rollout = load(read(tmp_path, "edge: {rtt_ms: 30.0, heads: [1]}\n"))
    settings = settings_of(rollout, rtt_ms=5.0, clients=[2], ahead=[4], tokens=7, temperature=None)
    assert (settings.edge.rtt_ms, settings.edge.clients, settings.edge.heads) == (5.0, [2], [1])
    assert settings.edge.ahead == [4]
    assert (settings.tokens, settings.temperature) == (7, 0.0)


def test_an_edge_of_the_users_own_costs_nothing(tmp_path: Path) -> None:
    rollout = load(read(tmp_path, "costs: {standard_per_hour: 2.0, edge_per_hour: 0.0}\n"))
    settings = settings_of(rollout)
    assert settings.prices is not None
    assert settings.prices.edge_per_hour == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("edge: {depth: [deep]}", "invalid depth 'deep'"),
        ("edge: {depth: ['included:0']}", "invalid depth 'included:0'"),
        ("edge: {batching: static}", "invalid batching 'static'"),
        ("edge: {heads: [-1]}", "edge.heads"),
        ("edge: {heads: []}", "edge.heads is empty"),
        ("edge: {ahead: [-1]}", "edge.ahead"),
        ("edge: {ahead: []}", "edge.ahead is empty"),
        ("edge: {rtt_ms: -1.0}", "edge.rtt_ms"),
        ("edge: {stand_in: {verify: {pass_ms: 1.0}}}", "lacks the key 'server_draft'"),
        ("edge: {rtt: 15.0}", "unknown key 'edge.rtt'"),
        ("costs: {standard_per_hour: 2.0, edge_per_hour: -1.0}", "edge_per_hour"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(read(tmp_path, line + "\n"))
    assert "line 5" in caught.value.message
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        ('{engine: embedded, speculation: {tree: "ngram:8"}}', None),
        ("{engine: endpoint, base_url: 'http://127.0.0.1:1/v1', model: m}", "not of the embedded engine"),
    ],
)
def test_a_pool_that_no_edge_could_help(tmp_path: Path, pool: str, words: str | None) -> None:
    pools = f"rollout: x\npools:\n  standard: {{engine: embedded}}\n  speculative: {pool}\n"
    rollout = load(read(tmp_path, "", pools))
    if words is None:  # the shipped pair has a draft whether the server's tree needs it or not
        assert settings_of(rollout).draft.name == "draft"
        return
    with pytest.raises(ConfigError, match=words) as caught:
        settings_of(rollout)
    assert caught.value.hint
