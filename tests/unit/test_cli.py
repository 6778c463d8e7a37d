"""The frame of the command line: help without the heavy libraries, errors as sentences, exit codes."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from calling import specops

import specops as specops_package
from specops import __version__
from specops.cli import app as cli
from specops.cli.progress import progress
from specops.errors import ConfigError, Exit, ServerError
from specops.hints import PROGRAMS, with_options, with_value
from specops.progress import SilentProgress

HEAVY = ("torch", "transformers", "openai", "aiohttp", "matplotlib")


COMMANDS = [
    ["--help"],
    ["--version"],
    ["init", "--schema"],
    ["doctor"],
    *(
        [command, "--help"]
        for command in (
            "init",
            "run",
            "serve",
            "baseline",
            "ab",
            "sweep",
            "edge",
            "guard",
            "checklist",
            "doctor",
        )
    ),
    ["run", "absent.yaml"],
    ["ab", "--arm", "a=nothing"],
]


def loaded_by(*commands: list[str]) -> list[set[str]]:
    """The top-level modules that are loaded after each, one after the other in one process."""
    program = (
        "import sys\n"
        "from specops.cli.app import main\n"
        f"for words in {commands!r}:\n"
        "    sys.argv = ['specops', *words]\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        "    loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "    print('loaded', *loaded, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return [set(line.split()[1:]) for line in done.stderr.splitlines() if line.startswith("loaded ")]


def test_no_heavy_library_is_loaded() -> None:
    for words, loaded in zip(COMMANDS, loaded_by(*COMMANDS), strict=True):
        assert "typer" in loaded
        assert loaded.isdisjoint(HEAVY), words


def test_it_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specops", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"specops {__version__}\n")


def test_help_names_every_command() -> None:
    done = specops("--help")
    assert done.returncode == 0
    for command in ("init", "run", "serve", "baseline", "ab", "doctor"):
        assert f"  {command} " in done.stdout


@pytest.mark.parametrize("words", [["nope"], ["init", "--nope"], ["run"]], ids=" ".join)
def test_wrong_usage_is_exit_2_and_no_traceback(words) -> None:
    done = specops(*words)
    assert done.returncode == Exit.USAGE
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "\nhint: specops" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--port", "many"], ["--port=many"]], ids=" ".join)
def test_a_value_that_is_no_number_is_named(words: list[str]) -> None:
    said = specops("serve", *words).stderr
    assert said.startswith("error: invalid value for '--port': 'many', expected a valid integer\n")


def test_an_error_is_a_sentence_and_a_hint_on_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = specops("run", "absent.yaml")
    assert done.returncode == Exit.ENVIRONMENT
    assert done.stdout == ""
    assert done.stderr == (
        "error: there is no rollout file absent.yaml\n"
        "hint: specops init absent && specops run absent/rollout.yaml\n"
    )


def test_debug_adds_the_traceback() -> None:
    done = specops("run", "absent.yaml", "--debug")
    assert done.returncode == Exit.ENVIRONMENT
    assert done.stderr.startswith("error: there is no rollout file absent.yaml\n")
    assert "Traceback (most recent call last)" in done.stderr


def run_main(monkeypatch, error: BaseException, *flags: str) -> int:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr(sys, "argv", ["specops", *flags])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError("wrong"), Exit.USAGE), (ServerError("did not start"), Exit.ENVIRONMENT)]
)
def test_an_error_brings_its_exit_code(monkeypatch, capsys, error, code) -> None:
    assert run_main(monkeypatch, error) == code
    assert capsys.readouterr().err == f"error: {error.message}\n"


def test_the_end_of_a_servers_log_is_printed_below_its_error_and_is_not_part_of_the_message(
    monkeypatch, capsys
) -> None:
    error = ServerError("it ended", hint="tail -n 50 it.log", log="  CUDA out of memory\n  bye")
    run_main(monkeypatch, error)
    said = "error: it ended; its log ends with:\n  CUDA out of memory\n  bye\nhint: tail -n 50 it.log\n"
    assert capsys.readouterr().err == said
    assert error.message == "it ended"


def test_a_fault_of_specops_is_said_as_one(monkeypatch, capsys) -> None:
    assert run_main(monkeypatch, ZeroDivisionError("division by zero")) == Exit.ENVIRONMENT
    said = capsys.readouterr().err
    assert "a fault in specops itself: ZeroDivisionError: division by zero" in said
    assert "--debug" in said
    assert "Traceback" not in said
    assert run_main(monkeypatch, ZeroDivisionError("division by zero"), "--debug") == Exit.ENVIRONMENT
    assert "Traceback" in capsys.readouterr().err


def test_doctor_lists_each_check_and_its_mend() -> None:
    done = specops("doctor", "--base-url", "http://127.0.0.1:1/v1")
    assert done.returncode == Exit.NO
    assert "fail  endpoint" in done.stdout
    assert "specops serve" not in done.stdout, "the port is of the user's own server"
    *_, last = done.stdout.splitlines()
    assert re.fullmatch(r"\d+ checks: \d+ ok,( \d+ warn,)? \d+ fail", last)
    answer = json.loads(specops("doctor", "--json").stdout)
    assert answer["phase"] == "doctor"
    assert {"python", "torch", "cores", "disk"} <= {check["name"] for check in answer["data"]["checks"]}


@pytest.mark.parametrize("command", ["init", "run", "baseline", "doctor"])
def test_every_command_has_the_common_options(command) -> None:
    shown = specops(command, "--help").stdout
    for option in ("--json", "--quiet", "--debug"):
        assert option in shown


def test_init_says_what_to_do_next(tmp_path) -> None:
    done = specops("init", str(tmp_path))
    assert done.returncode == 0
    assert done.stdout == f"wrote {tmp_path}/rollout.yaml\nnext: specops run {tmp_path}/rollout.yaml\n"
    again = specops("init", str(tmp_path))
    assert again.returncode == Exit.USAGE
    assert "exists already" in again.stderr


def test_progress_into_a_log_is_plain_lines_and_few(capsys) -> None:
    with progress() as report:
        report.start("measuring", total=1000)
        for _ in range(1000):
            report.advance()
        report.note("done")
    assert capsys.readouterr().err == "measuring\ndone\n"


def test_quiet_is_silent(capsys) -> None:
    with progress(quiet=True) as report:
        assert isinstance(report, SilentProgress)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "absent.yaml", "--json"), 3, "there is no rollout file absent.yaml"),
        (("run", "--json"), 2, "missing argument"),
        (("run", "absent.yaml", "--json", "--nope"), 2, "--nope"),
        (("nope", "--json"), 2, "nope"),
    ],
)
def test_an_error_is_json_with_json(words: tuple[str, ...], code: int, said: str) -> None:
    done = specops(*words)
    error = json.loads(done.stdout)
    assert set(error) == {"error", "hint", "code"}
    assert error["code"] == done.returncode == code
    assert said in error["error"]
    assert error["hint"]
    assert "error" not in done.stderr


def test_an_error_is_no_json_without_json() -> None:
    for words in (("run", "absent.yaml"), ("launch", "lint", "--", "vllm", "serve", "--json")):
        done = specops(*words)
        assert not done.stdout.startswith("{")
    assert specops("run", "absent.yaml").stderr.startswith(
        "error: there is no rollout file absent.yaml\nhint: "
    )


def test_a_fault_of_specops_is_json_with_json(monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr("specops.cli.app.app", broken)
    done = specops("run", "x.yaml", "--json")
    assert json.loads(done.stdout)["error"] == "a fault in specops itself: ZeroDivisionError: x"
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("typed", "options", "expected"),
    [
        ("ab --out x.json --arm a=1", {"--out": "y.json"}, "ab --arm a=1 --out y.json"),
        ("ab --out=x.json --arm a=1", {"--out": None}, "ab --arm a=1"),
        ("ab --fresh file.yaml", {"--fresh": False}, "ab file.yaml"),
        ("ab file.yaml", {"--fresh": True}, "ab file.yaml --fresh"),
        ("report schedule r.yaml", {"--at": "Mon 09:00"}, "report schedule r.yaml --at 'Mon 09:00'"),
        ("launch lint --json -- vllm --json", {"--json": False}, "launch lint -- vllm --json"),
        ("chat --prompt 'a b'", {}, "chat --prompt 'a b'"),
    ],
)
def test_a_hint_is_the_command_that_was_typed_with_other_options(
    typed: str,
    options: dict[str, str | bool | None],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["specops", *shlex.split(typed)])
    assert with_options(options) == f"specops {expected}"


@pytest.mark.parametrize(
    ("typed", "wrong", "right", "expected"),
    [
        ("plan r.yaml --tree foo", "foo", "chain:3", "specops plan r.yaml --tree chain:3"),
        (
            "sweep r.yaml --trees foo,chain:4",
            "foo",
            "chain:3",
            "specops sweep r.yaml --trees chain:3,chain:4",
        ),
        ("sweep r.yaml --k=3,40", 40, 4, "specops sweep r.yaml --k=3,4"),
        ("sweep r.yaml --k=340", 40, 4, "grep -n -F -e 40 r.yaml  # write 4 in its place"),
        ("run 'my r.yaml'", "a b", "ab", "grep -n -F -e 'a b' 'my r.yaml'  # write ab in its place"),
        (
            "verify-draft A B",
            "foo",
            "chain:3",
            "specops verify-draft --help  # write chain:3 in place of foo",
        ),
        ("", "foo", "chain:3", "specops --help  # write chain:3 in place of foo"),
    ],
)
def test_a_hint_is_the_command_that_was_typed_with_the_right_value(
    typed: str, wrong: object, right: object, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["specops", *shlex.split(typed)])
    assert with_value(wrong, right) == expected


def test_hints_of_commands_are_commands() -> None:
    """A literal hint begins with a program, or with what a function makes, which conftest.py checks."""
    sentences = []
    for path in Path(specops_package.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for keyword in call.keywords if isinstance(call, ast.Call) else ():
                text = ast.unparse(keyword.value).lstrip("f").strip("'\"")
                literal = isinstance(keyword.value, ast.Constant | ast.JoinedStr)
                if keyword.arg == "hint" and literal and text.split()[0] not in PROGRAMS and text[0] != "{":
                    sentences.append((path.name, text))
    assert sentences == []
