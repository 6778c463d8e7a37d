"""Walks of the playbook, as the tests of `run` make them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from published_schemas import check_result

from specops.config import Rollout, load
from specops.config.rollout import CheckName
from specops.phases import playbook
from specops.progress import SilentProgress

CLASSES = {"short": 4, "long": 12, "edit": 8}
PROMPTS = [
    {
        "id": f"{name}-{number}",
        "class": name,
        "text": f"the server measures {name} {number}",
        "max_tokens": tokens,
    }
    for name, tokens in CLASSES.items()
    for number in range(6)
]
ASKED = ("parity", "mixed", "stop", "usage")
"""Of the canary: what all of it finds is tried where the canary is."""
CANARY = {"prompts": 4, "samples": 32, "skip": sorted(set(get_args(CheckName)) - set(ASKED))}
MEASURE = {"endpoint": "completions", "concurrency": [1, 2], "repeats": 2, "warmup": 1}


class Notes(SilentProgress):
    """Keeps what a person would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)

    def said(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in self.lines)


def walk(path: Path, **options: object) -> tuple[playbook.Walk, Notes]:
    """Of the rollout file `path`, into the folder `run` beside it."""
    notes = Notes()
    rollout: Rollout = load(path)
    walk = playbook.run(rollout, path, path.parent / "run", notes, **options)  # type: ignore[arg-type]
    for step in walk.steps:
        check_result(step.path, step.result)
    return walk, notes


def reused(done: playbook.Walk) -> list[str]:
    return [step.phase for step in done.steps if step.reused]
