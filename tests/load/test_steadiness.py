"""Drift within a baseline: what is named, and what is only noise, a burst or prompts of other lengths."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable

import pytest

from specops.load.record import CellRecord, Row
from specops.load.validity import DRIFT, FALSE_ALARMS, LatencyChange, changes, slow_starts

Speed = Callable[[float], float]
"""How many times as long everything takes, by the share of the requests that were sent before."""


def steady(_: float) -> float:
    return 1.0


def slower(at: float) -> float:
    return 1 + 2 * at


def made(
    rng: random.Random,
    prompts: int,
    repeat: int = 0,
    took: Speed = steady,
    *,
    streams: int = 1,
    sd: float = 0.1,
    correlation: float = 0.0,
    bursts: int = 0,
    tpot: bool = True,
) -> CellRecord:
    """A cell of log-normal lengths in two classes; a burst makes a twelfth of the requests thrice as slow."""
    burst_at = [rng.random() for _ in range(bursts)]
    rows, at, mood = [], 0.0, 0.0
    for i in range(prompts):
        share = i / prompts
        mood = correlation * mood + math.sqrt(1 - correlation**2) * rng.gauss(0, sd)
        factor = took(share) * math.exp(mood) * (3 if any(b <= share <= b + 1 / 12 for b in burst_at) else 1)
        tokens = rng.lognormvariate(4.5, 0.8)
        kind = rng.choice(["short", "long"])
        ttft = (20 if kind == "short" else 200) * factor * math.exp(rng.gauss(0, 0.4))
        e2e = ttft + tokens * 10 * factor
        row = {"prompt": str(i), "traffic_class": kind, "sent_s": at, "ttft_ms": ttft, "e2e_ms": e2e}
        rows.append(Row.model_construct(**row, tpot_ms=10 * factor if tpot else None, error=None))
        at += e2e / 1000 / streams
    rng.shuffle(rows)  # rows are kept in the order of their ends
    return CellRecord.model_construct(
        concurrency=streams, rate=None, burstiness=1.0, repeat=repeat, complete=True, rows=tuple(rows)
    )


def accused(seed: int, prompts: int = 64, repeats: int = 2, **noise: float) -> bool:
    rng = random.Random(seed)
    cells = [made(rng, prompts, repeat, **noise) for repeat in range(repeats)]  # type: ignore[arg-type]
    unsteady = any(change.drift for change in changes(cells))
    return unsteady or any(start.moved > DRIFT for start in slow_starts(cells))


@pytest.mark.parametrize(
    "noise",
    [{}, {"correlation": 0.5, "sd": 0.2}, {"bursts": 1}, {"bursts": 3}, {"prompts": 24}, {"streams": 8}],
    ids=str,
)
def test_a_steady_server_is_not_accused(noise: dict[str, float]) -> None:
    runs = 25
    wrong = sum(accused(seed, **noise) for seed in range(runs))  # type: ignore[arg-type]
    assert wrong <= FALSE_ALARMS * runs + 2  # one is allowed, and chance may add to it


def drifts(cells: list[CellRecord]) -> list[LatencyChange]:
    return [change for change in changes(cells) if change.drift]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("prompts", "streams"), [(64, 1), (64, 8), (24, 1)])
def test_a_server_that_slows_down_threefold_is_named(seed: int, prompts: int, streams: int) -> None:
    found = drifts([made(random.Random(seed), prompts, took=slower, streams=streams)])
    (tpot,) = (change for change in found if change.latency == "tpot_ms")
    assert tpot.low is not None
    assert tpot.high is not None
    edge = (streams - 1) / prompts  # left out at both ends
    expected = slower(1 - edge - (1 - 2 * edge) / 8) / slower(edge + (1 - 2 * edge) / 4)
    assert tpot.low < expected < tpot.high
    size = f"{tpot.ratio:.2f}× [{tpot.low:.2f}, {tpot.high:.2f}]"
    parts = ["quarter, compared with the first half", "half, compared with the first quarter"]
    assert tpot.sentence.endswith(tuple(f"{size} in the last {part}" for part in parts))
    assert tpot.sentence.startswith(f"TPOT at {streams} stream")


def test_a_change_at_the_end_is_named_with_its_size() -> None:
    found = drifts([made(random.Random(1), 64, took=lambda at: 3.0 if at >= 0.75 else 1.0)])
    (tpot,) = (change for change in found if change.latency == "tpot_ms")
    assert tpot.ratio == pytest.approx(3, rel=0.1)


def test_a_change_is_seen_through_classes_that_differ_tenfold() -> None:
    found = drifts([made(random.Random(1), 64, took=lambda at: 3.0 if at >= 0.75 else 1.0)])
    assert {change.latency for change in found} == {"ttft_ms", "tpot_ms"}


def test_the_last_streams_of_a_closed_loop_may_be_faster() -> None:
    """They have the server to themselves, which is no drift."""
    cells = [made(random.Random(1), 32, took=lambda at: 1 / 3 if at >= 25 / 32 else 1.0, streams=8)]
    assert not drifts(cells)
    assert changes(cells)[0].n == 32 - 2 * 7


def test_a_server_that_gets_faster_is_named_too() -> None:
    assert drifts([made(random.Random(1), 64, took=lambda at: 1 / slower(at))])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_change_after_the_first_third_is_named_in_either_direction(seed: int, factor: float) -> None:
    """The last quarter beside the first half shows too little of it."""
    cell = made(random.Random(seed), 96, took=lambda at: factor if at >= 0.375 else 1.0)
    (tpot,) = (change for change in drifts([cell]) if change.latency == "tpot_ms")
    assert tpot.ratio == pytest.approx(factor, rel=0.1)
    assert tpot.low < factor < tpot.high
    assert "in the last half, compared with the first quarter" in tpot.sentence


def test_a_drift_over_repeats_is_named_where_each_is_too_short() -> None:
    rng = random.Random(2)
    cells = [made(rng, 12, repeat, took=lambda at, r=repeat: 3.0 if r else 1.0) for repeat in (0, 1)]
    (found,) = drifts(cells)
    assert (found.repeat, found.n, found.latency) == (None, 24, "tpot_ms")
    assert not drifts([made(random.Random(3), 12, 0)])


def test_a_cache_that_shortens_the_ttft_of_repeats_is_no_drift() -> None:
    rng = random.Random(4)
    cells = [made(rng, 64, repeat) for repeat in (0, 1)]
    rows = [row.model_copy(update={"ttft_ms": row.ttft_ms / 5}) for row in cells[1].rows if row.ttft_ms]
    assert not drifts([cells[0], cells[1].model_copy(update={"rows": tuple(rows)})])


def test_levels_are_not_compared_with_each_other() -> None:
    rng = random.Random(5)
    assert not drifts([made(rng, 64), made(rng, 64, streams=2, took=lambda _: 3.0)])


def test_without_tpot_the_latency_of_whole_answers_is_looked_at() -> None:
    cell = made(random.Random(6), 64, took=lambda at: slower(at) ** 2, tpot=False)
    assert [change.latency for change in drifts([cell])] == ["e2e_ms"]


def test_too_few_requests_say_so() -> None:
    (ttft, tpot) = changes([made(random.Random(7), 6, took=slower)])
    assert (ttft.drift, tpot.ratio) == (False, None)
    assert tpot.sentence == "TPOT at 1 stream, repeat 1: too few requests to see a drift (6)"
    assert changes([made(random.Random(7), 10, streams=8)])[0].n == 0  # all edge


def test_failed_requests_and_incomplete_cells_are_left_out() -> None:
    cell = made(random.Random(8), 64, took=slower)
    rows = tuple(row.model_copy(update={"error": "timeout"}) for row in cell.rows)
    assert not drifts([cell.model_copy(update={"rows": rows})])
    assert changes([cell.model_copy(update={"complete": False})]) == []


def test_both_comparisons_of_every_series_share_the_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[float] = []
    monkeypatch.setattr("specops.stats.two_groups", lambda one, other, *, level: levels.append(level))
    rng = random.Random(9)
    changes([made(rng, 24, repeat) for repeat in (0, 1)])
    series = 2 * 2 + 1  # TTFT and TPOT of each repeat, and TPOT over both
    assert levels == [1 - FALSE_ALARMS / (2 * series)] * (2 * series)


@pytest.mark.parametrize("share", [0.16, 0.19, 0.21, 0.3, 0.45])
@pytest.mark.parametrize("streams", [1, 4])
def test_a_long_warm_up_is_named_with_its_size(share: float, streams: int) -> None:
    """What lies between an eighth and a quarter looks like no drift of either kind."""
    cell = made(random.Random(3), 96, took=lambda at: 4.0 if at < share else 1.0, streams=streams)
    (start,) = (found for found in slow_starts([cell]) if found.sentence.startswith("TPOT"))
    times, count = re.findall(r"was ([\d.]+)×.* first (\d+) requests", start.sentence)[0]
    assert float(times) == pytest.approx(4, rel=0.2)
    assert int(count) == pytest.approx(share * 96, abs=5)
    assert start.sentence.endswith(f"raise --warmup by {count}")
    assert DRIFT < start.moved < 1 + 3 * share * 1.3


def test_a_short_warm_up_is_named_and_moves_the_mean_little() -> None:
    cell = made(random.Random(3), 96, took=lambda at: 1.6 if at < 0.13 else 1.0)
    (start,) = (found for found in slow_starts([cell]) if found.sentence.startswith("TPOT"))
    assert 1 < start.moved <= DRIFT


def test_one_slow_request_is_no_warm_up() -> None:
    assert not slow_starts([made(random.Random(3), 24, took=lambda at: 10.0 if at == 0 else 1.0)])


def test_a_fast_start_is_no_slow_one() -> None:
    assert not slow_starts([made(random.Random(3), 96, took=lambda at: 0.25 if at < 0.2 else 1.0)])
