"""English is made in one file, and no program reads it."""

from __future__ import annotations

import ast
from pathlib import Path

from made_windows import judged, windows

import specops
from specops.experiment import sentences

ROOT = Path(specops.__file__).parent
TEXTS = {"reason", "message", "headline", "sentence"}
TAKING_APART = {"startswith", "endswith", "partition", "rpartition", "split", "removeprefix", "removesuffix"}
PLACES = ("experiment", "phases/ab")


def test_no_sentence_is_taken_apart() -> None:
    wrong = []
    for place in PLACES:
        for path in sorted((ROOT / place).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in TAKING_APART:
                    value = node.value
                    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
                    if name in TEXTS:
                        wrong.append(f"{path.name}:{node.lineno}")
    assert wrong == []


def test_every_finding_has_a_sentence_and_a_row() -> None:
    for speed in (2.0, 1.0, 0.5):
        for cycles in (2, 20):
            for finding in judged(windows(speed, cycles=cycles)).findings:
                text = sentences.describe(finding)
                assert text
                assert "None" not in text
                (row,) = sentences.table([finding])
                assert len(row) == 6
                assert all(row)
