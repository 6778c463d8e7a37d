"""`specops launch lint` as it is typed: exit codes, both forms of the answer, and no key in either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specops import results
from specops.cli.app import app

CLEAN = ["vllm", "serve", "m", "--spec-method", "mtp", "--spec-tokens", "1"]
WRONG = ["vllm", "serve", "m", "--use-v2-block-manager"]
RISKY = ["vllm", "serve", "m", "--api-key", "sk-secret"]
UNSURE = [*CLEAN, "--pipeline-parallel-size", "2"]


def lint(*words: str) -> Result:
    return CliRunner().invoke(app, ["launch", "lint", *words])


@pytest.mark.parametrize(("words", "code"), [(CLEAN, 0), (RISKY, 0), (WRONG, 1), (UNSURE, 1)])
def test_only_an_error_fails(words, code) -> None:
    assert lint("--", *words).exit_code == code


@pytest.mark.parametrize("words", [[*CLEAN, "--omni"], ["./ik_llama.cpp/build/bin/llama-server", "-m", "x"]])
def test_what_was_not_judged_is_not_called_clean(words) -> None:
    done = lint("--", *words)
    assert done.exit_code == 4
    assert "clean" not in done.stdout
    assert "1 unknown: " in done.stdout.splitlines()[-1]


def test_the_page_names_version_finding_and_the_command_as_it_should_be() -> None:
    page = lint("--engine-version", "0.20.2", "--", *WRONG).stdout.splitlines()
    assert page[0] == "the command: vLLM 0.20.2, as requested"
    assert page[1].startswith(
        "  error    --use-v2-block-manager: vLLM 0.20.2 does not have it (up to 0.9.2 do)"
    )
    assert page[2] == "           instead: leave it out"
    assert page[3:7] == ["corrected:", "", "vllm serve m", ""]
    assert page[-1].startswith("1 error, 0 warnings, by the flags and keys in the engine's released sources")


def test_what_no_rule_can_mend_is_left_to_a_person() -> None:
    page = lint("--", *UNSURE).stdout
    assert "corrected:" not in page
    assert "not corrected, fix by hand: 1 error (--pipeline-parallel-size)" in page


def test_a_version_that_is_not_known_yet_is_judged_as_the_one_before_and_said() -> None:
    page = lint("--engine-version", "0.99", "--", *CLEAN).stdout
    assert "vLLM 0.33.0, the nearest known before 0.99.0, as requested, which is newer than any known" in page
    assert "no finding for vLLM 0.99.0" not in page


def test_json_is_a_result_and_holds_no_key(tmp_path: Path) -> None:
    out = tmp_path / "lint.json"
    ran = lint("--json", "--out", str(out), "--", *RISKY)
    answer = json.loads(ran.stdout)
    assert (answer["phase"], answer["verdict"], answer["reason"]) == ("lint", "yes", "0 errors, 1 warning")
    command = answer["data"]["commands"][0]
    assert command["corrected"] == "vllm serve m\n"
    assert [finding["flag"] for finding in command["findings"]] == ["--api-key"]
    assert "sk-secret" not in ran.stdout
    assert results.read(out).data == answer["data"]


def test_a_file_is_an_input_by_its_hash(tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text("vllm serve m --use-v2-block-manager\n")
    ran = lint("--json", "--file", str(script))
    assert ran.exit_code == 1
    assert json.loads(ran.stdout)["inputs"] == {"start.sh": results.sha256(script)}


def test_a_command_of_sglang_is_judged_by_sglangs_flags() -> None:
    words = ["python", "-m", "sglang.launch_server", "--model-path", "m", "--speculative-algorithm", "NGRAM"]
    page = lint("--", *words, "--api-key", "sk-secret").stdout
    assert page.startswith("the command: SGLang 0.")
    assert "warning  --max-running-requests: unset" in page
    assert "warning  --api-key" in page
    assert "sk-secret" not in page


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "not both"),
        (["--file", "x.sh", "--", *CLEAN], "not both"),
        (["--", "ls", "-l"], "ls is not a command of vLLM or SGLang"),
        (["--", "KEY=secret", "ls"], "not a command of vLLM or SGLang"),
        ([__file__], "is a file: expected a command"),
        (["--engine-version", "new", "--", *CLEAN], "invalid version 'new' of vLLM"),
    ],
)
def test_wrong_usage_is_a_sentence_with_a_hint(words, says) -> None:
    error = lint(*words).exception
    assert says in error.message
    assert "secret" not in error.message
    assert error.hint
    assert error.exit_code == 2
