"""`specops schema`: a schema for whatever commands print as JSON, made from the types that they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from calling import specops
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from published_schemas import errors
from test_cli_help import paths
from typing_extensions import TypedDict

from specops.assets import asset
from specops.cli import registry
from specops.cli.app import app
from specops.cli.call import Answer, Call, shared_options
from specops.cli.registry import SHAPES, of_command
from specops.cli.schema import document
from specops.load.workload import load_prompts
from specops.results import Result, written

EXAMPLES = Path(__file__).parents[2] / "alerts" / "examples"


def test_every_command_with_json_has_a_schema() -> None:
    commands = set()
    for path in paths():
        command = typer.main.get_command(app)
        for word in path:
            command = command.commands[word]  # type: ignore[attr-defined]
        if any("--json" in one.opts for one in command.params):
            commands.add(" ".join(path))
    assert {one for one in commands if not of_command(one)} == set()
    assert {one for shape in SHAPES.values() for one in shape.commands} == commands


def test_a_command_is_its_file_and_its_lines_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What CONTRIBUTING says of adding one: nothing else has to know it."""

    class Said(TypedDict):
        word: str

    @shared_options()
    def greet(call: Call) -> Answer:
        return Answer(Said(word="hello"), ["hello"])

    module = ModuleType("specops.cli.greet")
    module.greet = greet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.SUMMARIES, "greet", "Greet.")
    monkeypatch.setitem(SHAPES, "greet", registry.Shape(("greet",), "A greeting.", Said))  # type: ignore[index]
    done = CliRunner().invoke(typer.main.get_command(app), ["greet", "--json"])
    assert json.loads(done.stdout) == {"word": "hello"}
    assert errors("greet", {"word": "hello"}) == []
    assert errors("greet", {"other": "hello"}) != []
    assert "Greet." in CliRunner().invoke(typer.main.get_command(app), ["greet", "--help"]).stdout


@pytest.mark.parametrize("name", SHAPES)
def test_a_schema_is_one(name: str) -> None:
    found = document(name)
    Draft202012Validator.check_schema(found)
    assert found["description"] == SHAPES[name].about
    assert found.get("properties") or found["type"] == "array"


OPEN = {"settings", "environment"}
"""Of every result: what was requested, and where it ran."""


def loose(schema: Any, place: str = "") -> Iterator[str]:
    """Places of a schema that take any value, or an object with any key."""
    if schema is True or schema == {} or set(schema) <= {"title", "description", "default"}:
        yield place
        return
    if schema.get("type") == "object" and schema.get("additionalProperties", True) is True:
        yield place
    for key in ("properties", "$defs"):
        for name, part in schema.get(key, {}).items():
            if not (place == "" and name in OPEN):
                yield from loose(part, f"{place}/{name}")
    for key in ("items", "additionalProperties"):
        if key in schema and schema[key] is not False:
            yield from loose(schema[key], f"{place}/{key}")
    for key in ("anyOf", "oneOf", "prefixItems"):
        for part in schema.get(key, ()):
            yield from loose(part, place)


FREE = {
    "run": {"/WalkedPhase/summary"},  # of any phase
    "canary": {"/ConformanceFinding/evidence"},  # each check has its own
    "route": {"/data/rules"},  # the table that the router's Lua reads
    "route-explain": {"/threshold"},
    "diagnose": {"/Observations/classes"},
    "rollout": {
        *("/Deploy/secrets", "/HttpAction/body", "/Monitor/labels", "/TrafficClass/headers"),
        *("/TrtllmPool/config", "/TrtllmSpeculation/more", "/VllmSpeculation/more"),
    },  # the user's own names, or the engine's
}
"""Places where keys are somebody else's."""


def test_a_schema_names_every_key() -> None:
    found = {
        name: {place.partition("/additionalProperties")[0] for place in loose(document(name))}
        for name in SHAPES
    }
    assert {name: places for name, places in found.items() if places} == FREE


@pytest.mark.parametrize("name", ["baseline", "ab"])
def test_an_unknown_key_of_a_real_result_is_an_error(name: str) -> None:
    result = json.loads((EXAMPLES / f"{name}.json").read_text())
    unknown = errors(name, result | {"summary": result["summary"] | {"more": 1}})
    assert any("'more' was unexpected" in one for one in unknown)
    unknown = errors(name, result | {"data": result["data"] | {"more": 1}})
    assert any("'more' was unexpected" in one for one in unknown)


def test_the_command_prints_one_or_the_names() -> None:
    done = specops("schema", "compare")
    assert (done.returncode, json.loads(done.stdout)) == (0, document("compare"))
    assert specops("schema", "compare", "--json").stdout == done.stdout
    listed = [line.split()[0] for line in specops("schema").stdout.splitlines()]
    assert listed == list(SHAPES)
    named = json.loads(specops("schema", "--json").stdout)
    assert errors("schema", named) == []
    assert [one["name"] for one in named] == listed


def test_an_unknown_name_is_one_sentence_with_the_list() -> None:
    done = specops("schema", "nope")
    assert done.returncode == 2
    message, hint = done.stderr.splitlines()
    assert message == f"error: no schema 'nope': expected {', '.join(SHAPES)}"
    assert hint == "hint: specops schema"


def test_another_key_or_a_missing_one_is_an_error() -> None:
    data = {"checks": [{"name": "cores", "status": "ok", "found": "2", "fix": None, "paste": None}]}
    good = json.loads(written(Result(phase="doctor", verdict="yes", reason="r", data=data)))
    assert errors("doctor", good) == []
    assert errors("doctor", good | {"more": 1})
    assert errors("doctor", {name: value for name, value in good.items() if name != "verdict"})
    assert errors("doctor", good | {"data": {}})
    assert errors("doctor", good | {"data": {"checks": [{"name": "cores"}]}})
    assert errors("doctor", good | {"phase": "ab"})


def test_what_a_result_has_only_at_its_end_a_partial_one_may_lack() -> None:
    prompts = load_prompts(asset("playbooks", "embedded", "prompts.json")).provenance()
    stored = {"prompts": prompts, "failed": {}, "looks": {"done": 0, "planned": 4}, "duration_s": 1.0}
    data = stored | {"run": "abcd", "windows": [], "margins": []}
    partial = json.loads(written(Result(phase="ab", verdict="partial", reason="stopped", data=data)))
    assert errors("ab", partial) == []
    assert errors("ab", partial | {"verdict": "yes"})


def test_an_error_has_a_schema_too(tmp_path: Path) -> None:
    done = specops("run", str(tmp_path / "absent.yaml"), "--json")
    assert errors("error", json.loads(done.stdout)) == []
    assert errors("error", {"error": "e"})
