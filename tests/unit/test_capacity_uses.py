"""What other phases do with a finished search for capacity, and what they do once it is of other pools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specops import results
from specops.config import Rollout, load
from specops.phases.capacity.gate import capacity
from specops.phases.capacity.phase import PHASE
from specops.phases.phase import PhaseInput, Timing
from specops.phases.playbook import walk
from specops.phases.route.thresholds import rules
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.document import document
from specops.progress import SilentProgress
from specops.render.report.formats import html
from specops.results import Result, Verdict

ROLLOUT = """rollout: demo
pools:
  standard: {engine: endpoint, base_url: "http://127.0.0.1:1/v1", model: m}
  speculative: {engine: endpoint, base_url: "http://127.0.0.1:2/v1", model: m}
slo: {ttft_ms: 300}
peak: {requests_per_s: 3, headroom: 0.2}
deploy: {standard_replicas: 1}
"""


def arm(rate: float, in_flight: float | None) -> dict[str, Any]:
    return {
        "rate": {"estimate": rate, "low": 0.9 * rate, "high": 1.1 * rate},
        "in_flight": in_flight,
        "tokens_a_request": 100.0,
        "cost_per_million": None,
        "requests": 3000,
        "failed": 0,
        "attained": 0.94,
        "saturated": 0,
        "at_the_lowest": 1.0,
    }


def stored(folder: Path, *, rate: float = 5.0, verdict: Verdict = "yes", more: str = "") -> Rollout:
    """A rollout in `folder`, and the result of its search in the run folder beside it."""
    file = folder / "rollout.yaml"
    file.write_text(ROLLOUT + more)
    rollout = load(file)
    task = PhaseInput(rollout, file, folder / "run", SilentProgress())
    data = {
        "objective": {"limits": {"ttft_ms": 300}, "attain": 0.95},
        "ratio": {"estimate": 1.2, "low": 1.1, "high": 1.3},
        "arms": {"standard": arm(rate, 9.0), "speculative": arm(1.2 * rate, 4.0)},
        "blocks": 20,
        "left_out": 0,
        "currency": None,
        "cost_ratio": None,
        "unsteady": None,
        "run": "ab",
        "prompts": {},
        "probes": [],
    }
    result = Result(
        phase="capacity",
        verdict=verdict,
        reason="speculation moves the highest rate at the objective from 5 to 6 requests/s: +20%",
        inputs=PHASE.inputs(task),
        data={} if verdict == "partial" else data,
    )
    results.write(task.path("capacity"), result)
    return rollout


def test_the_gate_takes_the_lower_end_of_the_standards_rate(tmp_path: Path) -> None:
    decided = capacity(stored(tmp_path), tmp_path / "run")
    assert decided.verdict == "yes"
    assert decided.reason == (
        "capacity suffices: 1 standard server sustains at least 3.6 requests/s at the objective"
        " (20% headroom); peak is 3"
    )
    low = capacity(stored(tmp_path, rate=3.0), tmp_path / "run")
    assert low.verdict == "no"
    assert low.change is not None
    assert "2 servers would carry it" in low.change
    between = capacity(stored(tmp_path, rate=4.0), tmp_path / "run")
    assert between.verdict == "undecided"
    assert "capacity.precision" in str(between.change)


@pytest.mark.parametrize("more", ["capacity: {attain: 0.9}\n", "measure: {max_tokens: 7}\n"])
def test_a_search_of_another_objective_or_load_is_not_used(tmp_path: Path, more: str) -> None:
    stored(tmp_path)
    (tmp_path / "rollout.yaml").write_text(ROLLOUT + more)
    decided = capacity(load(tmp_path / "rollout.yaml"), tmp_path / "run")
    assert (decided.verdict, decided.measured) == ("undecided", None)


def test_a_search_that_was_stopped_is_not_used(tmp_path: Path) -> None:
    rollout = stored(tmp_path, verdict="partial")
    assert capacity(rollout, tmp_path / "run").measured is None


def test_the_routers_limit_is_what_is_in_flight_at_the_speculative_rate(tmp_path: Path) -> None:
    limit = rules(stored(tmp_path), tmp_path / "run").table["max_in_flight"]
    assert limit["value"] == 8  # 4 on average, and twice the root of it for their scatter
    assert "meets the objective up to 8 streams a server" in limit["source"]
    (tmp_path / "rollout.yaml").write_text(ROLLOUT.replace("300", "200"))
    changed = rules(load(tmp_path / "rollout.yaml"), tmp_path / "run")
    assert (changed.table["max_in_flight"]["source"], "capacity" in changed.inputs) == ("default", False)
    assert changed.notes == ["capacity.json is not used: the settings changed since"]


def test_the_runs_page_has_the_answer_where_there_is_one(tmp_path: Path) -> None:
    stored(tmp_path)
    page = html(document(RunFolder(tmp_path / "run")))
    assert "Capacity at the objective" in page
    assert "Speculation moves the highest rate at the objective from 5 to 6 requests/s" in page
    (tmp_path / "run" / "capacity.json").unlink()
    assert "capacity" not in html(document(RunFolder(tmp_path / "run")))


def test_a_walk_has_the_phase_where_the_rollout_file_asks_for_it(tmp_path: Path) -> None:
    without, requested = stored(tmp_path), stored(tmp_path, more="capacity: {budget_min: 30}\n")
    assert "capacity" not in walk.order_of(without)
    order = walk.order_of(requested)
    assert order.index("ab") < order.index("capacity") < order.index("canary")
    assert walk.order_of(without, "capacity") == ("capacity",)
    task = PhaseInput(requested, tmp_path / "rollout.yaml", tmp_path / "empty", SilentProgress())
    planned = PHASE.forecast(task, Timing((), walk.settings_of(requested, requested.pools.standard)))
    assert planned.seconds == 1800
    assert planned.starts == 0
