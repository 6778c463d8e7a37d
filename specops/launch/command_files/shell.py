"""Commands in a shell script, with the values that the script gives to variables, arrays and arguments.

tree-sitter's grammar of bash reads the script; here its tree is followed without running anything. What a
branch or a loop assigns is not known after it, since it may not run; a value that comes from outside, or from
a command, stays a variable: $MODEL. A function is followed where it is called, with the call's arguments.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from specops.errors import UsageError
from specops.launch.command_files.recognition import SHELLS, engine_of_image, inner_script, recognised
from specops.serving import Command, Files, Unknown, is_unknown, runs_containers

PREFIXES = ("exec", "nohup", "sudo", "time", "command", "!")
"""Words that a command may begin with, and that say nothing of it."""
# fmt: off
NOT_STARTING = frozenset((
    "echo", "printf", "which", "type", "hash", "pkill", "pgrep", "killall", "kill", "systemctl",
    "journalctl", "ls", "cp", "mv", "ln", "rm", "chmod", "chown", "install", "cat", "grep", "sed",
    "awk", "tail", "head", "tee", "curl", "wget", "apt", "apt-get", "dnf", "yum", "brew", "pip",
    "pip3", "git", "cmake", "make", "test", "[", "cd", "mkdir", "scp", "rsync", "hf",
    "huggingface-cli",
))
# fmt: on
"""Programs that may name an engine, and start none."""
STARTING = ("run", "exec", "create")
"""Subcommands of docker and its like that start something."""
CARRIERS = ("ssh", "tmux", "screen", "su", "sbatch", "script")
"""Programs that pass a quoted command on to a shell."""
SETUP = re.compile(
    r"(^|/)(activate|\.?bashrc|\.?bash_profile|\.?profile|conda\.sh|mamba\.sh|nvm\.sh|modules?\.sh|setvars\.sh"
    r"|module|bash|functions)$"
)
"""Included files that set up a shell: an environment of Python, modules of a cluster."""
FILTER = re.compile(r"""(\{\{[^{}|"'\n]*)\|[^{}\n]*(?=\}\})""")
"""{{ name | filter }} of a template of Go or Jinja. What a filter makes of the value is not known."""
PLACEHOLDER = re.compile(rb"<[A-Za-z][\w./-]*>(?=\s|$)")
"""<model-path>, as guides have it where a reader writes a word; bash would read a file and write another."""
SCRIPT_FOLDER = re.compile(r"\bdirname\b.*(\$0|\$\{?0|BASH_SOURCE)")
CALLS = 20
"""Levels of functions that call each other."""
Value = str | list[str] | None
"""The value of a variable: a text, an array, or None: not known."""

_OPERATORS = (":-", "-", ":=", "=", ":+", "+", ":?", "?")
_LITERAL = ("word", "number", "regex", "extglob_pattern", "variable_name", "brace_expression")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


@functools.cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def commands(
    text: str,
    where: str,
    *,
    values: Mapping[str, Value] | None = None,
    image: str | None = None,
    environment: Mapping[str, str] | None = None,
    files: Files | None = None,
) -> Iterator[Command]:
    """Yield the commands of a script. `values`: variables that are known before the script. `image`: of the
    container that it runs in.

    Raises UsageError for a quote or a bracket that is not closed.
    """
    source = _normalised(text)
    root = _parser().parse(source).root_node
    _refuse_unclosed(root, where)
    reader = _Reader(where, dict(values or {}), image, dict(environment or {}), files or Files())
    try:
        yield from reader.script(root, source)
    except RecursionError as error:
        raise UsageError(
            f"could not read {where}: its brackets are nested too deep", hint=f"head {shlex.quote(where)}"
        ) from error


def _normalised(text: str) -> bytes:
    """Return the script as its author means it: pasted text has spaces behind a backslash, guides have
    <placeholders>, templates have spaces and filters inside {{ … }}."""
    text = re.sub(r"\\[ \t]*\r?\n", "\\\n", text).replace("\r\n", "\n")
    text = re.sub(
        r"\{\{[^{}\n]*\}\}", lambda match: re.sub(r"\s+", "", match[0]), FILTER.sub(r"\1", text)
    ).replace("\\}}", "}}")
    source = text.encode(errors="surrogateescape")
    redirects = _nodes(_parser().parse(source).root_node, "file_redirect")
    starts = {node.start_byte for node in redirects if PLACEHOLDER.match(source, node.start_byte)}
    for start in sorted(starts, reverse=True):
        end = source.index(b">", start) + 1
        source = b"%s'%s'%s" % (source[:start], source[start:end], source[end:])
    return source


def _refuse_unclosed(root: Node, where: str) -> None:
    for node in _nodes(root, "ERROR", missing=True) if root.has_error else ():
        text = (node.text or b"").decode(errors="replace")
        quote = text.count("'") % 2 or re.sub(r"\\.", "", text).count('"') % 2
        if (node.is_missing and node.type in ('"', ")", "}")) or quote:
            problem = "no closing quotation" if quote or node.type == '"' else f"no closing {node.type}"
            line = node.start_point.row + 1
            hint = f"sed -n {line}p {shlex.quote(where)}"
            raise UsageError(f"could not read {where}, line {line}: {problem}", hint=hint)


def _nodes(root: Node, kind: str, *, missing: bool = False) -> Iterator[Node]:
    """Yield the nodes of a kind below `root`, and with `missing` those that the grammar had to make up."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == kind or (missing and node.is_missing):
            yield node
        waiting += node.children


class _Reader:
    def __init__(
        self,
        where: str,
        values: dict[str, Value],
        image: str | None,
        environment: dict[str, str],
        files: Files,
    ) -> None:
        self.where, self.values, self.image = where, values, image
        self.environment, self.files = environment, files
        self.source = b""
        self.exported: set[str] = set()
        self.functions: dict[str, Node] = {}
        self.called: set[str] = set()
        self.calls = 0
        self.unread: list[Unknown] = []

    def script(self, root: Node, source: bytes) -> Iterator[Command]:
        before, self.source = self.source, source
        for node in _nodes(root, "", missing=True) if root.has_error else ():  # such as an if without fi
            self.not_bash(node)
        for node in _nodes(root, "command"):
            if self.raw(node).startswith("--") and self.image is None:
                line = node.start_point.row + 1
                reason = "it begins with a flag and is a command of its own: a comment or a blank cut it off"
                self.unread.append(
                    Unknown(f"line {line}", reason, f"sed -n {line}p {shlex.quote(self.where)}")
                )
        yield from self.statements(root)
        for name, body in list(self.functions.items()):
            if name not in self.called:  # nobody here calls it: its arguments are not known
                self.called.add(name)
                yield from self.function(body, None)
        self.source = before

    # Statements

    def statements(self, node: Node) -> Iterator[Command]:
        for child in node.named_children:
            yield from self.statement(child)

    def statement(self, node: Node) -> Iterator[Command]:
        match node.type:
            case "command":
                yield from self.command(node, [], [])
            case "redirected_statement":
                yield from self.redirected(node)
            case "variable_assignment":
                self.assign(node)
                yield from self.substitutions(node)
            case "variable_assignments":
                yield from self.statements(node)
            case "declaration_command":
                self.declare(node)
                yield from self.substitutions(node)
            case "if_statement" | "case_statement":
                yield from self.branches(node)
            case "while_statement" | "for_statement" | "c_style_for_statement":
                yield from self.loop(node)
            case "function_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                if name is not None and body is not None:
                    self.functions[self.raw(name)] = body
            case "subshell":
                before = dict(self.values)
                yield from self.statements(node)
                self.values = before
            case "ERROR":
                self.not_bash(node)
                yield from self.statements(node)
            case "program" | "list" | "pipeline" | "compound_statement" | "negated_command" | "do_group":
                yield from self.statements(node)

    def not_bash(self, node: Node) -> None:
        line, how = node.start_point.row + 1, f"bash -n {shlex.quote(self.where)}"
        self.unread.append(Unknown(f"line {line}", "it is not bash that could be read", how))

    def branches(self, node: Node) -> Iterator[Command]:
        """Follow each branch from the values before it. A value is known after them if all leave the same."""
        kinds = ("elif_clause", "else_clause", "case_item")
        branches = [child for child in node.named_children if child.type in kinds]
        first = [child for child in node.named_children if child.type not in kinds]
        before, ends = dict(self.values), []
        for branch in (first, *((branch,) for branch in branches)):
            self.values = dict(before)
            for child in branch:
                yield from self.statements(child) if child.type in kinds else self.statement(child)
            ends.append(self.values)
        covered = node.type == "if_statement" and any(child.type == "else_clause" for child in branches)
        self.merge(before, ends if covered else [*ends, before])

    def loop(self, node: Node) -> Iterator[Command]:
        before = dict(self.values)
        variable = node.child_by_field_name("variable")
        if variable is not None:
            self.values[self.raw(variable)] = None
        yield from self.statements(node)
        self.merge(before, [self.values, before])

    def merge(self, before: dict[str, Value], ends: list[dict[str, Value]]) -> None:
        merged = {}
        for name in {name for end in ends for name in end}:
            values = [end.get(name, "") for end in ends]
            same = all(value == values[0] for value in values) and all(name in end for end in ends)
            merged[name] = values[0] if same else _perhaps(name, before.get(name), values)
        self.values = merged

    def function(self, body: Node, arguments: Value) -> Iterator[Command]:
        if self.calls >= CALLS:
            return
        outer, self.calls = self.values.get("@"), self.calls + 1
        self.values["@"] = arguments
        yield from self.statement(body)
        self.values["@"], self.calls = outer, self.calls - 1

    # Commands

    def redirected(self, node: Node) -> Iterator[Command]:
        """Yield the commands of a statement with redirections, and of its here documents."""
        body = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if child != body]
        documents = [child for child in redirects if child.type == "heredoc_redirect"]
        inner = [child for document in documents for child in document.named_children]
        words: list[Node] = []
        targets: list[str] = []
        for redirect in [*redirects, *inner]:
            if redirect.type == "file_redirect":  # the grammar takes words behind a target into it
                parts = [part for part in redirect.named_children if part.type != "file_descriptor"]
                writes = self.raw(redirect).lstrip("0123456789&").startswith(">")
                targets += ["".join(self.fields(parts[0]))] if parts and writes else []
                words += parts[1:]
            elif redirect.type not in ("heredoc_redirect", "herestring_redirect", "heredoc_body"):
                if redirect in inner and redirect.type in ("pipeline", "list"):
                    yield from self.statement(redirect)
                elif redirect in inner and redirect.type not in ("heredoc_start", "heredoc_end"):
                    words.append(redirect)
        texts = [text for document in documents for text in self.here_text(document)]
        if body is None:
            return
        if body.type == "command":
            yield from self.command(body, words, texts, targets)
        else:
            yield from self.statement(body)

    def command(
        self, node: Node, behind: Sequence[Node], texts: Sequence[str], targets: Sequence[str] = ()
    ) -> Iterator[Command]:
        """Yield what a simple command starts. `behind`: words after its redirections; `texts`: of its here
        documents; `targets`: the files that its output goes to."""
        words: list[str] = []
        for child in (*node.named_children, *behind):
            if child.type == "variable_assignment":
                words.append(self.assignment_word(child))
            elif child.type == "command_name":
                words += [field for part in child.children for field in self.fields(part)]
            elif child.type == "ERROR":
                words += self.raw(child).split()
            elif child.type not in ("herestring_redirect", "file_redirect", "comment"):
                words += self.fields(child)
        yield from self.substitutions(node)
        while words and words[0] in PREFIXES:
            words.pop(0)
        place = f"{self.where}, line {node.start_point.row + 1}"
        if not words:
            return
        yield from self.here_documents(words, texts, targets, place)
        program = words[0].rsplit("/", 1)[-1]
        if program in NOT_STARTING or (words[0].startswith("-") and self.image is None):
            return
        if runs_containers(words[0]) and not any(word in STARTING for word in words[1:4]):
            return
        if program == "set" and "--" in words:
            self.values["@"] = words[words.index("--") + 1 :]
        elif program == "shift" and isinstance(arguments := self.values.get("@"), list):
            count = int(words[1]) if words[1:] and words[1].isdigit() else 1
            self.values["@"] = arguments[count:]
        elif program in ("source", ".") and words[1:]:
            yield from self.included(words[1])
        elif program in self.functions:
            self.called.add(program)
            unknown = any(word in ("$@", "$*") for word in words[1:])
            yield from self.function(self.functions[program], None if unknown else words[1:])
        elif program == "eval":
            yield from self.inside(" ".join(words[1:]), place, self.image)
        elif words[0].endswith((".sh", ".bash")) and (text := self.files.text(words[0])) is not None:
            yield from self.inside(text, place, None, variables={**self.exports(), "@": words[1:]})
        elif (script := inner_script(words)) is not None:
            image = next((word for word in words if engine_of_image(word) is not None), self.image)
            yield from self.inside(script, place, image)
        else:
            yield from self.started(words, place, broken=node.has_error)

    def started(self, words: list[str], place: str, *, broken: bool) -> Iterator[Command]:
        contained = self.image is None and any(engine_of_image(word) is not None for word in words)
        around = {} if contained else self.environment | self.exports()
        if words[0].rsplit("/", 1)[-1] in CARRIERS:
            for word in (
                word.partition("=")[2] if word.startswith("--wrap=") else word for word in words[1:]
            ):
                if " " in word:
                    yield from self.inside(word, place, self.image)
        command = recognised(words, place, environment=around, files=self.files)
        if command is None and self.image is not None and words[0].startswith("-"):
            command = recognised(words, place, image=self.image, environment=around, files=self.files)
        if command is None:
            return
        if command.version is None and self.image is not None:
            tag = engine_of_image(self.image)
            command = replace(command, version=tag[1] if tag else None)
        unread = list(self.unread)
        if broken:
            how = f"bash -n {shlex.quote(self.where)}"
            unread.append(Unknown(place, "its words are not bash that could be read", how))
        yield replace(command, unread=(*command.unread, *unread))

    def inside(
        self, text: str, place: str, image: str | None, variables: Mapping[str, Value] | None = None
    ) -> Iterator[Command]:
        """Yield the commands of a script in this one. `variables`: the variables that it has, by default
        all."""
        around, values = self.environment | self.exports(), self.values if variables is None else variables
        for command in commands(
            text, place, values=values, image=image, environment=around, files=self.files
        ):
            yield replace(command, where=place, unread=(*command.unread, *self.unread))

    def exports(self) -> dict[str, str]:
        values = {name: self.values.get(name) for name in sorted(self.exported)}
        return {
            name: value if isinstance(value, str) else f"${name}"
            for name, value in values.items()
            if isinstance(value, str) or name in self.values
        }

    def included(self, name: str) -> Iterator[Command]:
        """Follow a file that the script includes, with its variables. A shell's own set-up is left out."""
        text = self.files.text(name)
        if text is not None and self.calls < CALLS:
            source = _normalised(text)
            self.calls += 1
            yield from self.script(_parser().parse(source).root_node, source)
            self.calls -= 1
        elif not SETUP.search(name) and not name.startswith("$("):
            reason = (
                "the script includes it, and it is not beside the script: it may set what the command uses"
            )
            self.unread.append(Unknown(name, reason, f"put {name} beside the script, and lint it again"))

    def substitutions(self, node: Node) -> Iterator[Command]:
        for child in node.named_children:
            if child.type in ("command_substitution", "process_substitution"):
                before = dict(self.values)
                yield from self.statements(child)
                self.values = before
            elif child.type not in ("command", "redirected_statement"):
                yield from self.substitutions(child)

    # Here documents

    def here_text(self, node: Node) -> Iterator[str]:
        body = next((child for child in node.named_children if child.type == "heredoc_body"), None)
        start = next((child for child in node.named_children if child.type == "heredoc_start"), None)
        if body is None or start is None:
            return
        first = self.source.rfind(b"\n", 0, body.start_byte) + 1  # the grammar leaves out the first indent
        if re.search(r"[\"'\\]", self.raw(start)):
            text = self.source[first : body.end_byte].decode(errors="replace")
        else:
            text = self.joined(body.children, first, body.end_byte)
        if self.raw(node).lstrip("0123456789").startswith("<<-"):
            text = re.sub(r"(?m)^\t+", "", text)
        yield text

    def here_documents(
        self, words: Sequence[str], texts: Sequence[str], targets: Sequence[str], place: str
    ) -> Iterator[Command]:
        """Yield what a here document gives to a shell, or writes into a file that a reader knows."""
        from specops.launch.command_files import forms

        if any(word.rsplit("/", 1)[-1] == "tee" for word in words[:2]):
            targets = [*targets, *(word for word in words[1:] if word != "tee" and not word.startswith("-"))]
        for text in texts:
            for name in targets:
                self.files = self.files.with_texts({name: text})
            if any(word.rsplit("/", 1)[-1] in SHELLS for word in words):
                yield from self.inside(text, place, None, variables=self.exports())
            elif "apply" in words[:3]:
                yield from forms.held_commands("manifest.yaml", text, place, self.files)
            elif targets and targets[0].endswith((".sh", ".bash")):
                # The script runs alone, with the exported variables.
                yield from self.inside(text, place, None, variables=self.exports())
            elif targets:
                yield from forms.held_commands(targets[0], text, place, self.files)

    # Assignments

    def declare(self, node: Node) -> None:
        words = [self.raw(child) for child in node.children]
        exports = words[:1] == ["export"] or any(re.fullmatch(r"-\w*x\w*", word) for word in words[1:])
        for child in node.named_children:
            name = self.assign(child) if child.type == "variable_assignment" else self.raw(child)
            if exports and child.type in ("variable_assignment", "variable_name"):
                self.exported.add(name)
                self.values.setdefault(name, None)

    def assign(self, node: Node) -> str:
        """Store the value of NAME=VALUE, NAME=(…) or NAME+=… and return the name."""
        target, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = self.raw(target) if target is not None else ""
        value: Value = ""
        if value_node is not None and value_node.type == "array":
            parts = [child for child in value_node.named_children if child.type != "comment"]
            value = [field for child in parts for field in self.fields(child)]
        elif value_node is not None:
            value = self.joined([value_node], value_node.start_byte, value_node.end_byte, quoted=False)
        if any(child.type == "+=" for child in node.children):
            value = _added(self.values.get(name, ""), value)
        if "[" in name:  # NAME[KEY]=VALUE: which entry it is may not be known
            name, value = name.partition("[")[0], None
        self.values[name] = value
        return name

    def assignment_word(self, node: Node) -> str:
        """Return NAME=VALUE before a command, with its value filled in."""
        value = node.child_by_field_name("value")
        start = value.start_byte if value is not None else node.end_byte
        text = self.joined([value] if value is not None else [], start, node.end_byte, quoted=False)
        return self.source[node.start_byte : start].decode(errors="replace") + text

    # Words

    def raw(self, node: Node) -> str:
        return (node.text or b"").decode(errors="replace")

    def fields(self, node: Node) -> list[str]:
        """Return the words that a node becomes: none, one, or as many as an array has."""
        fields, exists = [""], False
        for values, quoted in self.pieces(node, quoted=False):
            exists = exists or quoted or any(values)
            if not values and not any(fields):  # an empty array adds no word
                exists = False
            fields[-1] += "".join(values[:1])
            fields += values[1:]
        return fields if exists else []

    def joined(self, nodes: Sequence[Node], start: int, end: int, *, quoted: bool = True) -> str:
        """Return one text, not split at spaces, of the source from `start` to `end`, where `nodes` stand."""
        return "".join(
            " ".join(values) for values, _ in self.spread(nodes, start, end, quoted=True, plain=quoted)
        )

    def spread(
        self, nodes: Sequence[Node], start: int, end: int, *, quoted: bool, plain: bool
    ) -> Iterator[tuple[list[str], bool]]:
        """Yield the pieces of the nodes and of the source between them, which the grammar leaves out."""
        for node in (*nodes, None):
            between = self.source[start : end if node is None else node.start_byte].decode(errors="replace")
            if between:
                yield [_unescaped(between, quoted=plain)], quoted
            if node is not None:
                yield from self.pieces(node, quoted=quoted, plain=plain)
                start = node.end_byte

    def pieces(self, node: Node, *, quoted: bool, plain: bool = False) -> Iterator[tuple[list[str], bool]]:
        """Yield the values of a word's parts, and whether each is quoted. `plain`: the part is inside double
        quotes or a here document, where a single quote is a character like others."""
        match node.type:
            case "string":
                inner = [child for child in node.children if child.type != '"']
                offset = 2 if self.raw(node).startswith('$"') else 1
                yield [""], True  # "" is a word, too
                yield from self.spread(
                    inner, node.start_byte + offset, node.end_byte - 1, quoted=True, plain=True
                )
            case "raw_string":
                yield [self.raw(node)[1:-1]], True
            case "ansi_c_string":
                text = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), self.raw(node)[2:-1])
                yield [text], True
            case "concatenation" | "translated_string":
                yield from self.spread(
                    node.children, node.start_byte, node.end_byte, quoted=quoted, plain=plain
                )
            case "simple_expansion":
                text = self.raw(node)
                blank = text[: text.index("$")]  # the grammar takes blanks before it into it
                if blank:
                    yield [blank], quoted
                yield self.variable(text.strip(), self.lookup(text.strip()[1:]), quoted), quoted
            case "expansion":
                yield self.variable(self.raw(node).strip(), self.expanded(node), quoted), quoted
            case "command_substitution":
                output, raw = self.substituted(node), self.raw(node)
                if output is not None:
                    yield self.variable(raw, output, quoted), quoted
                else:
                    yield [re.sub(r"^`(.*)`$", r"$(\1)", raw, flags=re.DOTALL)], quoted
            case _ if node.type in _LITERAL or not node.named_children:
                yield [_unescaped(self.raw(node), quoted=plain)], quoted
            case _:
                yield [self.raw(node)], quoted

    def variable(self, text: str, value: Value, quoted: bool) -> list[str]:
        """Return the words of a variable that stands as `text`; the text itself where it is not known."""
        if value is None:
            return [re.sub(r"^\$\{(\w+)\}$", r"$\1", text)]
        if isinstance(value, list):
            return (
                [" ".join(value)]
                if quoted and not text.rstrip("}").endswith("@") and "[@]" not in text
                else value
            )
        return [value] if quoted else value.split() or [""]

    def lookup(self, name: str) -> Value:
        if name == "*":
            name = "@"
        arguments = self.values.get("@")
        if name.isdigit() and name != "0":
            index = int(name) - 1
            return (
                (arguments[index] if index < len(arguments) else "") if isinstance(arguments, list) else None
            )
        value = self.values.get(name)
        if isinstance(value, list) and name != "@":
            return value[0] if value else ""  # $NAME is the first of an array
        return value

    def expanded(self, node: Node) -> Value:
        """Return the value of ${…}; None: it is not known."""
        inner = node.children[1:-1]
        if not inner or inner[0].type not in ("variable_name", "subscript", "special_variable_name"):
            return None
        name, _, index = self.raw(inner[0]).rstrip("]").partition("[")
        defined, value = name in self.values, self.values.get(name)
        if name.isdigit() or name in ("@", "*"):
            value = self.lookup(name)
            defined = value is not None
        elif index.isdigit() and isinstance(value, list):
            value = value[int(index)] if int(index) < len(value) else ""
        elif index not in ("@", "*") and isinstance(value, list):
            value = (value[0] if value else "") if not index else None
        operator = inner[1].type if len(inner) > 1 else None
        if operator is None:
            return value
        if operator not in _OPERATORS:
            return None
        start, end = inner[1].end_byte, node.children[-1].start_byte
        default = functools.partial(self.joined, inner[2:], start, end, quoted=False)
        if "+" in operator:
            return default() if value else None
        if operator in (":-", "-", ":=", "=") and (not defined or value in ("", [])):
            return default()
        return value

    def substituted(self, node: Node) -> str | None:
        """Return the output of a command that only prints: a here document, echo, the script's folder."""
        if SCRIPT_FOLDER.search(self.raw(node)):
            return "."
        statements = [child for child in node.named_children if child.type != "comment"]
        if len(statements) != 1:
            return None
        (statement,) = statements
        if statement.type == "redirected_statement" and self.raw(statement).startswith("cat <<"):
            documents = [child for child in statement.named_children if child.type == "heredoc_redirect"]
            return "".join(text for child in documents for text in self.here_text(child)).rstrip("\n")
        if statement.type == "command":
            words = [field for child in statement.named_children for field in self.fields(child)]
            words = words or [""]
            if words[0] == "cat" and len(words) == 2:
                text = self.files.text(words[1])
                return None if text is None else text.rstrip("\n")
            if words[0] == "echo" or words[:2] == ["printf", "%s"]:
                text = " ".join(words[1:] if words[0] == "echo" else words[2:])
                return None if is_unknown(text) else text
        return None


def _perhaps(name: str, before: Value, values: Sequence[Value]) -> Value:
    """Return what is known of a value that a branch may have changed: what a branch adds to an array, or to a
    text, is one word that is not known."""
    if isinstance(before, list) and all(isinstance(v, list) and v[: len(before)] == before for v in values):
        return [*before, f"${{{name}[@]}}"]
    texts = [value for value in values if isinstance(value, str)]
    if isinstance(before, str) and before and len(texts) == len(values):
        perhaps = f" ${{{name}}}"
        if all(text == before or text.startswith(f"{before} ") for text in texts):
            return before if before.endswith(perhaps) else before + perhaps
    return None


def _added(before: Value, value: Value) -> Value:
    if before is None or value is None:
        return None
    if isinstance(before, list):
        return [*before, *(value if isinstance(value, list) else [value])]
    return (
        [before, *value]
        if isinstance(value, list) and before
        else value
        if isinstance(value, list)
        else before + value
    )


def _unescaped(text: str, *, quoted: bool) -> str:
    if quoted:
        return re.sub(r"\\(\n|[\"\\$`])", lambda match: match[1].strip("\n"), text)
    return re.sub(r"\\(\n|.)", lambda match: match[1].strip("\n"), text)
