"""Writes a release of TensorRT-LLM into specops/serving/trtllm/releases.json, from its sources.

    python tools/trtllm_table.py VERSION FOLDER

FOLDER holds the release's `tensorrt_llm`: an unpacked wheel, which NVIDIA's index has and PyPI has not, or a
checkout at its tag. Reads llmapi/llm_args.py and commands/serve.py. Nothing of TensorRT-LLM is
installed or run. The same sources give the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "specops" / "serving" / "trtllm" / "releases.json"
ARGS, SERVE = "llmapi/llm_args.py", "commands/serve.py"
NO_KEYS = ("decoding_type", "model_config")
OPTIONS = ("option", "stability_option")


def main() -> None:
    parser = argparse.ArgumentParser(description="Add a release to the table of TensorRT-LLM.")
    parser.add_argument("version")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", type=Path, default=TABLE)
    given = parser.parse_args()
    folder = given.folder if (given.folder / ARGS).is_file() else given.folder / "tensorrt_llm"
    table = json.loads(given.table.read_text(encoding="utf-8"))
    table["sources"][given.version] = f"its sources: {ARGS} and {SERVE}"
    table["releases"][given.version] = release(
        (folder / ARGS).read_text(encoding="utf-8"), (folder / SERVE).read_text(encoding="utf-8")
    )
    given.table.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def release(args: str, serve: str) -> dict[str, Any]:
    classes = {node.name: node for node in ast.parse(args).body if isinstance(node, ast.ClassDef)}
    types = {
        name: sorted(set(fields(classes, node.name)) - set(fields(classes, "DecodingBaseConfig")))
        for node in classes.values()
        for name in types_of(node)
        if "DecodingBaseConfig" in ancestors(classes, node.name)
    }
    # Since 1.3 the name has an underscore, and the one of before is read as well.
    if "Draft_Target" in types:
        types["DraftTarget"] = types["Draft_Target"]
    return {
        "complete": True,
        "flags": dict(sorted(flags(serve))),
        "keys": sorted(set(fields(classes, "TorchLlmArgs"))),
        "speculative": {
            "base": sorted(set(fields(classes, "DecodingBaseConfig"))),
            "types": dict(sorted(types.items())),
        },
    }


def ancestors(classes: dict[str, ast.ClassDef], name: str) -> list[str]:
    """Names of the class's bases, from near to far, as far as they are in the module."""
    bases = [ast.unparse(base) for base in classes[name].bases]
    return [far for near in bases if near in classes for far in (near, *ancestors(classes, near))]


def fields(classes: dict[str, ast.ClassDef], name: str) -> Iterator[str]:
    """Keys that the class takes: its annotated fields, their aliases, and those of its bases."""
    for of in (name, *ancestors(classes, name)):
        for node in classes[of].body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            field, annotation = node.target.id, ast.unparse(node.annotation)
            if (
                field.startswith("_")
                or annotation.startswith("ClassVar")
                or field in ("decoding_type", "model_config")
            ):
                continue
            yield field
            if node.value is not None:
                yield from aliases(node.value)


def aliases(value: ast.expr) -> Iterator[str]:
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "AliasChoices":
            yield from (str(ast.literal_eval(one)) for one in node.args)


def types_of(node: ast.ClassDef) -> Iterator[str]:
    """The decoding type of a class: decoding_type: Literal["MTP"], or ClassVar[str] = "MTP"."""
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == "decoding_type":
            said = one.annotation if "Literal" in ast.unparse(one.annotation) else one.value
            for part in ast.walk(said) if said is not None else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def flags(serve: str) -> Iterator[tuple[str, int]]:
    """Each flag of the function `serve`, and how many words follow it."""
    for node in ast.walk(ast.parse(serve)):
        if not isinstance(node, ast.FunctionDef) or node.name != "serve":
            continue
        for call in node.decorator_list:
            if not isinstance(call, ast.Call) or ast.unparse(call.func).rsplit(".", 1)[-1] not in OPTIONS:
                continue
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            for word in call.args:
                for name in str(ast.literal_eval(word)).split("/"):
                    if name.startswith("--"):
                        switch = given.get("is_flag") == "True" or "/" in str(ast.literal_eval(word))
                        yield name, 0 if switch else 1


if __name__ == "__main__":
    main()
