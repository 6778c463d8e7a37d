"""Commands, scripts and manifests as people run and report them, one file an engine.

A case has `source` (where it was read), `text` (the command, or a file's content where `file` names one; both
shortened), `version` (where the source or the reader knows it), `finds` (errors and warnings that the lint
has to report, and no others) and `left` (errors that no rule can fix).
"""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specops.launch.command_files import command_of, commands_in, judge
from specops.serving import Command, LintResult

ENGINES = ("vllm", "sglang", "llamacpp", "trtllm")


@dataclass(frozen=True)
class Case:
    source: str
    text: str
    finds: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    version: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return self.source.removeprefix("https://").removeprefix("github.com/").replace(" ", "_")

    @property
    def command(self) -> Command:
        if self.file is None:
            return command_of(shlex.split(self.text))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.file
            path.write_text(self.text, encoding="utf-8")
            [command] = commands_in(path)
        return command

    def judged(self) -> LintResult:
        return judge(self.command, self.version)


def cases(engine: str) -> list[Case]:
    text = Path(__file__).with_name(f"{engine}.yaml").read_text(encoding="utf-8")
    stored: list[dict[str, Any]] = yaml.safe_load(text)
    return [Case(**one | {key: tuple(one.get(key, ())) for key in ("finds", "left")}) for one in stored]
