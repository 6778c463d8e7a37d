"""Where a sequence is decoded, how many workers there are, and totals over them: pure parts of --workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.engine.request import Counters
from specops.serve import worker_count
from specops.serve.engine_worker import EngineLoad
from specops.serve.metrics import ServerMetrics
from specops.serve.placement import BLOCK, MOST, Placement

TURN = list(range(100, 100 + 3 * BLOCK))


def test_the_least_loaded_worker_gets_a_new_prompt() -> None:
    placement = Placement(4)
    assert [
        placement.place([i] * 50, loads) for i, loads in enumerate(([2, 1, 3], [0, 0, 0], [None, 5, 6]))
    ] == [
        1,
        0,
        1,
    ]


def test_a_conversation_stays_where_it_is() -> None:
    placement = Placement(4)
    assert placement.place(TURN, [1, 0]) == 1
    longer = TURN + [7] * 2 * BLOCK
    assert placement.place(longer, [0, 3]) == 1
    assert placement.place(longer + [8] * BLOCK, [0, 3]) == 1
    # It would wait there, and not elsewhere.
    assert placement.place(longer + [9] * BLOCK, [0, 4]) == 0
    # It would wait everywhere alike; and a worker that is gone is no place.
    assert placement.place(longer + [8] * 2 * BLOCK, [4, 4]) == 1
    assert placement.place(longer + [8] * 3 * BLOCK, [4, None]) == 0


def test_prompts_that_begin_alike_are_no_conversation() -> None:
    """Instructions before many questions, and one prompt many times."""
    placement = Placement(8)
    loads = [0, 0]
    for question in range(8):
        worker = placement.place(TURN + [question] * BLOCK, loads)
        loads[worker] += 1
    assert loads == [4, 4]
    loads = [0, 0]
    for _ in range(8):
        loads[placement.place(TURN, loads)] += 1
    assert loads == [4, 4]


@given(
    prompts=st.lists(st.lists(st.integers(0, 2), max_size=5 * BLOCK), max_size=30),
    loads=st.lists(st.none() | st.integers(0, 9), min_size=2, max_size=4).filter(
        lambda loads: any(load is not None for load in loads)
    ),
)
def test_a_place_is_always_one_that_there_is(prompts: list[list[int]], loads: list[int | None]) -> None:
    placement = Placement(3)
    for prompt in prompts:
        load = loads[placement.place(prompt, loads)]
        least = min(load for load in loads if load is not None)
        assert load is not None
        assert load < 3 or load == least


def test_old_conversations_are_forgotten() -> None:
    placement = Placement(1)
    for i in range(MOST + 9):
        placement.place([i] * BLOCK, [0, 0])
    assert len(placement._homes) == MOST


def test_auto_is_what_cpus_and_memory_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    monkeypatch.setattr(worker_count, "usable_cpus", lambda: 8)

    def auto(
        memory: float,
        threads: int | None = None,
        device: str = "cpu",
        *,
        divided: bool = False,
        cache_mb: int = 0,
    ) -> int:
        monkeypatch.setattr(worker_count, "available_memory", lambda: memory)
        return worker_count.worker_count(
            "auto",
            threads=threads,
            device=device,
            divided=divided,
            folders=[tmp_path, tmp_path],
            cache_mb=cache_mb,
        )

    each = worker_count.BYTES_OF_WEIGHTS * 1000 / worker_count.SHARE
    assert auto(100 * each) == 8
    assert auto(3.5 * each) == 3
    assert auto(0.1 * each) == 1
    assert auto(100 * each, threads=3) == 2
    assert auto(100 * each, threads=99) == 1
    assert auto(100 * each, device="cuda") == 1
    assert auto(100 * each, divided=True) == 1
    assert auto(100 * each + 3e6 / worker_count.SHARE, cache_mb=1) == 3


def test_totals_do_not_fall_when_a_worker_ends() -> None:
    metrics = ServerMetrics("tiny", speculative=True)
    one = Counters(steps=3, generated_tokens=5, accepted_per_position=[2, 1], steps_by_tree={"none": 3})
    two = Counters(steps=4, generated_tokens=7, accepted_per_position=[1], steps_by_tree={"chain:2": 4})
    metrics.begin(0, EngineLoad(1, 2, 0.5, one))
    metrics.begin(1, EngineLoad(3, 0, 0.1, two))
    total = metrics.load
    assert (total.running, total.waiting, total.kv_usage) == (4, 2, pytest.approx(0.3))
    assert total.counters == Counters(
        steps=7, generated_tokens=12, accepted_per_position=[3, 1], steps_by_tree={"none": 3, "chain:2": 4}
    )
    assert (one.accepted_per_position, two.accepted_per_position) == ([2, 1], [1])
    metrics.end(0)
    assert metrics.load.counters == total.counters
    assert metrics.load.running == 3
    metrics.begin(0, EngineLoad(0, 0, 0.0, Counters(steps=1, generated_tokens=1)))
    assert metrics.load.counters.generated_tokens == 13
