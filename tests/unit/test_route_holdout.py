"""Which requests chance keeps on the standard pool, and which are in no group of the live effect."""

from __future__ import annotations

import time
import zlib
from typing import Any

import pytest
from made_rules import NO_FOLDER, asked, judge, rollout

from specops.config.effect import Effect
from specops.phases.route.explain import explain
from specops.router import REQUEST_ID, Request

DAY_S = 86_400
TENTH = judge(holdout=0.1)


def long(request_id: str | None, **fields: Any) -> Request:
    headers = {} if request_id is None else {REQUEST_ID: request_id}
    return asked(_headers=headers, **{"max_tokens": 300, **fields})


def ids(held_out: bool) -> list[str]:
    """Ids by the definition of the hash: CRC-32 of the day and the id, of 10,000 buckets."""
    day = int(time.time() // DAY_S)
    names = [f"request-{number}" for number in range(2000)]
    return [name for name in names if (zlib.crc32(f"{day}:{name}".encode()) % 10_000 < 1000) == held_out]


def test_a_tenth_of_the_eligible_requests_is_held_out() -> None:
    held, rest = ids(True), ids(False)
    assert 140 < len(held) < 260
    for names, pool, group in ((held, "standard", "holdout"), (rest[:200], "speculative", "speculative")):
        decisions = [TENTH.decide(long(name)) for name in names]
        assert {(one["pool"], one["group"]) for one in decisions} == {(pool, group)}
    assert TENTH.decide(long(held[0]))["reason"] == "holdout"


def test_other_requests_are_held_out_on_another_day(monkeypatch: pytest.MonkeyPatch) -> None:
    held = ids(True)
    tomorrow = time.time() + DAY_S
    monkeypatch.setattr("specops.router.nginx.judge.time.time", lambda: tomorrow)
    still = [name for name in held if TENTH.decide(long(name))["group"] == "holdout"]
    assert len(still) < len(held) / 2


@pytest.mark.parametrize(
    ("fields", "state", "reason"),
    [
        ({"max_tokens": 8}, {}, "short"),
        ({"temperature": 2.0}, {}, "temperature"),
        ({"n": 9}, {}, "in-flight"),
        ({}, {"percent": 0}, "switch"),
        ({}, {"in_flight": 8}, "in-flight"),
    ],
)
@pytest.mark.parametrize("held_out", [True, False])
def test_a_request_that_one_pool_alone_may_have_is_in_no_group(
    fields: dict[str, Any], state: dict[str, Any], reason: str, held_out: bool
) -> None:
    decision = TENTH.decide(long(ids(held_out)[0], **fields), **state)
    assert (decision["pool"], decision["reason"]) == ("standard", reason)
    assert "group" not in decision


def test_a_caller_beyond_the_canary_is_in_no_group() -> None:
    decisions = [TENTH.decide(long(name), percent=1e-9) for name in ids(True)[:5]]
    assert {one["reason"] for one in decisions} == {"canary"}
    assert not any("group" in one for one in decisions)


@pytest.mark.parametrize(("holdout", "request_id"), [(0.0, "a"), (0.1, None)])
def test_there_is_no_group_without_a_holdout_or_an_id(holdout: float, request_id: str | None) -> None:
    decision = judge(holdout=holdout).decide(long(request_id))
    assert decision["pool"] == "speculative"
    assert "group" not in decision


def test_explain_names_the_share_and_its_source() -> None:
    settings = rollout(effect={"holdout": 0.1})
    explanation = explain(settings, NO_FOLDER, long(ids(True)[0]))
    assert (explanation.pool, explanation.reason) == ("standard", "holdout")
    assert (explanation.threshold, explanation.source) == (0.1, "rollout file")
    assert "10% of the eligible requests" in explanation.message


@pytest.mark.parametrize("holdout", [-0.1, 0.005, 0.11, 1.0])
def test_a_holdout_is_none_or_between_a_hundredth_and_a_tenth(holdout: float) -> None:
    with pytest.raises(ValueError, match="holdout"):
        Effect(holdout=holdout)


def test_a_holdout_is_on_by_default() -> None:
    assert Effect().holdout == 0.05
    assert Effect(holdout=0).holdout == 0
