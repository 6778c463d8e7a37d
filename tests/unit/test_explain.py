"""`specops explain`: every key of the rollout file, from its field; wrong keys get the right one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from calling import specops
from printed_commands import problem

from specops.config import Guard, Section, load
from specops.config.explanation import KeyExplanation, explain
from specops.config.keys import Key, at_place, by_path, keys, nearest
from specops.errors import ConfigError, Exit, UsageError

VALUES = [key for key in keys() if not key.inner]


def explained(path: str) -> KeyExplanation:
    (key,) = explain(path).keys
    return key


def value_of(line: str, key: Key) -> object:
    """The value of a key in a line of a rollout file."""
    node = yaml.safe_load(line)
    for index, part in enumerate(key.place):
        node = node[0] if isinstance(node, list) else node
        if index in key.members:
            assert part in (node.get("engine"), node.get("kind"))
        else:
            node = next(iter(node.values())) if part == "NAME" else node[part]
    return node


def test_every_key_is_explained_with_an_example_that_is_valid() -> None:
    assert len(VALUES) > 400
    schemas: dict[type[Section], dict[str, Any]] = {}
    for key in VALUES:
        place = ".".join(key.place)
        (one,) = explain(place).keys
        assert one.path == key.path
        assert one.meaning.endswith("."), place
        assert "; default: " not in one.meaning, place
        assert one.default, place
        assert (one.unit is not None) == (key.quantity is not None), place
        assert one.used_by, place
        value = value_of(one.example, key)
        assert value is not None, f"{place} has no example in playbooks/rollout.template.yaml"
        if key.section not in schemas:
            schemas[key.section] = key.section.model_json_schema()
        schema = schemas[key.section]
        part = schema["properties"][key.name] | {"$defs": schema.get("$defs", {})}
        jsonschema.Draft202012Validator(part).validate(value)


def test_commands_that_use_a_section_exist() -> None:
    commands = {command for key in explain("").keys for command in key.used_by}
    assert len(commands) > 10
    # A group of commands may stand alone: specops guard.
    wrong = {one: problem([*one.split()[1:], "--help"]) for one in commands}
    assert {one: why for one, why in wrong.items() if why is not None} == {}


def test_a_share_has_its_range_unit_and_default() -> None:
    one = explained("guard.max_regression")
    assert one.type == "number"
    assert one.unit == "share, part of 1: 0.2 is 20%"
    assert one.allowed == "above 0, below 1"
    assert one.default == "0.2"
    assert one.used_by == ["specops guard"]
    assert one.example == "guard: {max_regression: 0.2}"


@pytest.mark.parametrize(
    ("path", "field", "expected"),
    [
        ("measure.timeout_s", "type", "number, or a text such as 30s, 5m, 1h30m"),
        ("measure.concurrency", "allowed", "1 or more items, each at least 1, at most 1000"),
        ("ab.design", "allowed", "one of interleaved, abba-restart"),
        ("guard.min_acceptance", "default", "break-even of the sweep, else 0.4"),
        ("costs.standard_per_hour", "default", "none (required)"),
        ("monitor.alerts.for_s", "example", "monitor: {alerts: {LowAcceptRatio: {for_s: 600}}}"),
        ("route.classes.name", "example", "route: {classes: [{name: code}]}"),
        ("guard.actions.http.timeout_s", "example", "guard: {actions: [{kind: http, timeout_s: 5.0}]}"),
        (
            "pools.standard.engine",
            "allowed",
            "one of embedded, vllm, sglang, llamacpp, trtllm, command, endpoint",
        ),
    ],
)
def test_what_is_said_of_a_key(path: str, field: str, expected: str) -> None:
    assert getattr(explained(path), field) == expected


def test_a_key_of_several_engines_is_explained_for_each() -> None:
    assert {one.member for one in explain("pools.standard.model").keys} >= {"vllm", "endpoint", "trtllm"}
    assert [one.member for one in explain("pools.standard.vllm.model").keys] == ["vllm"]


def test_a_section_lists_its_keys() -> None:
    done = specops("explain", "guard")
    assert (done.returncode, done.stderr) == (0, "")
    for name, field in Guard.model_fields.items():
        assert f"  {name}  " in done.stdout
        assert field.description.partition("; default:")[0].split(".")[0] in done.stdout
    assert "explain a key: specops explain guard.interval_s" in done.stdout
    assert [one.path for one in explain("monitor.alerts").keys] == ["monitor.alerts.NAME.threshold",
                                                                   "monitor.alerts.NAME.for_s"]  # fmt: skip


def test_a_section_of_several_engines_names_each() -> None:
    members = explain("pools.speculative").members
    assert list(members) == [f"pools.speculative.{key.member}" for key in by_path("pools.speculative.engine")]
    for path in (*members, *explain("guard.actions").members, *explain("pools.standard.speculation").members):
        assert explain(path).keys, path


def test_without_a_key_all_sections_are_listed() -> None:
    done = specops("explain")
    assert done.returncode == 0
    for key in keys():
        if len(key.place) == 1:
            assert f"\n  {key.name}  " in done.stdout


@pytest.mark.parametrize(
    ("path", "guess"),
    [
        ("guard.max_regresion", "guard.max_regression"),
        ("gaurd.max_regression", "guard.max_regression"),
        ("cooldown_s", "guard.cooldown_s"),
        ("measure.concurency", "measure.concurrency"),
        ("gard", "guard"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(path: str, guess: str) -> None:
    done = specops("explain", path)
    assert done.returncode == Exit.USAGE
    assert done.stderr == (
        f"error: the rollout file has no key '{path}': did you mean {guess}?\nhint: specops explain {guess}\n"
    )
    assert done.stdout == ""


@pytest.mark.parametrize("path", ["zzzz", "guard.", ".", "guard..margin", "guard.margin.x", "GUARD", "0"])
def test_what_is_no_key_is_one_sentence(path: str) -> None:
    with pytest.raises(UsageError, match="the rollout file has no key"):
        explain(path)


def test_json_is_by_its_schema() -> None:
    done = specops("explain", "guard.margin", "--json")
    assert json.loads(done.stdout)["keys"][0]["allowed"] == "at least 0, below 1"
    assert json.loads(specops("explain", "pools.standard", "--json").stdout)["members"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("guard: {max_regression: 20}", "specops explain guard.max_regression"),
        ("measure: {concurrency: 4}", "specops explain measure.concurrency"),
        ("measure: {concurrency: [1, 0]}", "specops explain measure.concurrency"),
        ("guard: {zzz: 1}", "specops explain guard"),
        ("guard: {actions: [{kind: http}]}", "specops explain guard.actions.http.url"),
        ("guard: {actions: [{kind: none}]}", "specops explain guard.actions"),
        ("monitor: {alerts: {LowAcceptRatio: {for_s: -1}}}", "specops explain monitor.alerts.NAME.for_s"),
        ("zzz: 1", "specops explain"),
    ],
)
def test_an_error_about_a_key_points_to_its_explanation(tmp_path: Path, text: str, hint: str) -> None:
    file = tmp_path / "rollout.yaml"
    file.write_text(
        "rollout: x\npools:\n  standard: {engine: embedded}\n"
        f"  speculative: {{engine: embedded, speculation: {{}}}}\n{text}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert caught.value.hint == hint
    if " " in hint.removeprefix("specops explain"):
        assert explain(hint.split()[-1])


def test_a_place_of_pydantic_leads_to_its_key() -> None:
    for key in keys():
        assert at_place(key.place) == key
        assert key in by_path(".".join(key.place))
        assert key in by_path(key.path)
    assert at_place(("nope",)) is None
    assert nearest("zzzz") is None
