"""Where the router's thresholds come from: the rollout file, what was measured, a default."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_rules import ENDPOINT, NO_FOLDER, ab_result, group, kept, pays_up_to, rollout, sweep_result

from specops.errors import ConfigError, FileError
from specops.phases.route.thresholds import rules, servers
from specops.results import Result, sha256

SPECULATIVE = {"speculative": ["h:1", "h:2"]}


def table(folder: Path, **sections: Any) -> dict[str, Any]:
    return rules(rollout(**sections), folder).table


def test_the_playbooks_where_nothing_else_is() -> None:
    found = table(NO_FOLDER)
    assert {found[name]["source"] for name in ("min_tokens", "max_in_flight", "speculate")} == {"default"}
    assert (found["min_tokens"]["value"], found["max_in_flight"]["value"]) == (32, 8)


def test_the_crossover_is_shared_out(tmp_path: Path) -> None:
    path = kept(tmp_path, "sweep", sweep_result(crossover={"on_max": 16, "off_min": 32, "per": "replica"}))
    limit = table(tmp_path, addresses=SPECULATIVE | {"routers": ["r:1", "r:2", "r:3"]})["max_in_flight"]
    assert limit["value"] == 16 * 2 // 3
    assert sha256(path)[:12] in limit["source"]
    assert table(tmp_path, deploy={"speculative_replicas": 3})["max_in_flight"]["value"] == 48
    given = table(tmp_path, route={"max_in_flight": 5})["max_in_flight"]
    assert given == {"value": 5, "source": "rollout file"}


@pytest.mark.parametrize("told", [{"verdict": "no", "k": 0, "setting": None}, {"k": 0}])
def test_a_sweep_that_says_no_sends_everything_to_the_standard_pool(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    kept(tmp_path, "sweep", sweep_result(**told))
    found = table(tmp_path)["speculate"]
    assert found["value"] is False
    assert found["source"].startswith("sweep.json")
    assert table(tmp_path, route={"speculate": True})["speculate"]["value"] is True


def test_an_undecided_sweep_changes_nothing(tmp_path: Path) -> None:
    kept(tmp_path, "sweep", sweep_result(verdict="undecided", k=None, setting=None))
    assert table(tmp_path)["speculate"] == {"value": True, "source": "default"}


def test_a_class_that_was_measured_not_to_pay(tmp_path: Path) -> None:
    by_class = {"short": group("no"), "long": group("yes"), "odd": group("no")}
    kept(tmp_path, "sweep", sweep_result(by_class=by_class))
    classes = [{"name": name, "contains": [name]} for name in ("short", "long", "new")]
    found = rules(rollout(route={"classes": classes}), tmp_path)
    by_name = {one["name"]: one["speculate"] for one in found.table["classes"]}
    assert (by_name["short"]["value"], by_name["long"]["value"], by_name["new"]["value"]) == (
        False,
        True,
        True,
    )
    assert by_name["short"]["source"].startswith("sweep.json")
    assert found.unmatched.keys() == {"odd"}  # nothing says which requests are of it
    classes[0]["speculate"] = True  # type: ignore[assignment]
    found = rules(rollout(route={"classes": classes}), tmp_path)
    assert found.table["classes"][0]["speculate"] == {"value": True, "source": "rollout file"}


def test_what_pays_for_some_classes_only(tmp_path: Path) -> None:
    kept(tmp_path, "sweep", sweep_result(only_for=["long"], by_class={"long": group("yes")}))
    found = table(tmp_path, route={"classes": [{"name": "long", "contains": ["x"]}]})
    assert found["classes"][0]["speculate"]["value"] is True
    assert found["default"]["speculate"]["value"] is False


CLASSES = [{"name": name, "contains": [name]} for name in ("edit", "long", "other-class")]


def test_a_comparison_says_it_by_class(tmp_path: Path) -> None:
    kept(tmp_path, "ab", ab_result(lambda name: 0.5 if name == "edit" else 2.0))
    found = rules(rollout(route={"classes": CLASSES}), tmp_path)
    edit, long, other = (one["speculate"] for one in found.table["classes"])
    assert (edit["value"], long["value"]) == (False, True)
    assert edit["source"] == long["source"] == f"ab.json {sha256(tmp_path / 'ab.json')[:12]}"
    assert other == found.table["default"]["speculate"] == {"value": True, "source": "default"}
    assert found.table["speculate"]["value"] is True
    assert found.inputs.keys() == {"ab"}


def test_a_comparison_that_says_no_sends_everything_to_the_standard_pool(tmp_path: Path) -> None:
    kept(tmp_path, "ab", ab_result(lambda name: 0.5))
    found = table(tmp_path)["speculate"]
    assert found["value"] is False
    assert found["source"].startswith("ab.json")
    assert table(tmp_path, route={"speculate": True})["speculate"]["value"] is True


def of_classes(found: dict[str, Any]) -> dict[str, tuple[bool, int]]:
    """Whether each class speculates, and how many may be in flight."""
    return {
        one["name"]: (one["speculate"]["value"], (one["max_in_flight"] or found["max_in_flight"])["value"])
        for one in found["classes"]
    }


THREE = [{"name": name, "contains": [name]} for name in ("edit", "long", "short", "new")]


def test_a_gain_at_one_stream_says_nothing_of_heavier_loads(tmp_path: Path) -> None:
    one = pays_up_to(edit=1, long=1, short=1)
    path = kept(tmp_path, "ab", ab_result(lambda name: 2.0, streams=(1, 8), heavy=one))
    found = table(tmp_path, route={"classes": THREE})
    assert found["max_in_flight"]["value"] == 1
    assert found["max_in_flight"]["source"] == (
        f"ab.json {sha256(path)[:12]}: edit is faster up to 1 stream a server, the lowest of 3 classes"
        " (1 server, 1 router)"
    )
    assert {limit for _, limit in of_classes(found).values()} == {1}


def test_each_class_has_the_limit_up_to_which_it_pays(tmp_path: Path) -> None:
    heavy = pays_up_to(edit=2, long=8, short=0)
    kept(tmp_path, "ab", ab_result(lambda name: 2.0, streams=(1, 2, 4, 8), heavy=heavy))
    found = table(tmp_path, route={"classes": THREE})
    assert of_classes(found) == {"edit": (True, 2), "long": (True, 8), "short": (False, 2), "new": (True, 2)}
    two = table(tmp_path, route={"classes": THREE}, addresses=SPECULATIVE)
    assert of_classes(two)["long"] == (True, 16)
    # The lowest of the classes is not what all of them pay up to together.
    assert (
        ": edit is faster up to 2 streams a server, the lowest of 2 classes ("
        in found["max_in_flight"]["source"]
    )
    of_long = next(one["max_in_flight"] for one in found["classes"] if one["name"] == "long")
    assert ": long is faster up to 8 streams a server (" in of_long["source"]
    given = table(tmp_path, route={"classes": THREE, "max_in_flight": 5})
    assert {limit for _, limit in of_classes(given).values()} == {5}


@pytest.mark.parametrize(
    ("on_max", "heavy", "limit"),
    [
        (16, pays_up_to(edit=1, long=1, short=1), 1),  # the comparison measured 8, and it did not pay
        (16, pays_up_to(edit=8, long=8, short=8), 16),  # it paid wherever the comparison measured
        (4, pays_up_to(edit=8, long=8, short=8), 4),
        (None, pays_up_to(edit=8, long=8, short=8), 8),
    ],
)
def test_a_sweeps_crossover_holds_unless_the_comparison_shows_less(
    tmp_path: Path, on_max: int | None, heavy: Callable[[str, int], float], limit: int
) -> None:
    kept(tmp_path, "sweep", sweep_result(crossover={"on_max": on_max, "off_min": None, "per": "replica"}))
    kept(tmp_path, "ab", ab_result(lambda name: 2.0, streams=(1, 8), heavy=heavy))
    assert table(tmp_path)["max_in_flight"]["value"] == limit


def test_a_comparison_that_pays_further_does_not_raise_the_sweeps_crossover(tmp_path: Path) -> None:
    kept(tmp_path, "sweep", sweep_result(crossover={"on_max": 4, "off_min": 8, "per": "replica"}))
    heavy = pays_up_to(edit=8, long=8, short=8)
    kept(tmp_path, "ab", ab_result(lambda name: 2.0, streams=(1, 8, 16), heavy=heavy))
    assert table(tmp_path)["max_in_flight"]["value"] == 4


def test_an_undecided_comparison_deploys_nothing(tmp_path: Path) -> None:
    kept(tmp_path, "ab", ab_result(lambda name: 2.0, cycles=4))
    found = table(tmp_path)["speculate"]
    assert found["value"] is False
    assert "not enough evidence" in found["source"]


def test_a_comparison_and_a_sweep_must_both_let_a_class_through(tmp_path: Path) -> None:
    kept(tmp_path, "sweep", sweep_result(by_class={"long": group("no")}, only_for=["edit"]))
    kept(tmp_path, "ab", ab_result(lambda name: 0.5 if name == "edit" else 2.0))
    found = table(tmp_path, route={"classes": CLASSES})
    edit, long, other = (one["speculate"] for one in found["classes"])
    assert not edit["value"]
    assert edit["source"].startswith("ab.json")
    assert not long["value"]
    assert long["source"].startswith("sweep.json")
    assert not other["value"]


def test_a_comparison_of_something_else_is_told_and_not_gone_by(tmp_path: Path) -> None:
    kept(tmp_path, "ab", ab_result(lambda name: 0.5, challenger="draft"))
    found = rules(rollout(), tmp_path)
    assert found.table["speculate"] == {"value": True, "source": "default"}
    assert any("no arm called speculative" in note for note in found.notes)


def test_what_the_canary_found(tmp_path: Path) -> None:
    unsupported = [
        {"parameter": "tools", "pool": "speculative", "request": "tools-1", "why": "refused"},
        {"parameter": "logprobs", "pool": "standard", "request": "logprobs-1", "why": "refused"},
    ]
    data = {"checks": [], "unsupported": unsupported, "requests": {}, "prompts": {}}
    kept(tmp_path, "canary", Result(phase="canary", verdict="yes", reason="r", data=data))
    found = {one["name"]: one["source"] for one in table(tmp_path)["unsupported"]}
    assert found.keys() == {"min_p", "logit_bias", "tools"}
    assert found["tools"].startswith("canary.json")
    assert {one["name"] for one in table(tmp_path, route={"unsupported": []})["unsupported"]} == {"tools"}
    embedded = {"engine": "embedded", "speculation": {"tree": "ngram:8"}}
    assert [one["name"] for one in table(NO_FOLDER, speculative=embedded)["unsupported"]] == []


def test_results_that_are_damaged_or_not_finished(tmp_path: Path) -> None:
    kept(tmp_path, "sweep", sweep_result().model_copy(update={"verdict": "partial"}))
    found = rules(rollout(), tmp_path)
    assert "sweep" not in found.inputs
    assert "sweep.json is not used" in found.notes[0]
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(FileError):
        rules(rollout(), tmp_path)
    damaged = sweep_result().model_dump(mode="json", by_alias=True)
    damaged["recommendation"] = {"verdict": "yes"}
    (tmp_path / "sweep.json").write_text(json.dumps(damaged))
    with pytest.raises(FileError):
        rules(rollout(), tmp_path)


def test_where_the_pools_answer() -> None:
    assert servers(rollout(), "standard") == ["127.0.0.1:8000"]
    assert servers(rollout(addresses={"standard": ["a:1", "a:1", "b:2"]}), "standard") == ["a:1", "b:2"]
    six = ENDPOINT | {"base_url": "http://[::1]/v1"}
    assert servers(rollout(six), "speculative") == ["[::1]:80"]


@pytest.mark.parametrize(
    "pool",
    [
        ENDPOINT | {"base_url": "https://api.example.com/v1"},
        ENDPOINT | {"base_url": "http://h:1/llm/v1"},
        {"engine": "embedded", "speculation": {"tree": "ngram:8"}},
    ],
)
def test_a_pool_that_cannot_be_forwarded_to(pool: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        servers(rollout(pool), "speculative")
    assert "addresses.speculative" in (caught.value.hint or "")
