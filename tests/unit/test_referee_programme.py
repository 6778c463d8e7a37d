"""The load programme of the referee: what is sent, in which order, and which rollout files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specops.config import Rollout, load
from specops.errors import SpecopsError
from specops.phases import phase_of_result
from specops.phases.inputs import settings_of
from specops.phases.playbook.walk import order_of
from specops.phases.referee.measure import arms_of, contest_of
from specops.phases.referee.programme import Programme, programme_of

PROMPTS = [
    {"id": f"{name}{number}", "class": name, "text": f"{name} question {number}", "max_tokens": 8}
    for name in ("edit", "short")
    for number in range(5)
]


def rollout_of(folder: Path, **section: Any) -> Rollout:
    (folder / "prompts.json").write_text(json.dumps(PROMPTS))
    engine = {"engine": "embedded"}
    fields = {
        "rollout": "made",
        "prompts": "prompts.json",
        "pools": {"standard": engine, "speculative": engine | {"speculation": {"tree": "auto"}}},
        "referee": section,
    }
    file = folder / "rollout.yaml"
    file.write_text(json.dumps(fields))
    return load(file)


def programme(folder: Path, *phases: dict[str, Any], **section: Any) -> Programme:
    rollout = rollout_of(folder, phases=list(phases), **section)
    return programme_of(rollout, settings_of(rollout, rollout.pools.standard))


def test_servers_take_turns_by_phase_in_random_order(tmp_path: Path) -> None:
    arms = ["off", "adaptive", "k=3"]
    segments = list(programme(tmp_path, {"streams": 1}, {"streams": 4}, passes=8).segments(arms))
    places = [(number, phase) for number in range(8) for phase in (0, 1)]
    assert [place[:2] for place in segments[::3]] == places
    orders = {tuple(arm for *_, arm in segments[first : first + 3]) for first in range(0, len(segments), 3)}
    assert all(sorted(order) == sorted(arms) for order in orders)
    assert len(orders) > 3


def test_requests_follow_from_the_place_and_come_once(tmp_path: Path) -> None:
    plan = programme(tmp_path, {"streams": 4}, {"streams": 1}, requests=10)
    load = plan.load(0, 0, "run")
    assert load == plan.load(0, 0, "run")
    assert load.level.concurrency == 4
    assert len(load.prompts) == 10
    assert len({prompt.id for prompt in load.prompts}) == 10  # each once before any comes again
    contents = [
        prompt.content
        for segment in (plan.load(number, phase, "run") for number in range(3) for phase in (0, 1))
        for prompt in (*segment.prompts, *segment.fillers)
    ]
    assert len(set(contents)) == len(contents)
    assert plan.load(0, 0, "another run").prompts[0].content != load.prompts[0].content


def test_a_phase_sends_two_requests_for_each_stream(tmp_path: Path) -> None:
    plan = programme(tmp_path, {"streams": 16}, {"streams": 2, "requests": 30}, {"rate": 2.0}, requests=8)
    assert [len(plan.load(0, number, "run").prompts) for number in range(3)] == [32, 30, 8]
    assert plan.duration_s(plan.phases[2]) == 4.0


def test_a_mix_has_the_weights_of_its_classes(tmp_path: Path) -> None:
    plan = programme(tmp_path, {"streams": 1, "mix": {"edit": 3.0, "short": 1.0}}, requests=400)
    classes = [prompt.traffic_class for prompt in plan.load(0, 0, "run").prompts]
    assert classes.count("edit") / 400 == pytest.approx(0.75, abs=0.07)
    only = programme(tmp_path, {"streams": 1, "mix": {"short": 1.0}}).load(0, 0, "run")
    assert {prompt.traffic_class for prompt in only.prompts} == {"short"}


def test_a_context_stands_in_front_of_each_prompt_behind_its_nonce(tmp_path: Path) -> None:
    load = programme(tmp_path, {"streams": 1, "context": 500}).load(0, 0, "run")
    for prompt in load.prompts:
        text = str(prompt.content)
        assert 2000 < len(text) < 2100
        assert text.endswith(str(next(item["text"] for item in PROMPTS if item["id"] == prompt.id)))
    assert len({str(prompt.content)[:8] for prompt in load.prompts}) == len(load.prompts)


def test_a_ramp_has_instants(tmp_path: Path) -> None:
    plan = programme(tmp_path, {"ramp": "1-9/10s"})
    load = plan.load(0, 0, "run")
    due = [prompt.due_s or 0.0 for prompt in load.prompts]
    assert load.level.replay
    assert due == sorted(due)
    assert 25 < len(due) < 75
    assert sum(time_s > 5 for time_s in due) > len(due) / 2
    assert due != [prompt.due_s for prompt in plan.load(1, 0, "run").prompts]


def test_the_default_programme_is_the_levels_of_the_measurement(tmp_path: Path) -> None:
    rollout = rollout_of(tmp_path)
    plan = programme_of(rollout, settings_of(rollout, rollout.pools.standard))
    assert [phase.streams for phase in plan.phases] == rollout.measure.concurrency


def test_fixed_settings_are_made_of_the_adaptive_pool(tmp_path: Path) -> None:
    arms = {arm.name: arm.pool for arm in arms_of(rollout_of(tmp_path, k=[2, 4]))}
    assert list(arms) == ["off", "adaptive", "k=2", "k=4"]
    trees = [pool.own.tree for pool in arms.values() if pool.own is not None]
    assert trees == [None, "auto", "chain:2", "chain:4"]
    named = arms_of(rollout_of(tmp_path, static={"mine": "http://127.0.0.1:9/v1#m"}))
    assert [arm.name for arm in named] == ["off", "adaptive", "mine"]


def test_only_a_file_with_the_section_has_the_phase(tmp_path: Path) -> None:
    rollout = rollout_of(tmp_path)
    names = order_of(rollout)
    assert names.index("referee") == names.index("ab") + 1
    without = order_of(rollout.model_copy(update={"referee": None}))
    assert without == tuple(name for name in names if name != "referee")
    phase = phase_of_result("referee")
    assert phase is not None
    assert phase.name == "referee"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"phases": [{"streams": 1, "rate": 2.0}]}, "2 of streams, rate and ramp are set"),
        ({"phases": [{}]}, "0 of streams, rate and ramp are set"),
        ({"phases": [{"ramp": "1-2/10s", "requests": 9}]}, "follow from its rates"),
        ({"phases": [{"ramp": "0-0/10s"}]}, "invalid ramp"),
        ({"phases": [{"streams": 1, "mix": {"chat": 1.0}}]}, "class chat"),
        ({"static": {"off": "http://127.0.0.1:9/v1#m"}}, "called off"),
        ({"static": {"mine": "nonsense"}}, "nonsense"),
        ({"passes": 3}, "passes"),
    ],
)
def test_a_wrong_section_is_refused(tmp_path: Path, section: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecopsError) as refused:
        contest_of(rollout_of(tmp_path, **section))
    assert words in refused.value.message
