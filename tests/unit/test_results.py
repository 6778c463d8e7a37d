"""A result is written whole or not at all, and a damaged one is named, never half-read."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops import results
from specops.errors import Exit, FileError
from specops.phases.ab import report as ab
from specops.phases.diagnose import Diagnosis
from specops.phases.sweep import plan
from specops.phases.sweep import report as sweep
from specops.results import Result, read, sha256, write


def result(**fields: object) -> Result:
    return Result.model_validate({"phase": "baseline", "verdict": "yes", "reason": "measured", **fields})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.dictionaries(st.text(), JSON, max_size=4))
def test_what_was_written_is_read(tmp_path_factory, data) -> None:
    path = tmp_path_factory.getbasetemp() / "run" / "baseline.json"
    written = result(data=data, inputs={"prompts": sha256("x")})
    write(path, written)
    assert read(path) == written


def test_a_figure_that_is_no_number_is_written_as_null(tmp_path) -> None:
    write(tmp_path / "baseline.json", result(summary={"ttft_p50_ms": float("nan"), "rate": float("inf")}))
    assert read(tmp_path / "baseline.json").summary == {"ttft_p50_ms": None, "rate": None}


def test_nothing_but_the_result_is_left_in_the_folder(tmp_path) -> None:
    write(tmp_path / "baseline.json", result())
    write(tmp_path / "baseline.json", result(reason="again"))
    assert [path.name for path in tmp_path.iterdir()] == ["baseline.json"]
    assert read(tmp_path / "baseline.json").reason == "again"


@given(data=st.dictionaries(st.text(), JSON, max_size=4))
def test_the_hash_does_not_depend_on_the_layout(data) -> None:
    made = result(data=data)
    assert json.loads(results.written(made)) == json.loads(results.sealed(json.loads(results.written(made))))


def test_a_result_that_was_edited_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "ab.json"
    write(path, result(data={"speedup": 1.05, "ratio": 0.1, "name": "위키"}, created="2026-11-21T12:00:00Z"))
    text = path.read_text()
    for before, after in (("1.05", "1.95"), ('"yes"', '"no"'), ("2026-11-21", "2026-11-22")):
        path.write_text(text.replace(before, after))
        with pytest.raises(FileError, match=r"ab\.json was changed after it was written") as caught:
            read(path)
        assert str(caught.value.hint).startswith(f"mv {path} ")
    path.write_text(json.dumps(json.loads(text), indent=4))
    assert read(path).data["speedup"] == 1.05, "its layout does not count"
    fields = json.loads(text)
    del fields["sha256"]
    path.write_text(json.dumps(fields))
    with pytest.raises(FileError, match=r"ab\.json has no hash of its content"):
        read(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_result_is_damaged_by_name(tmp_path, share) -> None:
    path = tmp_path / "baseline.json"
    write(path, result(data={"cells": list(range(50))}))
    text = path.read_text()
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(FileError, match=r"baseline\.json is damaged") as caught:
        read(path)
    assert caught.value.hint
    assert caught.value.exit_code == Exit.ENVIRONMENT


@pytest.mark.parametrize("text", ["[]", "3", '"text"', "null", "{}", '{"openapi": "3.1"}'])
def test_foreign_json_is_no_result(tmp_path, text) -> None:
    (tmp_path / "baseline.json").write_text(text)
    with pytest.raises(FileError, match="or not a result of specops"):
        read(tmp_path / "baseline.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [({"verdict": "maybe"}, "verdict"), ({"data": 3}, "data"), ({"colour": "red"}, "colour")],
)
def test_a_hand_damaged_field_is_named(tmp_path, change, says) -> None:
    fields = json.loads(result().model_dump_json(by_alias=True))
    (tmp_path / "baseline.json").write_text(json.dumps({**fields, **change}))
    with pytest.raises(FileError, match=f"is damaged: {says} is "):
        read(tmp_path / "baseline.json")


def test_a_result_of_schema_1_is_read_under_the_names_of_today() -> None:
    stored = Path(__file__).parent / "stored" / "diagnose-schema-1.json"
    old = json.loads(stored.read_text())
    found = Diagnosis.model_validate(read(stored).data)
    assert [one.message for one in found.findings] == [one["told"] for one in old["data"]["findings"]]
    assert [one.fix for one in found.findings] == [one["mend"] for one in old["data"]["findings"]]


def test_a_comparison_of_an_earlier_format_is_refused_in_one_sentence() -> None:
    stored = read(Path(__file__).parent / "stored" / "ab-schema-1.json")
    with pytest.raises(FileError, match="was written by an earlier version of specops") as caught:
        ab.read(stored, "ab.json")
    assert "--fresh" in str(caught.value.hint)


def test_a_sweep_of_schema_1_is_read_under_the_names_of_today() -> None:
    stored = Path(__file__).parent / "stored" / "sweep-schema-1.json"
    old, found = json.loads(stored.read_text()), read(stored)
    report = sweep.read(found, "it")
    assert report.crossover is not None
    assert report.schedule is not None
    assert report.crossover.message == old["data"]["crossover"]["told"]
    assert report.schedule.message == old["data"]["schedule"]["told"]
    assert len(plan.measurements_of(found, "it").cells) == len(old["data"]["kept"]["cells"]) > 0


def test_a_result_of_schema_1_that_was_edited_is_refused(tmp_path) -> None:
    stored = Path(__file__).parent / "stored" / "diagnose-schema-1.json"
    edited = tmp_path / "diagnose.json"
    edited.write_text(stored.read_text().replace('"told": "', '"message": "'))
    with pytest.raises(FileError, match="was changed after it was written"):
        read(edited)


@pytest.mark.parametrize(
    ("schema", "phase", "old", "new"),
    [
        (schema, phase, *pair)
        for schema in (2, 3)
        for phase, pairs in results.RENAMED[schema].items()
        for pair in pairs.items()
    ],
)
def test_a_result_of_schemas_2_and_3_is_read_under_the_names_of_today(
    schema: int, phase: str, old: str, new: str, tmp_path: Path
) -> None:
    fields = json.loads(result().model_dump_json(by_alias=True))
    fields |= {"schema": schema, "phase": phase, "data": {"parts": [{old: 1}]}}
    fields.pop(results.HASH, None)
    (tmp_path / "it.json").write_text(json.dumps({**fields, results.HASH: results.sha256(fields)}))
    assert read(tmp_path / "it.json").data == {"parts": [{new: 1}]}


def test_a_newer_schema_is_not_guessed_at(tmp_path) -> None:
    fields = json.loads(result().model_dump_json(by_alias=True))
    (tmp_path / "baseline.json").write_text(json.dumps({**fields, "schema": results.SCHEMA + 1, "new": 1}))
    with pytest.raises(FileError, match="has schema 5; this specops reads schemas 1 to 4"):
        read(tmp_path / "baseline.json")


def test_bytes_that_are_no_text_are_refused(tmp_path) -> None:
    (tmp_path / "baseline.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="could not read") as caught:
        read(tmp_path / "baseline.json")
    assert caught.value.hint


def test_a_missing_result_says_to_run_its_phase(tmp_path) -> None:
    with pytest.raises(FileError, match="there is no result"):
        read(tmp_path / "baseline.json")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("yes", Exit.YES), ("no", Exit.NO), ("undecided", Exit.UNDECIDED), ("partial", Exit.UNDECIDED)],
)
def test_a_verdict_is_an_exit_code(verdict, code) -> None:
    assert result(verdict=verdict).exit_code == code


def test_the_hash_of_a_json_value_does_not_hang_on_the_order_of_keys() -> None:
    assert sha256({"a": 1, "b": [2]}) == sha256({"b": [2], "a": 1})
    assert sha256({"a": 1}) != sha256({"a": 2})


def full_disk(monkeypatch: pytest.MonkeyPatch, *, everywhere: bool) -> None:
    """Flushing fails as on a full disk: the first time, or always."""
    fsync, failed = os.fsync, []

    def flush(descriptor: int) -> None:
        if everywhere or not failed:
            failed.append(descriptor)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(results.os, "fsync", flush)


def test_a_write_that_found_no_space_keeps_both_results(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(results.tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "run" / "baseline.json"
    write(path, result(reason="the first"))
    full_disk(monkeypatch, everywhere=False)
    with pytest.raises(FileError, match=r"could not write .*No space left on device") as caught:
        write(path, result(reason="the second"))
    assert read(path).reason == "the first"
    assert [found.name for found in path.parent.iterdir()] == ["baseline.json"]
    (rescued,) = tmp_path.glob("specops-rescued-*/baseline.json")
    assert read(rescued).reason == "the second"
    assert str(rescued) in caught.value.message


def test_no_space_anywhere_is_said_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(results.tempfile, "tempdir", str(tmp_path))
    full_disk(monkeypatch, everywhere=True)
    with pytest.raises(FileError, match="no other place had room for it"):
        write(tmp_path / "baseline.json", result())
    assert list(tmp_path.rglob("*.json*")) == []


def _may_mount() -> bool:
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        return False
    capabilities = int(status.split("CapEff:")[1].split()[0], 16)
    return bool(capabilities >> 21 & 1)  # CAP_SYS_ADMIN


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not _may_mount():
        pytest.skip("mounting a small file system needs root with CAP_SYS_ADMIN")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing(small_disk, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(results.tempfile, "tempdir", str(tmp_path))
    path = small_disk / "baseline.json"
    write(path, result(reason="the first"))
    with pytest.raises(FileError, match=r"could not write .*No space left on device") as caught:
        write(path, result(reason="the second", data={"text": "x" * 100_000}))
    assert read(path).reason == "the first"
    assert [entry.name for entry in small_disk.iterdir()] == ["baseline.json"]
    rescued = next(tmp_path.glob("specops-rescued-*")) / "baseline.json"
    assert read(rescued).reason == "the second"
    assert str(rescued) in caught.value.message


def test_a_disk_that_is_full_everywhere_is_said_so(small_disk, monkeypatch) -> None:
    monkeypatch.setattr(results.tempfile, "tempdir", str(small_disk))
    with pytest.raises(FileError, match="no other place had room for it"):
        write(small_disk / "baseline.json", result(data={"text": "x" * 100_000}))
