"""What is wrong in the playbook's baseline script, each fault shown on its way and on ours.

`playbook` is that script's measure_baseline, kept to the line where it matters.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from stub import CHUNKS, Body, Reply, Stub, fault, stream

from specops.load.settings import BaselineSettings
from specops.phases.baseline import measure
from specops.progress import SilentProgress
from specops.results import Result

TOKENS = sum(tokens for _, tokens in CHUNKS)


def playbook(stub: Stub, prompts: Path, runs: int = 1) -> dict[str, Any]:
    all_ttft, all_tpot, all_e2e, total_tokens = [], [], [], 0
    with openai.OpenAI(base_url=stub.base_url, api_key="none", max_retries=0) as client:
        for _ in range(runs):
            for prompt in json.loads(prompts.read_text()):
                start = time.perf_counter()
                first_token_time = None
                token_count = 0
                for chunk in client.chat.completions.create(
                    model="stub",
                    messages=[{"role": "user", "content": prompt["text"]}],
                    max_tokens=prompt.get("max_tokens", 256),
                    temperature=0.0,
                    stream=True,
                ):
                    if chunk.choices[0].delta.content:
                        if first_token_time is None:
                            first_token_time = time.perf_counter()
                        token_count += 1
                end = time.perf_counter()
                all_ttft.append(first_token_time - start)  # type: ignore[operator]
                all_e2e.append(end - start)
                if token_count > 1:
                    all_tpot.append((end - first_token_time) / (token_count - 1))  # type: ignore[operator]
                total_tokens += token_count
    return {
        "ttft_p50_ms": statistics.median(all_ttft) * 1000,
        "ttft_p95_ms": sorted(all_ttft)[int(len(all_ttft) * 0.95)] * 1000,
        "tpot_p50_ms": statistics.median(all_tpot) * 1000,
        "e2e_max_ms": max(all_e2e) * 1000,
        "total_tokens": total_tokens,
        "avg_tokens_per_sec": total_tokens / sum(all_e2e),
    }


def ours(stub: Stub, prompts: Path, **settings: Any) -> Result:
    chosen = {"warmup": 0, "repeats": 1, "same_prompts": True} | settings
    return measure(
        BaselineSettings(base_url=stub.base_url, model="stub", prompts=prompts, **chosen), SilentProgress()
    )


@pytest.fixture
def ten_prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps([{"text": f"Prompt {i}"} for i in range(10)]))
    return path


def test_it_counts_chunks_as_tokens(stub: Stub, ten_prompts: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=0.01)
    theirs, found = playbook(stub, ten_prompts), ours(stub, ten_prompts)
    assert theirs["total_tokens"] == 10 * len(CHUNKS)  # half of what was generated
    assert found.summary["total_tokens"] == 10 * TOKENS
    row = found.data["cells"][0]["rows"][0]
    assert (row["tokens"], row["chunks"], row["n_first"]) == (8, 4, 1)
    # three gaps of at least 10 ms carry seven tokens; the script divides them by three
    assert theirs["tpot_p50_ms"] >= 10 > 30 / 7
    assert found.summary["tpot_p50_ms"] < theirs["tpot_p50_ms"]


def test_an_empty_answer_is_a_type_error(stub: Stub, ten_prompts: Path) -> None:
    def empty_once(body: Body) -> Reply:
        empty = body["messages"][0]["content"] == "Prompt 3"
        return Reply(stream(body, [] if empty else CHUNKS))

    stub.answer = empty_once
    with pytest.raises(TypeError):
        playbook(stub, ten_prompts)
    found = ours(stub, ten_prompts)
    assert found.data["errors"]["by_kind"] == {"empty": 1}
    assert found.summary["total_tokens"] == 9 * TOKENS


def test_its_p95_of_ten_samples_is_their_maximum(stub: Stub, ten_prompts: Path) -> None:
    def slow_once(body: Body) -> Reply:
        slow = body["messages"][0]["content"] == "Prompt 7"
        return Reply(stream(body, CHUNKS), first_s=0.4 if slow else 0.0)

    stub.answer = slow_once
    assert playbook(stub, ten_prompts)["ttft_p95_ms"] >= 400
    found = ours(stub, ten_prompts)
    assert found.summary["ttft_p95_ms"] is None
    assert found.summary["reasons"]["ttft_p95_ms"] == "p95 needs 20 samples, there are 10"
    assert found.summary["ttft_p50_ms"] is not None


def test_it_has_no_warm_up(stub: Stub, ten_prompts: Path) -> None:
    def cold() -> None:
        stub.requests.clear()
        stub.answer = lambda body: Reply(
            stream(body, CHUNKS), first_s=1.5 if len(stub.requests) == 1 else 0.0
        )

    cold()
    assert playbook(stub, ten_prompts)["e2e_max_ms"] >= 1500
    cold()
    found = ours(stub, ten_prompts, warmup=1)
    assert found.data["by_concurrency"][0]["e2e_ms"]["max"] < 1500


def test_it_sends_one_request_at_a_time(stub: Stub, ten_prompts: Path) -> None:
    playbook(stub, ten_prompts)
    assert stub.most_in_flight == 1
    stub.requests.clear()
    stub.hold_until = 4
    ours(stub, ten_prompts, concurrency=[4])
    assert stub.most_in_flight == 4


def test_its_rate_is_no_throughput_under_concurrency(stub: Stub, ten_prompts: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), first_s=0.1)
    found = ours(stub, ten_prompts, concurrency=[10])
    cell = found.data["cells"][0]
    latencies = sum(row["e2e_ms"] for row in cell["rows"]) / 1000
    assert cell["wall_s"] < latencies  # they overlapped
    assert cell["tokens_per_sec"] == pytest.approx(cell["tokens"] / cell["wall_s"], rel=1e-3)
    assert cell["tokens"] / latencies < cell["tokens_per_sec"]  # the script's figure


def test_it_loses_everything_to_one_error(stub: Stub, ten_prompts: Path) -> None:
    def fail_once(body: Body) -> Reply:
        failing = body["messages"][0]["content"] == "Prompt 9"
        return fault(500, "out of memory") if failing else Reply(stream(body, CHUNKS))

    stub.answer = fail_once
    with pytest.raises(openai.InternalServerError):
        playbook(stub, ten_prompts)
    found = ours(stub, ten_prompts)
    assert found.data["errors"]["by_kind"] == {"http_500": 1}
    assert "out of memory" in found.data["errors"]["examples"]["http_500"]
    assert found.summary["total_tokens"] == 9 * TOKENS
    assert found.verdict == "no"  # a tenth failed, more than a twentieth
