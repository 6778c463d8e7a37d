"""`specops capacity` on two servers over HTTP: the same requests to both, resuming, over-saturation, and what
cannot be claimed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calling import specops
from place_queue import give_places
from stub import Reply, Stub

from specops import results
from specops.phases.capacity.records import CapacityStored, Probe

OBJECTIVE = ("--objective", "ttft_p95<300ms, tpot_p95<300ms")


def rollout(folder: Path, stub: Stub, other: Stub, more: str = "") -> Path:
    prompts = folder / "prompts.json"
    prompts.write_text(
        json.dumps(
            [{"id": str(n), "class": "chat", "text": f"Question {n}?", "max_tokens": 64} for n in range(20)]
        )
    )
    file = folder / "rollout.yaml"
    file.write_text(
        f"""rollout: demo
prompts: prompts.json
pools:
  standard: {{engine: endpoint, base_url: "{stub.base_url}", model: stub}}
  speculative: {{engine: endpoint, base_url: "{other.base_url}", model: stub}}
measure: {{warmup: 0, timeout_s: 5}}
{more}"""
    )
    return file


def probes_of(folder: Path) -> list[Probe]:
    data = results.read(folder / "runs" / "demo" / "capacity.json").data
    return CapacityStored.model_validate(data).probes


@pytest.mark.slow
def test_both_arms_get_the_same_requests_and_more_time_goes_on(
    tmp_path: Path, stub: Stub, other: Stub
) -> None:
    give_places(stub, 2, 0.04)
    give_places(other, 2, 0.03)
    file = rollout(tmp_path, stub, other, "costs: {standard_per_hour: 2}\n")
    done = specops("capacity", str(file), *OBJECTIVE, "--budget", "12s")
    assert done.returncode == 4, done.stderr
    first = probes_of(tmp_path)
    assert {probe.plan.place for probe in first} >= {"alone", "locate"}
    assert all(probe.unknown == probe.failed == 0 for probe in first)
    assert all(probe.tokens for probe in first if probe.ended_by is None)
    contents = [[json.dumps(body["messages"]) for body in server.requests[1:13]] for server in (stub, other)]
    assert sorted(contents[0]) == sorted(contents[1]), "the probes `alone`, after one request to introduce it"
    longer = specops("capacity", str(file), *OBJECTIVE, "--budget", "16s")
    assert longer.returncode == 4, longer.stderr
    again = probes_of(tmp_path)
    whole = [probe for probe in first if probe.plan.place in ("alone", "locate")]
    assert again[: len(whole)] == whole
    assert sum(probe.seconds for probe in again) >= 12


def test_a_server_without_usage_gets_no_claim(tmp_path: Path, stub: Stub, other: Stub) -> None:
    for server in (stub, other):
        give_places(server, 20, 0.005, usage=False)
    done = specops("capacity", str(rollout(tmp_path, stub, other)), *OBJECTIVE, "--json")
    assert done.returncode == 4
    result = json.loads(done.stdout)
    assert result["verdict"] == "undecided"
    assert result["reason"].startswith("a limited figure of 12 of 12 requests to standard is not known: ")
    assert result["data"]["ratio"] is None


def test_a_challenger_that_fails_meets_the_objective_at_no_rate(
    tmp_path: Path, stub: Stub, other: Stub
) -> None:
    give_places(stub, 20, 0.005)
    give_places(other, 20, 0.005)
    answer, sent = other.answer, 0

    def failing(body: dict[str, object]) -> Reply:
        nonlocal sent
        sent += 1
        return answer(body) if sent < 3 else Reply([b"{}"], 500, content_type="application/json")

    other.answer = failing
    done = specops("capacity", str(rollout(tmp_path, stub, other)), *OBJECTIVE, "--json", "--budget", "5s")
    result = json.loads(done.stdout)
    assert result["reason"].startswith("speculative meets the objective at no rate: ")
    assert result["data"]["arms"]["speculative"]["rate"] is None
    assert result["verdict"] != "yes"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "capacity is at an objective, and slo has no limit"),
        ("slo: {tpot_ms: 30}\n", "capacity is at an objective, and slo has no limit"),
    ],
)
def test_an_objective_is_needed_before_anything_is_sent(
    tmp_path: Path, stub: Stub, other: Stub, more: str, message: str
) -> None:
    done = specops("capacity", str(rollout(tmp_path, stub, other, more)))
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert stub.requests == other.requests == []


def test_a_limit_on_the_rate_is_refused(tmp_path: Path, stub: Stub, other: Stub) -> None:
    file = rollout(tmp_path, stub, other, "slo: {ttft_ms: 300}\n")
    file.write_text(file.read_text().replace("warmup: 0", "warmup: 0, max_rps: 5"))
    done = specops("capacity", str(file))
    assert done.returncode == 2, done.stderr
    assert "measure.max_rps (5)" in done.stderr
