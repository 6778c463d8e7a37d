"""Reading a rollout file. All problems are in one ConfigError, each with its line and column, the key and the
expected value. An unknown key names the nearest known one. Results go to runs/NAME beside the file."""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from specops.actions import KINDS
from specops.config.keys import Key, at_place, keys
from specops.config.rollout import Rollout
from specops.errors import ConfigError, FileError, reason_of
from specops.hints import REFERENCE, with_value
from specops.serving import ENGINES
from specops.validation import problem


@dataclass(frozen=True, order=True)
class Problem:
    """One problem of a file, ordered by its place; lines and columns begin at 1."""

    line: int
    column: int
    message: str
    advice: str | None = None
    """What is expected instead, or where to look."""

    hint: str = REFERENCE
    """The command that explains what is expected."""

    correction: str | None = None
    """The command that corrects the file; None: there is none."""

    @property
    def place(self) -> str:
        return f"line {self.line}, column {self.column}"

    def __str__(self) -> str:
        return f"{self.place}: {self.message}{f'; {self.advice}' if self.advice else ''}"


def _refused(path: Path, problems: Iterable[Problem]) -> ConfigError:
    """Return all problems in the order of the file, with the first hint that corrects one."""
    ordered = sorted(dict.fromkeys(problems), key=lambda entry: (entry.line, entry.column))
    hint = next((entry.correction for entry in ordered if entry.correction), ordered[0].hint)
    if len(ordered) == 1:
        return ConfigError(f"{path}, {ordered[0]}", hint=hint)
    return ConfigError("\n  ".join([f"{path} has {len(ordered)} problems:", *map(str, ordered)]), hint=hint)


def load(path: Path) -> Rollout:
    """Read and check a rollout file. Raises FileError where it is missing, ConfigError for what is
    wrong in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileError(f"there is no rollout file {path}", hint=_instead_of(path)) from None
    except IsADirectoryError:
        candidate = next(
            iter(sorted(path.glob("*.yaml"), key=lambda file: (file.name != "rollout.yaml", file))), None
        )
        raise ConfigError(
            f"{path} is a folder: expected a rollout file",
            hint=with_value(path, candidate) if candidate else f"specops init {shlex.quote(str(path))}",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        refused = FileError if isinstance(error, PermissionError) else ConfigError
        raise refused(
            f"could not read the rollout file {path}: {reason_of(error)}: expected a text file in UTF-8",
            hint=f"ls -l {shlex.quote(str(path))}",
        ) from error
    root, data = _parse(path, text)
    try:
        return Rollout.model_validate(data, context={"folder": path.parent})
    except ValidationError as error:
        raise _explain(path, root, error) from None


def _instead_of(path: Path) -> str:
    """Return the command that was typed with the file that was probably meant; where there is none, the
    command that writes one, and then the typed one."""
    files = [*path.parent.glob("*.yaml"), *path.parent.glob("*.yml"), *path.parent.glob("*/rollout.yaml")]
    visible = [file for file in files if not file.name.startswith(".")]
    meant = path.with_suffix("") / "rollout.yaml"
    by_stem = {file.stem: file for file in visible if file.parent == path.parent}
    near = difflib.get_close_matches(path.stem, list(by_stem), n=1)
    if meant in visible or near:
        return with_value(path, meant if meant in visible else by_stem[near[0]])
    if visible:
        return (
            f"ls {' '.join(shlex.quote(str(file)) for file in sorted(visible)[:8])}  # the rollout files here"
        )
    folder = path.parent if path.name == "rollout.yaml" else path.with_suffix("")
    write = f"specops init {shlex.quote(str(folder))}"
    if path.name == "rollout.yaml" or str(path) not in sys.argv:
        return write
    return f"{write} && {with_value(path, folder / 'rollout.yaml')}"


def _parse(path: Path, text: str) -> tuple[yaml.Node, dict[str, Any]]:
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(
                f"invalid rollout file {path}: it holds no keys",
                hint=REFERENCE,
            )
        _check_keys(path, root)
        return root, loader.construct_document(root)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-99-99
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigError(
            f"{where}: invalid YAML: {problem}; check indentation and quotes",
            hint=_lines_around(path, mark.line + 1) if mark else REFERENCE,
        ) from None


def _lines_around(path: Path, line: int) -> str:
    return f"sed -n '{max(1, line - 2)},{line + 2}p' {shlex.quote(str(path))}"


def _check_keys(path: Path, root: yaml.Node) -> None:
    """Refuse a key given twice, of which YAML would silently take the last, and a key that is not a
    string."""
    pending, visited, problems = [root], set(), []
    while pending:
        node = pending.pop()
        if id(node) in visited:  # an alias
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                place = key.start_mark.line + 1, key.start_mark.column + 1
                pending.append(value)
                if not isinstance(key, yaml.ScalarNode):
                    problems.append(Problem(*place, "a key must be plain text: expected key: value"))
                elif key.value in keys:
                    problems.append(Problem(*place, f"the key '{key.value}' is given twice: expected once"))
                else:
                    keys.add(key.value)
    if problems:
        raise _refused(path, problems)


def _explain(path: Path, root: yaml.Node, error: ValidationError) -> ConfigError:
    """Return every error of the model, as a sentence."""
    problems = []
    for detail in error.errors(include_url=False):
        (line, column), keys = _locate(root, detail)
        key = at_place(detail["loc"])
        reported = Problem(line, column, *_describe(".".join(keys) or "the rollout file", detail, key))
        hint = f"specops explain {'.'.join(key.place)}" if key is not None else "specops explain"
        problems.append(replace(reported, hint=hint, correction=_renamed(path, line, detail)))
    return _refused(path, problems)


def _locate(root: yaml.Node, detail: ErrorDetails) -> tuple[tuple[int, int], list[str]]:
    """The line and column of an error, and the keys that lead there as the file has them."""
    parts = list(detail["loc"])
    if detail["type"] == "unknown_key":
        parts.append(detail["ctx"]["key"])
    elif detail["type"] == "union_tag_invalid":
        parts.append(_tag(detail))
    node, mark, keys = root, root.start_mark, []
    for part in parts:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    node, mark = value, key.start_mark
                    keys.append(str(part))
                    break
            # else: not in the file; pydantic names a missing key, or the member of a union
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            mark = node.start_mark
            keys.append(str(part))
    return (mark.line + 1, mark.column + 1), keys


def _one_of(names: Iterable[str]) -> str:
    *head, last = names
    return f"{', '.join(head)} or {last}"


def _about_engines() -> str:
    """Return what each engine is; those that are described alike stand together."""
    groups: dict[str, list[str]] = {}
    for engine in ENGINES.values():
        groups.setdefault(engine.about, []).append(engine.name)
    return "; ".join(f"{', '.join(names)}: {about}" for about, names in groups.items())


_ADVICE = {
    "string_type": "put it in quotes",
    "bool_type": "write true or false, without quotes",
    "int_type": "write digits, without quotes",
    "float_type": "write digits, without quotes",
    "list_type": "write it in brackets, such as [4]",
    "model_type": "write its keys below it, further to the right",
    "model_attributes_type": "write its keys below it, further to the right",
}


def _tag(detail: ErrorDetails) -> str:
    """The key that says which member of a union a mapping is: a pool's engine, an action's kind."""
    return str(detail["ctx"]["discriminator"]).strip("'")


def _nearest(detail: ErrorDetails) -> str | None:
    """Return the known key that is most like an unknown one; None: no key is."""
    return next(iter(difflib.get_close_matches(detail["ctx"]["key"], detail["ctx"]["known"], n=1)), None)


def _inner(detail: ErrorDetails) -> str | None:
    """Return the path of the key of this name in a section within the one that has the unknown key; None:
    there is none."""
    section = tuple(str(part) for part in detail["loc"])
    for key in keys():
        inner = len(key.place) == len(section) + 2 and key.place[: len(section)] == section
        if inner and key.name == detail["ctx"]["key"]:
            return key.path
    return None


def _renamed(path: Path, line: int, detail: ErrorDetails) -> str | None:
    """Return the command that corrects the name of a key; None: no known key is like it, or the section has
    that key already."""
    nearest = _nearest(detail) if detail["type"] == "unknown_key" and _inner(detail) is None else None
    if nearest is None or nearest in detail["input"] or not re.fullmatch(r"\w+", key := detail["ctx"]["key"]):
        return None
    return f"sed -i '{line}s/\\b{key}:/{nearest}:/' {shlex.quote(str(path))}"


def _describe(where: str, detail: ErrorDetails, key: Key | None) -> tuple[str, str | None]:
    if detail["type"] == "unknown_key":
        inner = _inner(detail)
        if inner is not None:
            return f"unknown key '{where}'", f"write it as {inner}"
        nearest = _nearest(detail)
        guess = f"did you mean '{nearest}'? " if nearest else ""
        return f"unknown key '{where}'", f"{guess}known here: {', '.join(detail['ctx']['known'])}"
    if detail["type"] == "missing":
        return f"{where} lacks the key '{detail['loc'][-1]}'", None
    if detail["type"] in ("union_tag_not_found", "union_tag_invalid") and _tag(detail) == "kind":
        fault = f"is '{detail['ctx']['tag']}'" if "tag" in detail["ctx"] else "lacks the key 'kind'"
        return f"{where} {fault}", f"it is {_one_of(KINDS)}"
    if detail["type"] == "union_tag_not_found":
        return f"{where} lacks the key 'engine'", f"it is {_one_of(ENGINES)}"
    if detail["type"] == "union_tag_invalid":
        return f"{where} is '{detail['ctx']['tag']}', and should be {_one_of(ENGINES)}", _about_engines()
    if detail["type"] == "missing_file":
        return f"{where}: {detail['msg']}", "paths are relative to the rollout file"
    if "advice" in detail.get("ctx", {}):  # one of specops's own
        return f"{where}: {detail['msg']}", detail["ctx"]["advice"]
    quantity = key.quantity if key is not None else None
    return f"{where} {problem(detail, quantity)}", _ADVICE.get(detail["type"])


def beside(file: Path, name: str) -> Path:
    """The folder of the rollout file `file` for a rollout called `name`, as an absolute path."""
    return file.resolve().parent / "runs" / name


def run_folder(file: Path, name: str, out: Path | None = None) -> Path:
    """The run folder of the rollout file `file`, whose rollout is called `name`; `out` where that is given.

    The folder depends on the file alone, not on the working directory: every command of one rollout reads
    the same results, and a second guard of it finds the lock of the first. Symbolic links are followed for
    the same reason. The path is relative where the folder lies below the working directory.

    Raises ConfigError where only the working directory has runs/NAME with results in it: they may be of
    another rollout of this name, or of this one, which was moved.
    """
    if out is not None:
        return out
    working_directory = Path.cwd()
    folder = beside(file, name)
    earlier = working_directory / "runs" / name
    if not folder.exists() and earlier.resolve() != folder and any(earlier.glob("*.json")):
        raise ConfigError(
            f"there are no results in {folder}, the run folder of {file}; results of a rollout with this name"
            f" are in {earlier}: move them there if they are of this rollout, else make a new folder",
            hint=f"mkdir -p {shlex.quote(str(folder))}  # for a new rollout",
        )
    return folder.relative_to(working_directory) if folder.is_relative_to(working_directory) else folder
