"""The referee against scripted servers with known faults: the whole measurement, and its result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from stub import Body, Reply, Stub, fault, running_stub, stream

from specops import results
from specops.config import Rollout, load
from specops.phases.phase import PhaseInput
from specops.phases.playbook.walk import order_of
from specops.phases.referee.phase import PHASE
from specops.phases.referee.records import ADAPTIVE, Findings, RefereeData
from specops.progress import SilentProgress
from specops.results import Result

CHUNKS = [(f" word{number}", 1) for number in range(6)]

Pace = Callable[[Stub], float]
"""Seconds between the tokens of a request that has just come."""


def even(gap_s: float) -> Pace:
    return lambda stub: gap_s


def collapsing(stub: Stub) -> float:
    """As vllm#49548: fast up to two requests, and far slower than off from the third on."""
    return 0.006 if stub.in_flight < 3 else 0.12


pytestmark = pytest.mark.usefixtures("any_speed")


@pytest.fixture
def servers() -> Iterator[list[Stub]]:
    """Off, the adaptive server, and a fixed setting."""
    with ExitStack() as stubs:
        yield [stubs.enter_context(running_stub()) for _ in range(3)]


def paced(stub: Stub, pace: Pace) -> None:
    def answer(body: Body) -> Reply:
        gap_s = pace(stub)
        return Reply(stream(body, CHUNKS), first_s=gap_s, gap_s=gap_s)

    stub.answer = answer


def rollout_of(folder: Path, stubs: list[Stub], **section: Any) -> tuple[Rollout, Path]:
    off, adaptive, *fixed = stubs
    pools = {
        name: {"engine": "endpoint", "base_url": stub.base_url, "model": "stub"}
        for name, stub in (("standard", off), ("speculative", adaptive))
    }
    static = {f"k{number}": f"{stub.base_url}#stub" for number, stub in enumerate(fixed, start=3)}
    fields = {
        "rollout": "made",
        "pools": pools,
        "measure": {"warmup": 1, "max_tokens": 6},
        "referee": {"static": static, "passes": 8, "requests": 8} | section,
    }
    file = folder / "rollout.yaml"
    file.write_text(json.dumps(fields))  # JSON is YAML
    return load(file), file


def refereed(folder: Path, stubs: list[Stub], **section: Any) -> Result:
    rollout, file = rollout_of(folder, stubs, **section)
    task = PhaseInput(rollout, file, folder / "runs" / "made", SilentProgress())
    step = PHASE.run(task)
    assert step.phase == "referee"
    return results.read(folder / "runs" / "made" / "referee.json")


def findings_of(result: Result) -> Findings:
    return Findings.model_validate(result.data)


def test_a_collapse_is_found_with_its_threshold_within_five_minutes(
    tmp_path: Path, servers: list[Stub]
) -> None:
    for stub, pace in zip(servers, (even(0.01), collapsing, even(0.008)), strict=True):
        paced(stub, pace)
    began = time.monotonic()
    result = refereed(tmp_path, servers, phases=[{"streams": 1}, {"streams": 4}])
    assert time.monotonic() - began < 300
    findings = findings_of(result)
    assert (result.verdict, findings.verdict) == ("no", "loses")
    assert findings.collapses == ["collapse between 1 stream and 4 streams"]
    assert "collapse between 1 stream and 4 streams" in result.reason
    assert not findings.phases[0].collapse
    adaptation = findings.phases[1].adaptation
    assert adaptation is not None
    assert adaptation.outcome == "not observed"
    assert result.summary["collapses"] == findings.collapses

    # Each server got the same requests; the result is whole, and is not measured again.
    data = RefereeData.model_validate(result.data)
    sent = {
        arm: {
            (row.prompt, row.variant)
            for segment in data.segments
            if segment.arm == arm
            for row in segment.cell.rows
        }
        for arm in ("off", ADAPTIVE, "k3")
    }
    assert len(sent["off"]) == 8 * (8 + 8)
    assert all(requests == sent["off"] for requests in sent.values())
    before = len(servers[0].requests)
    rollout, file = rollout_of(tmp_path, servers, phases=[{"streams": 1}, {"streams": 4}])
    folder = tmp_path / "runs" / "made"
    assert order_of(rollout)[5] == "referee"
    again = PHASE.run(PhaseInput(rollout, file, folder, SilentProgress()))
    assert getattr(again, "reused", False)
    assert len(servers[0].requests) == before
    done = specops("referee", str(file), "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["data"]["collapses"] == findings.collapses


def test_a_server_that_fails_alone_loses(tmp_path: Path, servers: list[Stub]) -> None:
    for stub in servers:
        paced(stub, even(0.004))
    servers[1].answer = lambda body: (
        fault(500, "the engine is dead")
        if len(servers[1].requests) > 6
        else Reply(stream(body, CHUNKS), gap_s=0.001)
    )
    result = refereed(tmp_path, servers, phases=[{"streams": 1}])
    assert result.verdict == "no"
    assert "adaptive failed: stopped at 1 stream" in result.reason
    assert result.data["failed"].keys() == {ADAPTIVE}
