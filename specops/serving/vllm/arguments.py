"""A command line of vLLM, with the JSON of --speculative-config and the environment read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from specops.serving.argv import UNKNOWN, Arity, CallPattern, Option, Words, is_unknown
from specops.serving.vllm.versions import table

CALL = CallPattern(mark="vllm", programs=(("vllm", "serve"),), modules=("vllm.entrypoints", "dynamo.vllm"))
CONFIG = "--speculative-config"
OLD_MODEL = "--speculative-model"
SHORTCUTS = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
"""Keys of the JSON with a flag of their own (0.22.0 on)."""

WHOLE = ("num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max", "draft_tensor_parallel_size")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_BARE = "bare "
"""Mark before a variable that stood in the JSON without quotes."""


@dataclass(frozen=True)
class ParsedCommand(Words):
    """`keys`: the JSON of --speculative-config, which stands among the options without a value; None without
    this option. `unread`: why it is not a JSON object; its option then keeps its words, and no key is set.
    `opaque`: its value is, or holds, a variable of which nothing is known. `around`: variables of the
    environment that are set outside the command.
    """

    CALL: ClassVar[CallPattern] = CALL
    SHORT: ClassVar[Mapping[str, str]] = {
        "-sc": CONFIG,
        "-tp": "--tensor-parallel-size",
        "-pp": "--pipeline-parallel-size",
        "-dp": "--data-parallel-size",
        "-q": "--quantization",
        "-pcp": "--prefill-context-parallel-size",
        "-ep": "--enable-expert-parallel",
        "-cc": "--compilation-config",
        "-spec-draft-tp": "--speculative-draft-tensor-parallel-size",
    }

    keys: dict[str, Any] | None = None
    unread: str | None = None
    opaque: bool = False
    around: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def arity(cls, flag: str) -> Arity:
        return "one" if "." in flag else table().arity(flag)

    @classmethod
    def parse(cls, words: Sequence[str], around: Mapping[str, str] | None = None) -> Self:
        return replace(super().parse(words)._with_json_read(), around=dict(around or {}))

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the server: set around the command, before the program, or with -e of a container."""
        assigned = (word.partition("=") for word in self.program if _ASSIGNMENT.match(word))
        return {**self.around, **{name: value for name, _, value in assigned}}

    @property
    def speculates(self) -> bool:
        return self.keys is not None or self.opaque or any(self.has(f) for f in (*SHORTCUTS, OLD_MODEL))

    @property
    def speculation(self) -> dict[str, Any]:
        """The JSON's keys, spelt with underscores, and those of its shortcuts. A text that holds a number is
        the number, as vLLM reads it."""
        short: dict[str, Any] = {key: self.value(flag) for flag, key in SHORTCUTS.items() if self.value(flag)}
        keys = short | {key.replace("-", "_"): value for key, value in (self.keys or {}).items()}
        return {key: _as_number(value) if key in WHOLE else value for key, value in keys.items()}

    @property
    def literals(self) -> dict[str, Any]:
        """Return the keys of `speculation`, without values that hold a variable."""
        return {key: value for key, value in self.speculation.items() if not is_unknown(value)}

    def as_key(self, flag: str, key: str) -> Self:
        """The flag's value as a key of the JSON, which takes the flag's place where there was none."""
        if self.unread is not None or self.opaque:
            return self
        value = self.value(flag)
        bare = _BARE if key in WHOLE and is_unknown(value) else ""
        keys = {key: as_json(bare + value)} if value is not None else {}
        if self.keys is None:
            options = list(self.options)
            options.insert([option.flag for option in options].index(flag), Option(CONFIG))
            return replace(self, options=tuple(options), keys=keys).without(flag)
        return replace(self, keys=keys | (self.keys or {})).without(flag)

    def with_key(self, key: str, value: Any) -> Self:
        if self.unread is not None or self.opaque:
            return self
        command = self if self.has(CONFIG) else replace(self, options=(*self.options, Option(CONFIG)))
        for flag, name in SHORTCUTS.items():
            if name == key:
                command = command.without(flag)
        return replace(command, keys=(self.keys or {}) | {key: value})

    def without_key(self, key: str) -> Self:
        return replace(self, keys={k: v for k, v in (self.keys or {}).items() if k != key})

    def as_words(self) -> Words:
        """Return the words of the command, with the JSON written out."""
        if self.keys is None:
            return Words(self.program, self.options)
        written = (re.sub(f'"{_BARE}([^"]*)"', r"\1", json.dumps(_in_order(self.keys))),)
        options = (replace(o, values=written) if o.flag == CONFIG else o for o in self.options)
        return Words(self.program, tuple(options))

    def words(self) -> list[str]:
        return self.as_words().words()

    def _with_json_read(self) -> Self:
        """--speculative-config JSON, and its dotted form: --speculative-config.method ngram."""
        keys: dict[str, Any] | None = None
        options: list[Option] = []
        for option in self.options:
            if option.flag == CONFIG:
                text = " ".join(option.values)
                if UNKNOWN.fullmatch(text):
                    return replace(self, opaque=True)
                try:
                    read = _loaded(text)
                except ValueError as error:
                    if is_unknown(text):  # a variable may hold a piece of the JSON
                        return replace(self, opaque=True)
                    return replace(self, unread=str(error))
                if not isinstance(read, dict):
                    return replace(self, unread=f"it is {read!r}")
                keys = (keys or {}) | read
            elif option.flag.startswith(f"{CONFIG}."):
                key = option.flag.removeprefix(f"{CONFIG}.")
                keys = (keys or {}) | {key: as_json(" ".join(option.values))}
            else:
                options.append(option)
                continue
            if Option(CONFIG) not in options:
                options.append(Option(CONFIG))
        return replace(self, options=tuple(options), keys=keys)


def _loaded(text: str) -> Any:
    """JSON. ${K} in the place of a value is a text that is written without quotes again."""
    try:
        return json.loads(text)
    except ValueError:
        bare = re.sub(rf"([:,\[]\s*)({UNKNOWN.pattern})(?=\s*[,}}\]])", rf'\1"{_BARE}\2"', text)
        return json.loads(bare)


def _as_number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.strip().isdigit() else value


def as_json(text: str) -> Any:
    """Return what a word means as JSON: 5, true, [1, 2]; else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _in_order(keys: dict[str, Any]) -> dict[str, Any]:
    """The method first, then the draft, then how many: as people read them."""
    first = ("method", "model", "num_speculative_tokens")
    return {key: keys[key] for key in first if key in keys} | keys
