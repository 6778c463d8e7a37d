"""Hints: commands to paste. They are made from the command that was typed, or from ROLLOUT in the place of a
rollout file whose path is not known. A call of the Python API names the command that does the same."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

ROLLOUT = "ROLLOUT"
_WORD = re.compile(rf"(?<![\w./-]){ROLLOUT}(?![\w/-]|\.\w)")
"""Not a part of a path, so that a file of this name is not replaced again."""

REFERENCE = "specops init reference --full  # writes a file in which every key is explained"

PROGRAMS = (
    *("specops", "pip", "python", "docker", "kubectl", "curl", "apt-get", "sudo", "systemctl"),
    *(
        "git",
        "cat",
        "chmod",
        "cp",
        "cut",
        "date",
        "df",
        "echo",
        "export",
        "file",
        "find",
        "free",
        "grep",
    ),
    *("head", "kill", "ls", "mkdir", "mv", "printf", "ps", "pwd", "rm", "sed", "ss", "tail", "touch"),
    *("ulimit", "unset", "dmesg", "helm", "python3", "ray", "id", "getent", "ssh-keygen", "ssh-add"),
)
"""The first words of hints."""


_equivalent: ContextVar[Sequence[str] | None] = ContextVar("_equivalent", default=None)


@contextmanager
def as_command(*words: str) -> Iterator[None]:
    """Make the hints of this block from the command `specops WORDS…`, as if it had been typed."""
    token = _equivalent.set(words)
    try:
        yield
    finally:
        _equivalent.reset(token)


def _typed() -> list[str]:
    """The words behind `specops`."""
    words = _equivalent.get()
    return sys.argv[1:] if words is None else list(words)


def with_options(options: Mapping[str, str | bool | None]) -> str:
    """Return the command that was typed, with other options. The value of an option in `options` replaces
    what was typed: text is a value; True and False add and remove a switch; None removes an option with its
    value. Other words stay as they are."""
    typed = _typed()
    end = typed.index("--") if "--" in typed else len(typed)
    words = iter(typed[:end])
    rest = ["specops"]
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in options:
            rest.append(word)
        elif not equals and not isinstance(options[name], bool):
            next(words, None)
    for name, value in options.items():
        if value is True:
            rest.append(name)
        elif isinstance(value, str):
            rest += [name, value]
    return shlex.join([*rest, *typed[end:]])


def with_value(wrong: object, right: object) -> str:
    """Return the command that was typed, with `right` in place of the value `wrong`: a word, the value in
    --option=value, or an item between commas. Where the command has no such value, it is in the rollout file:
    the command that shows its line is returned; without a rollout file, the command's help."""
    typed, old, new = _typed(), str(wrong), str(right)
    words = [_replaced(word, old, new) for word in typed]
    if words != typed:
        return shlex.join(["specops", *words])
    rollout = _typed_rollout()
    if rollout is not None:
        return f"grep -n -F -e {shlex.quote(old)} {shlex.quote(rollout)}  # write {new} in its place"
    return f"{_help()}  # write {new} in place of {old}"


def in_rollout(key: str, note: str) -> str:
    """Return the command that shows where the rollout file has a key, with what to change there. Where it has
    no such key, the command that explains all keys is returned; without such a file, the command's help."""
    rollout = _typed_rollout()
    if rollout is None:
        return f"{_help()}  # {note}"
    try:
        key_match = re.search(rf"\b{re.escape(key)}:", Path(rollout).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        key_match = None
    if key_match is None:
        return f"{REFERENCE}; {note}"
    return f"grep -n -e {shlex.quote(f'{key}:')} {shlex.quote(rollout)}  # {note}"


def listing(path: Path | str) -> str:
    """Return the command that shows sizes, owners and permissions: of a file, or in a folder."""
    return f"ls -l {shlex.quote(str(path))}"


def beginning(path: Path | str) -> str:
    """Return the command that shows the first 300 bytes of a file."""
    return f"head -c 300 {shlex.quote(str(path))}"


def json_check(path: Path | str, *, lines: bool = False) -> str:
    """Return the command that names what is not JSON in a file, or in its lines."""
    option = "--json-lines " if lines else ""
    return f"python3 -m json.tool {option}{shlex.quote(str(path))} > /dev/null  # names what is not JSON"


def folder_state(folder: Path) -> str:
    """Return the command that shows why a file cannot be written there: no room, or no permission."""
    parent = next(candidate for candidate in (folder, *folder.absolute().parents) if candidate.is_dir())
    return f"df -h {shlex.quote(str(parent))}; ls -ld {shlex.quote(str(parent))}"


def http_request(url: str, options: str = "") -> str:
    """Return the command that shows what an address answers, with its headers. `options`: further ones of
    curl, with a space before each."""
    return f"curl -sSi -m 5{options} {shlex.quote(url)}"


def renaming(path: Path | str, note: str) -> str:
    """Return the command that renames a file, with what to do after it."""
    return f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.old')}  # {note}"


def _help() -> str:
    command = [word for word in _typed() if not word.startswith("-")][:1]
    return shlex.join(["specops", *command, "--help"])


def _typed_rollout() -> str | None:
    return next((word for word in _typed() if word.endswith((".yaml", ".yml"))), None)


def _replaced(word: str, old: str, new: str) -> str:
    name, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if value == old:
        return f"{name}{equals}{new}"
    return name + equals + ",".join(new if item.strip() == old else item for item in value.split(","))


def named(text: str, place: str) -> str:
    """Return `text` with `place`, the arguments that name the rollout file in a shell, for each
    placeholder."""
    return _WORD.sub(lambda _: place, text)
