"""Outputs in the guide consist of words that the program prints today."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache

import pytest
from guide_pages import ROOT, Block, blocks

INTERPOLATED = {
    *("standard", "speculative", "edit", "long", "short"),  # pools and classes
    *(
        "mine",
        "ana",
        "embedded",
        "playbooks",
        "runs",
        "meta-llama",
        "specops-embedded",
    ),  # names that a user chose
    *("stream", "streams", "server", "baseline", "sweep", "ab", "k"),  # counted, a file, a setting
}
"""Words of an output that stand beside any other: the program puts them into its sentences."""

JOINED = {
    *("speculation answers", "sustains at", "s at", "speedup failed", "guard-running open"),
    *("each show", "support presence", "support response", "support tools", "support min"),
    *("def getmessageid", "fails parity", "speculative-config model", "speculative-config num"),
    *("speculative-config method", "b-instruct may", "of production-stack", "production-stack needs"),
    *("needs deploy", "cpus and", "json d", "json f", "because acceptance", "because drafting"),
    *("because accepted", "handler' in", "roup' in", "mplement' in", "trying it"),
    *("file absent", "to sat", "since sat", "off since", "it cost"),
    *("now specops-report-mine", "serves specops-embedded", "to http", "init absent"),
    *("target switched", "ms per", "min in"),
    *("sends up", "checks unsupported", "of parity", "minutes old", "items open"),
}
"""Pairs of words of which the program joins one to the other; read once each."""

WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*|[^\sA-Za-z]+")
CELL = re.compile(r"  +|: |; |, |\(")


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Each two adjacent words, in lower case."""
    found = [word.lower() for word in WORD.findall(text)]
    for one, other in itertools.pairwise(found):
        if one[0].isalpha() and other[0].isalpha():
            yield one, other


@cache
def printable() -> frozenset[tuple[str, str]]:
    """Pairs of words in the texts of the program and of benchmarks. A value in an f-string separates the
    texts beside it."""
    found: set[tuple[str, str]] = set()
    for path in (*(ROOT / "specops").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts = [part.value if isinstance(part, ast.Constant) else " = " for part in node.values]
                found.update(pairs("".join(map(str, texts))))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(pairs(node.value))
    for pattern in ("specops/**/*.yaml", "alerts/*.yml", "playbooks/*.yaml"):
        for path in ROOT.glob(pattern):
            found.update(pairs(path.read_text(encoding="utf-8")))
    return frozenset(found)


def unknown(text: str) -> list[str]:
    """Pairs of words of an output that are nowhere in the program."""
    cells = [cell for line in text.splitlines() for cell in CELL.split(line)]
    return [
        f"{one} {other}"
        for cell in cells
        for one, other in pairs(cell)
        if not {one, other} & INTERPOLATED
        and (one, other) not in printable()
        and f"{one} {other}" not in JOINED
    ]


@pytest.mark.parametrize("block", [one for one in blocks("text") if one.page.name != "cli.md"], ids=str)
def test_an_output_has_the_words_of_today(block: Block) -> None:
    assert unknown(block.text) == []


def test_an_old_output_is_found() -> None:
    assert unknown("  top_p  pass  top_p is kept to") == ["kept to"]
    assert unknown("1.07× (about 2662 more prompts would tell)") == ["would tell"]
