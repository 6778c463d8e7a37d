"""Results of other tools, read for their figures: `plot` draws them and `compare` shows two beside each
other.

They carry no verdict: specops did not run them, and knows neither their pairing nor their noise. One file a
tool, and its line in `TOOLS`; figures.py has the names and units in which all are given. A file that none
of them reads is not damaged: it is not read, and left where it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specops.errors import FileError, UsageError, reason_of
from specops.hints import beginning, listing
from specops.phases.tool_results import aiperf, guidellm, sglang_bench, vllm_bench
from specops.phases.tool_results.figures import ToolResult

TOOLS: Sequence[Callable[[Sequence[Mapping[str, Any]]], ToolResult | None]] = (
    vllm_bench.read,
    sglang_bench.read,
    guidellm.read,
    aiperf.read,
)
"""Readers of a file's JSON objects. At most one takes a file."""

NAMES = "vllm bench serve, SGLang bench_serving, GuideLLM, AIPerf"


def read_file(path: Path) -> ToolResult | None:
    """Return the figures of a file of one of these tools; None where it is of none. Raises FileError where
    it cannot be read."""
    try:
        raw = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileError(f"there is no file {path}", hint=listing(path.parent)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"could not read {path}: {reason_of(error)}", hint=listing(path)) from error
    bodies = _objects(raw)
    if not bodies:
        return None
    return next((result for read in TOOLS if (result := read(bodies)) is not None), None)


def expected(path: Path) -> UsageError:
    """The error for a file that is of none of these tools, and not of specops."""
    return UsageError(
        f"{path} is not read: it is neither a result of specops nor of {NAMES}", hint=beginning(path)
    )


def _objects(raw: str) -> list[Mapping[str, Any]]:
    """The JSON object of a file, or those of its lines; empty where it is something else."""
    try:
        bodies = [json.loads(raw)]
    except ValueError:
        try:
            bodies = [json.loads(line) for line in raw.splitlines() if line.strip()]
        except ValueError:
            return []
    return bodies if all(isinstance(body, dict) for body in bodies) else []
