"""`compare`: the visits that are made, what is kept of them, and how a comparison goes on where it was."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from comparing import Decided, arms, asked, run, texts, visits
from specops.phases.ab.evidence import Evidence
from stub import CHUNKS, Body, Reply, Stub, fault, stream

from specops.errors import EndpointError, FileError, PromptsError, UsageError
from specops.experiment.arms import Arm
from specops.phases.ab import verdict
from specops.phases.ab.earlier import measurements_of
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings
from specops.progress import SilentProgress
from specops.results import Result
from specops.serving.command import CommandPool
from specops.serving.endpoint import EndpointPool


@pytest.fixture(autouse=True)
def never_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve prompts to a stub decide nothing or all by chance; what stops early is tested on its own, and so
    are gains."""
    monkeypatch.setattr(verdict, "look", lambda *_: Decided(False))
    monkeypatch.setattr(Evidence, "_pays", lambda *_: False)


def test_every_arm_is_asked_the_same_in_turn(stub: Stub, other: Stub, prompts_file: Path) -> None:
    found = run((stub, other), prompts_file, concurrency=[1, 4])
    made = visits(found)
    turns = ["".join(v.arm for v in made[at : at + 4]) for at in range(0, len(made), 4)]
    assert set(turns) == {"abba", "baab"}
    for one, two in zip(made[::2], made[1::2], strict=True):
        assert {one.arm, two.arm} == {"a", "b"}
        assert one.key[:-1] == two.key[:-1]
        assert one.began <= two.began
        assert {row.prompt for row in one.cell.rows} == {row.prompt for row in two.cell.rows}
    assert Counter(texts(stub)[1:]) == Counter({f"Prompt {i}": 4 for i in range(12)})
    assert Counter(texts(stub)) == Counter(texts(other))
    assert {v.period for v in made} == {0}


def test_requests_are_equal_to_the_byte_and_in_order(stub: Stub, other: Stub, prompts_file: Path) -> None:
    run((stub, other), prompts_file)
    assert stub.requests == other.requests


def test_an_arm_is_warmed_up_once_at_each_level(stub: Stub, other: Stub, prompts_file: Path) -> None:
    run((stub, other), prompts_file, concurrency=[1, 4], warmup=3)
    for server in (stub, other):
        assert len(server.requests) == 1 + 2 * 3 + 2 * 2 * 12


def test_what_a_result_says(stub: Stub, other: Stub, prompts_file: Path) -> None:
    other.metrics = lambda: 'vllm:cache_config_info{block_size="16"} 1.0\n'
    kept: list[Result] = []
    found = run((stub, other), prompts_file, kept=kept)
    assert found.phase == "ab"
    assert set(found.inputs) == {"prompts", "settings", "machine"}
    assert found.data["prompts"]["sha256"] == found.inputs["prompts"]
    assert found.data["looks"] == {"done": 2, "planned": 2}
    assert found.settings["design"] == "interleaved"
    assert found.settings["arms"]["b"]["base_url"] == other.base_url
    told = found.environment["arms"]
    assert (told["a"]["server"], told["a"]["model"], told["a"]["cache_config"]) == ("stub-1", "stub", None)
    assert told["b"]["cache_config"] == {"block_size": "16"}
    assert [len(partial.data["visits"]) for partial in kept] == list(range(1, len(visits(found)) + 1))
    assert {(p.verdict, p.phase) for p in kept} == {("partial", "ab")}
    assert kept[2].reason == f"stopped after 3 of {len(visits(found))} visits"


def test_counters_are_read_around_each_visit(stub: Stub, other: Stub, prompts_file: Path) -> None:
    def metrics() -> str:
        done = len(other.requests)
        names = {"drafts": 3, "draft_tokens": 9, "accepted_tokens": 5}
        series = [f'vllm:spec_decode_num_{n}_total{{model_name="stub"}} {k * done}' for n, k in names.items()]
        return "\n".join(series) + "\n"

    other.metrics = metrics
    for visit in visits(run((stub, other), prompts_file, warmup=2)):
        if visit.arm == "a":
            assert visit.cell.drafts is None
            assert "answered 404" in str(visit.cell.drafts_missing)
        else:
            assert visit.cell.drafts is not None
            assert visit.cell.drafts.drafts == 3 * len(visit.cell.rows)


def test_the_rate_cap_holds_for_all_arms_together(stub: Stub, other: Stub, prompts_file: Path) -> None:
    made = visits(run((stub, other), prompts_file, concurrency=[4], max_rps=100, repeats=1))
    ends = made[-1].began + max(row.sent_s for row in made[-1].cell.rows)
    assert ends - made[0].began >= (2 * 12 - 1) * 0.01 - 0.005


def test_a_comparison_goes_on_with_the_visits_that_it_lacks(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    kept: list[Result] = []
    whole = run((stub, other), prompts_file, kept=kept)
    stub.requests.clear()
    other.requests.clear()
    found = run((stub, other), prompts_file, kept[4])
    assert [v.key for v in visits(found)] == [v.key for v in visits(whole)]
    assert visits(found)[:5] == visits(whole)[:5]
    assert [v.period for v in visits(found)] == [0] * 5 + [1] * (len(visits(whole)) - 5)
    sent = sum(len(v.cell.rows) for v in visits(whole)[5:])
    assert len(stub.requests) + len(other.requests) == 2 + sent  # a probe each


def test_a_whole_comparison_is_judged_again_without_a_request(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    whole = run((stub, other), prompts_file)
    stub.requests.clear()
    again = run((stub, other), prompts_file, whole)
    assert (stub.requests, again.data, again.environment) == ([], whole.data, whole.environment)


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [({}, {"temperature": 0.5}), ({}, {"repeats": 3}), ({"looks": 3}, {}), ({"confidence": 0.9}, {})],
)
def test_another_plan_is_measured_anew(
    stub: Stub, other: Stub, prompts_file: Path, settings: Any, chosen: Any
) -> None:
    whole = run((stub, other), prompts_file)
    stub.requests.clear()
    plan = AbSettings(**{"looks": 2, "mixed_prompts": 0} | settings)
    found = run((stub, other), prompts_file, whole, plan, **chosen)
    at_0 = 2 * 12 if "temperature" in chosen else 0
    assert len(stub.requests) == 1 + 12 * chosen.get("repeats", 2) + at_0
    assert {v.period for v in visits(found)} == {0}


def test_it_ends_when_a_look_decides_and_does_not_begin_again(
    stub: Stub, other: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[int, int, int]] = []

    def look(records: Any, names: Any, settings: Any, done: int, looks: int, before: Any) -> Decided:
        looked.append((len(records), done, looks))
        return Decided(done == 2)

    monkeypatch.setattr(verdict, "look", look)
    three = AbSettings(looks=3, mixed_prompts=0)
    found = run((stub, other), prompts_file, settings=three)
    assert {v.stage for v in visits(found)} == {0, 1}
    assert looked == [(8, 1, 3), (16, 2, 3)]
    assert found.data["looks"] == {"done": 2, "planned": 3}
    stub.requests.clear()
    run((stub, other), prompts_file, found, three)
    assert stub.requests == []


# greedy among sampled


def test_greedy_requests_are_asked_again_among_sampled_ones(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    first = 1 + 2 * 12  # the probe, and two looks

    def answer(body: Body) -> Reply:
        if len(stub.requests) == first:
            stub.hold_until = 9
        return Reply(stream(body, CHUNKS))

    stub.answer = answer
    found = run((stub, other), prompts_file, settings=AbSettings(looks=2, mixed_prompts=3))
    assert len(stub.requests) == first + 9
    mixed = measurements_of(found, "it").mixed
    assert [v.arm for v in mixed] == ["a", "b"]
    assert stub.most_in_flight == 9  # of three prompts, each greedy one between two sampled ones
    last = stub.requests[-9:]
    assert sorted(request["temperature"] for request in last) == [0] * 3 + [0.7] * 6
    for server, visit in zip((stub, other), mixed, strict=True):
        greedy = {r["messages"][0]["content"] for r in server.requests[-9:] if not r["temperature"]}
        assert {f"Prompt {row.prompt[1:]}" for row in visit.cell.rows} == greedy
    assert [row.prompt for row in mixed[0].cell.rows] == [row.prompt for row in mixed[1].cell.rows]
    stub.requests.clear()
    run((stub, other), prompts_file, found, AbSettings(looks=2, mixed_prompts=3))
    assert stub.requests == []


def test_mixed_batches_that_differ_are_sent_again_with_other_prompts(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    """The endpoint reports no log-probabilities. Five in eight greedy answers are garbage beside others."""

    def garbled(body: Body) -> Reply:
        busy = other.in_flight > 1 and not body["temperature"]
        number = int(body["messages"][0]["content"].split()[-1])
        return Reply(stream(body, [("junk", 8)] if busy and number % 2 else CHUNKS), gap_s=0.002)

    other.answer = garbled
    settings = AbSettings(looks=1, mixed_prompts=4)
    found = run((stub, other), prompts_file, settings=settings)
    mixed = measurements_of(found, "it").mixed
    assert [(v.arm, v.round) for v in mixed] == [(arm, n) for n in range(3) for arm in "ab"]  # of 12 prompts
    prompts = [row.prompt for v in mixed if v.arm == "b" for row in v.cell.rows]
    assert len(set(prompts)) == 12
    assert found.verdict != "yes"
    (among,) = [one for one in found.data["challengers"]["b"]["parity"] if one["mixed"]]
    assert (among["equal"], among["compared"], among["control"]["equal"]) == (6, 12, 12)
    stub.requests.clear()
    run((stub, other), prompts_file, found, settings)
    assert all(not request["stream"] for request in stub.requests)


def test_mixed_batches_that_are_equal_are_sent_once(stub: Stub, other: Stub, prompts_file: Path) -> None:
    found = run((stub, other), prompts_file, settings=AbSettings(looks=1, mixed_prompts=4))
    assert [(v.arm, v.round) for v in measurements_of(found, "it").mixed] == [("a", 0), ("b", 0)]


def test_failed_requests_are_not_sent_again_until_they_succeed(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    """The same command, run again, must not turn failures into answers one by one."""
    other.answer = lambda body: (
        fault(500, "boom") if len(other.requests) % 12 == 5 else Reply(stream(body, CHUNKS))
    )
    found = run((stub, other), prompts_file, max_error_share=0.2)
    failed = sum(v.cell.failed for v in visits(found))
    assert failed
    other.answer = lambda body: Reply(stream(body, CHUNKS))
    other.requests.clear()
    again = run((stub, other), prompts_file, found, max_error_share=0.01)
    assert (sum(v.cell.failed for v in visits(again)), other.requests) == (failed, [])
    assert again.verdict != "yes"


def test_visits_of_other_prompts_are_not_taken_over(stub: Stub, other: Stub, prompts_file: Path) -> None:
    whole = run((stub, other), prompts_file)
    first = whole.data["visits"][0]["cell"]["rows"]
    first[0]["prompt"] = "p99"
    other.requests.clear()
    stub.requests.clear()
    run((stub, other), prompts_file, whole)
    assert len(stub.requests) + len(other.requests) == 2 + len(first)


def test_the_longest_answers_are_asked_for_again(stub: Stub, other: Stub, prompts_file: Path) -> None:
    def answer(body: Any) -> Reply:
        return Reply(stream(body, [("x", 1)] * (9 if body["messages"][0]["content"][-1] in "37" else 2)))

    stub.answer = other.answer = answer
    found = run((stub, other), prompts_file, settings=AbSettings(looks=1, mixed_prompts=2))
    for visit in measurements_of(found, "it").mixed:
        assert {row.prompt for row in visit.cell.rows} == {"p3", "p7"}


def test_no_greedy_answer_is_asked_for_where_all_is_sampled(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    found = run((stub, other), prompts_file, settings=AbSettings(looks=2), temperature=0.7)
    assert found.data["mixed"] == []


# answers at temperature 0 beside a measurement at a higher one


def sampled(stubs: tuple[Stub, Stub], prompts: Path, previous: Result | None = None, **chosen: Any) -> Result:
    return run(stubs, prompts, previous, AbSettings(looks=1), temperature=0.7, **chosen)


def sent_at_0(stub: Stub) -> list[Body]:
    return [request for request in stub.requests if not request["temperature"] and request["stream"]]


def test_some_prompts_of_a_sampled_measurement_are_sent_at_temperature_0_too(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    found = sampled((stub, other), prompts_file)
    assert (len(sent_at_0(stub)), len(sent_at_0(other))) == (24, 12)  # the standard twice, as control
    assert {request["messages"][0]["content"] for request in sent_at_0(other)} == set(texts(stub))
    parity = found.data["challengers"]["b"]["parity"]
    assert [(one["equal"], one["compared"], one["control"]["equal"]) for one in parity] == [(12, 12, 12)]
    assert (found.data["greedy_requests"], found.data["parity_missing"]) == (36, None)
    stub.requests.clear()
    other.requests.clear()
    assert sampled((stub, other), prompts_file, found).data["challengers"]["b"]["parity"] == parity
    assert stub.requests == other.requests == []


def test_another_model_is_found_out_although_all_is_measured_at_a_higher_temperature(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    other.answer = lambda body: Reply(stream(body, CHUNKS if body["temperature"] else [("Never", 8)]))
    found = sampled((stub, other), prompts_file, concurrency=[1, 2])
    assert found.verdict == "no"
    assert "0/12 greedy answers are the same in both arms at 1 stream" in found.reason
    assert "0/12 greedy answers are the same in both arms at 2 streams" in found.reason
    (challenger,) = found.data["challengers"].values()
    assert [level["decision"]["verdict"] for level in challenger["levels"]] == ["no", "no"]


def test_as_many_prompts_are_sent_at_temperature_0_as_reach_the_load(
    stub: Stub, other: Stub, tmp_path: Path
) -> None:
    prompts = tmp_path / "many.json"
    prompts.write_text(json.dumps([{"id": f"p{n}", "text": f"Prompt {n}"} for n in range(40)]))
    sampled((stub, other), prompts, concurrency=[16])
    assert (len(sent_at_0(stub)), len(sent_at_0(other))) == (32, 16)


def test_where_the_standard_refuses_temperature_0_nothing_else_is_sent_at_it(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    refusal = fault(400, "temperature must be above 0")
    stub.answer = lambda body: Reply(stream(body, CHUNKS)) if body["temperature"] else refusal
    found = sampled((stub, other), prompts_file)
    assert (len(sent_at_0(stub)), len(sent_at_0(other))) == (12, 0)
    assert found.data["parity_missing"].startswith("a answered no request at temperature 0; the first error")
    stub.requests.clear()
    assert sampled((stub, other), prompts_file, found).data["greedy_requests"] == 12
    assert stub.requests == []


def test_where_sampled_requests_are_measured_near_ties_at_temperature_0_are_no_loss(
    stub: Stub, other: Stub, prompts_file: Path
) -> None:
    logprobs = {"content": [{"token": "Once", "top_logprobs": [{"logprob": -0.7}, {"logprob": -0.71}]}]}
    whole = json.dumps({"choices": [{"index": 0, "logprobs": logprobs}]}).encode()

    def standard(body: Body) -> Reply:
        if not body["stream"]:
            assert body["temperature"] == 0
            return Reply([whole], content_type="application/json")
        return Reply(stream(body, CHUNKS))

    stub.answer = standard
    other.answer = lambda body: Reply(stream(body, CHUNKS if body["temperature"] else [("On a time", 8)]))
    found = sampled((stub, other), prompts_file)
    (parity,) = found.data["challengers"]["b"]["parity"]
    assert (parity["equal"], parity["near_ties"]) == (0, 12)
    assert found.verdict != "no"


# what is refused


def test_a_gain_needs_requests_without_a_pause(
    stub: Stub, other: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "_pays", lambda *_: True)
    found = run((stub, other), prompts_file)
    made = measurements_of(found, "it").sustained
    assert [v.arm for v in made] == ["a", "b"]
    for server, visit in zip((stub, other), made, strict=True):
        assert len(server.requests) == 1 + 2 * 12 + 12
        assert {row.prompt for row in visit.cell.rows} == {f"p{i}" for i in range(12)}
    stub.requests.clear()
    run((stub, other), prompts_file, found)
    assert stub.requests == []


def test_an_endpoint_cannot_be_restarted(stub: Stub, other: Stub, prompts_file: Path) -> None:
    with pytest.raises(UsageError, match="a is an endpoint that runs already") as caught:
        run((stub, other), prompts_file, settings=AbSettings(design="abba-restart"))
    assert "interleaved" in str(caught.value.hint)
    assert stub.requests == []


def test_prompts_that_cannot_be_sent_are_refused_before_the_first_request(
    stub: Stub, other: Stub, tmp_path: Path
) -> None:
    (tmp_path / "batch.jsonl").write_text('{"body": {"prompt": [1, 2]}}\n')
    with pytest.raises(PromptsError, match="token ids"):
        run((stub, other), tmp_path / "batch.jsonl")
    assert stub.requests == []


def test_damaged_visits_are_named(stub: Stub, other: Stub, prompts_file: Path) -> None:
    whole = run((stub, other), prompts_file)
    del whole.data["visits"][1]["cell"]["rows"][0]["ttft_ms"]
    with pytest.raises(FileError, match=r"damaged: data\.visits\.1\.cell\.rows\.0\.ttft_ms"):
        run((stub, other), prompts_file, whole)


def test_an_arm_that_is_down_at_the_start_is_the_environments_failure(stub: Stub, prompts_file: Path) -> None:
    down = EndpointPool(engine="endpoint", base_url="http://127.0.0.1:9/v1", model="x")
    kept: list[Result] = []
    with pytest.raises(EndpointError, match=r"could not reach http://127\.0\.0\.1:9/v1"):
        compare(
            [*arms(stub), Arm("b", down)],
            asked(prompts_file),
            AbSettings(),
            SilentProgress(),
            logs=prompts_file.parent,
            on_partial=kept.append,
        )
    assert kept == []
    assert len(stub.requests) <= 1


def test_a_command_that_is_not_there_is_wrong_configuration(stub: Stub, prompts_file: Path) -> None:
    pool = CommandPool(engine="command", command="no-such-server --port {port}")
    with pytest.raises(UsageError, match="there is no program no-such-server"):
        compare(
            [*arms(stub), Arm("b", pool)],
            asked(prompts_file),
            AbSettings(),
            SilentProgress(),
            logs=prompts_file.parent,
        )
