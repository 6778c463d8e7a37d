"""Items that are decided by what answers now: a Prometheus' figures, a guard's standing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_checklists import NOW, Made, write

from specops.guard.guard import Status, status
from specops.guard.journal import JournalState
from specops.guard.state import Evaluation
from specops.phases.checklist import items
from specops.phases.checklist.evidence import CheckInput, OpenItem
from specops.phases.checklist.items import acceptance
from specops.prometheus.api import Sample


class Prometheus:
    """Answers an expression by the first of `figures` whose name is in it."""

    url = "http://prometheus:9090"

    def __init__(self, **figures: float) -> None:
        self.figures: Mapping[str, float] = figures

    def instant(self, expr: str, at: float | None = None) -> list[Sample]:
        found = next((value for name, value in self.figures.items() if name in expr), None)
        return [] if found is None else [Sample({}, found, NOW.timestamp())]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made(tmp_path_factory.mktemp("made"))
    made.fill()
    return made


def look(made: Made, api: Any) -> CheckInput:
    found = CheckInput(made.rollout, made.path, made.folder, NOW)
    vars(found)["api"] = api
    return found


# The share of acceptance is one expression that names both counters.
ACCEPTED, DRAFTED = "num_accepted_tokens_total", "num_draft_tokens_total"


@pytest.mark.parametrize(
    ("figures", "passed", "said"),
    [
        (
            {ACCEPTED: 0.45, DRAFTED: 5000},
            True,
            "acceptance 0.45 in the last day's traffic (threshold: above 0.30, break-even",
        ),
        ({ACCEPTED: 0.25, DRAFTED: 5000}, False, "0.25 in the last day's traffic (threshold: above 0.30"),
        ({ACCEPTED: 0.30, DRAFTED: 5000}, False, "0.30 in the last day's traffic (threshold: above 0.30"),
        (
            {ACCEPTED: 0.25, DRAFTED: 900},
            True,
            "0.71 for the compared prompts",
        ),  # too little to go by
        ({}, True, "0.71 for the compared prompts"),
    ],
)
def test_acceptance_is_of_live_traffic_where_there_is_enough(
    figures: dict[str, float], passed: bool, said: str, made: Made
) -> None:
    decided = acceptance(look(made, Prometheus(**figures)))
    assert (decided.passed, said in decided.reason) == (passed, True), decided.reason
    live = "last day" in said or not passed
    assert (decided.evidence[0].sha256 is None) == live


@pytest.mark.parametrize(
    ("figures", "passed"),
    [
        ({"kv_cache_usage_perc": 0.6, "num_preemptions_total": 0.0}, True),
        ({"kv_cache_usage_perc": 0.97, "num_preemptions_total": 0.0}, False),
        ({"kv_cache_usage_perc": 0.6, "num_preemptions_total": 3.0}, False),
    ],
)
def test_memory_that_is_below_its_limit_is_too_little_where_the_kv_cache_is_full(
    figures: dict[str, float], passed: bool, made: Made
) -> None:
    decided = items.gpu_memory(look(made, Prometheus(**figures)))
    assert decided.passed == passed, decided.reason
    assert (decided.change is None) == passed


@pytest.mark.parametrize(
    "figures", [{}, {"kv_cache_usage_perc": 0.6}, {"num_preemptions_total": 0.0}], ids=str
)
def test_a_kv_cache_that_nothing_shows_is_not_enough(figures: dict[str, float], made: Made) -> None:
    """What has no series is not 0: a person may attest it."""
    with pytest.raises(OpenItem, match="whether the KV cache is large enough is unknown") as found:
        items.gpu_memory(look(made, Prometheus(**figures)))
    assert "attest gpu-memory" in (found.value.decide or "")


@pytest.mark.parametrize(("share", "passed"), [(0.94, True), (0.95, False)])
def test_gpu_memory_is_the_exporters_where_there_is_one(share: float, passed: bool, tmp_path: Path) -> None:
    made = Made(tmp_path)
    addresses = {"standard": ["127.0.0.1:1"], "speculative": ["127.0.0.1:2"], "gpus": ["127.0.0.1:3"]}
    write(tmp_path, addresses=addresses)
    kv = {"kv_cache_usage_perc": 0.6, "num_preemptions_total": 0.0}
    decided = items.gpu_memory(look(made, Prometheus(gpu_memory_share=share, **kv)))
    assert (decided.passed, f"{share:.0%}" in decided.reason) == (passed, True)


def stands(verdict: Any, *, seconds_ago: float = 30.0, **changes: Any) -> Status:
    seen = Evaluation(ts=NOW.timestamp() - seconds_ago, verdict=verdict, reason="as it was made up")
    return status(JournalState(evaluation=seen), running=4711).model_copy(update=changes)


@pytest.mark.parametrize(
    ("found", "passed", "said"),
    [
        (stands("healthy"), True, "pid 4711, healthy 30 s ago"),
        (stands("bad"), True, "bad 30 s ago"),  # it sees, and acts
        (stands("no_traffic"), True, "no traffic"),
        (stands("no_data"), False, "has no data"),
        (stands("unknown"), False, "has no data"),
        (stands("healthy", seconds_ago=600), False, "600 s ago"),
        (stands("healthy", unconfirmed="a router has 100%"), False, "not in effect: a router has 100%"),
        (stands("healthy", running=None), None, "no guard of this run folder runs"),
        (stands("healthy", evaluation=None), None, "has evaluated nothing yet"),
    ],
)
def test_a_guard_counts_while_it_runs_and_sees(
    found: Status, passed: bool | None, said: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "standing", lambda folder: found)
    if passed is None:
        with pytest.raises(OpenItem, match=said):
            items.guard_running(look(made, None))
        return
    decided = items.guard_running(look(made, None))
    assert (decided.passed, said in decided.reason) == (passed, True), decided.reason
