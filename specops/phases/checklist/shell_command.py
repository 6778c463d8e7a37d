"""Whether a shell command, or a program with its arguments, makes the report of a rollout file."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

SHELLS = ("sh", "bash", "dash")
WRAPPERS = ("chronic", "env", "exec", "flock", "ionice", "nice", "nohup", "setsid", "sudo", "time", "timeout")
"""Programs that run the command that follows."""
ENTRY_POINT_BYTES = 65536
"""How much of a program called specops is read: pip's entry points have some hundred bytes."""
_TOKEN = re.compile(
    r"""[^\S\n]+
    | (?P<comment> (?<![^\s;&|()]) \#[^\n]*)
    | (?P<operator> [;&|()\n]+)
    | (?P<redirection> \d*[<>][<>&|]*)
    | (?P<word> (?: [^\s;&|()<>'"\\] | \\. | '[^']*' | "(?:[^"\\]|\\.)*" )+)
    """,
    re.VERBOSE | re.DOTALL,
)


def reports(script: str, rollout: Path, folder: Path | None, path: str) -> bool:
    """Whether the shell text `script` runs `specops report` for `rollout`. It begins in `folder`, None where
    that is not known; programs are looked for in `path`. Text that no shell reads makes no report."""
    for condition, words in _commands(script):
        if words[:1] == ["cd"] and len(words) == 2:
            folder = (folder or Path("/")) / words[1] if folder or words[1].startswith("/") else None
        elif condition != "||" and runs(words, rollout, folder, path):
            return True
    return False


def runs(words: Sequence[str], rollout: Path, folder: Path | None, path: str) -> bool:
    """The same of one program with its arguments."""
    words = list(words)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    if not words:
        return False
    name = Path(words[0]).name
    if name in SHELLS and "-c" in words[1:-1]:
        return reports(words[words.index("-c") + 1], rollout, folder, path)
    if name in WRAPPERS:
        at = next((i for i, word in enumerate(words) if i and _is_program(words[i:], word)), None)
        return at is not None and runs(words[at:], rollout, folder, path)
    if not _is_program(words, words[0]) or not _exists(words[0], folder, path):
        return False
    arguments = words[1:] if name == "specops" else words[3:]
    return _makes_report(arguments, rollout, folder)


def _is_program(words: Sequence[str], first: str) -> bool:
    name = Path(first).name
    return (
        name == "specops"
        or name in SHELLS
        or (re.fullmatch(r"python[\d.]*", name) is not None and list(words[1:3]) == ["-m", "specops"])
    )


def _exists(program: str, folder: Path | None, path: str) -> bool:
    """Whether the program is there and may be run; of one called specops, whether it is specops' entry point
    or a script that calls it, and not another program of that name."""
    if "/" not in program:
        found = shutil.which(program, path=path)
        place = Path(found) if found is not None else None
    else:
        place = Path(program) if folder is None else folder / program
    if place is None or not place.is_absolute() or not os.access(place, os.X_OK) or not place.is_file():
        return False
    if place.name != "specops":
        return True
    try:
        with place.open("rb") as file:
            return b"specops" in file.read(ENTRY_POINT_BYTES)
    except OSError:
        return False


def _makes_report(arguments: Sequence[str], rollout: Path, folder: Path | None) -> bool:
    if arguments[:1] != ["report"] or "--help" in arguments or arguments[1:2] == ["schedule"]:
        return False
    return any(_same(word, rollout, folder) for word in arguments[1:])


def _same(word: str, rollout: Path, folder: Path | None) -> bool:
    named = Path(word) if folder is None else folder / word
    return named.is_absolute() and named.resolve() == rollout.resolve()


def _commands(script: str) -> Iterator[tuple[str, list[str]]]:
    """Each simple command, without its redirections, and the operator before it. Nothing after a quote that
    does not end."""
    before, words, skip, at = "", list[str](), False, 0
    while at < len(script) and (token := _TOKEN.match(script, at)) is not None:
        at = token.end()
        if token["operator"]:
            if words:
                yield before, words
            before, words = token["operator"].strip(), []
        elif token["redirection"]:
            skip = True
        elif token["word"]:
            if not skip and (words or token["word"] not in ("{", "}", "!")):
                words += shlex.split(token["word"])
            skip = False
    if words and at == len(script):
        yield before, words
