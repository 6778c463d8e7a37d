"""The list of single changes does not rot: each anchor is in its file once, and each test file exists."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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
