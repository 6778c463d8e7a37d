"""The Python API against scripted servers: the same results as the commands, also in a notebook."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints
from unittest import mock

import pytest
from calling import specops as command
from published_schemas import check_result

import specops
from specops import api, results
from specops.errors import EndpointError, FileError, UsageError
from specops.results import Result

pytestmark = pytest.mark.usefixtures("any_speed")


def printed(result: Result) -> dict[str, Any]:
    """The JSON of a result, without the time at which it was made."""
    return timeless(results.written(result))


def timeless(text: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(text).items() if name not in ("created", "sha256")}


def settled(document: dict[str, Any]) -> dict[str, Any]:
    """What two measurements of the same have in common, however long their requests took."""
    same = ("schema", "specops", "phase", "inputs", "settings")
    return {name: document[name] for name in same} | {"keys": [*document], "data": [*document["data"]]}


@pytest.fixture
def measured(prompts_file: Path) -> dict[str, Any]:
    return {"prompts": prompts_file, "warmup": 0, "same_prompts": True, "repeats": 1}


def test_a_baseline_is_that_of_the_command(stub, measured, tmp_path) -> None:
    out = tmp_path / "api" / "baseline.json"
    options = {"concurrency": (1, 2), "stall_s": 20.0, "slo": {"ttft_ms": 500.0}, "classes": ["short"]}
    lines: list[str] = []
    result = specops.baseline(stub.base_url, out=out, progress=lines.append, **measured, **options)
    assert any(re.search(r": \d+/\d+$", line) for line in lines)
    words = ["--prompts", str(measured["prompts"]), "--warmup", "0", "--same-prompts", "--repeats", "1"]
    words += ["--concurrency", "1,2", "--stall", "20", "--slo-ttft-ms", "500", "--classes", "short"]
    done = command(
        "baseline", "--base-url", stub.base_url, *words, "--json", "--out", str(tmp_path / "baseline.json")
    )
    check_result(out, result)
    assert settled(printed(result)) == settled(timeless(done.stdout))
    assert timeless(out.read_text()) == printed(result)
    sent = len(stub.requests)
    done = command("baseline", "--base-url", stub.base_url, *words, "--json", "--out", str(out))
    assert timeless(done.stdout) == printed(result)
    assert printed(specops.baseline(stub.base_url, out=out, **measured, **options)) == printed(result)
    assert [one for one in stub.requests[sent:] if "messages" in one] == []  # every cell was there


def test_nothing_is_stored_without_out(stub, measured, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert specops.baseline(stub.base_url, **measured).verdict == "yes"
    assert list(folder.iterdir()) == []


def test_a_comparison_is_that_of_the_command(stub, other, measured, tmp_path) -> None:
    out, options = tmp_path / "api" / "ab.json", {"requests": 40, "min_duration_s": 0.0, "looks": 1}
    a, b = f"{stub.base_url}#stub", other.base_url
    result = specops.compare(a, b, out=out, **measured, **options)
    words = ["--prompts", str(measured["prompts"]), "--warmup", "0", "--same-prompts", "--repeats", "1"]
    words += ["--requests", "40", "--min-duration", "0", "--looks", "1"]
    arms = ["--arm", f"standard={a}", "--arm", f"speculative={b}"]
    done = command("ab", *arms, *words, "--json", "--out", str(tmp_path / "ab.json"))
    check_result(out, result)
    assert settled(printed(result)) == settled(timeless(done.stdout))
    assert timeless(out.read_text()) == printed(result)
    done = command("ab", *arms, *words, "--json", "--out", str(out))  # resumes what the API stored
    assert timeless(done.stdout) == printed(result)
    assert printed(specops.compare(a, b, out=out, **measured, **options)) == printed(result)


def test_defaults_are_those_of_the_commands(stub, other, prompts_file, tmp_path) -> None:
    """Only the settings are of interest: the servers refuse every request."""
    with _refused() as seen:
        for design in ({}, {"design": "abba-restart"}):
            words = ["--design", str(design["design"])] if design else []
            with pytest.raises(UsageError):
                specops.compare(stub.base_url, other.base_url, prompts_file, **design)
            arms = [f"--arm=standard={stub.base_url}", f"--arm=speculative={other.base_url}"]
            command("ab", *arms, "--prompts", str(prompts_file), *words, "--out", str(tmp_path / "ab.json"))
            assert seen[-1] == seen[-2]
        with pytest.raises(UsageError):
            specops.baseline(stub.base_url, prompts_file)
        command(
            *("baseline", "--base-url", stub.base_url, "--prompts", str(prompts_file)),
            *("--out", str(tmp_path / "baseline.json")),
        )
        assert seen[-1] == seen[-2]
        assert len(seen) == 6


@contextmanager
def _refused() -> Iterator[list[Any]]:
    """The settings of each measurement, which is refused."""
    seen: list[Any] = []

    def refuse(*settings: Any, **_: Any) -> Result:
        seen.append([one for one in settings if hasattr(one, "model_dump")])
        raise UsageError("refused")

    with (
        mock.patch("specops.phases.ab.measure.compare", refuse),
        mock.patch("specops.phases.baseline.measure", refuse),
    ):
        yield seen


def test_every_option_is_one_of_the_command() -> None:
    for name, options in (("ab", api.CompareOptions), ("baseline", api.BaselineOptions)):
        text = command(name, "--help").stdout
        for option in get_type_hints(options).keys() - {"slo"}:
            assert f"{api._flag(option)} " in text, option
    assert "--slo-ttft-ms" in command("baseline", "--help").stdout


def test_it_runs_in_the_cell_of_a_notebook(stub, measured) -> None:
    """A cell runs inside the event loop of the notebook, which goes on afterwards."""

    async def cell() -> str:
        loop = asyncio.get_running_loop()
        verdict = specops.baseline(stub.base_url, **measured).verdict
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop
        return verdict

    assert asyncio.run(cell()) == "yes"


def test_a_result_draws_itself(stub, measured) -> None:
    page = specops.baseline(stub.base_url, **measured)._repr_html_()
    assert page is not None
    assert page.startswith('<iframe sandbox="" title="baseline"')
    assert "First token at 1 stream" in page
    assert page.count("<") == 2  # the rest is escaped: the page cannot leave its frame


def test_a_hint_is_the_command_that_does_the_same(stub, other, measured, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/ipykernel_launcher.py", "-f", "/run/kernel.json"])
    out = tmp_path / "baseline.json"
    specops.baseline(stub.base_url, out=out, **measured)
    with pytest.raises(UsageError, match=r"holds another measurement: the settings changed") as raised:
        specops.baseline(stub.base_url, out=out, max_tokens=4, **measured)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith(f"specops baseline --base-url {stub.base_url} --prompts ")
    assert " --max-tokens 4 " in raised.value.hint
    assert raised.value.hint.endswith(f" --out {tmp_path / 'baseline-2.json'}")
    with pytest.raises(FileError, match="there are no prompts") as raised:
        specops.compare(stub.base_url, other.base_url, tmp_path / "none.json", same_prompts=True)
    assert raised.value.hint is not None
    assert "kernel.json" not in raised.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats is 0, and should be"),
        ({"design": "abab"}, "design is 'abab', and should be"),
        ({"looks": 99}, "looks is 99, and should be"),
        ({"classes": ["tall"]}, "no prompts of class tall"),
    ],
)
def test_wrong_options_are_usage_errors_before_the_first_request(
    stub, other, prompts_file, options, message
) -> None:
    with pytest.raises(UsageError, match=message):
        specops.compare(stub.base_url, other.base_url, prompts_file, **options)
    assert stub.requests == []


def test_an_option_that_there_is_not_is_a_type_error(stub, other) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'stall_s'"):
        specops.compare(stub.base_url, other.base_url, stall_s=1.0)  # type: ignore[call-arg]


def test_a_server_that_is_down_is_an_endpoint_error(measured) -> None:
    with pytest.raises(EndpointError, match="could not reach"):
        specops.baseline("http://127.0.0.1:1/v1", **measured)
