"""What differs beside speculation is named; an earlier run that asked something else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_windows import ARMS, windows

from specops.errors import FileError, UsageError
from specops.phases.ab.earlier import against, of_arms
from specops.results import Result

VLLM = {
    "pool": {"engine": "command", "command": "vllm serve M --port {port} --dtype half -O3"},
    "server": "0.32",
}


def command(words: str, **facts: Any) -> dict[str, Any]:
    return VLLM | {"pool": {"engine": "command", "command": words}} | facts


def named(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [f"{d.of} {d.what}: {d.one} / {d.other}" for d in of_arms({"standard": one, "draft": other})]


@pytest.mark.parametrize(
    "words",
    [
        "vllm serve M --port {port} --dtype half -O3",
        "vllm serve M --dtype=half --port 8001 -O3",
        """vllm serve M --port {port} --dtype half -O3 --speculative-config '{"method": "ngram"}'""",
        "vllm serve M --port {port} --dtype half -O3 --served-model-name other --host 127.0.0.1",
    ],
)
def test_speculation_addresses_and_the_order_of_flags_are_no_difference(words) -> None:
    assert named(VLLM, command(words)) == []


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (command("vllm serve M --port {port} -O3"), "draft --dtype: half / not set"),
        (
            command("vllm serve N --port {port} --dtype half -O3"),
            "draft command: vllm serve M / vllm serve N",
        ),
        (VLLM | {"server": "0.33"}, "draft server: 0.32 / 0.33"),
        (VLLM | {"cache_config": {"block_size": "32"}}, "draft cache_config.block_size: not set / 32"),
    ],
)
def test_every_other_difference_is_named(other, difference) -> None:
    assert named(VLLM, other) == [difference]


def test_embedded_settings_are_compared_but_for_their_speculation() -> None:
    plain = {"engine": "embedded", "target": None, "speculation": None, "max_batch": 8, "threads": None}
    chain = plain | {"speculation": {"tree": "chain:3"}}
    assert named({"pool": plain}, {"pool": chain}) == []
    assert named({"pool": plain}, {"pool": chain | {"threads": 1}}) == ["draft threads: not set / 1"]


def test_what_a_draft_takes_of_the_memory_is_no_flag() -> None:
    ours = VLLM | {"cache_config": {"num_gpu_blocks": "100", "block_size": "16"}}
    assert named(ours, VLLM | {"cache_config": {"num_gpu_blocks": "90", "block_size": "16"}}) == []


@given(st.lists(st.sampled_from(["--a", "--b=1", "-c", "-1", "x", "--speculative-config", "{}"]), max_size=8))
def test_an_arm_does_not_differ_from_itself(words) -> None:
    facts = command(" ".join(words))
    assert named(facts, facts) == []


ASKED = {"temperature": 0.0, "max_tokens": None, "classes": [], "seed": 0, "repeats": 2}


def comparison(speed: float = 2.0, slower: float = 1.0, **fields: Any) -> Result:
    made = windows(speed, noise=0.0, answer=lambda window, prompt, at: {"slower": slower})
    known: dict[str, Any] = {
        "phase": "ab",
        "verdict": "yes",
        "reason": "measured",
        "inputs": {"prompts": "abc"},
        "settings": ASKED | {"arms": {arm: {} for arm in ARMS}},
        "environment": {"python": "3.11", "arms": {"draft": VLLM}},
        "data": {
            "run": "abcd",
            "windows": [window.model_dump(mode="json", by_alias=True) for window in made],
            "margins": [],
        },
    }
    return Result(**known | fields)


def test_each_arm_is_held_against_itself_then() -> None:
    found = against(comparison(2.0), comparison(3.0, slower=1.5), "old.json", 0.95)
    assert {(c.arm, c.prompts, round(c.e2e.estimate, 3)) for c in found.changes} == {
        ("standard", 120, round(1 / 1.5, 3)),
        ("draft", 120, 1.0),
    }
    assert found.differences == ()


def test_what_differs_between_the_runs_is_named() -> None:
    environment = {"python": "3.12", "arms": {"draft": VLLM | {"server": "0.33"}}}
    now = comparison(environment=environment, settings=comparison().settings | {"repeats": 3})
    found = against(comparison(), now, "old.json", 0.95)
    assert [f"{d.of} {d.what}: {d.one} / {d.other}" for d in found.differences] == [
        "the environment python: 3.11 / 3.12",
        "the settings repeats: 2 / 3",
        "draft server: 0.32 / 0.33",
    ]


@pytest.mark.parametrize(
    ("unlike", "message"),
    [
        ({"inputs": {"prompts": "xyz"}}, "old.json was measured with different prompts"),
        (
            {"settings": ASKED | {"temperature": 1.0}},
            r"different settings: temperature \(1.0 then, 0.0 now\)",
        ),
        ({"settings": ASKED | {"arms": {"other": {}}}}, "none of these arms: expected one called other"),
        ({"data": {}, "phase": "baseline"}, "is a result of baseline, not of a comparison"),
    ],
)
def test_a_run_that_asked_something_else_is_refused(unlike, message) -> None:
    with pytest.raises(UsageError, match=message):
        against(comparison(**unlike), comparison(), "old.json", 0.95)


def test_the_seed_matters_only_where_tokens_are_sampled() -> None:
    assert against(comparison(), reseeded(0.0), "old.json", 0.95).changes
    with pytest.raises(UsageError, match=r"seed \(0 then, 1 now\)"):
        against(comparison(settings=reseeded(1.0).settings | {"seed": 0}), reseeded(1.0), "old.json", 0.95)


def reseeded(temperature: float) -> Result:
    settings = comparison().settings | {"seed": 1, "temperature": temperature}
    return comparison(settings=settings)


def test_a_damaged_run_is_named() -> None:
    damaged = comparison()
    damaged.data["windows"][3]["began"] = "x"
    with pytest.raises(FileError, match=r"old\.json is damaged: data\.windows\.3\.began"):
        against(damaged, comparison(), "old.json", 0.95)
