"""The list of single changes does not rot: each anchor is in its file once, and each test file exists."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutations", ROOT / "tools" / "mutations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutations"] = module
    spec.loader.exec_module(module)
    return module


def test_every_change_applies_to_its_file_exactly_once() -> None:
    found = list(tool().changes())
    assert len(found) >= 120
    wrong = []
    for change in found:
        path = ROOT / change.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if change.applied(text) in (None, text):
            wrong.append(f"{change.file}: {change.anchor}")
        wrong += [f"there is no {test}" for test in change.tests if not (ROOT / test).exists()]
    assert wrong == [], "edit tools/mutations.yaml, as the code has changed"


def test_a_change_counts_only_where_its_tests_pass_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {
        "subject.py": "ONE = 1\nTWO = 2\n",
        "test_broken.py": "def test_broken():\n    raise ValueError\n",
        "test_one.py": "import subject\n\ndef test_one():\n    assert subject.ONE == 1\n",
    }
    change = [["ONE = 1", "ONE = 3"], ["TWO = 2", "TWO = 3"]]
    tests = ("test_broken.py", "test_one.py")
    listed = [{"file": "subject.py", "tests": [test], "changes": change} for test in tests]
    (tmp_path / "list.yaml").write_text(json.dumps(listed), encoding="utf-8")

    def copied(to: Path) -> Path:
        to.mkdir()
        for name, text in sources.items():
            (to / name).write_text(text, encoding="utf-8")
        return to

    mutations = tool()
    monkeypatch.setattr(mutations, "LIST", tmp_path / "list.yaml")
    monkeypatch.setattr(mutations, "copy", copied)
    assert mutations.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in said] == [
        "fails on the unchanged tree: test_broken.py",
        "does not count",
        "does not count",
        "noticed",
        "not noticed",
        "1 of 4 noticed, 1 not (0 explained), 2 do not count",
    ]
