"""Arms and pools that are one server are refused by `ab`, `run` and `doctor`; two servers never are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from comparing import arms, asked, run
from stub import CHUNKS, Body, Reply, Stub, running_stub, stream

from specops.config import Rollout, load
from specops.errors import ConfigError, UsageError
from specops.experiment.arms import Arm
from specops.phases import PHASES, PhaseName, playbook
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings
from specops.phases.doctor.deployment import pools
from specops.phases.doctor.machine import Check
from specops.progress import SilentProgress
from specops.serving.embedded import EmbeddedPool
from specops.serving.endpoint import EndpointPool


def exposes(
    *stubs: Stub, started: str | None = None, model: str = "stub", drafts: int | None = None, used: int = 0
) -> Callable[[], str]:
    """The metrics of one engine that serves `stubs`: 8 tokens a request, so many drafts, 10 ms of CPU."""

    def text() -> str:
        done = sum(len(stub.requests) for stub in stubs)
        label = f'{{model_name="{model}"}}'
        lines = [f"vllm:generation_tokens_total{label} {used + 8 * done}"]
        if drafts is not None:
            lines.append(f"vllm:spec_decode_num_drafts_total{label} {drafts * done}")
        if started is not None:
            lines.append(f"process_start_time_seconds {started}")
            lines.append(f"process_cpu_seconds_total {12 + used + 0.01 * done}")
        return "\n".join(lines) + "\n"

    return text


def one_engine(stub: Stub, other: Stub, started: str | None) -> None:
    stub.metrics = other.metrics = exposes(stub, other, started=started)


def test_one_address_is_refused_before_the_first_request(stub: Stub, prompts_file: Path) -> None:
    with pytest.raises(UsageError) as refused:
        run((stub, stub), prompts_file)
    assert refused.value.message == (
        f"the arms a and b are one server: both are {stub.base_url}; expected the address of a second server"
    )
    a_a = f"specops ab --same-server --arm a={stub.base_url} --arm b={stub.base_url}"
    assert str(refused.value.hint).startswith(f"{a_a}  #")
    assert stub.requests == []


def test_other_spellings_of_one_address_are_refused(stub: Stub, prompts_file: Path) -> None:
    pair = arms(stub)
    spelt = stub.base_url.replace("127.0.0.1", "LocalHost") + "/"
    pair.append(Arm("b", EndpointPool(engine="endpoint", base_url=spelt, model="stub")))
    with pytest.raises(UsageError, match="one server"):
        compare(pair, asked(prompts_file), AbSettings(), SilentProgress(), logs=prompts_file.parent)
    assert stub.requests == []


def test_one_process_at_two_addresses_is_refused_before_it_is_asked(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    one_engine(stub, other, started="1763900000.23")
    with pytest.raises(UsageError, match=r"started at 1763900000\.23 and serves stub"):
        run((stub, other), prompts_file)
    assert stub.requests == other.requests == []


def test_without_start_times_one_request_shows_it(stub: Stub, other: Stub, prompts_file: Path) -> None:
    """SGLang's metrics, and those of the embedded engine, have no start time."""
    one_engine(stub, other, started=None)
    with pytest.raises(UsageError, match="grew by 8 while only the first was sent a request"):
        run((stub, other), prompts_file)
    assert (len(stub.requests), other.requests) == (1, [])


def test_a_third_arm_is_held_against_each_of_the_others(stub: Stub, other: Stub, prompts_file: Path) -> None:
    with running_stub() as third:
        one_engine(other, third, started=None)
        stub.metrics = exposes(stub, started=None)
        with pytest.raises(UsageError, match="the arms b and c are one server"):
            run((stub, other, third), prompts_file)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"started": "1763900000.23"}, {"started": "1763900000.24"}),
        ({"started": "1763900000.23"}, {"started": "1763900000.23", "used": 1}),
        ({"started": "1763900000.23", "model": "stub"}, {"started": "1763900000.23", "model": "another"}),
        ({}, {}),
        ({"started": "1763900000.23"}, {}),
    ],
    ids=["the same second", "the same hundredth", "another model", "no start times", "one start time"],
)
def test_two_servers_are_compared(
    stub: Stub, other: Stub, prompts_file: Path, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    stub.metrics, other.metrics = exposes(stub, **ours), exposes(other, **theirs)
    assert run((stub, other), prompts_file, concurrency=[4]).data["windows"]


def test_where_metrics_are_absent_nothing_is_refused(stub: Stub, other: Stub, prompts_file: Path) -> None:
    stub.metrics = exposes(stub, started="1763900000.23")
    assert run((stub, other), prompts_file, concurrency=[4]).data["windows"]


A_A = AbSettings(looks=1, mixed_prompts=0, requests=150, min_duration_s=0.0, same_server=True)


def test_an_a_a_of_one_server_reports_its_noise(stub: Stub, prompts_file: Path) -> None:
    found = run((stub, stub), prompts_file, settings=A_A, concurrency=[2])
    assert found.verdict == "undecided"
    assert found.reason.startswith("an A/A of one server: differences below ")
    assert found.data["same_server"][0]["below"] > 0
    assert found.data["challengers"]["b"]["deploy"] == []


def test_an_a_a_of_one_process_at_two_addresses(stub: Stub, other: Stub, prompts_file: Path) -> None:
    one_engine(stub, other, started=None)
    assert run((stub, other), prompts_file, settings=A_A).verdict == "undecided"


def test_an_a_a_of_two_servers_is_refused(stub: Stub, other: Stub, prompts_file: Path) -> None:
    with pytest.raises(UsageError, match="nothing shows that a and b are one") as refused:
        run((stub, other), prompts_file, settings=A_A)
    assert f"--arm a={stub.base_url} --arm b={stub.base_url}" in str(refused.value.hint)
    stub.metrics, other.metrics = exposes(stub), exposes(other)
    with pytest.raises(UsageError, match="nothing shows"):
        run((stub, other), prompts_file, settings=A_A)


def test_an_a_a_of_servers_that_would_be_started_is_refused(stub: Stub, prompts_file: Path) -> None:
    pair = [*arms(stub), Arm("b", EmbeddedPool(engine="embedded"))]
    with pytest.raises(UsageError, match="b would be started here"):
        compare(pair, asked(prompts_file), A_A, SilentProgress(), logs=prompts_file.parent)


def rollout(folder: Path, prompts: Path, standard: Stub, speculative: Stub, **more: Any) -> Path:
    file = {
        "rollout": "tiny",
        "prompts": str(prompts),
        "pools": {
            name: {"engine": "endpoint", "base_url": one.base_url, "model": "stub"}
            for name, one in (("standard", standard), ("speculative", speculative))
        },
        "measure": {"concurrency": [4], "repeats": 1, "warmup": 0},
    }
    path = folder / "rollout.yaml"
    path.write_text(yaml.safe_dump(file | more))
    return path


def walk(path: Path, only: PhaseName = "baseline") -> playbook.Walk:
    file: Rollout = load(path)
    return playbook.run(file, path, path.parent / "run", SilentProgress(), only=only)


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        walk(path)
    assert str(error.value.hint).startswith(f"specops doctor {path}  #")
    return error.value.message


def test_run_refuses_pools_that_are_one_server(
    stub: Stub, other: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    same = rollout(tmp_path, prompts_file, stub, stub)
    assert refused(same).startswith("the standard and the speculative pool are one server: both are http://")
    for phase in PHASES:  # one that measures nothing would render a router before one server
        with pytest.raises(ConfigError, match="one server"):
            walk(same, phase)
    assert stub.requests == []
    one_engine(stub, other, started=None)
    two = rollout(tmp_path, prompts_file, stub, other)
    assert "one server: its vllm:generation_tokens_total grew" in refused(two)


def test_run_refuses_a_standard_pool_that_speculates(
    stub: Stub, other: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    path = rollout(tmp_path, prompts_file, stub, other)
    stub.metrics, other.metrics = exposes(stub, drafts=3), exposes(other, drafts=3, used=1)
    assert refused(path).startswith("the standard speculates: it verified 6 drafts while it answered")
    stub.metrics, other.metrics = exposes(stub, drafts=3), exposes(other, used=1)
    assert refused(path).startswith("the pools look swapped")
    stub.metrics, other.metrics = exposes(stub), exposes(other, drafts=3)
    assert walk(path).steps[0].result.verdict == "yes"


def test_run_measures_the_standard_where_the_other_pool_is_down(
    stub: Stub, other: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    path = rollout(tmp_path, prompts_file, stub, other)
    other.answer = lambda body: Reply(status=500)
    assert walk(path).steps[0].result.verdict == "yes"


def doctor(path: Path) -> dict[str, Check]:
    return {check.name: check for check in pools(load(path))}


def one_token(body: Body) -> Reply:
    return Reply(stream(body, [(text, 1) for text, _ in CHUNKS]))


def test_doctor_names_what_is_wrong_with_the_pools(
    stub: Stub, other: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    path = rollout(tmp_path, prompts_file, stub, other)
    same = doctor(rollout(tmp_path, prompts_file, stub, stub))["pools"]
    assert (same.status, "both pools are one server" in same.found) == ("fail", True)
    rollout(tmp_path, prompts_file, stub, other)
    assert doctor(path)["standard speculates"].status == "warn", "two tokens a chunk"
    stub.answer = one_token
    assert doctor(path)["standard speculates"].found == "no"
    stub.metrics = exposes(stub, drafts=3)
    assert doctor(path)["standard speculates"].status == "fail"
    stub.answer, other.answer, stub.metrics = other.answer, one_token, lambda: None
    swapped = doctor(path)["standard speculates"]
    assert (swapped.status, "look swapped" in swapped.found) == ("fail", True)
    assert swapped.paste is not None
    assert swapped.paste.text.index(other.base_url) < swapped.paste.text.index(stub.base_url), "swapped"


def test_doctor_does_not_call_a_stream_interval_speculation(
    stub: Stub, other: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    """Two tokens a chunk, and counters that show no drafts."""
    stub.metrics, other.metrics = exposes(stub), exposes(other, drafts=2)
    found = doctor(rollout(tmp_path, prompts_file, stub, other))["standard speculates"]
    assert found.status == "warn"
    assert "it may speculate, or send several tokens at a time" in found.found
    assert "its counters show no drafts" in found.found


def test_doctor_names_a_server_that_the_router_has_in_both_pools(
    stub: Stub, other: Stub, prompts_file: Path, tmp_path: Path
) -> None:
    addresses = {"standard": ["10.0.0.1:8000", "127.0.0.1:9"], "speculative": ["localhost:9"]}
    found = doctor(rollout(tmp_path, prompts_file, stub, other, addresses=addresses))["pool addresses"]
    assert found.status == "fail"
    assert "127.0.0.1:9" in found.found
    apart = {"standard": ["10.0.0.1:8000"], "speculative": ["10.0.0.2:8000"]}
    assert "pool addresses" not in doctor(rollout(tmp_path, prompts_file, stub, other, addresses=apart))
