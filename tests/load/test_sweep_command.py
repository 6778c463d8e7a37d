"""`specops sweep` on the command line, of stubs: its answers, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from stub import CHUNKS, Reply, Stub, stream

from specops import results
from specops.cli.app import main
from specops.errors import Exit
from specops.load.settings import BaselineSettings
from specops.phases.baseline import measure
from specops.progress import SilentProgress

pytestmark = pytest.mark.usefixtures("any_speed")

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    """Of endpoints, so that nothing is started; which ones is said with --attach."""
    items = [{"id": f"p{i}", "class": "long" if i % 2 else "short", "text": f"Prompt {i}"} for i in range(16)]
    (tmp_path / "prompts.json").write_text(json.dumps(items))
    endpoint = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "stub"}
    fields = {
        "rollout": "stubs",
        "prompts": "prompts.json",
        "pools": {"standard": endpoint, "speculative": endpoint},
        "measure": {"concurrency": [2], "repeats": 2, "warmup": 0},
        "ab": {"failure_margin": 0.1, "answer_margin": 0.1},  # which 29 requests bound
    }
    path = tmp_path / "rollout.yaml"
    path.write_text(yaml.safe_dump(fields))
    return path


@pytest.fixture
def call(rollout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Exit code, stdout and stderr, with the rollout and a folder for results."""

    def called(*words: Any) -> tuple[int, str, str]:
        given = ["specops", "sweep", str(rollout), "--out", str(rollout.parent), *map(str, words)]
        monkeypatch.setattr(sys, "argv", given)
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return called


def attach(standard: Stub, other: Stub) -> list[str]:
    return [f"--attach=0={standard.base_url}", f"--attach=3={other.base_url}#stub"]


def taking(seconds: float) -> Any:
    return lambda body: Reply(stream(body, CHUNKS), gap_s=seconds)


def test_a_faster_setting_is_a_yes_with_its_page_and_its_picture(stub, other, rollout, call) -> None:
    stub.answer, other.answer = taking(0.025), taking(0.005)
    plot = rollout.parent / "sweep.png"
    code, out, err = call(*attach(stub, other), "--plot", plot)
    assert code == Exit.YES, out + err
    assert "Deploy K=3 for all traffic at 2 streams (" in out
    assert "confirmation, rung 2: 1 setting" in err
    result = results.read(rollout.parent / "sweep.json")
    assert (result.phase, result.verdict) == ("sweep", "yes")
    assert result.recommendation is not None
    assert (result.recommendation["k"], result.summary["recommended"]) == (3, 3)
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_slower_setting_is_a_no_and_json_is_the_result(stub, other, rollout, call) -> None:
    stub.answer, other.answer = taking(0.01), taking(0.04)
    code, out, err = call(*attach(stub, other), "--json", "--quiet")
    assert code == Exit.NO, out + err
    assert json.loads(out) == json.loads((rollout.parent / "sweep.json").read_text())
    assert err == ""


def test_a_budget_in_which_nothing_can_be_decided_is_refused(stub, other, rollout, call) -> None:
    code, out, err = call(*attach(stub, other), "--budget", "0.0001", "--quiet")
    assert (code, out) == (Exit.USAGE, "")
    assert "budget 0.0001 min: the standard and one setting need 3 more server starts" in err
    assert "the smallest useful budget is about 0.1 min" in err
    assert "hint: specops sweep" in err
    assert "--budget 0.1" in err
    assert other.requests == []


def test_a_budget_that_is_spent_measures_nothing_again(stub, other, rollout, call) -> None:
    words = (*attach(stub, other), "--budget", "0.1", "--quiet", "--json")
    first = json.loads(call(*words)[1])
    asked = len(stub.requests)
    again = json.loads(call(*words)[1])
    assert len(stub.requests) == asked
    assert again["data"]["stored"]["cells"] == first["data"]["stored"]["cells"]


def test_one_server_is_not_compared_with_itself(stub, call) -> None:
    code, _, err = call(f"--attach=0={stub.base_url}", f"--attach=3={stub.base_url}#stub")
    assert code == Exit.USAGE
    assert "K = 0 and K = 3 are one server" in err


@pytest.mark.slow
def test_a_setting_that_answers_repeats_from_a_cache_is_not_recommended(stub, other, rollout, call) -> None:
    """First requests take as long as the standard's."""
    known: set[str] = set()

    def cached(body: Any) -> Reply:
        repeat = body["prompt"] in known
        known.add(body["prompt"])
        return Reply(stream(body, CHUNKS), gap_s=0.0 if repeat else 0.02)

    stub.answer, other.answer = taking(0.02), cached
    code, out, err = call(*attach(stub, other), "--repeats", "1")
    assert code != Exit.YES, out + err


def test_a_dry_run_asks_nothing_and_tells_what_it_would(stub, other, rollout, call) -> None:
    words = (*attach(stub, other), "--plan", "--concurrency", "1,8", "--temperature", "0,0.7")
    code, out, _ = call(*words)
    assert code == Exit.YES
    assert stub.requests == other.requests == []
    assert "settings  standard, k=3" in out
    assert "1 stream; 8 streams; 1 stream, temperature 0.7; 8 streams, temperature 0.7" in out
    assert "time      unknown, no baseline.json or sweep.json" in out
    told = json.loads(call(*words, "--json")[1])
    assert [rung["cells"] for rung in told["rungs"]] == [16, 16]
    assert told["seconds"] is None
    assert not (rollout.parent / "sweep.json").exists()


def test_a_dry_run_knows_the_time_of_an_earlier_baseline(stub, other, rollout, call, prompts_file) -> None:
    asked = BaselineSettings(base_url=stub.base_url, model="stub", prompts=prompts_file, repeats=1)
    results.write(rollout.parent / "baseline.json", measure(asked, SilentProgress()))
    told = json.loads(call(*attach(stub, other), "--plan", "--json")[1])
    assert (told["known_from"], told["without_starts"]) == ("baseline", True)
    assert told["seconds"] > 0


def test_a_dry_run_knows_the_time_of_an_earlier_sweep(stub, other, call) -> None:
    words = (*attach(stub, other), "--repeats", "1", "--json")
    spent = json.loads(call(*words)[1])["data"]["stored"]["spent_s"]
    told = json.loads(call(*words, "--plan")[1])
    assert (told["known_from"], told["without_starts"]) == ("sweep", False)
    (rung,) = told["rungs"]
    assert (rung["starts"], rung["cells"], rung["requests"]) == (4, 4, 64)
    assert 0 < rung["seconds"] <= spent


def test_an_earlier_sweep_is_set_aside_by_fresh_and_never_lost(stub, other, rollout, call) -> None:
    call(*attach(stub, other), "--repeats", "1")
    path = rollout.parent / "sweep.json"
    before = path.read_bytes()
    code, _, err = call(*attach(stub, other), "--repeats", "1", "--k", "3", "--classes", "long")
    assert code == Exit.USAGE
    assert f"error: {path} holds another sweep: the settings changed" in err
    assert path.read_bytes() == before
    call(*attach(stub, other), "--repeats", "1", "--classes", "long", "--fresh")
    assert (rollout.parent / "sweep.previous.json").read_bytes() == before
    assert results.read(path).data["prompts"]["classes"] == {"long": 8}


def test_damage_is_told_before_anything_is_asked(stub, other, rollout, call) -> None:
    call(*attach(stub, other), "--repeats", "1")
    path = rollout.parent / "sweep.json"
    fields = json.loads(path.read_text())
    fields["data"]["stored"]["cells"][0]["turn"] = "first"
    path.write_text(results.sealed(fields))
    stub.requests.clear()
    code, _, err = call(*attach(stub, other), "--repeats", "1")
    assert code == Exit.ENVIRONMENT
    assert f"{path} is damaged: data.stored.cells.0.turn" in err
    assert stub.requests == []


def test_endpoints_that_are_not_there_are_an_error_and_leave_no_result(stub, rollout, call) -> None:
    nowhere = "http://127.0.0.1:9/v1#m"
    code, _, err = call(f"--attach=0={nowhere}", f"--attach=3={stub.base_url}")
    assert code == Exit.ENVIRONMENT
    assert "could not measure the standard, K = 0" in err
    assert not (rollout.parent / "sweep.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--k", "3,x"], "invalid --k '3,x': expected whole numbers"),
        (["--k", "99"], "--k is 99, and should be "),
        (["--temperature", "-1"], "--temperature is -1.0, and should be "),
        (["--budget", "0"], "--budget is 0.0, and should be "),
        (["--repeats", "0"], "--repeats is 0, and should be "),
        (["--trees", "chain:3,wide:2"], "--trees invalid tree 'wide:2': expected chain:3"),
        (["--plot", "sweep.jpg"], "invalid plot file"),
        (["--attach", "http://127.0.0.1:9/v1"], "does not begin with a K"),
        (["--attach", "3=ftp://host"], "ftp://host is not a usable address"),
        (
            ["--attach", "0=http://127.0.0.1:9/v1#m", "--attach", "0=http://127.0.0.1:9/v1#m"],
            "attached twice",
        ),
        (["--attach", "3=http://127.0.0.1:9/v1#m"], "with one that does not"),
        (["--classes", "poems"], "no prompts of class poems"),
        (["--on", "local"], "Ray starts servers"),
        ([], "the speculative pool is an endpoint that runs already"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(call, words: list[str], told: str) -> None:
    attached = [] if not words or words[0] == "--attach" else ["--attach=0=http://127.0.0.1:9/v1#m"]
    attached += ["--attach=3=http://127.0.0.1:9/v1#other"] if attached else []
    code, out, err = call(*attached, *words)
    assert (code, out) == (Exit.USAGE, "")
    assert told in err
    assert "hint: " in err
