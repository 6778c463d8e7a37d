"""Writes specops/serving/sglang/releases.json: which release of SGLang knows which flag and algorithm.

    python tools/sglang_table.py [--sources FOLDER]

Reads the sources of every release from 0.5.1 on: a few Python files of each wheel on PyPI, fetched over
HTTP ranges. With --sources they are stored in FOLDER and not fetched again. Up to 0.5.13 each flag is a
call of `add_argument`; since then most are annotated fields, which become flags as
`add_cli_args_from_dataclass` makes them (srt/arg_groups/arg_utils.py). Nothing of SGLang is installed or
run. The same releases give the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wheels import order, ranges, released, texts

TABLE = Path(__file__).parents[1] / "specops" / "serving" / "sglang" / "releases.json"
FIRST = (0, 5, 1)
READ = re.compile(r"sglang/srt/(server_args|arg_groups/fields/\w+|speculative/spec_info)\.py")
BUILTIN = re.compile(r"Builtins: ([A-Z0-9_, ]+)\.")
"""The help of --speculative-algorithm since 0.5.12, which takes any name that a plugin registers."""


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]
    arity: str = "one"
    """none, one, maybe or many: how many words follow."""

    deprecated: str | None = None
    algorithms: tuple[str, ...] = ()
    """Of --speculative-algorithm: what it takes."""


@dataclass
class Seen:
    flags: dict[str, list[int]] = field(default_factory=dict)
    algorithms: dict[str, list[int]] = field(default_factory=dict)
    arities: dict[str, str] = field(default_factory=dict)
    """The newest release's; no flag has changed between a switch and a value."""

    deprecated: dict[str, dict[str, list[int]]] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of SGLang's flags.")
    parser.add_argument("--sources", type=Path, help="store what is fetched here")
    folder: Path | None = parser.parse_args().sources
    wheels = {version: url for version, url in released("sglang").items() if order(version) >= FIRST}
    versions = sorted(wheels, key=order)
    seen = Seen()
    for number, version in enumerate(versions):
        print(version, flush=True)
        files = texts(wheels[version], READ, folder / version if folder else None)
        for option in options({path: ast.parse(text) for path, text in files.items()}):
            for name in option.names:
                seen.flags.setdefault(name, []).append(number)
                seen.arities[name] = option.arity
                if option.deprecated:
                    said = seen.deprecated.setdefault(name, {})
                    said.setdefault(option.deprecated, []).append(number)
            for name in option.algorithms:
                seen.algorithms.setdefault(name, []).append(number)
    table = {
        "about": "Made by tools/sglang_table.py from the sources of SGLang's releases. "
        "A range is FIRST-LAST, both included; a flag without an arity takes one word.",
        "versions": versions,
        "flags": _ranges(seen.flags, versions),
        "algorithms": _ranges(seen.algorithms, versions),
        "arities": {name: arity for name, arity in sorted(seen.arities.items()) if arity != "one"},
        "deprecated": {
            flag: {ranges(numbers, versions): text for text, numbers in said.items()}
            for flag, said in sorted(seen.deprecated.items())
        },
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def _ranges(names: Mapping[str, list[int]], versions: list[str]) -> dict[str, str]:
    """One flag may be added in two places: for each backend, or by hand and as a field."""
    return {name: ranges(list(dict.fromkeys(numbers)), versions) for name, numbers in sorted(names.items())}


def options(sources: Mapping[str, ast.Module]) -> Iterator[Option]:
    """Every flag of a release."""
    yield Option(("--help", "-h"), "none")
    for path, module in sources.items():
        if path.endswith("spec_info.py"):
            yield Option((), algorithms=tuple(_members(module)))
            continue
        if path.endswith("server_args.py"):
            yield from _added(module)
        yield from _of_fields(module)


def _of_fields(module: ast.Module) -> Iterator[Option]:
    """`name: A[type, "help"]` or `name: A[type, Arg(...)]` in a class's body."""
    for node in ast.walk(module):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.annotation, ast.Subscript):
            continue
        marked = node.annotation
        if ast.unparse(marked.value) != "A" or not isinstance(marked.slice, ast.Tuple):
            continue
        meta = next((m for m in marked.slice.elts[1:] if _is_meta(m)), None)
        said = {k.arg: k.value for k in meta.keywords if k.arg} if isinstance(meta, ast.Call) else {}
        if meta is None or "no_cli" in said:
            continue
        name = ast.unparse(node.target)
        flag = ast.literal_eval(said["cli_name"]) if "cli_name" in said else "--" + name.replace("_", "-")
        aliases = tuple(ast.literal_eval(said["aliases"])) if "aliases" in said else ()
        help_ = _text(said["help"]) if "help" in said else "" if isinstance(meta, ast.Call) else _text(meta)
        negated = (flag.replace("--", "--no-", 1),) if "BooleanOptional" in _source(said, "action") else ()
        yield Option(
            (flag, *aliases, *negated),
            _stated_arity(said) or _arity_of_type(ast.unparse(marked.slice.elts[0]), said),
            help_ if _is_deprecation(help_) else None,
            _algorithms(flag, help_, said),
        )


def _members(module: ast.Module) -> Iterator[str]:
    """Of SpeculativeAlgorithm: what --speculative-algorithm takes where it has no list of choices."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and node.name == "SpeculativeAlgorithm":
            names = [ast.unparse(line.targets[0]) for line in node.body if isinstance(line, ast.Assign)]
            yield from (name for name in names if name.isupper() and name != "NONE")


def _added(module: ast.Module) -> Iterator[Option]:
    """Each call of `add_argument`."""
    for call in ast.walk(module):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith(".add_argument"):
            continue
        names = tuple(
            str(word.value)
            for word in call.args
            if isinstance(word, ast.Constant) and str(word.value).startswith("-")
        )
        said = {k.arg: k.value for k in call.keywords if k.arg}
        help_ = _text(said["help"]) if "help" in said else ""
        action = _source(said, "action")
        negated = tuple(n.replace("--", "--no-", 1) for n in names if "BooleanOptional" in action)
        if names:
            yield Option(
                names + negated,
                _stated_arity(said) or "one",
                help_ if _is_deprecation(help_) or "Deprecated" in action else None,
                _algorithms(names[0], help_, said),
            )


def _is_meta(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "Arg"
    return isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)


def _source(said: Mapping[str, ast.expr], key: str) -> str:
    return ast.unparse(said[key]).strip("'") if key in said else ""


def _stated_arity(said: Mapping[str, ast.expr]) -> str | None:
    action, nargs = _source(said, "action"), _source(said, "nargs")
    if "StoreTrue" in action or "BooleanOptional" in action or action in ("store_true", "store_false"):
        return "none"
    if action.endswith(("DeprecatedAction", "StoreConstAction")) and "nargs" not in said:
        return "none"
    if "'nargs': '*'" in _source(said, "action_kwargs"):
        return "many"
    return {"+": "many", "*": "many", "?": "maybe"}.get(nargs)


def _arity_of_type(annotation: str, said: Mapping[str, ast.expr]) -> str:
    """As `add_cli_args_from_dataclass` reads a field's type."""
    if "action" in said:
        return "one"
    inner = annotation.removeprefix("Optional[") if annotation.startswith("Optional[") else annotation
    if inner.rstrip("]") == "bool":
        return "none"
    return "many" if inner.lower().startswith("list[") and "type_parser" not in said else "one"


def _is_deprecation(help_: str) -> bool:
    """Of the flag itself, and not of one of its values."""
    return re.match(r"\W*(note: .*)?deprecated", help_, re.IGNORECASE) is not None


def _algorithms(flag: str, help_: str, said: Mapping[str, ast.expr]) -> tuple[str, ...]:
    if flag != "--speculative-algorithm":
        return ()
    named = BUILTIN.search(help_)
    return tuple(named[1].split(", ")) if named else tuple(ast.literal_eval(said["choices"]))


def _text(node: ast.expr) -> str:
    """Of a help; what is filled in when it runs is left out."""
    found = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return " ".join("".join(text for text in found if isinstance(text, str)).split())


if __name__ == "__main__":
    main()
