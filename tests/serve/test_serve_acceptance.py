"""What answers of `specops serve` report of their drafts, and that it sums up to the counters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import Live
from reported_drafts import CLOSE, counted_and_reported

from specops.assets import asset

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shipped() -> Iterator[Live]:
    """The shipped pair, whose draft is right in part."""
    from specops.engine import load_engine

    target, draft = (asset("playbooks", "embedded", role) for role in ("target", "draft"))
    live = Live(
        load_engine(target, draft, tree="chain:3", max_batch=4, max_length=512, threads=1), model="shipped"
    )
    yield live
    live.close()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_pooled_answers_equal_the_counters(shipped: Live, temperature: float, tmp_path: Path) -> None:
    chosen = json.loads(asset("playbooks", "embedded", "prompts.json").read_text(encoding="utf-8"))[:8]
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([one | {"max_tokens": 32} for one in chosen]), encoding="utf-8")
    for counted, answers in counted_and_reported(f"{shipped.url}/v1", "shipped", prompts, temperature):
        assert answers.silent == 0
        assert answers.requests == len(chosen)
        assert answers.drafted == pytest.approx(counted.draft_tokens, rel=CLOSE)
        assert answers.accepted == pytest.approx(counted.accepted_tokens, rel=CLOSE)
        assert answers.steps == pytest.approx(counted.drafts, rel=CLOSE)
        assert answers.per_position == pytest.approx(counted.accepted_per_position, rel=CLOSE)
        assert 0 < answers.accepted < answers.drafted


def reported(body: dict[str, Any]) -> dict[str, Any] | None:
    drafts: dict[str, Any] | None = (body.get("metrics") or {}).get("speculative_decoding")
    return drafts


def test_a_stream_reports_once_beside_its_usage(shipped: Live) -> None:
    asked = {"prompt": "The server", "max_tokens": 24, "ignore_eos": True, "temperature": 0}
    whole = reported(shipped.ask("/v1/completions", asked).json)
    chunks = shipped.stream("/v1/completions", asked | {"stream_options": {"include_usage": True}})
    with_drafts = [chunk for chunk in chunks if reported(chunk)]
    assert [chunk["choices"] for chunk in with_drafts] == [[]]
    assert reported(with_drafts[0]) == whole
    assert whole is not None
    assert whole["num_draft_tokens"] >= whole["num_accepted_draft_tokens"] > 0


def test_several_choices_report_nothing(shipped: Live) -> None:
    """vLLM's field is of one sequence."""
    asked = {"prompt": "The server", "max_tokens": 8, "n": 2, "temperature": 1}
    assert reported(shipped.ask("/v1/completions", asked).json) is None
