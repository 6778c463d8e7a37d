"""The comparison of two arms: paired, refused where unlike, and honest about what it does not know."""

from __future__ import annotations

from typing import Any

import pytest

from specops.errors import FileError, UsageError
from specops.phases.compare import CompareSettings, compare
from specops.results import Result


def row(prompt: int, traffic_class: str, e2e: float, **fields: Any) -> dict[str, Any]:
    return {
        "prompt": f"{traffic_class}{prompt}",
        "class": traffic_class,
        "sent_s": 0.0,
        "lag_ms": 0.0,
        "ttft_ms": 20.0,
        "tpot_ms": e2e / 10,
        "e2e_ms": e2e,
        "e2e_with_retries_ms": e2e,
        "retries": 0,
        "chunks": 5,
        "n_first": 1,
        "tokens": 10,
        "tokens_from": "usage",
        "finish_reason": "length",
        "text": f"answer {prompt}",
        "error": None,
        "detail": None,
    } | fields


def cell(
    rows: list[dict[str, Any]], concurrency: int = 1, repeat: int = 0, rate: float = 100.0
) -> dict[str, Any]:
    empty = {"n": 0}
    return {
        "concurrency": concurrency,
        "rate": None,
        "burstiness": 1.0,
        "repeat": repeat,
        "complete": True,
        "aborted": None,
        "wall_s": 1.0,
        "tokens": 100,
        "tokens_per_sec": rate,
        "requests_per_sec": 10.0,
        "goodput_per_sec": None,
        "goodput_tokens_per_sec": None,
        "peak_tokens_per_sec": 100.0,
        "chunk_gap_ms": empty,
        "amortised_itl_ms": empty,
        "tokens_per_chunk": empty,
        "rows": rows,
    }


SETTINGS = {"base_url": "http://a/v1", "model": "m", "temperature": 0.0, "repeats": 1}


def arm(*cells: dict[str, Any], **fields: Any) -> Result:
    known: dict[str, Any] = {
        "phase": "baseline",
        "inputs": {"prompts": "abc"},
        "settings": SETTINGS,
        "verdict": "yes",
        "reason": "measured",
        "data": {"cells": list(cells), "acceptance": {"rate": 0.6, "length": 2.8}},
    }
    return Result(**known | fields)


def latencies(traffic_class: str, factor: float, **fields: Any) -> list[dict[str, Any]]:
    return [row(i, traffic_class, (100 + 7 * i) * factor * (1 + 0.01 * (i % 3)), **fields) for i in range(10)]


STANDARD = arm(cell(latencies("long", 1.0) + latencies("short", 1.0)))


def test_a_class_that_gains_deploys_and_one_that_loses_does_not() -> None:
    speculative = arm(cell(latencies("long", 0.5) + latencies("short", 1.2), rate=150.0))
    found = compare(STANDARD, speculative)
    assert (found.phase, found.verdict) == ("compare", "yes")
    assert found.summary["deploy"] == ["long"]
    assert found.data["by_class"]["long"]["levels"][0]["e2e"]["estimate"] == pytest.approx(2.0)
    assert found.data["by_class"]["short"]["verdict"] == "no"
    assert found.data["by_concurrency"][0]["throughput_ratio"] == 1.5
    assert found.summary["acceptance_rate"] == 0.6
    assert "deploy for long; not for short: 0.83×" in found.reason


def test_speculation_that_helps_nobody_is_a_no() -> None:
    found = compare(STANDARD, arm(cell(latencies("long", 1.1) + latencies("short", 1.2))))
    assert found.verdict == "no"
    assert found.reason.startswith("do not deploy")


def test_an_interval_that_includes_one_is_undecided() -> None:
    mixed = [row(i, "long", (100 + 7 * i) * (0.7 if i % 2 else 1.3)) for i in range(10)]
    found = compare(arm(cell(latencies("long", 1.0))), arm(cell(mixed)))
    assert found.verdict == "undecided"
    assert "includes 1" in found.reason


def test_too_few_prompts_are_undecided() -> None:
    found = compare(arm(cell(latencies("long", 1.0)[:4])), arm(cell(latencies("long", 0.1)[:4])))
    assert found.verdict == "undecided"
    assert "4 prompts succeeded in both arms, an interval needs 8" in found.reason


def test_ttft_vetoes() -> None:
    late = arm(cell(latencies("long", 0.5, ttft_ms=90.0) + latencies("short", 0.5)))
    found = compare(STANDARD, late)
    assert found.data["by_class"]["long"]["verdict"] == "no"
    assert "TTFT grows by 70 ms" in found.data["by_class"]["long"]["reason"]
    assert found.summary["deploy"] == ["short"]
    patient = compare(STANDARD, late, CompareSettings(ttft_veto_ms=100))
    assert patient.summary["deploy"] == ["long", "short"]


def test_pairs_are_means_over_repeats_and_failures_drop_out() -> None:
    one = latencies("long", 1.0)
    two = [r | {"e2e_ms": 3 * r["e2e_ms"]} for r in one]
    failed = one[0] | {"error": "cut", "detail": "x"}
    standard = arm(cell(one), cell(two, repeat=1))
    speculative = arm(cell([failed, *one[1:]]), cell([failed, *one[1:]], repeat=1))
    found = compare(standard, speculative)
    level = found.data["by_concurrency"][0]
    assert level["e2e"] == {"estimate": 2.0, "low": 2.0, "high": 2.0, "n": 9}
    assert found.data["parity"]["compared"] == 9


def test_where_it_stops_paying() -> None:
    standard = arm(*(cell(latencies("long", 1.0), concurrency=n) for n in (1, 4, 8)))
    speculative = arm(
        cell(latencies("long", 0.5), concurrency=1),
        cell(latencies("long", 0.8), concurrency=4),
        cell(latencies("long", 1.1), concurrency=8),
    )
    assert compare(standard, speculative).summary["pays_up_to"] == 4


def test_parity_names_the_first_difference() -> None:
    rows = latencies("long", 0.5)
    rows[3] = rows[3] | {"text": "answer 3, but longer", "tokens": 12}
    parity = compare(arm(cell(latencies("long", 1.0))), arm(cell(rows))).data["parity"]
    assert (parity["equal"], parity["compared"]) == (9, 10)
    assert parity["first_difference"]["prompt"] == "long3"
    assert parity["first_difference"]["character"] == len("answer 3")
    assert parity["control"] is None  # one repeat has nothing to be compared with


def test_parity_has_a_control_in_the_standard_arm() -> None:
    unstable = [r | {"text": "other"} for r in latencies("long", 1.0)]
    standard = arm(cell(latencies("long", 1.0)), cell(unstable, repeat=1))
    parity = compare(standard, arm(cell(latencies("long", 0.5)))).data["parity"]
    assert parity["equal"] == 10
    assert parity["control"]["equal"] == 0


def test_sampled_outputs_have_no_parity() -> None:
    sampled = SETTINGS | {"temperature": 1.0}
    found = compare(
        arm(cell(latencies("long", 1.0)), settings=sampled),
        arm(cell(latencies("long", 0.5)), settings=sampled),
    )
    assert found.data["parity"] is None
    assert "temperature 0" in found.data["parity_missing"]


def test_a_failed_arm_decides() -> None:
    fast = cell(latencies("long", 0.5) + latencies("short", 0.5))
    failed = {"verdict": "no", "reason": "9 of 20 requests failed"}
    assert compare(STANDARD, arm(fast, **failed)).verdict == "no"
    assert compare(STANDARD.model_copy(update=failed), arm(fast)).verdict == "undecided"


@pytest.mark.parametrize(
    ("unlike", "message"),
    [
        ({"settings": SETTINGS | {"temperature": 1.0}}, r"different settings: temperature \(0.0 and 1.0\)"),
        ({"inputs": {"prompts": "xyz"}}, "different prompts"),
        ({"verdict": "partial", "reason": "stopped"}, "is partial"),
        ({"data": {}}, "not of a measurement"),
        ({"data": {"cells": [cell(latencies("long", 1.0), concurrency=3)]}}, "share no level of load"),
    ],
)
def test_unlike_measurements_are_not_compared(unlike: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare(STANDARD, arm(*STANDARD.data["cells"], **unlike))


def test_arms_may_differ_in_where_they_are() -> None:
    elsewhere = SETTINGS | {"base_url": "http://b/v1", "model": "m-fast"}
    assert compare(STANDARD, arm(*STANDARD.data["cells"], settings=elsewhere)).verdict == "undecided"


def test_a_damaged_measurement_is_named() -> None:
    with pytest.raises(FileError, match=r"the speculative result is damaged: data\.cells\.0\.wall_s"):
        compare(STANDARD, arm(STANDARD.data["cells"][0] | {"wall_s": "x"}))
    with pytest.raises(FileError, match=r"the standard result is damaged: data\.cells: "):
        compare(arm(data={"cells": 3}), STANDARD)


def told(unlike: int, repeat: int = 0, factor: float = 1.0) -> dict[str, Any]:
    """A cell whose first `unlike` answers are other ones."""
    rows = latencies("long", factor)
    return cell([r | ({"text": "other"} if i < unlike else {}) for i, r in enumerate(rows)], repeat=repeat)


@pytest.mark.parametrize(
    ("arms", "control", "verdict"),
    [
        (0, 0, "yes"),
        (10, 0, "no"),
        (5, 0, "no"),
        (4, 0, "yes"),  # one in sixteen: no more than chance
        (10, 10, "yes"),  # the server differs from itself as much
        (10, 5, "no"),
        (0, None, "yes"),
        (1, None, "undecided"),
    ],
)
def test_answers_that_speculation_changed_are_no_speed_up(arms, control, verdict) -> None:
    repeats = [told(0)] + ([told(control, repeat=1)] if control is not None else [])
    found = compare(arm(*repeats), arm(told(arms, factor=0.5)))
    assert found.verdict == verdict
    assert found.summary["deploy"] == (["long"] if verdict == "yes" else [])
    if verdict != "yes":
        assert f"{10 - arms}/10 greedy answers are the same in both arms" in found.reason
    if control is not None:
        assert found.summary["parity_control"] == f"{10 - control}/10"


def test_classes_share_the_error_that_one_class_may_make_alone() -> None:
    """Each of several classes could say yes by luck, so each has the wider interval."""

    def uneven(name: str) -> list[dict[str, Any]]:
        pairs = zip(latencies(name, 0.6), latencies(name, 1.0), strict=True)
        return [pair[number % 2] for number, pair in enumerate(pairs)]

    def interval(*names: str) -> tuple[float, float]:
        standard = [row for name in names for row in latencies(name, 1.0)]
        found = compare(arm(cell(standard)), arm(cell([row for name in names for row in uneven(name)])))
        e2e = found.data["by_class"]["long"]["levels"][0]["e2e"]
        return e2e["low"], e2e["high"]

    (low, high), (lower, higher) = interval("long"), interval("long", "edit")
    assert lower < low < high < higher
