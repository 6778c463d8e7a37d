"""The Python API without servers: what is public, what it loads, and that it says what the commands say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import made_runs
import pytest
from calling import specops as command
from printed_commands import problem

import specops
from specops import results
from specops.errors import FileError, ModelError, SpecopsError, UsageError
from specops.hints import with_options
from specops.results import Result

ROOT = Path(__file__).parents[2]
PAIR = ROOT / "playbooks" / "embedded"


def timeless(text: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(text).items() if name not in ("created", "sha256")}


def printed(result: Result) -> dict[str, Any]:
    return timeless(results.written(result))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a comparison, and a damaged sweep."""
    made = made_runs.run(tmp_path_factory.mktemp("made") / "runs" / "demo", made_runs.compared())
    (made / "sweep.json").write_text("{}")
    return made


def test_five_functions_are_public() -> None:
    assert specops.__all__ == ["baseline", "compare", "lint", "read", "verify_draft"]
    assert all(callable(getattr(specops, name)) for name in specops.__all__)
    assert set(specops.__all__) <= set(dir(specops))
    with pytest.raises(AttributeError, match="no attribute 'ab'"):
        _ = specops.ab  # type: ignore[attr-defined]


def test_importing_it_loads_nothing() -> None:
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import specops\n"
        "print(*sorted(set(sys.modules) - before - {'__future__'}))\n"
        "specops.lint\n"
        "print(*{name.partition('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    at_once, at_first_use = done.stdout.splitlines()
    assert at_once == "specops"
    heavy = {"torch", "transformers", "openai", "aiohttp", "matplotlib", "numpy", "typer", "rich", "jinja2"}
    assert heavy.isdisjoint(at_first_use.split())


@pytest.mark.parametrize(
    "words",
    [
        ["vllm serve m --num-speculative-tokens 3"],
        ["vllm", "serve", "m"],
        ["vllm serve m --speculative-config $SPEC"],
    ],
    ids=["an error", "words", "unknown"],
)
def test_a_linted_command_is_that_of_the_command(words) -> None:
    said = command("launch", "lint", "--engine-version", "0.12.0", "--json", "--", *words).stdout
    given = words if len(words) > 1 else words[0]
    assert printed(specops.lint(given, engine_version="0.12.0")) == timeless(said)


def test_a_linted_file_is_that_of_the_command(tmp_path) -> None:
    script = tmp_path / "start.sh"
    script.write_text("#!/bin/sh\nvllm serve m --num-speculative-tokens 3 --config flags.yaml\n")
    (tmp_path / "flags.yaml").write_text("no-such-flag: 1\n")
    said = timeless(command("launch", "lint", "--file", str(script), "--json").stdout)
    assert printed(specops.lint(script)) == said
    assert "no-such-flag" in json.dumps(said)
    alone = printed(specops.lint(Path("start.sh"), text=script.read_text()))
    assert alone["inputs"] == said["inputs"]
    assert "no-such-flag" not in json.dumps(alone)  # of a text alone, no file is read
    assert "flags.yaml" in json.dumps(alone["data"]["commands"][0]["unknown"])


def test_a_draft_is_judged_as_by_the_command(tmp_path) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text('[{"text": "one two"}]')
    words = ["--prompts", str(prompts), "--engine", "embedded", "--gpu", "80"]
    said = command("verify-draft", str(PAIR / "target"), str(PAIR / "draft"), *words, "--json").stdout
    result = specops.verify_draft(PAIR / "target", PAIR / "draft", prompts, engine="embedded", gpu="80")
    assert printed(result) == timeless(said)


def test_a_run_has_the_results_of_its_files(folder) -> None:
    run = specops.read(str(folder))
    assert timeless((folder / "ab.json").read_text()) == printed(run.results["ab"])
    assert list(run.results) == ["ab"]
    assert [one.name for one in run.unreadable] == ["sweep.json"]
    assert run.comparison is not None
    assert run.comparison.challengers["speculative"].decision.verdict == "yes"


def test_a_run_and_its_results_draw_themselves(folder) -> None:
    run = specops.read(folder)
    whole, one = run._repr_html_(), run.results["ab"]._repr_html_()
    assert one is not None
    for page in (whole, one):
        assert page.startswith('<iframe sandbox="" ')
        assert page.count("<") == 2
        assert "Speculation pays" in page
        assert "&#34;ab.json&#34;" not in page  # a notebook lies elsewhere: it cannot follow the link
    assert "windows" not in repr(run)


@pytest.mark.parametrize(
    ("result", "texts"),
    [
        (
            lambda: specops.lint("vllm serve m --num-speculative-tokens 3"),
            ["num-speculative", "failed"],
        ),
        (lambda: specops.lint("vllm serve m --speculative-config $SPEC"), ["$SPEC", "undecided"]),
        (lambda: specops.verify_draft(PAIR / "target", PAIR / "draft"), ["tokenizers", "passed"]),
    ],
    ids=["lint", "unknown", "draft"],
)
def test_findings_are_drawn(result, texts) -> None:
    page = result()._repr_html_()
    assert all(text in page for text in texts), page


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: specops.lint("echo hello"), UsageError, "echo is not a command of"),
        (lambda: specops.lint(Path("none.sh")), FileError, "could not read none.sh"),
        (lambda: specops.lint("vllm serve m", text="vllm serve m"), UsageError, "expected a Path"),
        (lambda: specops.read("runs/none"), FileError, "there is no run folder runs/none"),
        (lambda: specops.read(ROOT / "docs"), FileError, "is not a run folder"),
        (
            lambda: specops.verify_draft(PAIR / "target", PAIR / "draft", engine="x"),
            UsageError,
            "engine is 'x', and should be",
        ),
        (lambda: specops.verify_draft(PAIR, "ngram"), (UsageError, ModelError), "config.json"),
    ],
    ids=["command", "script", "text", "no folder", "another folder", "engine", "no model"],
)
def test_errors_are_those_of_the_commands(call, kind, message, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/ipykernel_launcher.py", "-f", "/run/kernel.json"])
    with pytest.raises(kind, match=message) as raised:
        call()
    hint = raised.value.hint
    assert hint is None or "kernel.json" not in hint
    if hint is not None and hint.startswith("specops "):
        assert problem(hint.partition("  #")[0].split()[1:]) is None


def test_after_a_call_hints_are_of_what_was_typed_again(monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["specops", "sweep", "r.yaml"])
    with pytest.raises(SpecopsError):
        specops.lint("echo hello")
    assert with_options({"--fresh": True}) == "specops sweep r.yaml --fresh"
