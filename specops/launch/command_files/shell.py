"""Commands in a shell script, with the values that the script itself gives to variables and arrays.

Read as bash reads it, as far as that needs no running: quotes, continued lines, here documents, assignments,
${NAME:-default}, arrays and +=. What a branch, a loop or a function assigns is not known after it, since it
may not run; a value that comes from outside, or from a command, stays a variable: $MODEL.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from specops.errors import UsageError
from specops.launch.command_files.recognition import SHELLS, engine_of_image, inner_script, recognised
from specops.serving import Command

BEFORE = ("exec", "nohup", "sudo", "time", "command", "then", "do", "!")
"""Words that a command may begin with, and that say nothing of it."""
SAYING = ("echo", "printf")
DECLARING = ("export", "declare", "local", "readonly", "typeset")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
PLACEHOLDER = re.compile(r"<[A-Za-z][\w./-]*>(?=\s|$)")
"""<model-path>, as guides have it where a reader writes a word; bash would read a file and write another."""
PAIRS = {"(": ")", "{": "}", '"': '"'}
DEEPEST = 100
"""Levels of $(…), ${…} and quotes within each other that are read."""
Value = str | list[str] | None
"""The value of a variable: a text, an array, or None: not known."""


@dataclass
class Part:
    """A piece of a word. `quoted`: it is not split at spaces."""

    kind: Literal["text", "variable", "other"]
    """A variable is NAME or what stands in ${…}; other is a command whose output is not known."""

    text: str
    quoted: bool


@dataclass
class Word:
    parts: list[Part] = field(default_factory=list)
    array: list[Word] | None = None
    """The words of NAME=(…)."""

    @property
    def plain(self) -> str | None:
        """The word's text where nothing in it is quoted or filled in; None otherwise."""
        if self.array is not None or any(p.kind != "text" or p.quoted for p in self.parts):
            return None
        return "".join(part.text for part in self.parts)


@dataclass
class HereDocument:
    """A here document: what follows <<, up to its delimiter. `filled`: variables in it are filled in."""

    text: str
    filled: bool


@dataclass
class Simple:
    """A command up to an operator; `line` is its first."""

    line: int
    words: list[Word] = field(default_factory=list)
    target: Word | None = None
    """The target of > and >>."""

    here: list[HereDocument] = field(default_factory=list)
    waits: bool = False
    """Whether it has a here document, whose text follows."""

    after: str = ""
    """The operator before it."""

    pattern: bool = False
    """Whether it is a pattern of `case`, and no command."""


def commands(
    text: str,
    where: str,
    *,
    given: Mapping[str, Value] | None = None,
    image: str | None = None,
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> Iterator[Command]:
    """Yield the commands of a script. `given`: variables that are known before the script. `image`: of the
    container that it runs in.

    Raises UsageError for a quote that is not closed.
    """
    reader = _Reader(where, dict(given or {}), image, dict(environment or {}), dict(files or {}))
    for simple in _simple_commands(text, where):
        yield from reader.read(simple)


# Words


class _Lexer:
    def __init__(self, text: str, where: str) -> None:
        self.text, self.where, self.at, self.line = text, where, 0, 1
        self.waiting: list[tuple[Simple, str, bool, bool]] = []
        """Here documents whose text follows the line: command, delimiter, filled, with tabs removed."""

    def refuse(self, line: int, what: str) -> UsageError:
        hint = f"sed -n {line}p {shlex.quote(self.where)}"
        return UsageError(f"could not read {self.where}, line {line}: {what}", hint=hint)

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def word(self) -> Word:
        """Read a word: from here to a space or an operator."""
        word, first = Word(), self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|()<>":
                if char == "(" and self._assigns(first):
                    self.at += 1
                    word.array = self._array()
                    continue
                break
            self._piece(word.parts, quoted=False)
        return word

    def _assigns(self, first: int) -> bool:
        return ASSIGNMENT.fullmatch(self.text[first : self.at]) is not None

    def _array(self) -> list[Word]:
        words: list[Word] = []
        opened = self.line
        while True:
            self.blank(newlines=True)
            if self.at >= len(self.text):
                raise self.refuse(opened, "no closing parenthesis")
            if self.peek() == ")":
                self.at += 1
                return words
            before = self.at
            words.append(self.word())
            if self.at == before:  # an operator, which no array has
                self.at += 1

    def blank(self, *, newlines: bool = False) -> None:
        """Past spaces, comments and joined lines."""
        while self.at < len(self.text):
            joined = re.compile(r"\\[ \t\r]*\n").match(self.text, self.at)
            if joined is not None:  # also with spaces behind it, as text that was pasted has
                self.at, self.line = joined.end(), self.line + 1
            elif self.peek() in " \t\r" or (newlines and self.peek() == "\n"):
                self.line += self.peek() == "\n"
                self.at += 1
            elif self.peek() == "#":
                while self.at < len(self.text) and self.peek() != "\n":
                    self.at += 1
            else:
                return

    def _piece(self, parts: list[Part], *, quoted: bool) -> None:
        char = self.text[self.at]
        if char == "\\":
            self._escaped(parts, quoted)
        elif char == "'" and not quoted:
            parts.append(Part("text", self._until("'", "no closing quotation"), quoted=True))
        elif char == '"' and not quoted:
            self._double(parts)
        elif char == "`":
            parts.append(Part("other", f"`{self._until('`', 'no closing backquote')}`", quoted))
        elif char == "$" and self.peek(2) == "$'" and not quoted:
            self.at += 1
            parts.append(Part("text", self._until("'", "no closing quotation"), quoted=True))
        elif char == "$":
            self._variable(parts, quoted)
        else:
            self.line += char == "\n"
            self.at += 1
            self._add(parts, char, quoted)

    def _add(self, parts: list[Part], text: str, quoted: bool) -> None:
        if parts and parts[-1].kind == "text" and parts[-1].quoted == quoted:
            parts[-1].text += text
        else:
            parts.append(Part("text", text, quoted))

    def _escaped(self, parts: list[Part], quoted: bool) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 1 + len(following)
        if following == "\n":
            self.line += 1
        elif quoted and following not in ('"', "\\", "$", "`"):
            self._add(parts, "\\" + following, quoted)
        else:
            self._add(parts, following, quoted=True)

    def _until(self, end: str, missing: str) -> str:
        first, line = self.at + 1, self.line
        close = self.text.find(end, first)
        if close < 0:
            raise self.refuse(line, missing)
        self.at = close + 1
        self.line += self.text.count("\n", first, close)
        return self.text[first:close]

    def _double(self, parts: list[Part]) -> None:
        line = self.line
        self.at += 1
        parts.append(Part("text", "", quoted=True))  # "" is a word, too
        while self.peek() != '"':
            if self.at >= len(self.text):
                raise self.refuse(line, "no closing quotation")
            self._piece(parts, quoted=True)
        self.at += 1

    def _variable(self, parts: list[Part], quoted: bool) -> None:
        line = self.line
        if self.peek(2) in ("$(", "${"):
            text = self._balanced(self.at + 1, line, quoted)
            kind: Literal["variable", "other"] = "variable" if text[0] == "{" else "other"
            parts.append(Part(kind, text[1:-1] if kind == "variable" else f"${text}", quoted))
            return
        named = re.compile(r"\$(\w+|[@*#?$!-])").match(self.text, self.at)
        if named is None:
            self.at += 1
            self._add(parts, "$", quoted)
            return
        self.at = named.end()
        parts.append(Part("variable", named[1], quoted))

    def _balanced(self, start: int, line: int, quoted: bool) -> str:
        """Read from ( or { to what closes it."""
        end = self._close(start, quoted)
        if end is None:
            raise self.refuse(line, f"no closing {PAIRS[self.text[start]]}")
        self.at = end + 1
        self.line += self.text.count("\n", start, end)
        return self.text[start : end + 1]

    def _close(self, start: int, quoted: bool, depth: int = 0) -> int | None:
        """Return where what opens at `start` closes: ( of a command, { of a variable, or a double quote.

        As in bash, { alone opens nothing within ${…}, and quotes and comments within $(…) may hold anything.
        `quoted`: it stands in double quotes, where a single quote within ${…} is a character like others.
        """
        text, opened, at = self.text, self.text[start], start + 1
        command, double = opened == "(", opened == '"'
        single = command or not (double or quoted)
        while at < len(text) and depth < DEEPEST:
            char = text[at]
            end: int | None = at
            if char == "\\":
                end = at + 1
            elif char == PAIRS[opened]:
                return at
            elif char == "'" and single:
                end = text.find("'", at + 1)
            elif char == "#" and command and text[at - 1] in " \t\n;":
                end = text.find("\n", at)
            elif char == "$" and text[at + 1 : at + 2] in ("(", "{"):
                end = self._close(at + 1, double or (quoted and not command), depth + 1)
            elif (char == '"' and not double) or (char == "(" and command):
                end = self._close(at, char == '"', depth + 1)
            if end is None or end < 0:
                return None
            at = end + 1
        return None

    def here(self) -> None:
        """The texts that wait, from the line that begins here."""
        for simple, delimiter, filled, tabs in self.waiting:
            lines = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at, self.line = end + 1, self.line + 1
                if (line.lstrip("\t") if tabs else line).rstrip("\r") == delimiter:
                    break
                lines.append(line.lstrip("\t") if tabs else line)
            simple.here.append(HereDocument("\n".join(lines) + "\n", filled))
        self.waiting = []


def _simple_commands(text: str, where: str) -> Iterator[Simple]:
    """Yield the simple commands of a line together: the texts of its here documents follow it."""
    lexer = _Lexer(text, where)
    line: list[Simple] = []
    current = Simple(1)
    opened = 0
    while True:
        lexer.blank()
        if lexer.at >= len(text):
            break
        char = lexer.peek()
        if char == "<" and (placeholder := PLACEHOLDER.match(text, lexer.at)):
            lexer.at = placeholder.end()
            current.words.append(Word([Part("text", placeholder[0], quoted=True)]))
        elif char in "<>" or lexer.peek(2) == "&>":
            _redirection(lexer, current)
        elif char in "\n;&|()":
            found = re.compile(r"\n|&&|\|\||;;&?|;&|\|&|.").match(text, lexer.at)
            assert found is not None
            lexer.at = found.end()
            opened += char == "("
            if char == ")" and not opened:  # nothing that it closes: the end of a pattern, a|b)
                _mark(line, current)
            opened -= char == ")" and opened > 0
            if current.words or current.waits:
                line.append(current)
                current = Simple(lexer.line, after=found[0])
            elif char != "\n":
                current.after = found[0]
            if char == "\n":
                lexer.line += 1
                lexer.here()
                yield from line
                line = []
        else:
            if not current.words:
                current.line = lexer.line
            word = lexer.word()
            number = (word.plain or "").isdigit() and lexer.peek() in ("<", ">")
            if not number:  # 2> is one operator
                current.words.append(word)
    lexer.here()
    yield from [*line, *([current] if current.words or current.waits else [])]


def _mark(line: list[Simple], current: Simple) -> None:
    """`current` as a pattern of `case`, and what is joined to it by |."""
    current.pattern = True
    for before, after in zip(reversed(line), [current, *reversed(line)], strict=False):
        if after.after != "|":
            return
        before.pattern = True


def _redirection(lexer: _Lexer, current: Simple) -> None:
    found = re.compile(r"<<<|<<-?|&>>?|>&|<&|>>|>\||[<>]").match(lexer.text, lexer.at)
    assert found is not None
    lexer.at = found.end()
    lexer.blank()
    word = lexer.word()
    if found[0] in ("<<", "<<-"):
        quoted = any(part.quoted for part in word.parts)
        delimiter = "".join(part.text for part in word.parts)
        lexer.waiting.append((current, delimiter, not quoted, found[0] == "<<-"))
        current.waits = True
    elif found[0] in (">", ">>", ">|"):
        current.target = word


# Values


@dataclass
class _Block:
    """A branch, a loop or a function: the values before it, and the names that it has assigned."""

    before: dict[str, Value]
    changed: set[str] = field(default_factory=set)
    always: bool = False
    """Whether it is a group, which always runs."""


class _Reader:
    def __init__(
        self,
        where: str,
        values: dict[str, Value],
        image: str | None,
        environment: dict[str, str],
        files: dict[str, str],
    ) -> None:
        self.where, self.values, self.image = where, values, image
        self.environment, self.files = environment, files
        self.exported: set[str] = set()
        self.blocks: list[_Block] = []

    def read(self, simple: Simple) -> Iterator[Command]:
        yield from self._here(simple)
        if simple.pattern:
            self._keyword(simple.words[0].plain if simple.words else None, simple)
            return
        words = list(simple.words)
        while words and (self._keyword(words[0].plain, simple) or words[0].plain in BEFORE):
            words.pop(0)
        if not words or self._assigned(words):
            return
        filled = [text for word in words for text in self.fill(word)]
        if not filled or filled[0] in SAYING:
            return
        place = f"{self.where}, line {simple.line}"
        if filled[0] == "eval":
            yield from self._inside(" ".join(filled[1:]), place, self.image)
            return
        inner = inner_script(filled)
        if inner is not None:
            image = next((word for word in filled if engine_of_image(word) is not None), self.image)
            yield from self._inside(inner, place, image)
            return
        yield from self._command(filled, place)

    def _command(self, words: list[str], place: str) -> Iterator[Command]:
        around = {} if self._contained(words) else self.environment | self._exported()
        found = recognised(words, place, environment=around, files=self.files)
        if found is None and self.image is not None and words[0].startswith("-"):
            found = recognised(words, place, image=self.image, environment=around, files=self.files)
        if found is not None:
            if found.version is None and self.image is not None:
                tag = engine_of_image(self.image)
                found = replace(found, version=tag[1] if tag else None)
            yield found

    def _contained(self, words: list[str]) -> bool:
        """A container has the variables that it is given, and not those of the shell."""
        return self.image is None and any(engine_of_image(word) is not None for word in words)

    def _exported(self) -> dict[str, str]:
        values = {name: self.values.get(name) for name in self.exported}
        return {name: value for name, value in values.items() if isinstance(value, str)}

    def _inside(
        self, text: str, place: str, image: str | None, given: Mapping[str, Value] | None = None
    ) -> Iterator[Command]:
        around = self.environment | self._exported()
        known = self.values if given is None else given
        for found in commands(text, place, given=known, image=image, environment=around, files=self.files):
            yield replace(found, where=place)

    def _here(self, simple: Simple) -> Iterator[Command]:
        """Yield what a here document writes into a file, or gives to a shell."""
        from specops.launch.command_files import documents

        for here in simple.here:
            text = self._filled_text(here.text) if here.filled else here.text
            name = "".join(self.fill(simple.target)) if simple.target is not None else ""
            place = f"{self.where}, line {simple.line}"
            first = [word.plain or "" for word in simple.words]
            if name:
                self.files[name] = text
            if name.endswith((".sh", ".bash")) or any(word.rsplit("/", 1)[-1] in SHELLS for word in first):
                # The script runs alone, with the exported variables.
                yield from self._inside(text, place, None, given=self._exported())
            elif name.endswith((".yaml", ".yml")) or "apply" in first:
                yield from documents.of_text(text, place, self.files)

    # Blocks

    def _keyword(self, word: str | None, simple: Simple) -> bool:
        """Return whether `word` is one that groups commands. What it means for the values is done here."""
        if word in ("if", "while", "until", "case", "select"):
            self.blocks.append(_Block(dict(self.values)))
            return True
        if word == "for":
            self.blocks.append(_Block(dict(self.values)))
            if len(simple.words) > 1 and (name := simple.words[1].plain):
                self.values[name] = None
                self.blocks[-1].changed.add(name)
            return False
        if word == "{":
            self.blocks.append(_Block(dict(self.values), always=simple.after != ")"))
            return True
        if word in ("else", "elif"):
            self._leave(last=False)
            return True
        if word in ("fi", "done", "esac", "}"):
            self._leave(last=True)
            return True
        return False

    def _leave(self, *, last: bool) -> None:
        """The values as before the block; after its last branch, of what it assigned nothing is known."""
        if not self.blocks:
            return
        if last and self.blocks[-1].always:
            self.blocks.pop()
            return
        block = self.blocks[-1]
        now = self.values
        changed = {n for n in now.keys() | block.before.keys() if now.get(n) != block.before.get(n)}
        self.values = dict(block.before)
        if last:
            for name in changed | block.changed:
                self.values[name] = self._perhaps(name, block.before.get(name), now.get(name))
            self.blocks.pop()
            if self.blocks:
                self.blocks[-1].changed |= changed | block.changed
        else:
            block.changed |= changed

    def _perhaps(self, name: str, before: Value, now: Value) -> Value:
        """Return what a branch may add to an array, or to a text, is one word that is not known."""
        if isinstance(before, list) and isinstance(now, list) and now[: len(before)] == before:
            return [*before, f"${{{name}[@]}}"]
        perhaps = f" ${{{name}}}"
        if isinstance(before, str) and isinstance(now, str) and before and now.startswith(f"{before} "):
            return before if before.endswith(perhaps) else before + perhaps
        return None

    # Assignments

    def _assigned(self, words: list[Word]) -> bool:
        """Return whether they only assign or declare. The values remain."""
        declares = words[0].plain in DECLARING
        rest = [word for word in words[1:] if not (word.plain or "").startswith("-")] if declares else words
        if not declares and not all(_assignment(word) for word in rest):
            return False
        for word in rest:
            found = _assignment(word)
            if found is None:
                name = word.plain or ""
            else:
                name, added = found
                self._assign(name, word, added)
            if words[0].plain == "export" or "-x" in [other.plain for other in words[1:2]]:
                self.exported.add(name)
        return True

    def _assign(self, name: str, word: Word, added: bool) -> None:
        value: Value
        if word.array is not None:
            value = [text for part in word.array for text in self.fill(part)]
        else:
            value = self._text(_after_equals(word), quoted=True)
        before = self.values.get(name)
        if not added or before is None:
            if added and name in self.values:
                value = None
            self.values[name] = value
        elif isinstance(before, list):
            self.values[name] = [*before, *(value if isinstance(value, list) else [value or ""])]
        else:
            self.values[name] = before + (value if isinstance(value, str) else " ".join(value or ()))

    # Filling in

    def fill(self, word: Word) -> list[str]:
        """The words that it becomes: none, one, or as many as an array has."""
        fields = [""]
        there = any(part.quoted for part in word.parts)  # "" is a word, too
        for part in word.parts:
            pieces = self._pieces(part)
            if not pieces and not any(fields):  # an empty array adds no word
                there = False
            fields[-1] += "".join(pieces[:1])
            fields += pieces[1:]
        return fields if there or any(fields) else []

    def _pieces(self, part: Part) -> list[str]:
        if part.kind == "text":
            return [part.text]
        if part.kind == "other":
            return [part.text]
        value, raw = self.value(part.text), f"${{{part.text}}}"
        if re.fullmatch(r"\w+|[@*#?$!-]", part.text):
            raw = f"${part.text}"
        if value is None:
            return [raw]
        if isinstance(value, list):
            if part.quoted and not part.text.endswith(("[@]", "@")):
                return [" ".join(value)]
            return value
        return [value] if part.quoted else value.split() or [""]

    def value(self, expression: str) -> Value:
        """Return the value of what stands in ${…}; None: it is not known."""
        if expression in ("@", "*"):
            return self.values.get("@")
        found = re.fullmatch(r"(\w+)(\[[@*]\])?(?::?([-=?+])(.*))?", expression, re.DOTALL)
        if found is None:
            return None
        name, _, operator, other = found.groups()
        value = self.values.get(name)
        if operator == "+":
            return self._default(other) if value else None
        if operator in ("-", "=") and (name not in self.values or value in ("", [])):
            return self._default(other)
        if isinstance(value, list) and not found[2] and operator is None:
            return value[0] if value else ""  # $NAME is the first of an array
        return value

    def _default(self, text: str) -> str:
        quoted = re.fullmatch(r'"(.*)"', text, re.DOTALL)
        if single := re.fullmatch(r"'(.*)'", text, re.DOTALL):
            return single[1]
        return self._filled_text(quoted[1] if quoted else text)

    def _filled_text(self, text: str) -> str:
        """Return the text with variables filled in, as in a here document."""
        lexer, parts = _Lexer(text, self.where), list[Part]()
        while lexer.at < len(text):
            lexer._piece(parts, quoted=True)
        return self._text(parts, quoted=True)

    def _text(self, parts: list[Part], *, quoted: bool) -> str:
        """One text, not split at spaces."""
        return "".join(
            " ".join(self._pieces(Part(part.kind, part.text, quoted or part.quoted))) for part in parts
        )


def _assignment(word: Word) -> tuple[str, bool] | None:
    """The name that it assigns to, and whether it adds to it."""
    if not word.parts or word.parts[0].kind != "text" or word.parts[0].quoted:
        return None
    found = ASSIGNMENT.match(word.parts[0].text)
    return (found[1], bool(found[2])) if found else None


def _after_equals(word: Word) -> list[Part]:
    first = word.parts[0]
    found = ASSIGNMENT.match(first.text)
    assert found is not None
    return [Part("text", first.text[found.end() :], first.quoted), *word.parts[1:]]
