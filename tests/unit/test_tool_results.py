"""Results of other benchmarks are read for their figures, drawn and compared without a verdict, and never
renamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import specops

from specops.errors import Exit
from specops.phases.tool_results import NAMES, read_file
from specops.phases.tool_results.figures import ToolResult
from specops.phases.tool_results.views import side_by_side

INPUTS = yaml.safe_load(
    Path(__file__).with_name("public_inputs").joinpath("inputs.yaml").read_text(encoding="utf-8")
)
RESULTS = [one for one in INPUTS if one["kind"] == "result" and one["half"] in ("developed", "later")]


def judged(result: ToolResult | None) -> dict[str, Any]:
    """The figures of a file's first run, as `right` of an input has them."""
    if result is None:
        return {"tool": None}
    run = result.runs[0]
    return {
        "tool": result.tool,
        "runs": len(result.runs),
        "requests": run.requests,
        "failed": run.failed,
        "ttft_p50_ms": run.ttft_ms.p50,
        "tpot_p50_ms": run.tpot_ms.p50,
        "tokens_per_sec": run.tokens_per_sec,
        "acceptance_rate": run.acceptance_rate,
        "acceptance_length": run.acceptance_length,
    }


def write(folder: Path, one: Mapping[str, Any]) -> Path:
    path = folder / one["name"]
    path.write_text(one["text"], encoding="utf-8")
    return path


@pytest.mark.parametrize("one", RESULTS, ids=[one["id"] for one in RESULTS])
def test_a_tools_figures_are_read(one: Mapping[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, one)
    assert judged(read_file(path)) == one["right"]
    drawn = specops("plot", str(path), "--out", str(tmp_path / "p.svg"))
    if one["right"]["tool"] is None:
        assert drawn.returncode in (Exit.USAGE, Exit.ENVIRONMENT)
        assert not (tmp_path / "p.svg").exists()
        return
    assert (drawn.returncode, (tmp_path / "p.svg").is_file()) == (Exit.YES, True), drawn.stderr
    assert path.is_file()


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "not JSON", '{"benchmarks": []}', '{"schema": "v1", "rows": []}', ""]
)
def test_an_unknown_file_is_left_where_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    for command in (["plot", str(path)], ["compare", str(path), str(path)]):
        done = specops(*command)
        assert done.returncode in (Exit.USAGE, Exit.ENVIRONMENT)
        assert "mv " not in done.stderr
        assert "damaged" not in done.stderr or text in ("not JSON", "", "[1]", "{}", '{"benchmarks": []}')
    assert NAMES in specops("compare", str(path), str(path)).stderr


def test_two_files_stand_side_by_side_without_a_verdict(tmp_path: Path) -> None:
    first, second = (write(tmp_path, RESULTS[number]) for number in (0, 2))
    done = specops("compare", str(first), str(second), "--json")
    assert done.returncode == Exit.YES, done.stderr
    shown = json.loads(done.stdout)
    assert "verdict" not in shown
    assert shown["unmatched"] == ["16 streams", "8 streams"]
    same = side_by_side(*(read_file(first) for _ in range(2)))  # type: ignore[arg-type]
    assert {pair.ratio for pair in same.figures} == {1.0}
    assert not same.unmatched
