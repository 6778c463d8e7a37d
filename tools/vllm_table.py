"""Writes specops/serving/vllm/versions.json: which version of vLLM knows which flag and speculative key.

    python tools/vllm_table.py [--sources FOLDER]

Reads the sources of every release from 0.5.0 on: a few Python files of each wheel on PyPI, fetched over
HTTP ranges, about 1 MB a version. With --sources they are kept in FOLDER and not fetched again. Nothing of
vLLM is installed or run. The same releases give the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

from wheels import order, ranges, released, texts

TABLE = Path(__file__).parents[1] / "specops" / "serving" / "vllm" / "versions.json"
FIRST = (0, 5, 0)
READ = re.compile(
    r"vllm/(engine/arg_utils|config|config/\w+|entrypoints/(\w+/)*cli_args|entrypoints/cli/(serve|main)"
    r"|utils|utils/(__init__|argparse_utils)|envs)\.py"
)
OF_VLLM_ITSELF = {
    "draft_model_config",
    "draft_parallel_config",
    "target_model_config",
    "target_parallel_config",
    "enable_chunked_prefill",
    "disable_log_stats",
    "tensor_parallel_size",  # there only to be refused with a hint
}
"""Fields of SpeculativeConfig that an operator does not set."""

Sources = Mapping[str, ast.Module]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of vLLM's flags and speculative keys.")
    parser.add_argument("--sources", type=Path, help="keep what is fetched here")
    folder: Path | None = parser.parse_args().sources
    wheels = {version: url for version, url in released("vllm").items() if order(version) >= FIRST}
    versions = sorted(wheels, key=order)
    seen: dict[str, dict[str, list[int]]] = {kind: {} for kind in READERS}
    for number, version in enumerate(versions):
        print(version, flush=True)
        files = texts(wheels[version], READ, folder / version if folder else None)
        sources = {path: ast.parse(text) for path, text in files.items()}
        for kind, read in READERS.items():
            for name in read(sources):
                seen[kind].setdefault(name, []).append(number)
    table: dict[str, object] = {
        "about": "Made by tools/vllm_table.py from the sources of vLLM's releases. "
        "A range is FIRST-LAST, both included.",
        "versions": versions,
    }
    for kind, names in seen.items():
        table[kind] = {name: ranges(numbers, versions) for name, numbers in sorted(names.items())}
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def flags(sources: Sources) -> set[str]:
    """Of `vllm serve`: what is passed to add_argument, and a flag for each field of FrontendArgs."""
    found = {"--config", "--help"}  # read by the parser itself, in every version
    for path, module in sources.items():
        if "/config" in path:
            continue
        for call in _calls(module, "add_argument"):
            found |= {name for name in _strings(call.args) if name.startswith("-")}
        if path.endswith("cli_args.py"):
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                    found |= {f"--{name.replace('_', '-')}" for name in _fields(node)}
    if _defines(sources, "EnableDisableAction"):  # the other name of a switch
        found |= {other for name in found for other in _other_names(name)}
    return found


def _other_names(flag: str) -> list[str]:
    """--disable-x of --enable-x."""
    pairs = (("--enable-", "--disable-"), ("--disable-", "--enable-"))
    return [other + flag.removeprefix(this) for this, other in pairs if flag.startswith(this)]


def arities(sources: Sources) -> dict[str, str]:
    """How many words a flag takes: "none" for a switch, "many", "maybe" one; flags of one word are left out.

    Said at add_argument, or by the type of the field that it stands for (get_kwargs in arg_utils.py).
    """
    fields = {
        node.name: {ast.unparse(line.target): line.annotation for line in node.body if _annotated(line)}
        for module in sources.values()
        for node in module.body
        if isinstance(node, ast.ClassDef)
    }
    found: dict[str, str] = {}
    for path, module in sources.items():
        if "/config" in path:
            continue
        owners = {
            ast.unparse(node.targets[0]): ast.unparse(node.value.args[0])
            for node in ast.walk(module)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args
        }
        for call in _calls(module, "add_argument"):
            arity = _stated_arity(call) or _arity_of_field(call, owners, fields)
            found |= {name: arity for name in _strings(call.args) if name.startswith("-")}
        if path.endswith("cli_args.py"):
            found |= _frontend_arities(module)
    if _defines(sources, "EnableDisableAction"):
        found |= {other: found[name] for name in list(found) for other in _other_names(name)}
    return {flag: arity for flag, arity in found.items() if arity != "one"}


def _annotated(node: ast.stmt) -> TypeGuard[ast.AnnAssign]:
    return isinstance(node, ast.AnnAssign)


def _stated_arity(call: ast.Call) -> str | None:
    said = {word.arg: ast.unparse(word.value).strip("'") for word in call.keywords if word.arg}
    action = said.get("action", "").removeprefix("argparse.")
    if action in ("store_true", "store_false", "BooleanOptionalAction"):
        return "none"
    if said.get("nargs") in ("+", "*"):
        return "many"
    return "maybe" if said.get("nargs") == "?" or action == "StoreBoolean" else None


def _arity_of_field(
    call: ast.Call, owners: Mapping[str, str], fields: Mapping[str, Mapping[str, ast.expr]]
) -> str:
    """`**model_kwargs["seed"]`, where `model_kwargs = get_kwargs(ModelConfig)`."""
    for word in call.keywords:
        for node in ast.walk(word.value) if word.arg is None else ():
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                owner, name = owners.get(ast.unparse(node.value), ""), str(node.slice.value)
                if name in fields.get(owner, {}):
                    return _arity_of_type(fields[owner][name])
    return "one"


def _frontend_arities(module: ast.Module) -> dict[str, str]:
    """Of the fields of FrontendArgs; where add_cli_args removes a field's `nargs`, it takes one word."""
    single = {
        str(ast.literal_eval(target.value.slice))
        for node in ast.walk(module)
        if isinstance(node, ast.Delete)
        for target in node.targets
        if isinstance(target, ast.Subscript)
        and isinstance(target.value, ast.Subscript)
        and ast.unparse(target.slice) == "'nargs'"
    }
    return {
        f"--{name.replace('_', '-')}": "one" if name in single else _arity_of_type(line.annotation)
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs")
        for line in node.body
        if _annotated(line)
        for name in (ast.unparse(line.target),)
    }


def _arity_of_type(annotation: ast.expr) -> str:
    members = set(_members(annotation)) - {"None"}
    if members == {"bool", "str"}:
        return "maybe"
    if "bool" in members:
        return "none"
    return "many" if members & {"list", "tuple", "set"} and "literal" not in members else "one"


def _members(annotation: ast.expr) -> Iterator[str]:
    """The types that a value may have: of `int | list[str]`, int and list."""
    if isinstance(annotation, ast.BinOp):
        yield from _members(annotation.left)
        yield from _members(annotation.right)
    elif isinstance(annotation, ast.Subscript):
        name = ast.unparse(annotation.value).rsplit(".", 1)[-1]
        within = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if name in ("Optional", "Union"):
            for part in within:
                yield from _members(part)
        elif name in ("Annotated", "SkipValidation"):
            yield from _members(within[0])
        else:
            yield name.lower()
    elif isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        yield from _members(ast.parse(annotation.value, mode="eval").body)
    else:
        yield ast.unparse(annotation)


def variables(sources: Sources) -> set[str]:
    """Of the environment, that vLLM reads (envs.py)."""
    return {
        str(key.value)
        for module in sources.values()
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if ast.unparse(target) == "environment_variables"
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }


def deprecated(sources: Sources) -> set[str]:
    """Flags that still work and warn: deprecated=True, or the message that says so."""
    found = set()
    for path, module in sources.items():
        if not path.endswith(("arg_utils.py", "cli_args.py")):
            continue
        for call in _calls(module, "add_argument"):
            if any(word.arg == "deprecated" for word in call.keywords):
                found |= {name for name in _strings(call.args) if name.startswith("--")}
        for text in _strings(ast.walk(module)):
            said = re.match(r"(?:\w+ \()?(--[a-z-]+)\)? is deprecated", text)
            found |= {said[1]} if said else set()
    return found & flags(sources)


def keys(sources: Sources) -> set[str]:
    """Of the JSON of --speculative-config."""
    config = _speculative(sources)
    if config is None or "--speculative-config" not in flags(sources):
        return set()
    return {name for name in _fields(config) if name not in OF_VLLM_ITSELF}


def attention(sources: Sources) -> set[str]:
    """Keys of the JSON of --attention-config."""
    module = sources.get("vllm/config/attention.py")
    nodes = module.body if module is not None else ()
    found = (n for n in nodes if isinstance(n, ast.ClassDef) and n.name == "AttentionConfig")
    return {name for node in found for name in _fields(node)}


def methods(sources: Sources) -> set[str]:
    """Of the key `method`, where its type names them (0.8.5 on)."""
    return {name for name in _named(sources).get("method", set()) if name[0].isalpha()}


def choices(sources: Sources) -> set[str]:
    """Of other keys, where their type names them: rejection_sample_method=block."""
    return {
        f"{key}={value}" for key, values in _named(sources).items() if key != "method" for value in values
    }


def _named(sources: Sources) -> dict[str, set[str]]:
    """The texts that a key may be, of keys whose type says."""
    config = _speculative(sources)
    if config is None:
        return {}
    known, named_types = keys(sources), aliases(sources)
    named = {
        ast.unparse(node.target): set(literals(node.annotation, named_types))
        for node in config.body
        if _annotated(node) and "str" not in _members(node.annotation)  # which may be any text
    }
    return {key: values for key, values in named.items() if key in known and values}


def aliases(sources: Sources) -> dict[str, ast.expr]:
    """Types that a module gives a name."""
    return {
        target.id: node.value
        for module in sources.values()
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


READERS: dict[str, Callable[[Sources], set[str]]] = {
    "flags": flags,
    "deprecated": deprecated,
    "keys": keys,
    "attention": attention,
    "methods": methods,
    "choices": choices,
    "arities": lambda sources: {f"{flag}={arity}" for flag, arity in arities(sources).items()},
    "variables": variables,
}


def literals(node: ast.expr, aliases: Mapping[str, ast.expr]) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id in aliases:
        yield from literals(aliases[node.id], aliases)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Subscript):
        yield from literals(node.slice, aliases)
    elif isinstance(node, ast.Tuple):
        for part in node.elts:
            yield from literals(part, aliases)
    elif isinstance(node, ast.BinOp):  # X | None
        yield from literals(node.left, aliases)


def _speculative(sources: Sources) -> ast.ClassDef | None:
    for module in sources.values():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig":
                return node
    return None


def _defines(sources: Sources, name: str) -> bool:
    return any(
        isinstance(node, ast.ClassDef) and node.name == name for m in sources.values() for node in m.body
    )


def _fields(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(line.target) for line in node.body if isinstance(line, ast.AnnAssign)]


def _calls(module: ast.Module, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            yield node


def _strings(nodes: object) -> Iterator[str]:
    for node in nodes:  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


if __name__ == "__main__":
    main()
