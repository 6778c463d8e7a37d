"""The run folder belongs to the rollout file, and says what it holds, or why it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_rules import ab_result, kept, pays_up_to, sweep_result

from specops import results
from specops.config import run_folder
from specops.errors import ConfigError, FileError
from specops.phases.run_folder import Missing, PayingLoad, RunFolder, Stored


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "service" / "rollout.yaml"
    path.parent.mkdir()
    path.touch()
    return path


def test_the_same_from_any_directory(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for here, name in (
        (file.parent, "rollout.yaml"),
        (tmp_path, "service/rollout.yaml"),
        (Path("/"), str(file)),
        (file.parent, "../service/rollout.yaml"),
    ):
        monkeypatch.chdir(here)
        found.add(run_folder(Path(name), "demo").resolve())
    assert found == {file.parent / "runs" / "demo"}


def test_relative_below_the_working_directory(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_folder(file, "demo") == Path("service/runs/demo")


def test_a_link_to_the_file_has_the_folder_of_the_file(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "current.yaml"
    link.symlink_to(file)
    assert run_folder(link, "demo") == run_folder(file, "demo")


def test_out_comes_first(file: Path) -> None:
    assert run_folder(file, "demo", Path("elsewhere")) == Path("elsewhere")


def test_results_of_another_folder_are_named_and_not_moved(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / "runs" / "demo"
    earlier.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert run_folder(file, "demo") == Path("service/runs/demo"), "an empty folder holds no results"

    (earlier / "baseline.json").touch()
    with pytest.raises(ConfigError) as refused:
        run_folder(file, "demo")
    folder = file.parent / "runs" / "demo"
    assert str(earlier) in refused.value.message
    assert (refused.value.hint or "").startswith(f"mkdir -p {folder}")

    folder.mkdir(parents=True)
    assert run_folder(file, "demo") == Path("service/runs/demo"), (
        "the folder of the file is used once it exists"
    )


def test_a_part_has_its_source_or_why_it_is_missing_and_the_command_that_makes_it(tmp_path: Path) -> None:
    nothing = RunFolder(tmp_path).recommendation
    assert isinstance(nothing, Missing)
    assert str(nothing) == "there is no sweep.json: specops sweep ROLLOUT"
    assert (nothing.damage, nothing.unused) == (None, False)

    path = kept(tmp_path, "sweep", sweep_result())
    recommended = RunFolder(tmp_path).recommendation
    assert isinstance(recommended, Stored)
    assert recommended.part.k == 5
    assert recommended.sha256 == results.sha256(path)
    assert recommended.source.startswith("sweep.json of 20")
    assert recommended.sha256[:12] in recommended.source


def test_a_result_that_others_must_not_go_by_is_missing(tmp_path: Path) -> None:
    kept(tmp_path, "sweep", sweep_result())
    changed = RunFolder(tmp_path, {"sweep": "the draft changed since"}).recommendation
    assert isinstance(changed, Missing)
    assert changed.why == "sweep.json is not used: the draft changed since"
    assert changed.unused

    kept(tmp_path, "sweep", sweep_result().model_copy(update={"verdict": "partial", "reason": "stopped"}))
    stopped = RunFolder(tmp_path).recommendation
    assert isinstance(stopped, Missing)
    assert stopped.why == "sweep.json is not used: stopped"


def test_damage_is_told_from_absence(tmp_path: Path) -> None:
    kept(tmp_path, "ab", sweep_result())
    foreign = RunFolder(tmp_path).finished_comparison
    assert isinstance(foreign, Missing)
    assert "is a result of sweep: expected ab" in foreign.why
    assert isinstance(foreign.damage, FileError)
    assert not foreign.unused

    kept(tmp_path, "sweep", sweep_result().model_copy(update={"recommendation": {"verdict": "yes"}}))
    hollow = RunFolder(tmp_path).recommendation
    assert isinstance(hollow, Missing)
    assert "sweep.json is damaged: recommendation" in hollow.why


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    for k in (5, 3):
        kept(tmp_path, "sweep", sweep_result(k=k))
        recommended = RunFolder(tmp_path).recommendation
        assert isinstance(recommended, Stored)
        assert recommended.part.k == k


def test_the_paying_load_is_the_heaviest_of_any_class(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).paying_load is None
    kept(
        tmp_path,
        "ab",
        ab_result(lambda name: 2.0, streams=(1, 4), heavy=pays_up_to(edit=4, long=1, short=1)),
    )
    run = RunFolder(tmp_path)
    assert isinstance(run.finished_comparison, Stored)
    challenger = run.finished_comparison.part.challengers["speculative"]
    assert [challenger.deployed_streams(name) for name in ("edit", "long", "short")] == [4, 1, 1]
    assert run.paying_load == PayingLoad(4, run.finished_comparison.source)

    kept(tmp_path, "ab", ab_result(lambda name: 0.5))
    slower = RunFolder(tmp_path).paying_load
    assert slower is not None
    assert slower.up_to == 0
