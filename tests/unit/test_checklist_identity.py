"""The checklist identifies a rollout by content: how its file is named, and from where, does not matter."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml
from made_checklists import NOW, Made, model

from specops.assets import asset
from specops.checkpoints.source import find
from specops.config import load, run_folder
from specops.phases.checklist.checklist import checklist
from specops.phases.checklist.evidence import ChecklistData, Status
from specops.phases.inputs import identity, inputs_of, settings_of
from specops.phases.sweep.spec import spec_of
from specops.phases.verify_draft.pair import ModelFiles

SPECULATION = {"draft": "models/draft", "tree": "chain:3"}
POOLS = {
    "standard": {"engine": "embedded", "target": "models/target"},
    "speculative": {"engine": "embedded", "target": "models/target", "speculation": SPECULATION},
}
FILE = Path("service", "rollout.yaml")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a rollout file, its models, prompts and all evidence."""
    home = tmp_path_factory.mktemp("home")
    folder = home / FILE.parent
    for name in ("target", "draft"):
        shutil.copytree(model(name), folder / "models" / name, copy_function=os.link)
    shutil.copy(asset("playbooks", "embedded", "prompts.json"), folder / "mine.json")
    shutil.copy(model("target") / "tokenizer.json", folder / "tokenizer.json")
    made = Made(folder)
    made.path.write_text(
        yaml.safe_dump(
            {
                "rollout": "made",
                "pools": POOLS,
                "prompts": "mine.json",
                "measure": {"tokenizer": "tokenizer.json"},
                "peak": {"requests_per_s": 0.01},
                "addresses": {"standard": ["127.0.0.1:1"], "speculative": ["127.0.0.1:2"]},
            }
        )
    )
    made.folder = folder / "runs" / "made"
    before = Path.cwd()
    os.chdir(home)
    try:
        made.path = FILE
        made.fill()
        made.change(
            "drafts",
            settings={name: str(FILE.parent / "models" / name) for name in ("target", "draft")},
            inputs={
                name: ModelFiles(find(str(FILE.parent / "models" / name))).sha256()
                for name in ("target", "draft")
            },
        )
    finally:
        os.chdir(before)
    return home


def checked(path: Path) -> dict[str, tuple[Status, str]]:
    rollout = load(path)
    result = checklist(rollout, path, run_folder(path, rollout.rollout), NOW)
    return {one.name: (one.status, one.found) for one in ChecklistData.model_validate(result.data).items}


def test_the_same_by_any_path_from_any_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    by_relative = checked(FILE)
    assert {status for status, _ in by_relative.values()} == {"passed", "attested"}
    assert by_relative == checked(home / FILE)
    monkeypatch.chdir("/")
    assert by_relative == checked(home / FILE)
    monkeypatch.chdir(home / FILE.parent / "models")
    assert by_relative == checked(Path("..", "rollout.yaml"))


def test_the_same_in_a_copy_elsewhere(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "copy", copy_function=os.link)
    assert checked(tmp_path / "copy" / FILE) == checked(home / FILE)


@pytest.mark.parametrize(
    ("name", "opened"),
    [
        ("mine.json", {"baseline", "k-swept", "speedup", "canary", "runbook-shared"}),
        ("tokenizer.json", {"baseline", "k-swept", "speedup", "canary", "runbook-shared"}),
        ("models/draft/config.json", {"draft-compatible", "k-swept", "speedup", "canary", "runbook-shared"}),
    ],
)
def test_a_changed_file_behind_the_same_path_is_another_rollout(
    name: str, opened: set[str], home: Path, tmp_path: Path
) -> None:
    shutil.copytree(home, tmp_path / "copy", copy_function=os.link)
    changed = tmp_path / "copy" / FILE.parent / name
    text = changed.read_text()
    changed.unlink()  # it is linked
    changed.write_text(text.replace("[", "[ ", 1) if name == "mine.json" else text + "\n")
    if name == "mine.json":
        changed.write_text(text.replace('"text": "', '"text": "x', 1))
    found = checked(tmp_path / "copy" / FILE)
    assert opened <= {item for item, (status, _) in found.items() if status == "open"}


def test_a_rollout_means_the_same_however_it_is_written(tmp_path: Path) -> None:
    ends = {
        name: {"engine": "endpoint", "base_url": f"http://127.0.0.1:{port}/v1", "model": "m"}
        for name, port in (("standard", 1), ("speculative", 2))
    }
    path = tmp_path / "rollout.yaml"

    def written(**changes: object) -> tuple[str, object, object]:
        path.write_text(yaml.safe_dump({"rollout": "r", "pools": ends} | changes, sort_keys=False))
        rollout = load(path)
        pool = rollout.pools.standard
        attached = {0: rollout.pools.standard, 3: rollout.pools.speculative}
        swept = spec_of(rollout, tmp_path, attached).inputs()  # type: ignore[arg-type]
        return identity(rollout), inputs_of(settings_of(rollout, pool), pool), swept

    plain = written()
    slashes = {name: end | {"base_url": f"{end['base_url']}/"} for name, end in ends.items()}
    assert written(pools=slashes) == plain
    others = {name: end | {"base_url": f"{end['base_url']}2"} for name, end in ends.items()}
    assert all(one != other for one, other in zip(written(pools=others), plain, strict=True))
    assert written(peak={"requests_per_s": 3.0})[0] != plain[0]
    assert written(peak={"requests_per_s": 3.0})[1:] == plain[1:]
