"""Help of the command line: short first lines, -h everywhere, completion of the three shells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from specops.cli.app import app
from specops.config import Ab
from specops.phases import ON_REQUEST, PHASES

ROOT = Path(__file__).parents[2]
RUNNER = CliRunner()


def paths() -> list[tuple[str, ...]]:
    """The words of every command and group; () is specops itself."""
    found: list[tuple[str, ...]] = [()]
    todo = [((), typer.main.get_command(app))]
    while todo:
        path, group = todo.pop()
        for name, command in getattr(group, "commands", {}).items():
            found.append((*path, name))
            todo.append(((*path, name), command))
    return found


@pytest.mark.parametrize("path", paths(), ids=" ".join)
def test_the_first_line_of_help_is_whole_at_80_columns(path: tuple[str, ...]) -> None:
    done = RUNNER.invoke(app, [*path, "-h"], env={"COLUMNS": "80"}, prog_name="specops")
    assert done.exit_code == 0, done.output
    usage, first = re.split(r"\n\n+", done.output)[:2]
    assert usage.startswith(" ".join(("Usage: specops", *path)))
    if path:
        assert len(first.strip()) <= 60
    assert "\n" not in first.strip()
    commands = done.output.partition("\nCommands:\n")[2]
    assert "..." not in commands
    # On a terminal Typer cuts lines that leave less than four columns free, but not in a test.
    assert all(len(line) <= 76 for line in commands.splitlines())
    assert (
        RUNNER.invoke(app, [*path, "--help"], env={"COLUMNS": "80"}, prog_name="specops").output
        == done.output
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_each_shell(shell: str) -> None:
    source = RUNNER.invoke(app, [], env={"_SPECOPS_COMPLETE": f"source_{shell}"}, prog_name="specops")
    assert "_SPECOPS_COMPLETE" in source.output
    for typed, completed, other in (
        ("specops verify-", "verify-draft", "baseline"),
        ("specops run a.yaml --only guard-", "guard-drill", "baseline"),
        ("specops schema verify-draft-", "verify-draft-guide", "compare"),
        ("specops verify-draft t d --engine sg", "sglang", "vllm"),
        ("specops diagnose a.yaml --symptom b", "bursts", "slower"),
        ("specops checklist attest run", "runbook-shared", "capacity"),
    ):
        words = {
            "COMP_WORDS": typed,
            "COMP_CWORD": str(typed.count(" ")),
            "_TYPER_COMPLETE_ARGS": typed,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        done = RUNNER.invoke(
            app, [], env={"_SPECOPS_COMPLETE": f"complete_{shell}", **words}, prog_name="specops"
        )
        assert completed in done.output
        assert other not in done.output


def test_the_readme_shows_the_phases_of_todays_page() -> None:
    """Its lines of phases are those of a run, in order, with the states that the page has."""
    from specops.phases.run_page.conclusion import SKIPPED
    from specops.render.report.document import STATES

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^  ([a-z-]+)  +(passed|failed|undecided|stopped|skipped)  ", text, re.MULTILINE)
    shown = [(phase, state) for phase, state in lines if phase != "measured"]
    assert [phase for phase, _ in shown] == [phase for phase in PHASES if phase not in ON_REQUEST]
    assert {state for _, state in shown} <= {word for _, word in (*STATES.values(), SKIPPED)}


def test_the_defaults_of_ab_are_those_of_the_rollout_file() -> None:
    command = typer.main.get_command(app).commands["ab"]  # type: ignore[attr-defined]
    options = {option.name: option.default for option in command.params if option.default is not None}
    shared = {name: field.default for name, field in Ab.model_fields.items() if name in options}
    assert {"confidence", "design", "length_margin", "failure_margin"} <= set(shared)
    assert {name: options[name] for name in shared} == shared
