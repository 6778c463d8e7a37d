"""The run folder belongs to the rollout file: the working directory does not matter."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config import run_folder
from specops.errors import ConfigError


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
