"""Words of the source: names, JSON keys, messages and comments are in the terms of the field."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = re.compile(r"(?<![a-z])(?:mend(?:s|ed|ing)?|told|asked|seen|kept)(?![a-z])")
"""Say fix, message, requested, observed, stored."""

PARTICIPLES = {
    "asked", "asking", "given", "given_up", "grown", "lacking", "looking", "made", "measured", "paid",
    "seeing", "structured", "talking", "told", "verifying", "wanted",
}  # fmt: skip
"""No names of modules, which are nouns."""

ALLOWED = {
    "specops/results.py": "RENAMED: keys of schema 1",
    "specops/guard/state.py": "OLDER: keys of earlier journals",
    "specops/guard/simulation/traces.py": "OLDER: keys of earlier traces",
    "specops/phases/verify_draft/differences.py": "a text that is encoded",
}
SOURCES = sorted(
    path
    for folder in ("specops", "kernels/specops_kernels")
    for path in (ROOT / folder).rglob("*.py")
    if not path.stem.endswith("_pb2")
)


def spelt(name: str) -> str:
    """The words of an identifier, apart and in lower case."""
    return re.sub(r"([a-z])([A-Z])", r"\1 \2", name).replace("_", " ").lower()


def found(source: str) -> Iterator[tuple[int, str]]:
    """The line and the word of each name, string and comment of a source that says one of `FORBIDDEN`."""
    if not FORBIDDEN.search(spelt(source)):
        return
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT):
            for word in FORBIDDEN.findall(spelt(token.string)):
                yield token.start[0], word


def test_sources_say_it_in_the_terms_of_the_field() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in SOURCES
        if str(path.relative_to(ROOT)) not in ALLOWED
        for line, word in found(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_a_file_that_may_have_them_still_does() -> None:
    assert [path for path in ALLOWED if not list(found((ROOT / path).read_text(encoding="utf-8")))] == []


def test_modules_are_nouns() -> None:
    assert [str(path) for path in SOURCES if path.stem in PARTICIPLES] == []


@pytest.mark.parametrize(
    "source",
    ["told = 1\n", "a.lastSeen\n", "_ASKED_S = 1\n", "f'{x.kept}'\n", "# it is told\n", "class Seen: ...\n"],
)
def test_a_forbidden_word_is_found_in_any_place(source: str) -> None:
    assert list(found(source))


@pytest.mark.parametrize("source", ["amended = 1\n", "unseen = 1\n", "basked\n", "untold\n", "recommend\n"])
def test_a_part_of_another_word_is_none(source: str) -> None:
    assert not list(found(source))
