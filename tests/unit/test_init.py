"""`specops init` without servers: short files that load, named after their folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from calling import specops

from specops.assets import asset
from specops.config import load
from specops.errors import HubError
from specops.phases import init
from specops.phases.inputs import settings_of
from specops.phases.launch import render
from specops.progress import SilentProgress
from specops.serving import ENGINES

TARGET, HEAD = asset("playbooks", "embedded", "target"), asset("playbooks", "embedded", "head")
STARTED = [name for name, engine in ENGINES.items() if engine.drafts is not None]


def written(folder: Path, *words: str) -> tuple[str, Any]:
    done = specops("init", str(folder), *words)
    assert (done.returncode, done.stderr) == (0, "")
    path = folder / "rollout.yaml"
    assert done.stdout == f"wrote {path}\nnext: specops run {path}\n"
    return path.read_text(), load(path)


def test_without_options_it_is_short_and_of_the_shipped_pair(tmp_path: Path) -> None:
    text, file = written(tmp_path / "my chat")
    assert len(text.splitlines()) <= 40
    assert file.rollout == "my-chat"
    assert file.measure.endpoint == "completions"
    assert file.pools.speculative.speculates
    assert not file.pools.standard.speculates
    assert "samples that ship with specops" in text
    assert settings_of(file, file.pools.standard).prompt_set().provenance()["samples"]


@pytest.mark.parametrize("words", [(), ("--full",), ("--engine", "vllm", "--model", str(TARGET))])
def test_an_editor_finds_the_schema_beside_the_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    text, _ = written(tmp_path / "x", *words)
    first = text.splitlines()[0]
    assert first == "# yaml-language-server: $schema=rollout.schema.json"
    schema = json.loads((tmp_path / "x" / first.rpartition("=")[2]).read_text())
    assert schema["$id"] == "urn:specops:rollout-file"
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.validate(yaml.safe_load(text), schema)


def test_a_schema_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "rollout.schema.json").write_text("mine")
    written(tmp_path)
    assert (tmp_path / "rollout.schema.json").read_text() == "mine"


def test_full_has_every_key_and_the_folders_name(tmp_path: Path) -> None:
    text, file = written(tmp_path / "chat", "--full")
    assert len(text.splitlines()) > 200
    assert file.rollout == "chat"
    assert "runs/first" not in text


@pytest.mark.parametrize("engine", STARTED)
def test_every_engine_has_a_short_file_that_loads_and_renders(tmp_path: Path, engine: str) -> None:
    text, file = written(tmp_path / "x", "--engine", engine, "--model", str(TARGET))
    assert len(text.splitlines()) <= 40
    assert [pool.engine for pool in (file.pools.standard, file.pools.speculative)] == [engine] * 2
    assert [pool.speculates for pool in (file.pools.standard, file.pools.speculative)] == [False, True]
    result = render(file, tmp_path / "x", SilentProgress())
    assert result.summary["errors"] == 0, result.data["pools"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_settings_for_one_machine_say_so(tmp_path: Path, engine: str) -> None:
    text, _ = written(tmp_path / "x", "--engine", engine, "--model", str(TARGET))
    shared = [line for line in text.splitlines() if ": 0.45" in line]
    assert len(shared) == 2
    assert all(line.endswith("  # both pools share a GPU; 0.9 with a GPU each") for line in shared)


def test_the_method_comes_from_the_drafts_files(tmp_path: Path) -> None:
    for engine, setting in (("embedded", "tree: chain:3"), ("vllm", "method: eagle")):
        done = specops("init", str(tmp_path / engine), "--engine", engine, "--model", str(TARGET),
                       "--draft", str(HEAD))  # fmt: skip
        if done.returncode == 0:
            assert setting in (tmp_path / engine / "rollout.yaml").read_text()
        else:
            assert done.returncode == 2
            assert f"hint: specops verify-draft {TARGET} {HEAD} --engine {engine}" in done.stderr
    speculative: Any = load(tmp_path / "embedded" / "rollout.yaml").pools.speculative
    assert speculative.speculation.draft == HEAD


@pytest.mark.parametrize(
    ("draft", "method"),
    [("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3"), ("org/my-eagle", "eagle"), ("org/m", "draft_model")],
)
def test_without_the_hub_the_method_is_by_the_drafts_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draft: str, method: str
) -> None:
    def unread(*_: object) -> None:
        raise HubError("could not read org/target from the hub: nothing listens there")

    monkeypatch.setattr(init, "verify", unread)
    done = specops("init", str(tmp_path), "--engine", "vllm", "--model", "org/target", "--draft", draft)
    path = tmp_path / "rollout.yaml"
    assert (done.returncode, done.stderr) == (0, "")
    wrote, warning, following = re.sub(r"\n +", " ", done.stdout).splitlines()
    assert wrote == f"wrote {path}"
    assert warning == (
        f"warning: the draft was not checked, and its method {method} is by its name: could not read "
        "org/target from the hub: nothing listens there"
    )
    check = f"specops verify-draft org/target {draft} --engine vllm"
    assert following == f"next: {check}  # then: specops run {path}"
    speculative: Any = load(path).pools.speculative
    assert speculative.speculation.method == method


def test_a_draft_whose_kind_the_engine_refuses_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object) -> None:
        raise HubError("offline")

    monkeypatch.setattr(init, "verify", unread)
    words = ("--engine", "vllm", "--model", "org/target", "--draft", "org/medusa-heads")
    done = specops("init", str(tmp_path / "x"), *words)
    assert done.returncode == 2
    assert "the draft does not fit the target: 0.33 removed Medusa" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--engine", "vllm"), "vLLM has no target of its own: --model is missing"),
        (("--draft", "x"), "--model is missing"),
        (("--engine", "nope"), "could not use --engine 'nope': expected "),
        (("--engine", "command"), "could not use --engine 'command': expected "),
        (("--full", "--engine", "vllm"), "--full takes no other option"),
        (("--base-url", "http://h:1/v1", "--engine", "vllm"), "--base-url and --engine exclude each other"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = specops("init", str(tmp_path / "x"), *words)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert says in error
    assert hint.startswith("hint: ")
    assert not (tmp_path / "x").exists()


def test_prompts_that_are_missing_are_not_written_into_a_file(tmp_path: Path) -> None:
    done = specops("init", str(tmp_path / "x"), "--prompts", str(tmp_path / "absent.json"))
    assert done.returncode == 3
    assert "there are no prompts at" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_file_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rollout.yaml").write_text("mine")
    for words in ((), ("--full",), ("--engine", "vllm", "--model", "m")):
        assert specops("init", str(tmp_path), *words).returncode == 2
    assert [one.name for one in tmp_path.iterdir()] == ["rollout.yaml"]
    assert (tmp_path / "rollout.yaml").read_text() == "mine"
