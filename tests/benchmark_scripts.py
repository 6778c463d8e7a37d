"""The scripts of benchmarks/ as modules, and as programs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load_benchmark(name: str) -> ModuleType:
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))  # last: its names are plain words
    return importlib.import_module(name)


def run_benchmark(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(BENCHMARKS / f"{name}.py"), *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
