"""A model with declared times: the same numbers, never sooner, and it says where it was later."""

from __future__ import annotations

import time
from multiprocessing.sharedctypes import RawArray
from typing import Any

import pytest
import torch
from tiny_models import Pair

from specops.edge.stand_in import FIGURES, DelayedModel, PassCost, TimingDeviation
from specops.engine.load import load_engine
from specops.engine.request import Sampling


class Clock:
    """A time that only passes by sleeping, and by what a pass is said to compute."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds * (0.75 if len(self.slept) == 1 else 1)  # the first wakes up too early


class Model:
    """Computes for `seconds`, and notes what it was given."""

    shape, width, output = "shape", 7, "weights"

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def forward(self, tokens: Any, layout: Any, wanted: Any = None) -> Any:
        self.clock.now += self.seconds
        return "logits", tokens, layout, wanted

    with_features = forward


@pytest.mark.parametrize("method", ["forward", "with_features"])
def test_a_pass_takes_what_is_declared_for_its_tokens(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    model: Any = Model(clock, 0.5)
    paced = DelayedModel(model, PassCost(2.0, 0.25))
    tokens = torch.zeros(8, dtype=torch.int64)
    began = clock.now
    got: Any = getattr(paced, method)(tokens, "layout", "wanted")
    assert got == ("logits", tokens, "layout", "wanted")
    assert clock.now - began == pytest.approx(4.0)
    assert clock.slept == pytest.approx([3.5, 0.875])
    assert paced.pace == TimingDeviation(passes=1, late=0, declared_s=4.0, computed_s=0.5, over_s=0.0)


def test_computing_longer_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    model: Any = Model(clock, 5.0)
    paced = DelayedModel(model, PassCost(2.0, 0.25))
    paced.forward(torch.zeros(8, dtype=torch.int64), "layout")  # type: ignore[arg-type]
    before = paced.pace
    assert clock.slept == []
    assert before == TimingDeviation(passes=1, late=1, declared_s=4.0, computed_s=5.0, over_s=1.0)
    model.seconds = 1.0
    paced.forward(torch.zeros(4, dtype=torch.int64), "layout")  # type: ignore[arg-type]
    assert paced.pace.since(before) == TimingDeviation(
        passes=1, late=0, declared_s=3.0, computed_s=1.0, over_s=0.0
    )


def test_another_process_may_look(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    model: Any = Model(clock, 0.5)
    kept: Any = RawArray("d", FIGURES)
    DelayedModel(model, PassCost(2.0, 0.0), kept).forward(torch.zeros(1), "layout")  # type: ignore[arg-type]
    assert list(kept) == [1, 0, 2.0, 0.5, 0.0]


def test_an_engine_says_the_same_over_paced_models(llama: Pair) -> None:
    """And its steps are never shorter than declared, by the real clock."""
    plain = load_engine(llama.target, tree="ngram:4", threads=1)
    expected = plain.generate([5, 6, 7, 5, 6], Sampling(max_tokens=12, ignore_eos=True))
    engine = load_engine(llama.target, tree="ngram:4", threads=1)
    engine.target = DelayedModel(engine.target, PassCost(0.002, 0.0001))
    got = engine.generate([5, 6, 7, 5, 6], Sampling(max_tokens=12, ignore_eos=True))
    assert got.tokens == expected.tokens
    pace = engine.target.pace
    assert pace.passes == engine.counters.steps
    assert engine.counters.verify_seconds >= pace.declared_s
    assert pace.declared_s >= 0.002 * pace.passes
