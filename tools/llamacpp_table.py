"""Writes specops/serving/llamacpp/builds.json: which build of llama.cpp's server knows which flag.

    python tools/llamacpp_table.py [--sources FOLDER]

Reads common/arg.cpp and common/speculative.cpp of the builds whose sources are inside a release of
xllamacpp on PyPI: release 2026.10.11549 has llama.cpp b11549. An archive has about 35 MB, and is read until
both files were there. With --sources they are stored in FOLDER and not fetched again. Nothing is built or
run. The same releases give the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wheels import sources

TABLE = Path(__file__).parents[1] / "specops" / "serving" / "llamacpp" / "builds.json"
NUMBERED = re.compile(r"20\d\d\.\d+\.(\d+)")
READ = ("arg.cpp", "speculative.cpp")
SERVER = re.compile("LLAMA_EXAMPLE_(SERVER|COMMON)")


@dataclass(frozen=True)
class Option:
    """One option of a build. `names`: with their dashes; `values`: how many words follow."""

    names: tuple[str, ...]
    values: int
    gone: str | None = None
    """What the server says of a flag that it only refuses."""

    negated: tuple[str, ...] = ()
    """Those of `names` that turn it off."""

    variable: str | None = None
    """The variable of the environment that sets it."""

    number: bool = False
    """Whether its value has to be a number."""


@dataclass
class Seen:
    builds: list[int] = field(default_factory=list)
    flags: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """(build, words that follow)."""

    gone: dict[str, dict[int, str]] = field(default_factory=dict)
    types: dict[str, list[int]] = field(default_factory=dict)
    aliases: set[tuple[str, ...]] = field(default_factory=set)
    variables: dict[str, dict[int, str]] = field(default_factory=dict)
    """Flag of a variable by build, and behind a space the one that turns it off."""
    numbers: dict[str, list[int]] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of llama-server's flags.")
    parser.add_argument("--sources", type=Path, help="store what is fetched here")
    folder: Path | None = parser.parse_args().sources
    archives = {
        int(m[1]): url for version, url in sources("xllamacpp").items() if (m := NUMBERED.fullmatch(version))
    }
    seen = Seen()
    for build in sorted(archives):
        print(f"b{build}", flush=True)
        texts = _texts(archives[build], folder / str(build) if folder else None)
        seen.builds.append(build)
        for option in options(texts["arg.cpp"]):
            if option.gone is None:
                seen.aliases.add(option.names)
            if option.variable is not None:
                flags = (_long(option.names), _long(option.negated))
                seen.variables.setdefault(option.variable, {})[build] = " ".join(filter(None, flags))
            for name in option.names if option.number and option.values == 1 else ():
                seen.numbers.setdefault(name, []).append(build)
            for name in option.names:
                if option.gone is None:
                    seen.flags.setdefault(name, []).append((build, option.values))
                else:
                    seen.gone.setdefault(name, {})[build] = option.gone
        for name in types(texts):
            seen.types.setdefault(name, []).append(build)
    TABLE.write_text(json.dumps(_table(seen), indent=1) + "\n", encoding="utf-8")


def _table(seen: Seen) -> dict[str, object]:
    flags = {}
    for name, found in sorted(seen.flags.items()):
        for count in sorted({values for _, values in found}):
            ranges = _ranges(
                seen.builds, list(dict.fromkeys(build for build, values in found if values == count))
            )
            flags.setdefault(name, {})[str(count)] = ranges
    return {
        "about": "Made by tools/llamacpp_table.py from llama.cpp's sources in releases of xllamacpp. "
        "flags: by the number of words that follow, the builds, FIRST-LAST, both included. variables: of the "
        "environment, the flag that each sets, and behind a space the flag that turns it off. numbers: flags "
        "whose value is a number.",
        "builds": seen.builds,
        "flags": flags,
        "gone": {
            name: {
                _ranges(seen.builds, [b for b in said if said[b] == text]): text
                for text in dict.fromkeys(said.values())
            }
            for name, said in sorted(seen.gone.items())
        },
        "variables": {
            name: {
                _ranges(seen.builds, [b for b in flags if flags[b] == text]): text
                for text in dict.fromkeys(flags.values())
            }
            for name, flags in sorted(seen.variables.items())
        },
        "numbers": {name: _ranges(seen.builds, found) for name, found in sorted(seen.numbers.items())},
        "types": {name: _ranges(seen.builds, found) for name, found in seen.types.items()},
        "aliases": [list(names) for names in sorted(seen.aliases) if len(names) > 1],
    }


def _long(names: tuple[str, ...]) -> str:
    """Return the first long name, the first name where none is long, or no text."""
    return next((name for name in names if name.startswith("--")), (*names, "")[0])


def _ranges(builds: list[int], found: list[int]) -> str:
    """Neighbours in `builds` joined: 8672-8929, 9294-11549."""
    parts: list[list[int]] = []
    for build in found:
        if parts and builds.index(build) == builds.index(parts[-1][-1]) + 1:
            parts[-1].append(build)
        else:
            parts.append([build])
    return ", ".join(f"{part[0]}-{part[-1]}" for part in parts)


def _texts(url: str, folder: Path | None) -> dict[str, str]:
    if folder is not None and all((folder / name).exists() for name in READ):
        return {name: (folder / name).read_text(encoding="utf-8") for name in READ}
    texts: dict[str, str] = {}
    with (
        urllib.request.urlopen(url, timeout=60) as answer,
        tarfile.open(fileobj=answer, mode="r|gz") as archive,
    ):
        for member in archive:
            name = member.name.partition("/llama.cpp/common/")[2]
            opened = archive.extractfile(member) if name in READ else None
            if opened is not None:
                texts[name] = opened.read().decode()
            if len(texts) == len(READ):
                break
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    return texts


def options(text: str) -> Iterator[Option]:
    """The server's, of arg.cpp: `add_opt(common_arg(NAMES, …, HELP, HANDLER).set_examples({…}))`.

    Between names and help stand the names that negate it, or a hint for each word that follows.
    """
    for found in re.finditer(r"add_opt\(common_arg\(", text):
        arguments, end = _arguments(text, found.end())
        behind = text[end : text.index(";", end)]
        examples = re.search(r"set_examples\(\{(.*?)\}\)", behind, re.DOTALL)
        excluded = re.search(r"set_excludes\(\{(.*?)\}\)", behind, re.DOTALL)
        if (examples and not SERVER.search(examples[1])) or (excluded and SERVER.search(excluded[1])):
            continue
        if "set_preset_only" in behind or not arguments[0].startswith("{"):
            continue
        names, hints = re.findall(r'"(-[^"]+)"', arguments[0]), arguments[1:-2]
        negated = re.findall(r'"(-[^"]+)"', hints[0]) if hints and hints[0].startswith("{") else []
        variable = re.search(r'set_env\("(\w+)"\)', behind)
        removed = re.search(r'arg_removed\("(.*?)"\)', arguments[-1])
        yield Option(
            tuple(names + negated),
            0 if negated else len(hints),
            removed[1] if removed else None,
            tuple(negated),
            variable[1] if variable else None,
            re.search(r"\bint\s+value\b|=\s*std::sto[fd]\(value\);", arguments[-1]) is not None
            and "value ==" not in arguments[-1],
        )


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments of a call whose bracket opens before `start`, and where it closed."""
    found, depth, at, begin = [], 0, start, start
    while True:
        character = text[at]
        if character == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif character == "'":
            at += 3 if text[at + 1] == "\\" else 2
        elif text.startswith("//", at):
            at = text.index("\n", at)
        elif character in "([{":
            depth += 1
        elif character in ")]}" and depth:
            depth -= 1
        elif character == ")" or (character == "," and depth == 0):
            found.append(text[begin:at].strip())
            begin = at + 1
            if character == ")":
                return found, at
        at += 1


def types(texts: Mapping[str, str]) -> list[str]:
    """What --spec-type takes."""
    hint = re.search(r'\{"--spec-type"\}, "\[(.*?)\]"', texts["arg.cpp"])
    if hint:
        return hint[1].split("|")
    table = re.search(
        r"common_speculative_type_from_name_map = \{(.*?)\n\};", texts["speculative.cpp"], re.DOTALL
    )
    assert table is not None
    return re.findall(r'\{\s*"([\w-]+)"', table[1])


if __name__ == "__main__":
    main()
