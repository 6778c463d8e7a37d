"""A sweep with a budget, from its first rung to its result; servers and clock are simulated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_worlds import PROMPTS, World

from specops.config import EndpointPool, Rollout
from specops.errors import ServerError
from specops.phases.sweep import sweep as module
from specops.phases.sweep.records import Kept, kept_of
from specops.phases.sweep.wanted import Wanted, wanted_of
from specops.progress import Silent
from specops.results import Result

KS = (3, 4, 5, 6, 8)
SPEEDS = {"k=3": 1.4, "k=4": 1.6, "k=5": 1.55, "k=6": 1.2, "k=8": 0.8}


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    prompts = [{"id": name, "text": name} for name in PROMPTS]
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    endpoint = EndpointPool(engine="endpoint", base_url="http://127.0.0.1:9/v1", model="m")
    fields = {
        "rollout": "simulated",
        "prompts": str(tmp_path / "prompts.json"),
        "pools": {"standard": endpoint.model_dump(), "speculative": endpoint.model_dump()},
        "measure": {"concurrency": [1, 4], "warmup": 0},
        "sweep": {"budget_min": 30.0},
    }
    return wanted_of(Rollout.model_validate(fields), tmp_path, dict.fromkeys((0, *KS), endpoint))


def swept(
    wanted: Wanted, world: World, monkeypatch: pytest.MonkeyPatch, previous: Result | None = None
) -> Result:
    clock = SimpleNamespace(monotonic=lambda: world.now, time=lambda: world.now)
    monkeypatch.setattr(module, "time", clock)
    return module.sweep(wanted, world, Silent(), previous=previous)


def kept(result: Result) -> Kept:
    return kept_of(result, "it")


def test_the_budget_is_kept_to_and_the_best_is_found(wanted, monkeypatch) -> None:
    world = World(SPEEDS, start_noise=0.01)
    result = swept(wanted, world, monkeypatch)
    assert world.now <= 30 * 60
    assert kept(result).spent_s == pytest.approx(world.now)
    assert result.summary["recommended"] in (4, 5)
    assert result.recommendation is not None
    assert result.recommendation["k"] == result.summary["recommended"]
    left = {(one.setting, one.concurrency) for one in kept(result).skipped}
    assert left == {(f"k={k}", streams) for k in KS for streams in (1, 4)}


def test_even_a_first_rung_that_is_too_long_ends_in_time(wanted, monkeypatch) -> None:
    """How long a start takes is not known before the first."""
    world = World(SPEEDS, start_s=300.0)
    result = swept(wanted, world, monkeypatch)
    assert world.now <= 30 * 60
    measured = {cell.setting for cell in kept(result).cells}
    assert {"standard", "k=3"} < measured < {"standard", *SPEEDS}
    unmeasured = {one.setting: one.why for one in kept(result).skipped if one.setting not in measured}
    assert set(unmeasured.values()) == {"no time was left for it"}


def test_more_minutes_go_on_where_the_time_was_up(wanted, monkeypatch) -> None:
    world = World(SPEEDS, start_noise=0.02)
    short = replace(wanted, budget_min=12.0)
    first = swept(short, world, monkeypatch)
    assert world.now <= 12 * 60
    again = swept(short, world, monkeypatch, first)
    assert kept(again).cells == kept(first).cells
    assert kept(again).spent_s == pytest.approx(kept(first).spent_s)
    more = swept(wanted, world, monkeypatch, first)
    assert kept(more).cells[: len(kept(first).cells)] == kept(first).cells
    assert len(kept(more).cells) > len(kept(first).cells)
    assert world.now <= 30 * 60


def test_one_that_fails_is_left_out_and_told(wanted, monkeypatch) -> None:
    world = World(SPEEDS, start_noise=0.01, fails=frozenset({"k=4"}))
    result = swept(wanted, world, monkeypatch)
    assert [one.setting for one in kept(result).failed] == ["k=4"]
    assert {one.why for one in kept(result).skipped if one.setting == "k=4"} == {"it failed"}
    assert result.summary["recommended"] == 5


def test_without_the_standard_nothing_is_measured(wanted, monkeypatch) -> None:
    world = World(SPEEDS, fails=frozenset({"standard", *SPEEDS}))
    with pytest.raises(ServerError, match="could not measure the standard, K = 0: it died"):
        swept(wanted, world, monkeypatch)
