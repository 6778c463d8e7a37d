"""Public launch files, from which no rule was written: one half was developed on, another tried once, and
later ones judged by hand before the lint read them.

A case has `source` (where it was read), `file` and `text` (shortened), `beside` (files in the same folder),
`version` (as --engine-version), `commands` (the engines whose commands the lint has to find), `finds` (errors
and warnings that it has to report), `absent` (what it must not complain of), `unknown` (what it has to say
that it did not read) and `exit` (the exit code).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from specops.errors import SpecopsError
from specops.phases.launch import lint_file
from specops.serving import LintResult

TITLES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "trtllm": "TensorRT-LLM"}
CODES = {"yes": 0, "no": 1, "undecided": 4}


@dataclass(frozen=True)
class Case:
    source: str
    file: str
    text: str
    commands: list[str]
    exit: int
    beside: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    finds: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.source.replace(" ", "_")

    def judged(self) -> tuple[list[LintResult], int]:
        """Return the results of the lint, and the exit code."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, text in {**self.beside, self.file: self.text}.items():
                (folder / file).write_text(text, encoding="utf-8")
            try:
                judged, result = lint_file(folder / self.file, self.version)
            except SpecopsError as error:
                return [], int(error.exit_code)
        return judged, CODES[result.verdict]

    def faults(self) -> list[str]:
        """Return what the lint got wrong; empty where it is right."""
        judged, code = self.judged()
        found = [f"{entry.level} {entry.flag}" for one in judged for entry in one.findings]
        unread = [entry.what for one in judged for entry in one.unknown]
        faults = (
            [] if [one.engine for one in judged] == [TITLES[name] for name in self.commands] else ["commands"]
        )
        faults += [f"missing: {entry}" for entry in self.finds if entry not in found]
        complaints = [entry for entry in found if not entry.startswith("note")]
        faults += [f"false: {flag}" for flag in self.absent if any(flag in entry for entry in complaints)]
        faults += [f"read: {what}" for what in self.unknown if not any(what in entry for entry in unread)]
        return faults + ([] if code == self.exit else [f"exit {code}, not {self.exit}"])


def cases(half: str) -> list[Case]:
    text = Path(__file__).with_name(f"{half}.yaml").read_text(encoding="utf-8")
    stored: list[dict[str, Any]] = yaml.safe_load(text)
    return [Case(**entry) for entry in stored]
