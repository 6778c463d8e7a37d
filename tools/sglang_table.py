"""Writes specops/serving/sglang/flags.json: the flags of a release of SGLang, and which it deprecates.

    python tools/sglang_table.py VERSION

Reads them from the release's wheel on PyPI, over HTTP ranges. Its arguments are annotated fields, which
become flags as `add_cli_args_from_dataclass` makes them (srt/arg_groups/arg_utils.py), and a few calls of
`add_argument`. Nothing of SGLang is installed or run. The same release gives the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path

from wheels import opened, released

TABLE = Path(__file__).parents[1] / "specops" / "serving" / "sglang" / "flags.json"
FIELDS = "sglang/srt/arg_groups/fields/"
BY_HAND = "sglang/srt/server_args.py"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of SGLang's flags.")
    parser.add_argument("version")
    version: str = parser.parse_args().version
    with opened(released("sglang")[version]) as wheel:
        paths = [path for path in wheel.namelist() if path.startswith(FIELDS) and path.endswith(".py")]
        fields = [ast.parse(wheel.read(path)) for path in sorted(paths)]
        by_hand = ast.parse(wheel.read(BY_HAND))
    added = list(added_by_hand(by_hand))
    table = {
        "version": version,
        "flags": sorted(
            {flag for module in fields for flag in of_fields(module)} | {flag for flag, _ in added}
        ),
        "deprecated": dict(sorted((flag, help_) for flag, help_ in added if "eprecated" in help_)),
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def of_fields(module: ast.Module) -> Iterator[str]:
    """`name: A[type, "help"]` or `name: A[type, Arg(...)]` in a class's body."""
    for field in ast.walk(module):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.annotation, ast.Subscript):
            continue
        marked = field.annotation
        if ast.unparse(marked.value) != "A" or not isinstance(marked.slice, ast.Tuple):
            continue
        meta = next((m for m in marked.slice.elts[1:] if _is_meta(m)), None)
        if meta is None:
            continue
        said = {k.arg: k.value for k in meta.keywords} if isinstance(meta, ast.Call) else {}
        if "no_cli" in said:
            continue
        name = ast.unparse(field.target)
        flag = ast.literal_eval(said["cli_name"]) if "cli_name" in said else "--" + name.replace("_", "-")
        yield flag
        yield from ast.literal_eval(said["aliases"]) if "aliases" in said else ()
        if "action" in said and "BooleanOptionalAction" in ast.unparse(said["action"]):
            yield flag.replace("--", "--no-", 1)


def _is_meta(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "Arg"
    return isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)


def added_by_hand(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Each flag of an `add_argument` call, with its help."""
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(".add_argument"):
            helps = [ast.unparse(k.value) for k in call.keywords if k.arg == "help"]
            help_ = str(ast.literal_eval(helps[0])) if helps and not helps[0].startswith("f") else ""
            for word in call.args:
                if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
                    yield str(word.value), help_


if __name__ == "__main__":
    main()
