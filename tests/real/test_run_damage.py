"""`specops run` beside results that are there: set aside, not lost, and named where they are damaged."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path

import pytest
from walking import PROMPTS, Notes, walk

from specops import results
from specops.cli import app
from specops.config import load
from specops.errors import Exit, FileError, Stopped
from specops.phases import playbook
from specops.phases.playbook import walk as walk_module


@pytest.mark.parametrize("fresh", [False, True])
def test_an_earlier_measurement_is_set_aside_and_not_overwritten(written, walked, fresh) -> None:
    file = written(prompts=PROMPTS if fresh else PROMPTS[:12]).parent / "run" / "baseline.json"
    earlier = file.read_bytes()
    _, notes = walk(file.parents[1] / "rollout.yaml", only="baseline", fresh=fresh)
    assert file.read_bytes() != earlier
    assert file.with_name("baseline.previous.json").read_bytes() == earlier
    assert notes.said("baseline.previous.json")


def test_a_stop_before_anything_was_measured_leaves_the_earlier_result(written, walked, monkeypatch) -> None:
    async def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    file = walked.parent / "run" / "baseline.json"
    earlier, files = file.read_bytes(), sorted(file.parent.glob("*.json"))
    monkeypatch.setattr("specops.load.target_server.TargetServer.visit", stopped)
    changed = written(prompts=PROMPTS[:12])
    with pytest.raises(KeyboardInterrupt) as stop:
        playbook.run(load(changed), changed, file.parent, Notes(), only="baseline")
    assert file.read_bytes() == earlier
    assert sorted(file.parent.glob("*.json")) == files
    assert not isinstance(stop.value, Stopped), "there is nothing to resume"


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
    monkeypatch.setattr(walk_module, "_record", lambda *_: None)  # the disk fills up while it is measured
    monkeypatch.setattr(results.os, "fsync", full)
    monkeypatch.setattr(results.tempfile, "tempdir", str(rescue))
    monkeypatch.setattr(sys, "argv", ["specops", "run", str(path), "--out", str(tmp_path / "run"), "--yes"])
    with pytest.raises(SystemExit) as caught:
        app.main()
    assert caught.value.code == Exit.ENVIRONMENT
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert re.search(r"hint: df -h \S+; ls -ld \S+  # then move the file there", said)
    assert list((tmp_path / "run").glob("*.json")) == []
    rescued = re.search(r"it was saved as (\S+)\n", said)
    assert rescued
    assert results.read(Path(rescued[1])).data["cells"]


def test_a_damaged_result_is_named_and_fresh_gets_past_it(walked) -> None:
    file = walked.parent / "run" / "baseline.json"
    file.write_text(file.read_text()[:500])
    with pytest.raises(FileError, match=r"baseline\.json is damaged"):
        walk(walked, only="baseline")
    done, _ = walk(walked, only="baseline", fresh=True)
    assert done.steps[0].result.verdict in ("yes", "undecided"), "a busy machine is not steady"


@pytest.mark.parametrize(
    ("phase", "change", "says"),
    [
        ("baseline", {"data": {}}, "data.cells"),
        ("baseline", {"verdict": "partial", "data": {"cells": [3]}}, "data.cells.0"),
        ("ab", {"data": {}}, "data.run"),
        ("ab", {"verdict": "partial", "data": {"run": "x", "windows": [3], "margins": []}}, "data.windows.0"),
        ("ab", {"data": {"run": "x", "windows": [], "margins": []}}, "data.standard"),
    ],
)
def test_data_that_was_damaged_by_hand_is_named_with_its_file(walked, phase, change, says) -> None:
    file = walked.parent / "run" / f"{phase}.json"
    file.write_text(results.sealed(json.loads(file.read_text()) | change))
    with pytest.raises(FileError, match=rf"{phase}\.json is damaged: {says}") as caught:
        walk(walked)
    assert "--fresh" in str(caught.value.hint)
