"""Commands that start a serving engine, in the files where people keep them.

shell.py        scripts: variables, arrays, functions, here documents
containers.py   a container; Dockerfiles and Compose services
documents.py    YAML: which reader a document is for; Ray Serve LLM configurations, and files of flags
kubernetes.py   pods of any kind, LeaderWorkerSet and ConfigMaps among them; KServe's services
helm.py         values of vLLM's production-stack and of llm-d's modelservice
recognition.py  which engine words call

Nothing is run. A value that only a shell, a cluster or a template has stays a variable, such as $MODEL.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from specops.errors import FileError, UsageError
from specops.hints import listing
from specops.launch.command_files import containers, documents, shell
from specops.launch.command_files.recognition import command_lines, recognised, titles
from specops.serving import Command, LintResult

YAML = (".yaml", ".yml", ".json")
KINDS = (
    "scripts, Dockerfiles, Compose files, Kubernetes manifests (KServe and Ray too), Helm values, YAML with "
    "scripts and YAML files of flags are read"
)


def judge(command: Command, requested: str | None = None) -> LintResult:
    """Judge the command of a file. `requested`: a version that the operator names. Raises ConfigError for one
    that is invalid or too old."""
    return command_lines()[command.engine].judge(command, requested)


def command_of(words: Sequence[str]) -> Command:
    """Return what was given on the command line: as words, or quoted as one.

    Raises UsageError where it calls no engine that is known. Flags alone are taken for the first engine's.
    """
    if len(words) == 1 and " " in words[0]:
        found = list(shell.commands(words[0], "the command"))
        if found:
            return found[0]
        words = shlex.split(words[0])
    command = recognised(words, "the command")
    if command is None and words and words[0].startswith("-"):
        return Command("the command", next(iter(command_lines())), tuple(words))
    if command is None:
        examples = ", or ".join(line.example for line in command_lines().values())
        known = f"not a command of {titles()}"
        shown = words and "=" not in words[0]  # a variable may hold a key
        raise UsageError(
            f"{f'{words[0]} is {known}' if shown else known}: expected the program first, such as {examples}",
            hint=f"specops launch lint -- {next(iter(command_lines().values())).example.removesuffix(' …')}",
        )
    return command


def commands_in(path: Path) -> list[Command]:
    """Return the commands in a file. Raises FileError for a file that is not there, UsageError for one
    without a command of an engine."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise FileError(f"could not read {path}: {reason}", hint=listing(path)) from error
    if path.suffix in YAML:
        found = list(documents.commands(text, path))
    elif containers.is_dockerfile(path):
        found = list(containers.dockerfile_commands(text, path.name))
    else:
        found = list(shell.commands(text, path.name))
    if not found:
        raise UsageError(
            f"there is no command of {titles()} in {path}: {KINDS}", hint=f"head {shlex.quote(str(path))}"
        )
    return found
