"""The embedded engine's planner before the referee, beside an oracle: fixed trees measured at the same
time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from any_speed import any_speed_passes

from specops import results
from specops.config import load
from specops.phases.playbook.walk import run
from specops.phases.referee.records import ADAPTIVE, OFF, Findings, RefereeData
from specops.phases.run_page import INDEX
from specops.phases.run_page.document import write_page
from specops.progress import SilentProgress

TREES = ["chain:3", "ngram:8"]
PASSES = 6


def totals_ms(data: RefereeData, phase: int) -> dict[str, float]:
    """Time of the requests of a phase by server, all passes: of those that each server answered."""
    times: dict[str, dict[tuple[str, str], float]] = {}
    for segment in data.segments:
        if segment.phase == phase:
            rows = [row for row in segment.cell.rows if row.error is None]
            times.setdefault(segment.arm, {}).update({(row.prompt, row.variant): row.e2e_ms for row in rows})
    shared = set.intersection(*map(set, times.values()))
    assert len(shared) > PASSES * 4
    return {arm: sum(of_arm[key] for key in shared) for arm, of_arm in times.items()}


@pytest.mark.slow
def test_the_regret_of_the_planner_is_that_of_an_oracle(tmp_path: Path) -> None:
    """An oracle that knows the best fixed setting of each phase from the same requests."""
    engine = {"engine": "embedded", "threads": 1, "max_batch": 4}
    file = tmp_path / "rollout.yaml"
    fields = {
        "rollout": "planned",
        "pools": {"standard": engine, "speculative": engine | {"speculation": {"tree": "auto"}}},
        "measure": {"max_tokens": 16, "warmup": 1},
        "referee": {
            "trees": TREES,
            "passes": PASSES,
            "requests": 8,
            "phases": [{"streams": 1}, {"streams": 4}],
        },
    }
    file.write_text(json.dumps(fields))
    folder = tmp_path / "runs" / "planned"
    with any_speed_passes():
        run(load(file), file, folder, SilentProgress(), only="referee")
    result = results.read(folder / "referee.json")
    assert result.verdict in ("yes", "no", "undecided")
    data, findings = RefereeData.model_validate(result.data), Findings.model_validate(result.data)
    assert data.failed == {}
    judged = [number for number, phase in enumerate(findings.phases) if phase.regret is not None]
    if not judged:
        pytest.skip(f"the machine is too busy: {findings.phases[0].why}")
    for number in judged:
        regret, totals = findings.phases[number].regret, totals_ms(data, number)
        assert regret is not None
        fixed = sorted(totals[arm] for arm in (OFF, *TREES))
        oracle = totals[ADAPTIVE] / fixed[0] - 1
        assert regret.low - 0.03 <= oracle <= regret.high + 0.03
        if fixed[1] > 1.1 * fixed[0]:  # else the halves choose between equals
            assert regret.estimate == pytest.approx(oracle, abs=0.03)
    write_page(folder)
    page = (folder / INDEX).read_text(encoding="utf-8")
    assert "Adaptive and fixed settings" in page
    assert "phase-referee" in page
