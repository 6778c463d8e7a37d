"""`specops run` on the real server with a tiny pair: the whole walk, what it reuses, and how it stops."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from specops import results
from specops.cli import app
from specops.cli.page import page
from specops.config import EmbeddedPool, Rollout, load
from specops.errors import EndpointError, Exit, FileError
from specops.launch import embedded
from specops.launch.process import Server, running
from specops.phases import playbook
from specops.phases.init import write_rollout
from specops.progress import Silent

CLASSES = {"short": 8, "long": 24, "edit": 16}
PROMPTS = [
    {"id": f"{name}-{number}", "class": name, "text": f"the server measures {number}", "max_tokens": tokens}
    for name, tokens in CLASSES.items()
    for number in range(6)
]
MEASURE = {"endpoint": "completions", "concurrency": [1, 2], "repeats": 2, "warmup": 1}


class Notes(Silent):
    """Keeps what a person would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)

    def said(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in self.lines)


@pytest.fixture(scope="module")
def server(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One speculating server for the tests that need no pool of their own."""
    target, draft = tiny_pair
    pool = EmbeddedPool.model_validate(
        {"engine": "embedded", "target": target, "threads": 1, "speculation": {"draft": draft}}
    )
    log = tmp_path_factory.mktemp("server") / "log"
    with running(
        "test", embedded.command(pool, "tiny"), address=embedded.ANNOUNCED, log=log, progress=Silent()
    ) as up:
        yield up


@pytest.fixture
def written(tmp_path: Path, server: Server):
    """Writes a rollout file, by default of two pools that are both the running server."""

    def write(prompts: object = PROMPTS, **changes: object) -> Path:
        endpoint = {"engine": "endpoint", "base_url": server.base_url, "model": server.model}
        rollout = {
            "rollout": "tiny",
            "prompts": "prompts.json",
            "pools": {"standard": endpoint, "speculative": endpoint},
            "measure": MEASURE,
        }
        (tmp_path / "prompts.json").write_text(json.dumps(prompts))
        (tmp_path / "rollout.yaml").write_text(yaml.safe_dump(rollout | changes))
        return tmp_path / "rollout.yaml"

    return write


def walk(path: Path, **options: object) -> tuple[playbook.Walk, Notes]:
    notes = Notes()
    rollout: Rollout = load(path)
    return playbook.run(rollout, path.parent / "run", notes, **options), notes  # type: ignore[arg-type]


def reused(done: playbook.Walk) -> list[str]:
    return [step.phase for step in done.steps if step.reused]


def pools(tiny_pair: tuple[Path, Path]) -> dict[str, object]:
    target, draft = map(str, tiny_pair)
    base = {"engine": "embedded", "target": target, "threads": 1, "max_batch": 4}
    return {"standard": base, "speculative": base | {"speculation": {"draft": draft, "tree": "chain:2"}}}


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) == 0


def test_the_whole_walk_on_two_pools_of_its_own(written, tiny_pair, tmp_path) -> None:
    path = written(pools=pools(tiny_pair))
    done = subprocess.run(
        [sys.executable, "-m", "specops", "run", str(path), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (Exit.YES, Exit.NO, Exit.UNDECIDED), done.stderr
    lines = done.stdout.splitlines()
    assert "18 prompts in 3 classes" in lines[0]
    for arm in ("standard", "speculative"):
        for streams in ("1 stream ", "2 streams"):
            assert any(re.search(rf"measured +{arm} +{streams}.*tok/s$", line) for line in lines), done.stdout
    assert re.search(r"parity +18/18 ", done.stdout)
    assert re.search(r"accepted +\d\.\d\d of drafts.*, \d\.\d tokens a step", done.stdout)
    assert re.match(r"next: .*specops (run|serve)", lines[-1])
    for phase in ("baseline", "ab"):
        assert results.read(tmp_path / "run" / f"{phase}.json").phase == phase
    urls = re.findall(r"server is up: \S+ on (\S+)", done.stderr)
    assert len(urls) == 3  # one for the baseline, and both for the comparison
    assert not any(map(listens, urls))


@pytest.mark.parametrize("fresh", [False, True])
def test_an_earlier_measurement_is_set_aside_and_not_overwritten(written, fresh) -> None:
    walk(written(), only="baseline")
    file = written(prompts=PROMPTS if fresh else PROMPTS[:12]).parent / "run" / "baseline.json"
    earlier = file.read_bytes()
    _, notes = walk(file.parents[1] / "rollout.yaml", only="baseline", fresh=fresh)
    assert file.read_bytes() != earlier
    assert file.with_name("baseline.previous.json").read_bytes() == earlier
    assert notes.said("baseline.previous.json")


def test_a_stop_before_anything_was_measured_leaves_the_earlier_result(written, monkeypatch) -> None:
    async def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    done, _ = walk(written(), only="baseline")
    file = done.steps[0].path
    earlier = file.read_bytes()
    monkeypatch.setattr("specops.phases.baseline.warm_up", stopped)
    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        playbook.run(load(written(prompts=PROMPTS[:12])), file.parent, notes, only="baseline")
    assert file.read_bytes() == earlier
    assert [found.name for found in file.parent.glob("*.json")] == ["baseline.json"]
    assert notes.said("stopped before anything was measured")


def test_a_full_disk_is_the_environments_failure_and_the_result_is_rescued(
    written, monkeypatch, tmp_path, capsys
) -> None:
    rescue = tmp_path / "rescue"
    rescue.mkdir()
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if not Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(rescue):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    path = written()
    monkeypatch.setattr(results.os, "fsync", full)
    monkeypatch.setattr(results.tempfile, "tempdir", str(rescue))
    monkeypatch.setattr(sys, "argv", ["specops", "run", str(path), "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as caught:
        app.main()
    assert caught.value.code == Exit.ENVIRONMENT
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "hint: free some space" in said
    assert list((tmp_path / "run").glob("*.json")) == []
    rescued = re.search(r"it was saved as (\S+)\n", said)
    assert rescued
    assert results.read(Path(rescued[1])).data["cells"]


def test_a_second_run_measures_nothing_again(written) -> None:
    path = written()
    first, _ = walk(path)
    assert reused(first) == []
    written_first = [results.sha256(step.path) for step in first.steps]
    second, notes = walk(path)
    assert reused(second) == ["baseline", "ab"]
    assert [results.sha256(step.path) for step in second.steps] == written_first
    assert notes.said("baseline", "inputs have not changed")
    shown = "\n".join(page(second, load(path), path))
    assert f"{second.steps[0].result.created:%Y-%m-%d %H:%M} UTC (baseline); --fresh" in shown
    assert "  reused" not in "\n".join(page(first, load(path), path))
    third, _ = walk(path, fresh=True)
    assert reused(third) == []


def test_what_changed_is_named_and_measured_anew(written) -> None:
    walk(written())
    changed, notes = walk(written(prompts=PROMPTS[:12]))
    assert reused(changed) == []
    assert notes.said("baseline", "the prompts changed")
    again, notes = walk(written(prompts=PROMPTS[:12], measure=MEASURE | {"max_tokens": 3}))
    assert reused(again) == []
    assert notes.said("ab", "the settings changed")


def test_more_repeats_keep_what_was_measured(written) -> None:
    before, _ = walk(written())
    more, _ = walk(written(measure=MEASURE | {"repeats": MEASURE["repeats"] + 1}))
    assert reused(more) == []
    first = before.steps[0].result.data["cells"][0]
    assert first in more.steps[0].result.data["cells"]
    assert len(more.steps[0].result.data["cells"]) > len(before.steps[0].result.data["cells"])


def test_a_model_that_changed_on_disk_is_measured_anew(tiny_pair, tmp_path) -> None:
    from specops.phases.inputs import inputs_of, settings_of

    for model in ("target", "draft"):
        (tmp_path / model).mkdir()
        (tmp_path / model / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS))
    pool = {"engine": "embedded", "target": "target"}
    speculative = pool | {"speculation": {"draft": "draft"}}
    (tmp_path / "rollout.yaml").write_text(
        yaml.safe_dump(
            {
                "rollout": "x",
                "prompts": "prompts.json",
                "pools": {"standard": pool, "speculative": speculative},
            }
        )
    )
    rollout = load(tmp_path / "rollout.yaml")

    def inputs() -> dict[str, str]:
        return inputs_of(settings_of(rollout, rollout.pools.speculative), rollout.pools.speculative)

    before = inputs()
    assert inputs() == before
    (tmp_path / "draft" / "model.safetensors").write_bytes(b"other weights")
    assert {name for name, digest in inputs().items() if digest != before[name]} == {"draft"}


def test_a_partial_result_goes_on_at_the_first_cell_that_is_missing(written) -> None:
    path = written()
    first, _ = walk(path, only="baseline")
    whole = first.steps[0].result
    partial = whole.model_copy(
        update={"verdict": "partial", "data": whole.data | {"cells": whole.data["cells"][:3]}}
    )
    results.write(first.steps[0].path, partial)
    second, notes = walk(path, only="baseline")
    cells = second.steps[0].result.data["cells"]
    assert cells[:3] == whole.data["cells"][:3]
    assert len(cells) == 4
    assert notes.said("3 of 4 cells were measured before")
    assert second.steps[0].result.verdict == "yes"


def test_only_runs_one_phase(written) -> None:
    path = written()
    done, _ = walk(path, only="ab")
    assert [step.phase for step in done.steps] == ["ab"]
    assert [file.name for file in (path.parent / "run").glob("*.json")] == ["ab.json"]


def test_how_the_pools_are_compared_is_the_rollouts_to_say(written) -> None:
    how = {"looks": 1, "confidence": 0.9, "mixed_prompts": 0}
    done, _ = walk(written(ab=how), only="ab")
    compared = done.steps[0].result
    assert {name: compared.settings[name] for name in how} == how
    assert compared.data["looks"]["planned"] == 1
    assert compared.data["mixed"] == []


def test_a_comparison_goes_on_at_the_first_visit_that_is_missing(written) -> None:
    path = written()
    first, _ = walk(path, only="ab")
    whole = first.steps[0].result
    visits = whole.data["visits"]
    results.write(
        first.steps[0].path,
        whole.model_copy(update={"verdict": "partial", "data": whole.data | {"visits": visits[:3]}}),
    )
    second, notes = walk(path, only="ab")
    assert second.steps[0].result.data["visits"][:3] == visits[:3]
    assert notes.said(f"3 of {whole.data['visits_planned']} visits were made before")
    assert second.steps[0].result.verdict != "partial"


def test_a_failed_measurement_stops_the_walk_unless_told_to_go_on(written) -> None:
    too_long = {"id": "huge", "class": "long", "text": "x " * 4000, "max_tokens": 8}
    path = written(prompts=[*PROMPTS, *({**too_long, "id": f"huge-{i}"} for i in range(3))])
    done, notes = walk(path)
    assert [step.phase for step in done.steps] == ["baseline"]
    assert done.exit_code == Exit.NO
    assert notes.said("baseline said no", "--continue")
    on, _ = walk(path, go_on=True)
    assert [step.phase for step in on.steps] == ["baseline", "ab"]
    assert reused(on) == [], "a measurement that failed is taken up again"
    assert on.exit_code == Exit.NO


def test_a_damaged_result_is_named_and_fresh_gets_past_it(written) -> None:
    path = written()
    walk(path, only="baseline")
    file = path.parent / "run" / "baseline.json"
    file.write_text(file.read_text()[:500])
    with pytest.raises(FileError, match=r"baseline\.json is damaged"):
        walk(path, only="baseline")
    done, _ = walk(path, only="baseline", fresh=True)
    assert done.steps[0].result.verdict == "yes"


@pytest.mark.parametrize(
    ("phase", "change", "says"),
    [
        ("baseline", {"data": {}}, "data.cells"),
        ("baseline", {"verdict": "partial", "data": {"cells": [3]}}, "data.cells.0"),
        ("ab", {"data": {}}, "data.visits"),
        ("ab", {"verdict": "partial", "data": {"visits": [3], "mixed": [], "margins": []}}, "data.visits.0"),
        ("ab", {"data": {"visits": [], "mixed": [], "margins": []}}, "data.standard"),
    ],
)
def test_data_that_was_damaged_by_hand_is_named_with_its_file(written, phase, change, says) -> None:
    path = written()
    walk(path)
    file = path.parent / "run" / f"{phase}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(FileError, match=rf"{phase}\.json is damaged: {says}") as caught:
        walk(path)
    assert "--fresh" in str(caught.value.hint)


def test_the_file_that_init_writes_runs(tiny_pair, tmp_path) -> None:
    """With its own keys enabled: models and prompts in place of the shipped ones, and less to measure."""
    target, draft = tiny_pair
    path = write_rollout(tmp_path)
    text = path.read_text()
    for old, new in (
        ("# prompts: prompts.json", "prompts: prompts.json"),
        ("# target: models/target", f"target: {target}"),
        ("# draft: models/draft", f"draft: {draft}"),
        ("# threads: 2", "threads: 1"),
        ("# max_tokens: 64", "max_tokens: 8"),
        ("warmup: 4", "warmup: 0"),
    ):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS[:6]))
    done, _ = walk(path)
    assert [step.phase for step in done.steps] == ["baseline", "ab"]
    assert done.steps[-1].result.summary["parity"] == done.steps[-1].result.summary["parity_control"] == "6/6"


def test_an_endpoint_that_is_down_is_the_environments_failure(written) -> None:
    down = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "x"}
    path = written(pools={"standard": down, "speculative": down})
    with pytest.raises(EndpointError) as caught:
        walk(path)
    assert caught.value.exit_code == Exit.ENVIRONMENT
    assert caught.value.hint


def test_an_empty_prompt_set_is_wrong_usage(written) -> None:
    path = written(prompts=[])
    done = subprocess.run(
        [sys.executable, "-m", "specops", "run", str(path), "--out", str(path.parent / "run")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == Exit.USAGE
    assert "has no prompts" in done.stderr
    assert "hint: " in done.stderr


def test_ctrl_c_keeps_what_was_measured_and_stops_the_server(written, tiny_pair, tmp_path) -> None:
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
        specops.send_signal(signal.SIGINT)
        out, said = specops.communicate(timeout=60)
    assert specops.returncode == 130
    assert out == ""
    assert f"what was measured is in {result}, and the same command resumes" in said
    assert "Traceback" not in said
    partial = results.read(result)
    assert partial.verdict == "partial"
    assert partial.data["cells"][0]["complete"]
    (url,) = re.findall(r"server is up: \S+ on (\S+)", said)
    assert not listens(url)
