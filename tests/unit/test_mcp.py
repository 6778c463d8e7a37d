"""`specops mcp`, as an assistant uses it: the SDK's own client starts it and talks over its pipes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import made_runs
import pytest
from calling import specops as command

import specops
from specops import results
from specops.errors import Exit
from specops.results import Result

LAUNCH = "#!/bin/sh\nvllm serve m --num-speculative-tokens 3 --config /etc/hostname\n"


def test_without_the_package_it_says_what_to_install(monkeypatch) -> None:
    for name in ("mcp", "mcp.server"):
        monkeypatch.setitem(sys.modules, name, None)
    done = command("mcp")
    assert done.returncode == Exit.ENVIRONMENT
    assert done.stdout == ""
    message, hint = done.stderr.splitlines()
    assert message.startswith("error: could not start the MCP server: ")
    assert hint.startswith("hint: pip install ")
    assert "[mcp]" in hint


@pytest.fixture
def client() -> Callable[[Path, Callable[[Any], Awaitable[Any]]], Any]:
    """Runs a conversation with a server that was started in a folder."""
    if not os.environ.get("CI"):
        pytest.importorskip("mcp", reason="needs the mcp extra")
    from mcp import Client, StdioServerParameters, stdio_client

    def talk(folder: Path, conversation: Callable[[Any], Awaitable[Any]]) -> Any:
        paths = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        program = StdioServerParameters(
            command=sys.executable,
            args=["-m", "specops", "mcp"],
            env={"PYTHONPATH": paths},
            cwd=folder,
        )

        async def session() -> Any:
            async with asyncio.timeout(100), Client(stdio_client(program)) as connected:
                return await conversation(connected)

        return asyncio.run(session())

    return talk


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made")
    route = Result(phase="route", verdict="no", reason="no rule", summary={"rules": 0}, data={"files": []})
    made_runs.run(made / "runs" / "demo", route)
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("created", "sha256")}


def test_the_tools_answer_as_the_commands_and_write_nothing(client, folder, monkeypatch) -> None:
    before = files(folder)

    async def conversation(connected: Any) -> Any:
        tools = (await connected.list_tools()).tools
        assert [tool.name for tool in tools] == ["lint_launch_file", "explain_key", "read_run", "diagnose"]
        for tool in tools:
            assert tool.annotations.read_only_hint
            assert tool.description
            for field in tool.input_schema["properties"].values():
                assert field["description"], tool.name
        calls = {
            "lint_launch_file": {"text": LAUNCH, "name": "start.sh", "engine_version": "0.12.0"},
            "explain_key": {"key": "guard.max_regression"},
            "read_run": {"run_folder": "runs/demo"},
            "diagnose": {"rollout_file": "rollout.yaml"},
        }
        answers = {name: await connected.call_tool(name, words) for name, words in calls.items()}
        for name, answer in answers.items():
            assert not answer.is_error, f"{name}: {answer.content}"
        return {name: answer.structured_content for name, answer in answers.items()}

    answers = client(folder, conversation)
    assert files(folder) == before
    linted = specops.lint(Path("start.sh"), text=LAUNCH, engine_version="0.12.0")
    assert timeless(answers["lint_launch_file"]) == timeless(json.loads(results.written(linted)))
    explained = command("explain", "guard.max_regression", "--json")
    assert answers["explain_key"] == json.loads(explained.stdout)
    (phase,) = answers["read_run"]["phases"]
    read = specops.read(folder / "runs" / "demo").results["route"]
    assert phase == {
        "phase": "route",
        "verdict": "no",
        "reason": "no rule",
        "created": read.created.isoformat(),
        "summary": {"rules": 0},
    }
    assert answers["read_run"]["answer"].startswith("Failed: route.")
    monkeypatch.chdir(folder)
    diagnosed = json.loads(command("diagnose", "rollout.yaml", "--no-requests", "--json").stdout)
    assert diagnosed["phase"] == answers["diagnose"]["phase"] == "diagnose"
    for name in ("settings", "verdict", "reason", "summary"):
        assert answers["diagnose"][name] == diagnosed[name]


def test_an_error_is_the_commands_sentence_with_its_hint(client, folder) -> None:
    async def conversation(connected: Any) -> list[str]:
        wrong = [
            ("lint_launch_file", {"text": "echo hello", "name": "start.sh"}),
            ("lint_launch_file", {"text": LAUNCH, "name": "../start.sh"}),
            ("explain_key", {"key": "guard.max_regresion"}),
            ("read_run", {"run_folder": "runs/none"}),
            ("diagnose", {"rollout_file": "none.yaml"}),
        ]
        said = []
        for name, words in wrong:
            answer = await connected.call_tool(name, words)
            assert answer.is_error, name
            said.append(answer.content[0].text)
        return said

    lint, name, explain, read, diagnose = client(folder, conversation)
    assert "there is no command of " in lint
    assert "invalid name '../start.sh'" in name
    assert "guard.max_regression" in explain
    assert "there is no run folder runs/none" in read
    assert "none.yaml" in diagnose
    for text in (lint, name, explain, read, diagnose):
        assert "\nhint: " in text, text
