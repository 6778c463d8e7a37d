"""A default that several parts share is written once, in specops/defaults.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from specops import stats
from specops.config import Ab, Edge, Measure
from specops.defaults import CONCURRENCY, CONFIDENCE, REQUEST_TIMEOUT_S
from specops.load.settings import BaselineSettings, Endpoint

ROOT = Path(__file__).parents[2] / "specops"
# Of a request that is measured; other parts have other time limits.
TIMED = ("load/", "config/rollout.py", "cli/ab.py", "cli/baseline.py")


def defaults(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names of fields, constants and parameters, with what they are by default."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            taken = [*given.posonlyargs, *given.args]
            positional = zip(taken[len(taken) - len(given.defaults) :], given.defaults, strict=True)
            named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
            yield from ((arg.arg, value) for arg, value in (*positional, *named) if value is not None)


def second_literals(source: str, path: str) -> list[str]:
    found = []
    for name, value in defaults(ast.parse(source)):
        inside = list(ast.walk(value))
        numbers = [node.value for node in inside if isinstance(node, ast.Constant)]
        lists = [ast.unparse(node).strip("[]()") for node in inside if isinstance(node, ast.List | ast.Tuple)]
        if (
            (name.lower() in ("confidence", "level") and CONFIDENCE in numbers)
            or (name.lower() in ("concurrency", "clients") and ", ".join(map(str, CONCURRENCY)) in lists)
            or (
                name in ("timeout", "timeout_s")
                and path.startswith(TIMED)
                and any(isinstance(number, float) and number > 1 for number in numbers)
            )
        ):
            found.append(f"{path}: {name} = {ast.unparse(value)}")
    return found


def test_no_second_literal() -> None:
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        path = str(file.relative_to(ROOT))
        if path != "defaults.py":
            found += second_literals(file.read_text(encoding="utf-8"), path)
    assert not found


def test_a_second_literal_is_found() -> None:
    assert second_literals("confidence: float = Field(default=0.95, gt=0.5)", "phases/x.py")
    assert second_literals("def f(a, *, level: float = 0.95): ...", "stats/x.py")
    assert second_literals("clients: list[int] = Field(default=[1, 4])", "config/edge.py")
    assert second_literals("timeout_s: float = 120.0", "load/settings.py")
    assert not second_literals("timeout_s: float = 120.0", "actions/command.py")


def test_the_parts_have_them() -> None:
    assert stats.LEVEL == Ab().confidence == CONFIDENCE
    assert tuple(Measure().concurrency) == tuple(Edge.model_fields["clients"].default) == CONCURRENCY
    assert Measure().timeout_s == Endpoint("http://x", "m").timeout_s == REQUEST_TIMEOUT_S
    assert BaselineSettings.model_fields["timeout_s"].default == REQUEST_TIMEOUT_S
