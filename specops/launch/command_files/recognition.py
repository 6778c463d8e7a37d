"""Recognition of the engine that words call, and of its version as an image's tag says it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from specops.launch.command_files import dynamo
from specops.serving import ENGINES, Command, CommandLine, Files, Unknown, is_unknown, runs_containers

SHELLS = ("sh", "bash", "dash", "zsh")


def command_lines() -> dict[str, CommandLine]:
    """The command lines of engines that have one, by the engine's name."""
    lines = {name: engine.command_line for name, engine in ENGINES.items()}
    return {name: line for name, line in lines.items() if line is not None}


def titles() -> str:
    return " or ".join(ENGINES[name].title for name in command_lines())


def recognised(
    words: Sequence[str],
    where: str,
    *,
    image: str | None = None,
    environment: Mapping[str, str] | None = None,
    files: Files | None = None,
) -> Command | None:
    """Return the engine's command in the words. `image`: of the container that the words run in.
    `environment`: set around the words. `files`: that the same file writes or holds. None: the words call no
    engine."""
    engine, length = program_of(words)
    tags = [engine_of_image(word) for word in (image or "", *words[:length])]
    tag = next((tag for tag in tags if tag is not None), None)
    another = bool(words) and words[0].rsplit("/", 1)[-1].startswith("python")  # such as dynamo.frontend
    if engine is None and tag is not None and image is not None and starts_itself(tag[0]) and not another:
        engine = tag[0]  # the words are arguments of the image's own program
    if engine is None:
        return None
    held, variables, unread = files or Files(), dict(environment or {}), list[Unknown]()
    if image is None and any(map(runs_containers, words[:2])):
        for name in _env_files(words[:length]):
            text = held.text(name)
            variables |= assignments(text or "")
            unread += [] if text is not None else [missing_variables(name, command_lines()[engine])]
        held = replace(held, contained=True, mounts=dict(_mounts(words[:length])) | dict(held.mounts))
    command = Command(
        where,
        engine,
        tuple(words),
        tag[1] if tag else None,
        environment=variables,
        files=held,
        image=image or None,
        unread=tuple(unread),
    )
    return dynamo.unwrapped(command)


def _env_files(words: Sequence[str]) -> Iterator[str]:
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--env-file":
            yield value if equals else "".join(words[index + 1 : index + 2])


def assignments(text: str) -> dict[str, str]:
    """Return the variables of a file of NAME=VALUE lines, as containers and systemd read them."""
    environment = {}
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name.strip()):
            quoted = re.fullmatch(r"""(["'])(.*)\1""", value.strip(), re.DOTALL)
            environment[name.strip()] = re.sub(r"\\(.)", r"\1", quoted[2]) if quoted else value.strip()
    return environment


def missing_variables(name: str, line: CommandLine) -> Unknown:
    """Return that a file of variables was not read. It decides where variables are the engine's flags."""
    how = f"put {name} beside the file that names it, and lint it again"
    return Unknown(name, "its variables were not read: it is not here", how, line.reads_environment)


def _mounts(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield paths in the container of docker run, with what is mounted there."""
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        value = value if equals else "".join(words[index + 1 : index + 2])
        value = re.sub(r"^(\$\(pwd\)|\$\{?PWD\}?)", ".", value)
        if option in ("-v", "--volume") and ":" in value and not is_unknown(value):
            source, _, target = value.partition(":")
            yield target.partition(":")[0], source


def mentions_engine(text: str) -> bool:
    """Return whether a text has a word by which an engine is called, or its image."""
    calls = [line.call for line in command_lines().values()]
    names = {called[0] for call in calls for called in call.programs}
    return any(
        name in text for name in (*names, *(name for call in calls for name in (*call.modules, call.mark)))
    )


def program_of(words: Sequence[str]) -> tuple[str | None, int]:
    """Return which engine `words` call, and how many of them call it; (None, 0): none that is known.

    `vllm serve`, `python -m vllm.entrypoints…`, `docker run … IMAGE` and their like.
    """
    lines = command_lines()
    called = [(line.call.program(words), name) for name, line in lines.items()]
    run = [(line.call.container(words), name) for name, line in lines.items()]
    for candidates in (called, run):
        lengths = [(length, name) for length, name in candidates if length is not None]
        if lengths:
            length, engine = min(lengths)
            return engine, length
    return None, 0


def engine_of_image(image: str) -> tuple[str, str | None] | None:
    """The engine of a container's image, and the version that its tag says."""
    tags = {name: line.call.tag(image) for name, line in command_lines().items()}
    return next(((name, tag or None) for name, tag in tags.items() if tag is not None), None)


def starts_itself(engine: str) -> bool:
    return command_lines()[engine].call.starts_itself


def inner_script(words: Sequence[str]) -> str | None:
    """Return what `bash -c` and its like run, wherever in the words they are."""
    for index, word in enumerate(words[:-2]):
        option = words[index + 1]
        if word.rsplit("/", 1)[-1] in SHELLS and re.fullmatch(r"-\w*c", option):
            after = index + (3 if words[index + 2] == "--" else 2)  # bash -lc -- SCRIPT
            return words[after] if after < len(words) else None
    return None


def usual_in(kind: str) -> tuple[str, list[str]]:
    """The engine of a kind of file that names none, and the words that call it."""
    name, line = next((name, line) for name, line in command_lines().items() if kind in line.usual_in)
    return name, list(line.call.programs[0])
