"""Python sources that start an engine: words for a process (Modal, subprocess), LLMConfig of Ray Serve, and
vLLM's own LLM and EngineArgs.

The source is parsed and never run. Values that it writes down itself are followed through names, lists,
f-strings and joins; any other value stays a variable, such as $MODEL.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from specops.errors import UsageError
from specops.launch.command_files import ray_serve, shell
from specops.launch.command_files.flags_file import words_of_settings
from specops.launch.command_files.form import LOOK, FileForm
from specops.launch.command_files.recognition import mentions_engine, recognised, usual_in
from specops.serving import Command, Files

CLASSES = ("LLM", "EngineArgs", "AsyncEngineArgs")
"""Classes of vLLM whose arguments are its flags."""


def matches(path: Path, text: str) -> bool:
    return path.suffix == ".py"


def commands(text: str, where: str, files: Files) -> Iterator[Command]:
    """Yield what the source starts. Raises UsageError for a source that is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"could not read {where}: it is not Python: {error}", hint=f"head {where}"
        ) from error
    reader = _Reader(where, text, files)
    with suppress(RecursionError):
        reader.block(tree.body)
    yield from reader.commands


class _Reader:
    def __init__(self, where: str, text: str, files: Files) -> None:
        self.where, self.text, self.files = where, text, files
        self.values: dict[str, Any] = {}
        self.commands: list[Command] = []

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                self.values[name] = self.value(node.value)
            case ast.AnnAssign(target=ast.Name(id=name)) if node.value is not None:
                self.values[name] = self.value(node.value)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
                self.values[name] = _sum(self.values.get(name, f"${name}"), self.value(node.value))
            case ast.If():
                self.branch(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                before = dict(self.values)
                arguments = [] if isinstance(node, ast.ClassDef) else [*node.args.args, *node.args.kwonlyargs]
                self.values |= {argument.arg: f"${argument.arg}" for argument in arguments}
                self.block(node.body)
                self.values = before
            case ast.For() | ast.AsyncFor() | ast.While():
                self.branch(node)
            case ast.With() | ast.AsyncWith():
                self.block(node.body)
            case ast.Try():
                self.block([*node.body, *node.finalbody])
            case ast.Return() | ast.Expr() if node.value is not None:
                value = self.value(node.value)
                if isinstance(node, ast.Return):
                    self.started(value, node)
        for child in (
            ast.walk(node) if isinstance(node, ast.Assign | ast.Expr | ast.Return | ast.AnnAssign) else ()
        ):
            if isinstance(child, ast.Call):
                self.call(child)

    def branch(self, node: ast.If | ast.For | ast.AsyncFor | ast.While) -> None:
        """Follow what may run. What it adds to a list, or changes, is not known after it."""
        test = self.value(node.test) if isinstance(node, ast.If) else None
        if isinstance(test, bool):
            assert isinstance(node, ast.If)
            self.block(node.body if test else node.orelse)
            return
        before = {name: list(v) if isinstance(v, list) else v for name, v in self.values.items()}
        ends = []
        for body in (node.body, node.orelse):
            self.values = {name: list(v) if isinstance(v, list) else v for name, v in before.items()}
            self.block(body)
            ends.append(self.values)
        for name in {name for end in ends for name in end}:
            values = [end.get(name) for end in ends]
            if values[0] != values[1]:
                start = before.get(name)
                longer = isinstance(start, list) and all(
                    v[: len(start)] == start for v in values if v is not None
                )
                self.values[name] = [*start, f"${name}"] if longer and isinstance(start, list) else f"${name}"

    def call(self, node: ast.Call) -> None:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            held = self.values.get(function.value.id)
            if isinstance(held, list) and name in ("append", "extend") and node.args:
                value = self.value(node.args[0])
                added = value if name == "extend" and isinstance(value, list) else [value]
                self.values[function.value.id] = [*held, *added]
                return
        keywords = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        if name == "LLMConfig":
            self.commands += list(ray_serve.configured(keywords, f"{self.where}, line {node.lineno}"))
        elif name in CLASSES and usual_in("Ray")[0] in self.text and (node.args or "model" in keywords):
            engine, called = usual_in("Ray")
            target = [str(self.value(node.args[0]))] if node.args else [str(keywords.pop("model"))]
            words = (*called, *target, *words_of_settings(keywords))
            self.add(Command(f"{self.where}, line {node.lineno}", engine, words, files=self.files))
        else:
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                self.started(self.value(argument), node)

    def started(self, value: Any, node: ast.AST) -> None:
        """Take a list of words, or a text, for the command of a process."""
        place = f"{self.where}, line {getattr(node, 'lineno', 1)}"
        if isinstance(value, list) and value and all(isinstance(word, str | int | float) for word in value):
            command = recognised([str(word) for word in value], place, files=self.files)
            if command is not None:
                self.add(command)
        elif isinstance(value, str) and mentions_engine(value):
            with suppress(UsageError):
                for command in shell.commands(value, self.where, files=self.files):
                    self.add(command)

    def add(self, command: Command) -> None:
        listed = {entry.words for entry in self.commands}
        if command.words not in listed:
            self.commands.append(
                Command(command.where, command.engine, command.words, command.version, files=self.files)
            )

    def value(self, node: ast.expr) -> Any:
        """Return a value that the source writes down; a text with $NAME for what it does not."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name):
                return self.values.get(name, f"${name}")
            case ast.List() | ast.Tuple():
                return [part for element in node.elts for part in self.elements(element)]
            case ast.Dict():
                return {
                    str(self.value(key)): self.value(value)
                    for key, value in zip(node.keys, node.values, strict=True)
                    if key is not None
                }
            case ast.JoinedStr():
                return "".join(str(self.value(part)) for part in node.values)
            case ast.FormattedValue():
                return self.value(node.value)
            case ast.BinOp(op=ast.Add()):
                return _sum(self.value(node.left), self.value(node.right))
            case ast.IfExp():
                test = self.value(node.test)
                if isinstance(test, bool):
                    return self.value(node.body if test else node.orelse)
            case ast.Call():
                return self.returned(node)
        return f"${_name(node)}"

    def elements(self, node: ast.expr) -> list[Any]:
        if isinstance(node, ast.Starred):
            value = self.value(node.value)
            return value if isinstance(value, list) else [value]
        return [self.value(node)]

    def returned(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        values = [self.value(argument) for argument in node.args]
        if name == "dict":
            return {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        if name == "str" and len(values) == 1:
            return str(values[0])
        if name == "json.dumps" and values:
            return json.dumps(values[0], default=str)
        if name in ("os.environ.get", "os.getenv") and values:
            return values[1] if len(values) > 1 else f"${values[0]}"
        if name == "shlex.split" and values and isinstance(values[0], str):
            return values[0].split()
        if isinstance(node.func, ast.Attribute) and node.func.attr == "join" and isinstance(values[:1], list):
            parts, glue = values[0] if values else None, self.value(node.func.value)
            if isinstance(parts, list) and isinstance(glue, str):
                return glue.join(str(part) for part in parts)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("strip", "dedent", "copy"):
            return self.value(node.func.value) if not values else values[0]
        return f"${_name(node.func)}"


def _sum(left: Any, right: Any) -> Any:
    if isinstance(left, list) or isinstance(right, list):
        parts = [part if isinstance(part, list) else [part] for part in (left, right)]
        return [*parts[0], *parts[1]]
    return f"{left}{right}" if isinstance(left, str) or isinstance(right, str) else left


def _name(node: ast.AST) -> str:
    return re.sub(r"\W+", "_", ast.unparse(node))[:40].strip("_") or "VALUE"


FORM = FileForm("a Python source", matches, commands, LOOK)
