"""Errors in specops's own words, and hints that work when they are pasted: no words of libraries, no hint
that repeats the mistake, and none that moves a user's file."""

from __future__ import annotations

import errno
import shlex
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
from pathlib import Path

import pytest
from calling import specops
from pydantic import BaseModel, Field, ValidationError, field_validator

from specops.cli.progress import progress
from specops.config import load, run_folder
from specops.errors import ConfigError, reason_of
from specops.validation import problem

ROLLOUT = """\
rollout: demo
pools:
  standard: {engine: endpoint, base_url: "http://127.0.0.1:1/v1", model: m}
  speculative: {engine: endpoint, base_url: "http://127.0.0.1:2/v1", model: m}
"""
LEAKS = ("Value error", "Input should", "Errno", "urlopen", "ssl:default", "Connect call", "_ssl.c", "codec")
URLS = ("http://127.0.0.1:8001/v1", "http://127.0.0.1:8002/v1")


DEAD = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hint(stderr: str) -> str:
    return stderr.partition("hint: ")[2].partition("  #")[0].strip()


# One event, one wording.


def _ssl_error() -> Exception:
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"),
            "nothing listens there",
        ),
        (urllib.error.URLError(ConnectionRefusedError(111, "x")), "nothing listens there"),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 111] b"), "nothing listens there"),
        (urllib.error.URLError(_ssl_error()), "it does not use TLS: write http:// in place of https://"),
        (socket.gaierror(-2, "Name or service not known"), "its name is not known"),
        (urllib.error.URLError(TimeoutError("timed out")), "it did not answer in time"),
        (PermissionError(errno.EACCES, "Permission denied", "f"), "Permission denied"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "it is not text in UTF-8"),
        (ValueError("ours"), "ours"),
    ],
)
def test_an_event_has_one_wording(error: Exception, said: str) -> None:
    assert reason_of(error) == said
    wrapped = OSError("of a library")
    wrapped.__cause__ = error
    assert reason_of(wrapped) in (said, "of a library")


class Model(BaseModel):
    number: int = Field(ge=1)
    text: str = "x"

    @field_validator("text")
    @classmethod
    def _own(cls, text: str) -> str:
        if text != "x":
            raise ValueError("must be x")
        return text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"number": 0}, "is 0, and should be greater than or equal to 1"),
        ({"number": "a" * 999}, f"is '{'a' * 79}…, and should be a valid integer"),
        ({}, "is missing"),
        ({"number": 1, "text": "y"}, "must be x"),
        ({"number": {}}, "is a mapping, and should be a whole number"),
    ],
)
def test_a_refused_value_is_described_in_our_words(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(fields)
    assert problem(caught.value.errors()[0]).startswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("baseline", "--base-url", "127.0.0.1:7/v1"), "--base-url must be an http or https address"),
        (("baseline", "--base-url", URLS[0], "--concurrency", "0"), "--concurrency is 0, and should be"),
        (("doctor", "--base-url", DEAD), "nothing listens there"),
        (("baseline", "--base-url", "https://127.0.0.1:9/v1", "--model", "m"), "nothing listens there"),
        (
            ("init", "x", "--base-url", DEAD, "--base-url", URLS[1]),
            "nothing listens there",
        ),
    ],
)
def test_no_words_of_a_library_show(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = specops(*words)
    assert said in done.stdout + done.stderr
    assert [leak for leak in LEAKS if leak in done.stdout + done.stderr] == []


# Hints.


def test_a_missing_rollout_file_is_corrected_or_written(tmp_path: Path) -> None:
    def said(name: str) -> str:
        return hint(specops("run", name, "--plan").stderr)

    assert said("nope.yaml") == "specops init nope && specops run nope/rollout.yaml --plan"
    (tmp_path / "demo.yaml").write_text(ROLLOUT)
    assert said("dmeo.yaml") == "specops run demo.yaml --plan"
    assert said("other-thing.yaml") == "ls demo.yaml"
    (tmp_path / "nope").mkdir()
    (tmp_path / "nope" / "rollout.yaml").write_text(ROLLOUT)
    assert said("nope.yaml") == "specops run nope/rollout.yaml --plan"


def test_no_hint_repeats_an_address(tmp_path: Path) -> None:
    for url in URLS:
        done = specops("init", "x", "--base-url", url, "--base-url", url)
        words = shlex.split(hint(done.stderr))
        given = [words[at + 1] for at, word in enumerate(words) if word == "--base-url"]
        assert given[0] == url
        assert len(set(given)) == 2


def test_arms_without_names_get_names(tmp_path: Path) -> None:
    done = specops("ab", "--arm", URLS[0], "--arm", f"b={URLS[1]}")
    assert hint(done.stderr) == f"specops ab --arm standard={URLS[0]} --arm b={URLS[1]}"


def test_results_of_another_rollout_are_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "ab.json").write_text("{}")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "rollout.yaml").write_text(ROLLOUT)
    with pytest.raises(ConfigError) as caught:
        run_folder(Path("copy/rollout.yaml"), load(copy / "rollout.yaml").rollout, None)
    assert str(caught.value.hint).startswith("mkdir -p ")
    assert "mv " not in str(caught.value.hint)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("route", "X.yaml"), "specops route render X.yaml"),
        (("guard", "X.yaml"), "specops guard status X.yaml"),
        (("monitor", "X.yaml"), "specops monitor render X.yaml"),
        (("version",), "specops --version"),
        (("help", "run"), "specops run --help"),
        (("status",), "specops guard status ROLLOUT"),
        (("basline",), "specops baseline --help"),
        (("compare", *URLS), "specops ab --help"),
        (("issues", "--engine", "vlm"), "specops issues --engine vllm"),
    ],
)
def test_a_command_that_is_not_there_has_the_one_that_was_meant(words: tuple[str, ...], meant: str) -> None:
    done = specops(*words)
    assert (done.returncode, hint(done.stderr)) == (2, meant)


@pytest.mark.parametrize("words", [("compare", "a", "b"), ("issues", "--log", "none"), ("plot", "none.json")])
def test_a_missing_file_is_of_the_environment(words: tuple[str, ...], tmp_path: Path) -> None:
    assert specops(*words).returncode == 3


def test_a_closed_pipe_is_no_verdict() -> None:
    words = [sys.executable, "-m", "specops", "explain"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        said = running.stderr.read()
        assert running.wait(60) == 141, said


# What is not running, and what runs.


def test_status_with_nothing_running_says_so(tmp_path: Path) -> None:
    (tmp_path / "rollout.yaml").write_text(ROLLOUT)
    done = specops("guard", "status", "rollout.yaml")
    assert "no guard runs, and none has decided anything yet" in done.stdout
    assert "100% speculative" not in done.stdout


def test_a_service_says_what_changes_and_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specops.cli.progress.LINE_EVERY_S", 0.05)
    with progress() as shown:
        time.sleep(0.3)
    assert "so far" in capsys.readouterr().err
    with progress(heartbeat=False) as shown:
        time.sleep(0.3)
        shown.note("guarding")
    assert capsys.readouterr().err == "guarding\n"
