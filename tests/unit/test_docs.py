"""The guide: its links lead somewhere, every command is on a page of it, and its reference is current."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from guide_pages import PAGES, ROOT, anchors, links, parts

from specops.checkpoints.draft_kind import HEAD_FORMS, WORDS
from specops.errors import Exit
from specops.trees import VERIFIER_NAMES

UNSAID = ("show", "make")
"""`checklist ROLLOUT` is `checklist show ROLLOUT`, `report ROLLOUT` is `report make ROLLOUT`."""

GUIDE = [page for page in PAGES if page.name != "cli.md"]


def tool(name: str) -> ModuleType:
    """A script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return tool("cli_reference")


def test_the_reference_is_current(reference, monkeypatch) -> None:
    for width in ("40", "200"):  # it does not depend on the terminal
        monkeypatch.setenv("COLUMNS", width)
        assert reference.page() == reference.PAGE.read_text(encoding="utf-8"), "it is old: make generate"
    assert reference.results_page() == reference.RESULTS.read_text(encoding="utf-8"), "old: make generate"


def test_a_verifier_and_a_form_of_heads_is_a_row_of_the_trees_page() -> None:
    rows = re.findall(r"^\| (.+?) \|", (ROOT / "docs" / "trees.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {f"`{name}`" for name in VERIFIER_NAMES} - set(rows) == set()
    assert {WORDS[kind] for kind in HEAD_FORMS} - set(rows) == set()


def test_the_reference_has_every_option(reference) -> None:
    sections = re.split(r"^#+ (specops .+)$", reference.PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text_of = dict(zip(sections[1::2], sections[2::2], strict=True))
    for path, command in reference.commands():
        text = text_of[" ".join(("specops", *path))]
        for parameter in () if reference.is_group(command) else command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert re.search(rf"[`\s]{re.escape(option)}[`\s,]", text), f"{path}: {option}"


def test_every_command_is_on_a_page(reference) -> None:
    guide = " ".join(
        " ".join(page.read_text(encoding="utf-8").split()) for page in GUIDE if page.parent.name == "docs"
    )
    for path, _ in reference.commands():
        words = " ".join(("specops", *[word for word in path if word not in UNSAID]))
        assert re.search(rf"{re.escape(words)}\b", guide), f"no page speaks of {words}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{link}: there is no {there}"
        if anchor:
            assert anchor in anchors(there), f"{link}: it has {sorted(anchors(there))}"


def test_every_page_is_linked_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    reached = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {page for page in PAGES if page.parent.name in ("docs", "ko")} - {index} <= reached


def test_exit_codes_are_told_as_they_are() -> None:
    prose, _ = parts(ROOT / "docs" / "results.md")
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", prose, re.MULTILINE)}
    assert told == {int(code) for code in Exit} | {130, 141, 143}


def test_environment_variables_are_told_all() -> None:
    prose, _ = parts(ROOT / "docs" / "results.md")
    ours = r"\b(?:SPECOPS|OPENAI)_[A-Z_]*[A-Z]\b"
    source = [*(ROOT / "specops").rglob("*.py"), *(ROOT / "nginx").rglob("*.lua")]
    read = {name for path in source for name in re.findall(rf'"({ours})"', path.read_text(encoding="utf-8"))}
    assert set(re.findall(ours, prose)) == read


def test_the_figures_from_result_files_are_current() -> None:
    figures = tool("figures")
    assert figures.page() == figures.PAGE.read_text(encoding="utf-8"), "it is old: python tools/figures.py"


def test_the_picture_of_the_house_is_current() -> None:
    house = tool("house_picture")
    assert house.picture() == house.PICTURE.read_text(encoding="utf-8"), (
        "it is old: python tools/house_picture.py"
    )


def test_an_arrow_that_others_imply_is_not_drawn() -> None:
    pairs = {("a", "b"), ("b", "c"), ("a", "c"), ("a", "d"), ("d", "c")}
    assert tool("house_picture").arrows(pairs) == [("a", "b"), ("a", "d"), ("b", "c"), ("d", "c")]


def test_the_ten_files_to_read_first_exist_and_are_ten() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = text.partition("## Ten files to read first")[2].partition("\n## ")[0]
    files = re.findall(r"^\d+\. \[`([^`]+)`\]\(([^)]+)\)", listed, re.MULTILINE)
    assert len(files) == 10
    for name, link in files:
        assert name == link.removeprefix("specops/")
        assert (ROOT / link).is_file(), link


def test_the_architecture_page_stays_short() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300
    assert max(map(len, lines)) <= 120


def test_the_architecture_page_names_files_that_exist() -> None:
    there = {path.name for folder in ("specops", "kernels") for path in (ROOT / folder).rglob("*.py")}
    named = set(re.findall(r"\b[a-z]\w*\.py\b", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    named -= {"experiment_power.py"}  # of benchmarks/
    assert len(named) > 60
    assert named <= there


def test_how_to_add_names_files_that_exist() -> None:
    table = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .partition("## How to add")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| (?!what|---)(.+?) \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == 25
    for what, files in rows:
        edited = re.sub(r"\(.*?\)|;.*", "", files).split(", ")
        assert len(edited) <= 3, what
    paths = [path for _, files in rows for path in re.findall(r"`([a-z_]+/[\w/.-]*)`", files)]
    assert len(paths) > 15
    for path in paths:
        assert (ROOT / path.replace("LANGUAGE", "ko")).exists(), path


def test_packages_name_the_files_that_they_have() -> None:
    """A line of a package's docstring that begins with files describes them; such files are in its folder."""
    named = 0
    for package in [*(ROOT / "specops").rglob("__init__.py"), *(ROOT / "kernels").rglob("__init__.py")]:
        text = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""
        for line in re.findall(r"^(?:\w+\.py|\w+/)(?:, (?:\w+\.py|\w+/))*(?=  )", text, re.MULTILINE):
            for name in line.split(", "):
                assert (package.parent / name).exists(), f"{package} names {name}"
                named += 1
    assert named > 150
