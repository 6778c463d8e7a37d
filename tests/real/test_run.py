"""`specops run` on the real server with a tiny pair: the whole walk, and how it stops."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from calling import specops
from daemons import program
from walking import MEASURE, PROMPTS, reused, walk

from specops import results
from specops.config import load
from specops.errors import EndpointError, Exit
from specops.phases import ON_REQUEST, PHASES
from specops.phases.guard_drill.phase import drill_inputs
from specops.phases.guard_drill.stage import STAGED, missing
from specops.phases.init import write_commented
from specops.results import Result

WALKED = [phase for phase in PHASES if phase not in ON_REQUEST]

ELSEWHERE = ("drafts", "sweep", "guard-drill")
"""Of pools that run already: their models and K are not in the rollout file, and their traffic is live."""


def pools(tiny_pair: tuple[Path, Path]) -> dict[str, object]:
    target, draft = map(str, tiny_pair)
    base = {"engine": "embedded", "target": target, "threads": 1, "max_batch": 4}
    return {"standard": base, "speculative": base | {"speculation": {"draft": draft, "tree": "chain:2"}}}


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) == 0


@pytest.mark.slow
@pytest.mark.timeout(600)  # it starts ten servers, and other tests may have the cores
def test_the_whole_walk_on_two_pools_of_its_own(written, tiny_pair, tmp_path) -> None:
    """From measuring to the go-live verdict; the drill with a real NGINX."""
    program("nginx")
    addresses = {"standard": ["127.0.0.1:1"], "speculative": ["127.0.0.1:2"]}
    path = written(
        pools=pools(tiny_pair),
        measure=MEASURE | {"repeats": 1},
        sweep={"k": [2], "concurrency": [1]},
        ab={"looks": 1, "requests": 40, "min_duration_s": 0.0},
        addresses=addresses,
    )
    done = subprocess.run(
        [sys.executable, "-m", "specops", "run", str(path), "--out", str(tmp_path / "run"), "--continue"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (Exit.YES, Exit.NO, Exit.UNDECIDED), done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("At ")], done.stdout
    assert "eep speculation off" in done.stdout or "se speculation at" in done.stdout, done.stdout
    assert any("18 prompts in 3 classes" in line for line in lines)
    for arm in ("standard", "speculative"):
        for streams in ("1 stream ", "2 streams"):
            assert any(re.search(rf"{arm}, {streams}.*tok/s ", line) for line in lines), done.stdout
    assert re.search(r"Equal answers +(\d\d+) of \1 ", done.stdout), done.stdout
    page = (tmp_path / "run" / "index.html").read_text()
    assert f"open {tmp_path / 'run' / 'index.html'}" in lines
    assert re.search(r"(\d\d+) of \1</span>", page)
    assert re.findall(r'id="phase-([\w-]+)"', page) == WALKED
    assert "not run" not in page
    assert re.search(r"Acceptance +\d+% +of drafted tokens; \d\.\d tokens a step", done.stdout)
    assert lines[-1].startswith("next: "), "what that is depends on what was measured"
    assert str(path) in lines[-1]
    told = [line.split()[0] for line in lines if re.match(r"  \S+ +(passed|failed|undecided|skipped) ", line)]
    assert told == WALKED
    found = {phase: results.read(tmp_path / "run" / f"{phase}.json") for phase in WALKED}
    assert found.pop("drafts").phase == "verify-draft"
    assert {phase: result.phase for phase, result in found.items()} == {phase: phase for phase in found}
    assert found["sweep"].data["stored"]["failed"] == []
    drilled = found["guard-drill"]
    assert drilled.verdict == "yes", drilled.reason
    assert drilled.settings["stage"]
    assert drilled.data["fallback"]["begun"]["standard"] > 0
    assert drilled.data["restoration"]["begun"]["speculative"] > 0
    assert not (tmp_path / "run" / "guard").exists(), "a rehearsal is no incident of the rollout's"
    assert found["checklist"].verdict != "yes", "nobody attested anything"
    urls = re.findall(r"server is up: \S+ on (\S+)", done.stderr)
    # The baseline's; without speculation and K = 2, in the sweep and in its confirmation; two each for
    # comparison, canary and drill; the drill's router.
    assert len(urls) == 1 + 2 * 2 + 2 + 2 + 2 + 1
    assert not any(map(listens, urls))


def test_a_stage_without_nginxs_lua_module_is_told_with_what_installs_it(written) -> None:
    program("nginx")
    lacking = missing(load(written(route={"nginx": {"modules": "/nowhere"}})))
    assert lacking is not None
    assert "Lua module is not at /nowhere" in lacking.message
    assert "libnginx-mod-http-lua" in str(lacking.hint)
    assert missing(load(written())) is None


def test_a_rehearsal_that_failed_is_tried_again_and_one_that_passed_is_not(written, tiny_pair) -> None:
    path = written(pools=pools(tiny_pair), route={"nginx": {"modules": "/nowhere"}})
    kept = Result(
        phase="guard-drill",
        inputs=drill_inputs(load(path)),
        settings={STAGED: "so"},
        verdict="yes",
        reason="so",
    )
    tried: dict[str, bool] = {}
    for verdict in ("yes", "no", "undecided"):
        results.write(path.parent / "run" / "guard-drill.json", kept.model_copy(update={"verdict": verdict}))
        done, _ = walk(path, only="guard-drill")
        tried[verdict] = [one.phase for one in done.skipped] == ["guard-drill"]  # for want of a router
    assert tried == {"yes": False, "no": True, "undecided": True}


def test_only_runs_one_phase(written) -> None:
    path = written()
    done, _ = walk(path, only="baseline")
    assert [step.phase for step in done.steps] == ["baseline"]
    assert {file.name for file in (path.parent / "run").glob("*.json")} == {"baseline.json", "run.json"}


def test_json_says_what_was_made_and_what_was_not_run(written) -> None:
    path = written()
    words = ("run", str(path), "--out", str(path.parent / "run"), "--json", "--only")
    skipped = specops(*words, "sweep")
    assert skipped.returncode == Exit.UNDECIDED
    told = json.loads(skipped.stdout)
    assert (told["phases"], [one["phase"] for one in told["skipped"]]) == ([], ["sweep"])
    assert "--attach" in told["skipped"][0]["hint"]
    rendered = specops(*words, "route")
    assert rendered.returncode == Exit.YES
    (one,) = json.loads(rendered.stdout)["phases"]
    assert (one["phase"], one["verdict"], one["reused"]) == ("route", "yes", False)
    assert Path(one["file"]).exists()


@pytest.mark.slow
def test_how_the_pools_are_compared_is_the_rollouts_to_say(written) -> None:
    how = {"looks": 1, "confidence": 0.9, "mixed_prompts": 0, "requests": 40, "min_duration_s": 0.0}
    done, _ = walk(written(ab=how), only="ab")
    compared = done.steps[0].result
    assert {name: compared.settings[name] for name in how} == how
    assert compared.data["looks"]["planned"] == 1
    assert "mixed" not in {window["kind"] for window in compared.data["windows"]}


@pytest.mark.slow
def test_a_failed_measurement_stops_the_walk_unless_told_to_go_on(written) -> None:
    too_long = [
        {"id": f"huge-{i}", "class": "long", "text": f"{i} " + "x " * 4000, "max_tokens": 8} for i in range(3)
    ]
    path = written(prompts=[*PROMPTS[::2], *too_long])
    done, notes = walk(path)
    assert [step.phase for step in done.steps] == ["baseline"]
    assert done.exit_code == Exit.NO
    assert notes.said("baseline failed: ", "--continue")
    assert done.stopped == "baseline"
    on, notes = walk(path, go_on=True)
    assert [step.phase for step in on.steps] == [phase for phase in WALKED if phase not in ELSEWHERE]
    assert [one.phase for one in on.skipped] == [phase for phase in WALKED if phase in ELSEWHERE]
    assert all(notes.said(one.phase, "skipped: ") and one.hint for one in on.skipped)
    assert on.stopped is None
    assert reused(on) == [], "a measurement that failed is taken up again"
    assert on.exit_code == Exit.NO


@pytest.mark.slow
def test_the_file_that_init_writes_runs(tiny_pair, tmp_path) -> None:
    """With its own keys enabled: models and prompts in place of the shipped ones, and less to measure."""
    target, draft = tiny_pair
    path = write_commented(tmp_path)
    text = path.read_text()
    for old, new in (
        ("# prompts: prompts.json", "prompts: prompts.json"),
        ("# target: models/target", f"target: {target}"),
        ("# draft: models/draft", f"draft: {draft}"),
        ("# threads: 2", "threads: 1"),
        ("# max_tokens: 64", "max_tokens: 8"),
        ("warmup: 4", "warmup: 0"),
        ("  requests: 750 ", "  requests: 60 "),
        ("min_duration_s: 120.0", "min_duration_s: 0.0"),
    ):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS[:6]))
    for phase in ("drafts", "launch", "ab"):
        done, _ = walk(path, only=phase)
        assert [step.phase for step in done.steps] == [phase]
    compared = done.steps[0].result.summary
    for name in ("parity", "parity_control"):
        equal, total = map(int, compared[name].split("/"))
        assert equal == total > 0, name


def test_an_endpoint_that_is_down_is_the_environments_failure(written) -> None:
    down = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "x"}
    other = down | {"base_url": "http://127.0.0.1:10/v1"}
    path = written(pools={"standard": down, "speculative": other})
    with pytest.raises(EndpointError) as caught:
        walk(path)
    assert caught.value.exit_code == Exit.ENVIRONMENT
    assert caught.value.hint


def test_an_empty_prompt_set_is_wrong_usage(written) -> None:
    path = written(prompts=[])
    done = specops("run", str(path), "--out", str(path.parent / "run"))
    assert done.returncode == Exit.USAGE
    assert "has no prompts" in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [(signal.SIGINT, 130, "Ctrl-C"), pytest.param(signal.SIGTERM, 143, "SIGTERM", marks=pytest.mark.slow)],
)
def test_a_signal_keeps_what_was_measured_and_stops_the_server(
    number, code, name, written, tiny_pair, tmp_path
) -> None:
    path = written(pools=pools(tiny_pair), measure=MEASURE | {"repeats": 500})
    words = [sys.executable, "-m", "specops", "run", str(path), "--out", str(tmp_path / "run")]
    result = tmp_path / "run" / "baseline.json"
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"}
    ) as specops:
        deadline = time.monotonic() + 60
        while not result.exists():
            assert specops.poll() is None, specops.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        specops.send_signal(number)
        out, said = specops.communicate(timeout=60)
    assert specops.returncode == code
    assert out == ""
    assert f"stopped by {name}; partial results are in {result}\n" in said
    assert f"resume with: {shlex.join(['specops', *words[3:]])}\n" in said
    assert "Traceback" not in said
    partial = results.read(result)
    assert partial.verdict == "partial"
    assert partial.data["cells"][0]["complete"]
    (url,) = re.findall(r"server is up: \S+ on (\S+)", said)
    assert not listens(url)
