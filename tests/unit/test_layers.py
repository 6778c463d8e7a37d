"""Who may import whom (pyproject's import-linter contract), and what stays out of where."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "torch": ("specops/engine", "specops/serve", "specops/edge", "kernels"),
    "typer": ("specops/cli",),
    "rich": ("specops/cli",),
}


@cache
def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("library", ALLOWED)
def test_a_library_stays_where_it_belongs(library) -> None:
    files = [*(ROOT / "specops").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]
    users = {str(path.relative_to(ROOT)) for path in files if library in imports(path)}
    strays = {user for user in users if not user.startswith(ALLOWED[library])}
    assert not strays


def test_layers() -> None:
    linter = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert linter, "install the dev extra"
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
