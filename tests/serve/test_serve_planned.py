"""`specops serve --tree auto`: what the planner chose is on /metrics, beside vLLM's series."""

from __future__ import annotations

import re
from pathlib import Path

from live import Live

from specops.engine import load_engine

PLANNED = re.compile(
    r'^specops:planned_steps_total\{.*tree="(?P<tree>[^"]+)".*\} (?P<steps>\S+)$', re.MULTILINE
)


def test_steps_are_counted_by_the_tree_that_was_chosen(tiny_pair: tuple[Path, Path]) -> None:
    target, draft = tiny_pair
    live = Live(load_engine(target, draft, tree="auto:4", max_batch=2, max_length=128, threads=1))
    try:
        live.complete("a server that plans", max_tokens=30, ignore_eos=True)
        text = live.ask("/metrics").text
        steps = {found["tree"]: float(found["steps"]) for found in PLANNED.finditer(text)}
        assert sum(steps.values()) == live.engine.counters.steps
        assert steps == live.engine.counters.steps_by_tree
        assert "vllm:spec_decode_num_drafts_total" in text
    finally:
        live.close()


def test_a_fixed_tree_has_no_such_series(tiny_pair: tuple[Path, Path]) -> None:
    target, _ = tiny_pair
    live = Live(load_engine(target, tree="ngram:4", max_batch=2, max_length=128, threads=1))
    try:
        live.complete("a server that copies", max_tokens=8, ignore_eos=True)
        assert "specops:planned" not in live.ask("/metrics").text
    finally:
        live.close()
