"""What the run folder says of the standard pool: measured for real, refused where it is of something else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from any_speed import any_speed_passes
from stub import CHUNKS, Reply, Stub, running_stub, stream
from sweeping import run as sweep

from specops import results
from specops.config import Rollout
from specops.phases import playbook
from specops.phases.capacity.gate import MeasuredServer, UnknownCapacity, capacity, measured
from specops.phases.sweep.spec import spec_of
from specops.progress import SilentProgress
from specops.serving.endpoint import EndpointPool

SLO = {"e2e_ms": 10000}


@dataclass(frozen=True)
class Served:
    """A stub that was measured once, and the rollout that it was measured for."""

    stub: Stub
    prompts: Path
    baseline: dict[str, Any]

    def rollout(self, model: str = "stub", **sections: Any) -> Rollout:
        pool = {"engine": "endpoint", "base_url": self.stub.base_url, "model": model}
        fields: dict[str, Any] = {
            "rollout": "r",
            "prompts": str(self.prompts),
            "pools": {"standard": pool, "speculative": pool | {"base_url": "http://127.0.0.1:9/v1"}},
            "measure": {"concurrency": [1, 4], "repeats": 3, "warmup": 0},
            "slo": SLO,
            "peak": {"requests_per_s": 1.0},
        }
        return Rollout.model_validate(fields | sections)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps([{"text": f"Prompt {i}"} for i in range(24)]))
    with running_stub() as stub:
        stub.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=0.005)
        served = Served(stub, prompts, {})
        with any_speed_passes():
            playbook.run(served.rollout(), folder / "rollout.yaml", folder, SilentProgress(), only="baseline")
        served.baseline.update(json.loads((folder / "baseline.json").read_text()))
        assert served.baseline["verdict"] == "yes", served.baseline["reason"]
        yield served


@pytest.fixture
def kept(served: Served, tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Puts a baseline.json, as measured or edited, into a run folder of the test's own."""

    def keep(baseline: dict[str, Any]) -> Path:
        (tmp_path / "baseline.json").write_text(results.sealed(baseline))
        return tmp_path

    return keep


@pytest.fixture
def baseline(served: Served) -> dict[str, Any]:
    """A copy to edit."""
    copy: dict[str, Any] = json.loads(json.dumps(served.baseline))
    return copy


def why(rollout: Rollout, folder: Path) -> str:
    """Why nothing counts; then the gate does not pass."""
    found = measured(rollout, folder)
    assert isinstance(found, UnknownCapacity)
    assert found.change
    assert capacity(rollout, folder).verdict == "undecided"
    return found.why


def counted(rollout: Rollout, folder: Path) -> MeasuredServer:
    found = measured(rollout, folder)
    assert isinstance(found, MeasuredServer)
    return found


def test_a_measured_pool(served, kept, tmp_path) -> None:
    rollout = served.rollout()
    assert "there is no baseline.json" in why(rollout, tmp_path)
    found = counted(rollout, kept(served.baseline))
    level = served.baseline["data"]["by_concurrency"][1]
    assert (found.concurrency, found.above) == (4, None)
    assert found.requests_per_s is not None
    assert found.requests_per_s.low == level["over_repeats"]["requests_per_sec"]["low"]
    assert found.requests_per_s.n == 3
    # Each answer takes at least three gaps of 5 ms, so four streams give at most 267 a second.
    assert found.requests_per_s.estimate < 267
    assert found.sha256 == results.sha256(tmp_path / "baseline.json")
    too_much = served.rollout(peak={"requests_per_s": 400.0, "headroom": 0.0})
    assert capacity(too_much, tmp_path).verdict != "yes"


def test_a_load_that_misses_the_slo_does_not_count_nor_any_above_it(served, kept, baseline) -> None:
    first, second = baseline["data"]["by_concurrency"]
    first["e2e_with_retries_ms"]["p95"], second["e2e_with_retries_ms"]["p95"] = 9000.0, 11000.0
    found = counted(served.rollout(), kept(baseline))
    assert found.concurrency == 1
    assert "E2E at 4 streams is 11000 ms" in str(found.above)
    first["e2e_with_retries_ms"].update(p95=None, missing={"p95": "too few"})
    assert "E2E at 1 stream is not known (too few)" in why(served.rollout(), kept(baseline))


def test_a_load_at_which_requests_fail_does_not_count(served, kept, baseline) -> None:
    baseline["data"]["by_concurrency"][1]["failed"] = 8
    found = counted(served.rollout(), kept(baseline))
    assert found.concurrency == 1
    assert "8 of 72 requests failed at 4 streams" in str(found.above)


def test_a_measurement_of_something_else_is_refused(served, kept, tmp_path) -> None:
    folder = kept(served.baseline)
    assert "the settings changed since" in why(served.rollout(model="another"), folder)
    warmer = {"concurrency": [1, 4], "repeats": 3, "warmup": 0, "temperature": 1.0}
    assert "the settings changed since" in why(served.rollout(measure=warmer), folder)
    other = tmp_path / "others.json"
    other.write_text(json.dumps([{"text": "Another prompt"}]))
    assert "the prompts changed since" in why(served.rollout(prompts=str(other)), folder)
    # More levels and repeats are no other measurement, nor is another machine that asks.
    more = {"concurrency": [1, 4, 8], "repeats": 9, "warmup": 0}
    elsewhere = served.baseline | {"inputs": served.baseline["inputs"] | {"machine": "0" * 64}}
    assert counted(served.rollout(measure=more), kept(elsewhere)).concurrency == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "partial", "reason": "stopped after 2 of 6 cells"}, "stopped after 2 of 6 cells"),
        ({"verdict": "no", "reason": "8 of 72 requests failed"}, "8 of 72 requests failed"),
        ({"phase": "ab"}, "is a result of ab: expected baseline"),
        ({"data": {"by_concurrency": [{"concurrency": 1}]}}, "damaged"),
        ({"data": {"by_concurrency": []}}, "no level of concurrency"),
        ({"schema": 99}, "schema 99"),
    ],
)
def test_a_failed_partial_or_damaged_measurement_is_refused(served, kept, change, said) -> None:
    assert said in why(served.rollout(), kept(served.baseline | change))


def test_a_sweeps_standard_counts_where_there_is_no_baseline(served, kept, tmp_path) -> None:
    once = {"measure": {"concurrency": [4], "repeats": 1, "warmup": 0}, "slo": None}
    rollout = served.rollout(**once)
    pool = EndpointPool(engine="endpoint", base_url=served.stub.base_url, model="stub")
    results.write(tmp_path / "sweep.json", sweep(spec_of(rollout, tmp_path, {0: pool, 3: pool})))
    found = counted(rollout, tmp_path)
    assert found.source.endswith("sweep.json")
    assert found.concurrency == 4
    assert found.requests_per_s is not None
    assert found.requests_per_s.n == 2  # the standard, before the other setting and after it
    assert "the standard pool changed since" in why(served.rollout(model="another", **once), tmp_path)
    assert counted(served.rollout(), kept(served.baseline)).source.endswith("baseline.json")
