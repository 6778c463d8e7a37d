"""Pages of the guide: one place for each output, equal structure in both languages, plain words."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from guide_pages import ROOT, blocks, parts

TRANSLATIONS = {
    ROOT / "README.md": ROOT / "README.ko.md",
    ROOT / "docs" / "playbook.md": ROOT / "docs" / "ko" / "playbook.md",
}


def levels(page: Path) -> list[int]:
    return [len(mark) for mark in re.findall(r"^(#+) ", parts(page)[0], re.MULTILINE)]


@pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda page: page.name)
def test_a_translation_has_the_headings_and_code_of_its_page(page: Path) -> None:
    translated = TRANSLATIONS[page]
    assert levels(page) == levels(translated)
    assert [block.text for block in parts(page)[1]] == [block.text for block in parts(translated)[1]]


def windows(text: str) -> set[str]:
    """Each three consecutive lines of a block that are not blank."""
    lines = [line for line in text.splitlines() if line.strip()]
    return {"\n".join(three) for three in zip(lines, lines[1:], lines[2:], strict=False)}


def test_no_output_stands_in_two_pages() -> None:
    shown = [block for block in blocks("text") if block.page not in TRANSLATIONS.values()]
    for one, other in itertools.combinations(shown, 2):
        if one.page != other.page:
            assert not windows(one.text) & windows(other.text), f"{one} and {other}"


def test_the_readme_shows_one_output_and_one_rollout_file() -> None:
    languages = [block.language for block in parts(ROOT / "README.md")[1]]
    assert languages.count("text") == languages.count("yaml") == 1
