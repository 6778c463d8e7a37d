"""Writes heads.json of vLLM and SGLang: which release knows which head, and which keys of its config.

    python tools/heads_table.py [--sources FOLDER]

Reads a few Python files of every release on PyPI, fetched over HTTP ranges, about 1 MB a version. With
--sources they are kept in FOLDER and not fetched again. Nothing is installed or run. A key counts as read if
the file that loads a kind of head takes it from a config. The same releases give the same file, byte for
byte.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path

from wheels import order, ranges, released, texts

SERVING = Path(__file__).parents[1] / "specops" / "serving"
KEY = re.compile(
    r"""getattr\(\s*[\w.]*(?:config|cfg)[\w.]*,\s*["'](\w+)["']|(?:config|cfg)\w*\.get\(\s*["'](\w+)["']"""
    r"""|(?:config|cfg)\w*\[["'](\w+)["']\]|\bconfig\.([a-z]\w*)\b(?!\()|^\s+["']([a-z]\w+)["'],$"""
    r"""|["']([a-z]\w+)["']\s+in\s+\w*(?:config|cfg)\w*""",
    re.MULTILINE,
)
REGISTERED = re.compile(r"^    \"(\w+)\":", re.MULTILINE)
FORMAT = re.compile(r"@register_speculator\(\"(\w+)\"\)(.*?)(?=@register_speculator|\Z)", re.DOTALL)
ENTRY = re.compile(r"EntryClass = (\[[^\]]*\]|\w+)")

VLLM = {
    "eagle": (r"models/llama_eagle\.py",),
    "eagle3": (r"models/llama_eagle3\.py",),
    "dflash": (r"models/qwen3_dflash\.py", r"spec_decode/.*dflash.*\.py"),
    "dflash2": (r"models/qwen3_dflash2?\.py", r"spec_decode/.*dflash.*\.py"),
    "dspark": (r"models/qwen3_(dflash|dspark)\.py", r"spec_decode/.*dspark.*\.py"),
    "gemma4_assistant": (r"models/gemma4_mtp\.py",),
}
"""The files that load a kind of head, by the kind."""

SGLANG = {
    "eagle": (r"models/llama_eagle\.py",),
    "eagle3": (r"models/llama_eagle3\.py",),
    "dflash": (r"models/dflash\.py", r"speculative/dflash_utils\.py"),
    "dflash2": (r"models/dflash\.py", r"speculative/dflash_utils\.py"),
    "domino": (r"models/dflash\.py", r"speculative/d(flash|omino)_utils\.py"),
    "dspark": (r"models/(dflash|dspark)\.py", r"speculative/dflash_utils\.py"),
    "gemma4_assistant": (r"models/gemma4_mtp\.py",),
}

Seen = dict[str, dict[str, list[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the tables of heads.")
    parser.add_argument("--sources", type=Path, help="keep what is fetched here")
    folder: Path | None = parser.parse_args().sources
    write(
        "vllm",
        (0, 8, 5),
        r"vllm/(config/speculative|model_executor/models/(llama_eagle3?|qwen3_dflash2?|qwen3_dspark|gemma4_mtp"
        r"|registry)|transformers_utils/configs/speculators/algos"
        r"|v1/(worker/gpu/)?spec_decode/(\w+/)*\w+)\.py",
        VLLM,
        folder,
    )
    write(
        "sglang",
        (0, 5, 1),
        r"sglang/srt/(models/\w*(eagle|dflash|dspark|mtp|nextn)\w*|speculative/(dflash|domino)_utils)\.py",
        SGLANG,
        folder,
    )


def write(
    package: str, first: tuple[int, ...], read: str, kinds: Mapping[str, tuple[str, ...]], folder: Path | None
) -> None:
    wheels = {version: url for version, url in released(package).items() if order(version) >= first}
    versions = sorted(wheels, key=order)
    architectures: dict[str, list[int]] = {}
    formats: dict[str, list[int]] = {}
    keys: Seen = {}
    for number, version in enumerate(versions):
        print(package, version, flush=True)
        place = folder / package / version if folder else None
        files = texts(wheels[version], re.compile(read), place)
        for name in heads(files):
            architectures.setdefault(name, []).append(number)
        for kind, patterns in kinds.items():
            whole = "\n".join(
                text for path, text in files.items() if any(re.search(p, path) for p in patterns)
            )
            for key in keys_of(whole):
                keys.setdefault(kind, {}).setdefault(key, []).append(number)
        algorithms = next((text for path, text in files.items() if path.endswith("algos.py")), "")
        for found in FORMAT.finditer(algorithms):
            formats.setdefault(found[1], []).append(number)
            for key in keys_of(found[2]):
                keys.setdefault(f"speculators {found[1]}", {}).setdefault(key, []).append(number)
    table = {
        "about": f"Made by tools/heads_table.py from the sources of {package}'s releases. "
        "A range is FIRST-LAST, both included.",
        "versions": versions,
        "architectures": {name: ranges(at, versions) for name, at in sorted(architectures.items())},
        "formats": {name: ranges(at, versions) for name, at in sorted(formats.items())},
        "keys": {
            kind: {key: ranges(at, versions) for key, at in sorted(found.items())}
            for kind, found in sorted(keys.items())
        },
    }
    path = SERVING / package / "heads.json"
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def heads(files: Mapping[str, str]) -> set[str]:
    """The architectures of heads that a release can load."""
    found: set[str] = set()
    for path, text in files.items():
        if path.endswith("registry.py"):
            section = re.search(r"_SPECULATIVE_DECODING_MODELS = \{(.*?)\n\}", text, re.DOTALL)
            found |= set(REGISTERED.findall(section[1])) if section else set()
        for entry in ENTRY.finditer(text):
            found |= set(re.findall(r"\w+", entry[1]))
    return found


def keys_of(text: str) -> set[str]:
    return {key for groups in KEY.findall(text) for key in groups if key}


if __name__ == "__main__":
    main()
