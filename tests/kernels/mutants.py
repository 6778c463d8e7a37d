"""A kernel's source with one mistake in it, made into a module of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def mutant(module: ModuleType, right: str, wrong: str, folder: Path) -> ModuleType:
    """`module` anew with `right`, which must occur once, replaced; from a file, as Triton reads it."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    assert source.count(right) == 1, f"{right!r} occurs {source.count(right)} times in {module.__name__}"
    file = folder / f"{module.__name__.rpartition('.')[2]}_mutant.py"
    file.write_text(source.replace(right, wrong))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
