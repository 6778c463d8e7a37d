"""A sweep of scripted endpoints: which cells are measured, in which order, and what is kept of them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from stub import CHUNKS, Body, Reply, fault, running_stub, stream
from sweeping import cells, found, order, run, spec

from specops.errors import ServerError
from specops.phases.sweep.spec import SweepSpec
from specops.prometheus import exposition
from specops.results import Result

pytestmark = pytest.mark.usefixtures("any_speed")


@pytest.fixture
def third():
    with running_stub() as server:
        yield server


def slower(body: Body) -> Reply:
    """By far more than a busy machine is."""
    return Reply(stream(body, CHUNKS), first_s=0.1)


def stopped_after(rows: int, what: SweepSpec) -> Result:
    """What a sweep had kept when Ctrl-C came, after the cell with which it had so many rows."""
    kept: list[Result] = []

    def stop(result: Result) -> None:
        kept.append(result)
        if sum(len(cell.cell.rows) for cell in cells(result)) >= rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(what, on_partial=stop)
    return kept[-1]


def test_the_standard_is_first_and_last_and_the_others_go_forwards_and_backwards(
    stub, other, third, prompts_file
) -> None:
    result = run(spec((stub, other, third), prompts_file, measure={"repeats": 2}))
    assert [one for one in order(result) if one[0] < 2] == [
        (0, "standard", 0),
        (0, "k=3", 0),
        (0, "k=5", 0),
        (0, "standard", 1),
        (1, "standard", 0),
        (1, "k=5", 0),
        (1, "k=3", 0),
        (1, "standard", 1),
    ]
    chosen = [cell for cell in cells(result) if cell.stage == "choice"]
    assert all(len(cell.cell.rows) == 12 and cell.cell.complete for cell in chosen)
    assert {cell.rung for cell in chosen} == {0, 1}
    assert {cell.server for cell in cells(result)} == {"stub-1"}


def test_every_load_is_asked_of_every_setting(stub, other, prompts_file) -> None:
    sweep = {"concurrency": [1, 2], "temperature": [0.0, 0.7]}
    other.answer = lambda body: Reply(stream(body, CHUNKS), first_s=0.05)  # so that two can meet
    result = run(spec((stub, other), prompts_file, sweep=sweep))
    for name, turn in (("standard", 0), ("k=3", 0), ("k=3", 1), ("standard", 1)):
        asked = [
            (c.cell.concurrency, c.temperature) for c in cells(result) if (c.setting, c.turn) == (name, turn)
        ]
        assert asked == [(1, 0.0), (2, 0.0), (1, 0.7), (2, 0.7)]
    sent = [request["temperature"] for request in other.requests if request["max_tokens"] == 16]
    # Twelve of each load are sent at the other temperature, too.
    assert (sent.count(0.0), sent.count(0.7)) == (48 + 48, 48 + 48)
    assert other.most_in_flight == 2


def test_prompts_are_put_into_classes_by_their_length(stub, other, prompts_file) -> None:
    prompts_file.write_text(
        '[{"id": "a", "text": "short"}, {"id": "b", "text": "' + "long " * 40 + '"}]', encoding="utf-8"
    )
    result = run(spec((stub, other), prompts_file, sweep={"prompt_tokens": [8]}))
    asked = {cell.length: {row.prompt for row in cell.cell.rows} for cell in cells(result)}
    assert asked == {"under 8 tokens": {"a"}, "8 tokens and more": {"b"}}
    # Beyond the end of a deck its prompts come again, none of them as it was.
    standard = [
        (row.prompt, row.variant)
        for cell in cells(result)
        if (cell.setting, cell.turn) == ("standard", 0)
        for row in cell.cell.rows
    ]
    assert len(set(standard)) == len(standard) > 2
    assert result.data["lengths"]["counted_by"] == "guessed: 4 characters a token"


def test_drafts_are_those_that_the_counters_grew_by(stub, other, prompts_file) -> None:
    count = itertools.count(1)

    def metrics() -> str:
        told = 10 * next(count)
        lines = [
            f"vllm:spec_decode_num_drafts_total {told}",
            f"vllm:spec_decode_num_draft_tokens_total {3 * told}",
            f"vllm:spec_decode_num_accepted_tokens_total {2 * told}",
            *(
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {told * (i < 2)}'
                for i in range(3)
            ),
        ]
        return "\n".join(lines) + "\n"

    other.metrics = metrics
    result = run(spec((stub, other), prompts_file))
    cell, _ = [cell.cell for cell in cells(result) if cell.setting == "k=3"]
    assert cell.drafts is not None
    assert (cell.drafts.drafts, cell.drafts.accepted_tokens) == (10, 20)
    assert cell.drafts.accepted_per_position == (10, 10, 0)
    standard = next(cell.cell for cell in cells(result) if cell.setting == "standard")
    assert standard.drafts is None
    assert standard.drafts_missing


def test_an_endpoint_that_fails_ends_its_own_cells_only(stub, other, third, prompts_file) -> None:
    well = other.answer
    dead = fault(500, "the engine is dead")
    other.answer = lambda body: dead if len(other.requests) > 4 else well(body)
    third.answer = slower  # so that it is not picked for the confirmation
    result = run(spec((stub, other, third), prompts_file, measure={"repeats": 2}))
    (failure,) = found(result).failed
    assert (failure.rung, failure.setting, failure.turn) == (0, "k=3", 0)
    assert "requests failed, such as: " in failure.why
    assert "the engine is dead" in failure.why
    assert [one for one in order(result) if one[1] == "k=3"] == [(0, "k=3", 0)]
    assert [one for one in order(result) if one[1] == "k=5"] == [(0, "k=5", 0), (1, "k=5", 0)]
    (skipped,) = found(result).skipped
    assert (skipped.setting, skipped.after, skipped.why) == ("k=3", 0, "it failed")


def test_a_standard_that_cannot_be_asked_ends_the_sweep_at_once(stub, other, prompts_file) -> None:
    stub.answer = lambda _: fault(404, "no such model")
    with pytest.raises(ServerError, match=r"could not measure the standard, K = 0: .*no such model"):
        run(spec((stub, other), prompts_file))
    assert other.requests == []


@pytest.mark.parametrize("rows", [3, 20, 30, 48])
def test_a_sweep_that_was_stopped_goes_on_where_it_was(stub, other, prompts_file, rows: int) -> None:
    what = spec((stub, other), prompts_file, measure={"repeats": 2})
    stopped = stopped_after(rows, what)
    assert stopped.verdict == "partial"
    had = {(cell.rung, cell.setting, cell.turn): cell for cell in cells(stopped)}
    stub.requests.clear()
    other.requests.clear()
    result = run(what, previous=stopped)
    now = {(cell.rung, cell.setting, cell.turn): cell for cell in cells(result)}
    assert len(now) == 8  # standard, k=3, k=3, standard, twice
    assert {key: now[key] for key in had} == had
    asked = [request for request in stub.requests + other.requests if request["max_tokens"] == 16]
    new = [cell for key, cell in now.items() if key not in had]
    assert len(asked) == sum(
        len(cell.cell.rows) + (len(cell.again.rows) if cell.again else 0) for cell in new
    )


def asked(stub) -> list[str]:
    return [request["messages"][0]["content"] for request in stub.requests if request["max_tokens"] == 16]


def test_what_is_compared_has_the_same_nonce_and_nothing_else_has(stub, other, third, prompts_file) -> None:
    """A rung has its own variant of each prompt, which all its settings get. Warm-ups and other runs have
    others."""
    what = spec((stub, other, third), prompts_file, measure={"repeats": 2, "warmup": 2})
    sent = []
    for _ in range(2):
        for server in (stub, other, third):
            server.requests.clear()
        result = run(what)
        sent.append({prompt for server in (stub, other, third) for prompt in asked(server)})
        rungs: dict[tuple[str, str], set[int]] = defaultdict(set)
        for cell in cells(result):
            for row in cell.cell.sent:
                rungs[row.prompt, row.variant].add(cell.rung)
        assert {len(numbers) for numbers in rungs.values()} == {1}
        counted = {row.variant for cell in cells(result) for row in cell.cell.rows}
        assert counted.isdisjoint(row.variant for cell in cells(result) for row in cell.cell.beside)
        first = [cell for cell in cells(result) if cell.rung == 0]
        assert len({frozenset((row.prompt, row.variant) for row in cell.cell.rows) for cell in first}) == 1
    assert sent[0].isdisjoint(sent[1])
    assert all(prompt.startswith("[") for prompt in sent[0])


def test_a_sweep_that_goes_on_keeps_its_nonces(stub, other, prompts_file) -> None:
    what = spec((stub, other), prompts_file, measure={"repeats": 2})
    stopped = stopped_after(20, what)
    before = set(asked(stub))
    whole = run(what, previous=stopped)
    assert found(whole).run == found(stopped).run
    assert before & set(asked(other))  # the rung that was begun goes on with its variant


def test_prompts_may_be_sent_as_they_are(stub, other, prompts_file) -> None:
    run(spec((stub, other), prompts_file, measure={"same_prompts": True}))
    assert set(asked(stub)) == set(asked(other)) == {f"Prompt {i}" for i in range(12)}


@pytest.mark.parametrize("hang_s", [1.5, 3.0])
def test_a_setting_whose_warm_ups_hang_is_not_recommended(
    stub, other, third, prompts_file, hang_s: float
) -> None:
    """They wait for their answer or for the timeout, and are named."""
    well = other.answer
    stub.answer = slower

    def hanging(body: Body) -> Reply:
        warm_up = len(other.requests) in (2, 3)
        return Reply(stream(body, CHUNKS), first_s=hang_s) if warm_up else well(body)

    other.answer = hanging
    third.answer = lambda body: Reply(stream(body, CHUNKS), first_s=0.03)
    few = {"failure_margin": 0.05}  # which 59 requests bound
    # An objective, since on a busy machine a request that waits for its turn takes twice as long as is usual.
    sections: dict[str, Any] = {"ab": few, "slo": {"e2e_ms": 1000}}
    measure = {"warmup": 2, "max_error_share": 0.5}
    what = spec((stub, other, third), prompts_file, measure=measure, **sections)
    what = replace(what, requests=what.requests.model_copy(update={"timeout_s": 2.0}))
    result = run(what)
    hung = [row for cell in cells(result) if cell.setting == "k=3" for row in cell.cell.beside]
    assert [row.error for row in hung[:2]] == ([None] * 2 if hang_s < 2 else ["timeout"] * 2)
    assert result.summary["setting"] != "k=3", result.reason
    (figures,) = [one for one in result.data["overall"] if one["setting"] == "k=3"]
    assert figures["decision"]["verdict"] != "yes"
    (failures,) = [one for one in figures["findings"] if one["claim"] == "failures"]
    assert (failures["scope"], failures["counts"]["challenger"]) == ("warm-up", 2)


def test_a_sweep_that_is_whole_asks_nothing_again(stub, other, prompts_file) -> None:
    what = spec((stub, other), prompts_file)
    first = run(what)
    stub.requests.clear()
    again = run(what, previous=first)
    assert stub.requests == []
    assert cells(again) == cells(first)
    assert again.verdict == first.verdict


def test_what_was_asked_otherwise_is_not_taken_over(stub, other, prompts_file) -> None:
    first = run(spec((stub, other), prompts_file))
    stub.requests.clear()
    run(spec((stub, other), prompts_file, measure={"max_tokens": 5}), previous=first)
    assert len(stub.requests) == 2 * (1 + 12 + 12)


def test_a_stop_in_the_middle_of_a_cell_keeps_what_there_is_of_it(
    stub, other, prompts_file, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scrape(*_: object) -> dict[object, float]:
        if len(stub.requests) > 1:  # the closing one of the first cell
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(exposition, "scrape", scrape)
    kept: list[Result] = []
    with pytest.raises(KeyboardInterrupt):
        run(spec((stub, other), prompts_file), on_partial=kept.append)
    (cell,) = cells(kept[-1])
    assert cell.cell.drafts_missing == "stopped before they were read"
