"""A name says what the thing is, in the field's words. Words that fit anything (`found`, `ours`, `at`) are
counted by package, as names of functions, parameters, variables and attributes."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "specops"

PRIVATE_WORDS = {
    "apart", "asked", "at", "both", "compared", "each", "found", "given", "here", "it", "kept", "known",
    "made", "of", "one", "ones", "other", "others", "ours", "picked", "rivals", "said", "seen", "served",
    "shown", "taken", "theirs", "there", "they", "thing", "things", "together", "told", "wanted", "what",
    "whose",
}  # fmt: skip

CEILING = 2
"""Most private words per 100 functions of a package."""

HIGHER = {
    "experiment": 4,
    "guard": 3,
    "phases/ab": 5,
    "phases/checklist": 3,
    "phases/diagnose": 5,
    "phases/edge_bench": 4,
    "phases/report": 3,
    "phases/run_comparison": 3,
}
"""Packages whose names are older than the rule, with their ceilings. A ceiling only shrinks: lower it, or
delete its line, when names become better."""


def package_of(path: Path) -> str:
    """The package that a module counts for: a phase's folder, else the first folder below `specops`."""
    folders = path.relative_to(ROOT).parts[:-1]
    return "/".join(folders[:2] if folders[:1] == ("phases",) else folders[:1])


def name_of(node: ast.AST) -> str | None:
    """The name that a node gives to a function, a parameter, a variable or an attribute."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
    return None


def count_names(source: str) -> tuple[list[tuple[int, str]], int]:
    """The private words among the names of a module, with their lines, and the number of its functions."""
    words, functions = [], 0
    for node in ast.walk(ast.parse(source)):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        name = name_of(node)
        if name is not None and name.strip("_") in PRIVATE_WORDS:
            words.append((node.lineno, name))  # type: ignore[attr-defined]
    return words, functions


def test_no_package_has_more_private_words_than_its_ceiling() -> None:
    functions: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        package, (words, count) = package_of(path), count_names(path.read_text(encoding="utf-8"))
        functions[package] += count
        places.setdefault(package, []).extend(
            f"{path.relative_to(ROOT)}:{line} {name}" for line, name in words
        )
    assert set(HIGHER) <= set(places), "delete the lines of packages that are gone"
    ceilings = {package: HIGHER.get(package, CEILING) for package in places}
    above = {
        package: (round(100 * len(listed) / functions[package], 1), ceilings[package], listed)
        for package, listed in places.items()
        if 100 * len(listed) > ceilings[package] * functions[package]
    }
    assert above == {}, (
        "use names that say what the thing is (`drifts`, `index`, `time_s`); a ceiling only shrinks. "
        "By package: words per 100 functions, ceiling, places"
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("found = 1", ["found"]),
        ("def at(ours, *given, **known): ...", ["at", "ours", "given", "known"]),
        ("class A:\n    taken: int = 0", ["taken"]),
        ("self._said = 1", ["_said"]),
        ("[each for each in x]; lambda one: one", ["each", "one"]),
        ("try: ...\nexcept E as what: ...", ["what"]),
        ("match x:\n    case [other, *others]: ...", ["other", "others"]),
        ("def detect_drift(standard, challenger): return standard.found(at=1)", []),
    ],
)  # fmt: skip
def test_every_kind_of_name_is_counted(source: str, words: list[str]) -> None:
    assert sorted(name for _, name in count_names(source)[0]) == sorted(words)
