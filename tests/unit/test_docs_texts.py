"""Pages of the guide: one place for each output, equal structure in both languages, plain words."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from guide_pages import ROOT, blocks, parts

from specops.config import Rollout
from specops.phases.route.thresholds import DEFAULTS

TRANSLATIONS = {
    **dict.fromkeys(sorted(ROOT.glob("README.*.md")), ROOT / "README.md"),
    **{page: ROOT / "docs" / page.name for page in sorted((ROOT / "docs").glob("*/*.md"))},
}
"""By translated page, the English one."""


def levels(page: Path) -> list[int]:
    return [len(mark) for mark in re.findall(r"^(#+) ", parts(page)[0], re.MULTILINE)]


@pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_translation_has_the_headings_tables_and_code_of_its_page(page: Path) -> None:
    english = TRANSLATIONS[page]
    assert levels(page) == levels(english)
    assert rows(page) == rows(english)
    assert [block.text for block in parts(page)[1]] == [block.text for block in parts(english)[1]]


def test_every_language_has_both_pages_and_is_linked() -> None:
    languages = {page.name.split(".")[1] for page in ROOT.glob("README.*.md")}
    assert "ko" in languages
    assert languages == {page.parent.name for page in TRANSLATIONS if page.name == "overview.md"}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in languages if f"(README.{name}.md)" not in readme] == []


def rows(page: Path) -> list[int]:
    """Columns of each row of its tables, in order."""
    return [line.count("|") for line in parts(page)[0].splitlines() if line.startswith("|")]


def windows(text: str) -> set[str]:
    """Each three consecutive lines of a block that are not blank."""
    lines = [line for line in text.splitlines() if line.strip()]
    return {"\n".join(three) for three in zip(lines, lines[1:], lines[2:], strict=False)}


def test_no_output_stands_in_two_pages() -> None:
    shown = [block for block in blocks("text") if block.page not in TRANSLATIONS]
    for one, other in itertools.combinations(shown, 2):
        if one.page != other.page:
            assert not windows(one.text) & windows(other.text), f"{one} and {other}"


def test_the_readme_shows_one_output_and_one_rollout_file() -> None:
    languages = [block.language for block in parts(ROOT / "README.md")[1]]
    assert languages.count("text") == languages.count("yaml") == 1


GENERATED = ROOT / "docs" / "cli.md"
ENGLISH = [
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page != GENERATED),
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")),
]
FORBIDDEN = re.compile(
    r"\b(?:mend\w*|told|asked|seen|kept|(?:is|are) none|as said|what there is|by another hand"
    r"|it may be either|to be \d|(?:is|are) no (?!longer\b|more\b)\w+)\b",
    re.IGNORECASE,
)
"""Words and phrases that readers who are not native speakers misread."""


def without_code(text: str) -> str:
    return re.sub(r"`[^`]*`", "`", text)


@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_plain_words_and_short_lines(page: Path) -> None:
    prose = parts(page)[0]
    assert FORBIDDEN.findall(without_code(prose)) == []
    width = 120 if page.name == "ARCHITECTURE.md" else 100
    for line in prose.splitlines():
        if not line.startswith("|") and "](" not in line:
            assert len(line) <= width, line


def helps() -> list[tuple[str, str]]:
    """Every help text of the command line, with the words that lead to it."""
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "tools" / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    found = []
    for path, command in reference.commands():
        found.append((" ".join(path), command.help or ""))
        found += [(f"{' '.join(path)} {name}", text) for name, text in reference.records(path, command)]
    return found


def test_help_has_plain_words() -> None:
    found = [(where, FORBIDDEN.findall(without_code(text))) for where, text in helps()]
    assert [one for one in found if one[1]] == []


@pytest.mark.parametrize(
    "text", ["What is told", "the fix mends it", "that is none", "acceptance, to be 0.40"]
)
def test_a_forbidden_word_is_found(text: str) -> None:
    assert FORBIDDEN.search(text)


@pytest.mark.parametrize("text", ["it no longer pays", "speculation is no longer on", "`told`", "keep it"])
def test_a_plain_sentence_is_accepted(text: str) -> None:
    assert not FORBIDDEN.search(without_code(text))


def keys_of_the_rollout_file() -> dict[str, dict[str, Any]]:
    """Each key that has a value of its own, by section and name; sections have docstrings."""
    schema = Rollout.model_json_schema()
    sections = {**schema["$defs"], "Rollout": schema}
    assert [name for name, section in schema["$defs"].items() if not section.get("description")] == []
    return {
        f"{section}.{key}": value
        for section, content in sections.items()
        for key, value in content["properties"].items()
        if "const" not in value and "$ref" not in f"{value.keys()} {value.get('anyOf')}"
    }


NO_NOUN = {
    "a", "above", "after", "always", "as", "below", "between", "for", "how", "in", "its", "left", "of", "so",
    "such", "that", "the", "to", "what", "when", "where", "whether", "which", "with",
}  # fmt: skip


def test_a_key_of_the_rollout_file_is_one_sentence_with_its_default() -> None:
    keys = keys_of_the_rollout_file()
    assert len(keys) > 200
    for key, value in keys.items():
        text = value.get("description", "")
        assert re.fullmatch(r"[A-Z](?:[^.]|\.(?!\s))*\.", text), f"{key}: {text}"
        assert text.split()[0].lower() not in NO_NOUN, f"{key}: {text}"
        assert FORBIDDEN.findall(text) == [], f"{key}: {text}"
        assert len(text.split()) <= MOST_WORDS + 5, f"{key}: {text}"
        if value.get("default", "") is None:
            assert "default: " in text, f"{key}: {text}"


def test_a_default_of_the_router_is_the_one_that_its_key_names() -> None:
    keys = keys_of_the_rollout_file()
    for name, value in DEFAULTS.items():
        assert re.search(rf"default: (.* else )?{value}\.$", keys[f"Route.{name}"]["description"]), name


MOST_WORDS = 25


def sentences(prose: str) -> list[str]:
    """Of paragraphs and list items; not of tables and headings. Code counts as one word."""
    found = []
    for paragraph in re.split(r"\n\s*\n", prose):
        if paragraph.lstrip().startswith(("|", "#", "<")):
            continue
        for item in re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", paragraph):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "`", " ".join(item.split())))
            found += re.split(r"(?<=[.!?:;])\W*\s+(?=[A-Z`*\"(0-9])|; ", text)
    return found


@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_sentence_has_one_idea(page: Path) -> None:
    """Longer sentences need a second reading. A list of names between commas is not a sentence."""
    for sentence in sentences(parts(page)[0]):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        names = sentence.count(", ") > len(words) // 3
        assert len(words) <= MOST_WORDS or names, sentence
