"""`measure`: which requests it sends, and what its result says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from measuring import run
from pydantic import ValidationError
from stub import CHUNKS, Reply, Stub, fault, stream

from specops import results
from specops.load.settings import BaselineSettings

pytestmark = pytest.mark.usefixtures("any_speed")


def asked(stub: Stub) -> list[str]:
    """The prompts as the server got them."""
    return [request["messages"][0]["content"] for request in stub.requests]


def texts(stub: Stub) -> list[str]:
    """The same without their nonces."""
    return [prompt.partition("] ")[2] for prompt in asked(stub)]


def test_every_prompt_is_sent_once_for_each_level_and_repeat(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file, concurrency=[1, 4], repeats=2)
    assert (found.verdict, found.phase) == ("yes", "baseline")
    cells = found.data["cells"]
    assert [(c["concurrency"], c["repeat"]) for c in cells] == [(1, 0), (4, 0), (1, 1), (4, 1)]
    everything = {f"p{i}" for i in range(12)}
    assert all({row["prompt"] for row in cell["rows"]} == everything for cell in cells)
    beside = sum(len(cell["beside"]) for cell in cells)
    assert len(stub.requests) == 1 + 4 * 12 + beside  # the probe, and no warm-up here
    assert {row["part"] for cell in cells for row in cell["beside"]} == {"fill"}
    assert found.data["errors"]["requests"] == 4 * 12 + beside
    assert found.data["errors"]["failed"] == 0


def test_no_request_is_one_that_a_server_knows(stub: Stub, prompts_file: Path) -> None:
    """A nonce in front is another one in each repeat, at each level, beside the measured ones, and in each
    run."""
    for _ in range(2):
        run(stub, prompts_file, concurrency=[1, 4], repeats=2, warmup=2)
    assert len(set(asked(stub))) == len(asked(stub))
    assert set(texts(stub)) == {f"Prompt {i}" for i in range(12)}


def test_prompts_may_be_sent_as_they_are(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file, concurrency=[4], repeats=2, same_prompts=True)
    assert sorted(asked(stub)[1:]) == sorted(2 * [f"Prompt {i}" for i in range(12)])
    assert "sent as they are (--same-prompts)" in found.reason


def test_all_streams_are_full_while_any_prompt_is_answered(stub: Stub, prompts_file: Path) -> None:
    """A stream that idles at the end would count as load: 12 prompts at 4 streams, of which the last is
    slow."""

    def answer(body: Any) -> Reply:
        slow = body["messages"][0]["content"].endswith("Prompt 11")
        return Reply(stream(body, CHUNKS), first_s=0.4 if slow else 0.02)

    stub.answer = answer
    found = run(stub, prompts_file, concurrency=[4])
    (cell,) = found.data["cells"]
    rows = [*cell["rows"], *cell["beside"]]
    end = max(row["sent_s"] + row["e2e_ms"] / 1000 for row in cell["rows"])
    for moment in (0.25 * end, 0.5 * end, 0.95 * end):
        busy = [row for row in rows if row["sent_s"] - 0.05 <= moment <= row["sent_s"] + row["e2e_ms"] / 1000]
        assert len(busy) >= 4
    # Four streams of answers of 20 ms, one of them busy for 400 ms: not 12 answers in the slowest's time.
    assert cell["requests_per_sec"] > 1.5 * 12 / 0.46


def test_the_order_is_shuffled_by_the_seed_and_the_same_for_every_arm(stub: Stub, prompts_file: Path) -> None:
    orders = []
    for seed in (0, 0, 1):
        stub.requests.clear()
        run(stub, prompts_file, seed=seed)
        orders.append(texts(stub)[2:])  # without the probe and the first one, which only fills the stream
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_what_a_result_says(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=0.002)
    found = run(stub, prompts_file, repeats=2, slo={"e2e_ms": 60_000})
    assert {k for k in found.summary if k.endswith(("_ms", "_tokens", "_sec"))} == {
        "ttft_p50_ms",
        "ttft_p95_ms",
        "ttft_p99_ms",
        "tpot_p50_ms",
        "tpot_p95_ms",
        "tpot_p99_ms",
        "e2e_p50_ms",
        "e2e_p95_ms",
        "e2e_p99_ms",
        "total_tokens",
        "avg_tokens_per_sec",
    }
    assert found.summary["total_tokens"] == 2 * 12 * 8
    level = found.data["by_concurrency"][0]
    assert level["tokens_per_chunk"] == 2
    for name in ("tokens_per_sec", "ttft_mean_ms", "goodput_per_sec", "chunk_gap_p50_ms"):
        interval = level["over_repeats"][name]
        assert interval["low"] <= interval["estimate"] <= interval["high"]
        assert interval["n"] == 2
    assert level["over_repeats"]["goodput_per_sec"] == level["over_repeats"]["requests_per_sec"]
    assert {name: levels[0]["requests"] for name, levels in found.data["by_class"].items()} == {
        "long": 12,
        "short": 12,
    }
    assert found.environment["server"] == "stub-1"
    assert found.data["endpoint"]["tokens_from"] == "usage"
    assert found.data["prompts"]["sha256"] == found.inputs["prompts"]
    results.write(tmp_path / "baseline.json", found)
    assert results.read(tmp_path / "baseline.json").data == found.data


def test_only_the_classes_asked_for(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file, classes=["long"])
    assert {row["class"] for cell in found.data["cells"] for row in cell["rows"]} == {"long"}


def test_warm_up_is_sent_and_not_measured(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file, warmup=3)
    assert len(stub.requests) == 1 + 3 + 1 + 12
    assert [row["part"] for row in found.data["cells"][0]["beside"]] == ["warm-up"] * 3 + ["fill"]
    assert len(found.data["cells"][0]["rows"]) == 12


def test_a_warm_up_that_fails_counts(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) == 2 else Reply(stream(body, CHUNKS))
    found = run(stub, prompts_file, warmup=3)
    assert found.data["errors"]["by_kind"] == {"http_500": 1}
    assert (found.verdict, found.data["errors"]["requests"]) == ("no", 16)
    assert found.reason.startswith("1 of 16 requests failed: 1 http_500")


def test_open_loop_does_not_wait_for_the_server(stub: Stub, prompts_file: Path) -> None:
    stub.hold_until = 12  # no request is answered before all twelve were sent
    found = run(stub, prompts_file, arrivals="poisson", rate=200.0)
    assert stub.most_in_flight == 12
    cell = found.data["cells"][0]
    assert (cell["rate"], cell["concurrency"]) == (200, None)
    assert all(row["lag_ms"] >= 0 for row in cell["rows"])


def test_gamma_arrivals(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file, arrivals="gamma", rate=200.0, burstiness=0.5)
    cell = found.data["cells"][0]
    assert (found.verdict, cell["rate"], cell["burstiness"], len(cell["rows"])) == ("yes", 200, 0.5, 12)


def test_the_rate_cap_holds(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file, concurrency=[12], max_rps=50)
    sent = sorted(row["sent_s"] for row in found.data["cells"][0]["rows"])
    assert sent[-1] >= 0.8 * 11 / 50  # a first one that is late makes the rest look early


def test_without_usage_tokens_are_unknown_and_the_summary_says_so(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS, usage=False))
    found = run(stub, prompts_file)
    assert found.verdict == "yes"
    assert found.summary["total_tokens"] is None
    assert found.summary["avg_tokens_per_sec"] is None
    assert "no usage" in found.summary["reasons"]["total_tokens"]
    assert found.summary["tpot_p50_ms"] is None
    assert found.summary["ttft_p50_ms"] is not None


def test_without_usage_a_tokenizer_counts(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the engine extra")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    stub.answer = lambda body: Reply(stream(body, CHUNKS, usage=False))
    found = run(stub, prompts_file, tokenizer=tmp_path)
    assert found.summary["total_tokens"] == 12 * 4
    assert found.data["endpoint"]["tokens_from"] == "retokenised"


def test_acceptance_comes_from_the_counters_of_the_measured_windows(stub: Stub, prompts_file: Path) -> None:
    names = {"drafts": 3, "draft_tokens": 9, "accepted_tokens": 5}

    def metrics() -> str:
        done = len(stub.requests)  # the probe and the warm-up are counted by the server, not by us
        text = f'vllm:generation_tokens_total{{model_name="stub"}} {16 * done}\n'
        for name, n in names.items():
            text += f'vllm:spec_decode_num_{name}_total{{model_name="stub"}} {n * done}\n'
        for i, n in enumerate((3, 2)):
            labels = f'{{model_name="stub",position="{i}"}}'
            text += f"vllm:spec_decode_num_accepted_tokens_per_pos_total{labels} {n * done}\n"
        return text

    stub.metrics = metrics
    found = run(stub, prompts_file, warmup=2, repeats=2)
    acceptance = found.data["acceptance"]
    assert acceptance["drafts"] == 2 * (12 + 1) * 3  # the one that fills the stream, too
    assert acceptance["length"] == pytest.approx(1 + 5 / 3)
    assert acceptance["rate"] == pytest.approx(5 / 9)
    assert acceptance["per_position"] == [1.0, pytest.approx(2 / 3)]
    assert 0.4 < acceptance["share_of_server_tokens"] < 0.5  # someone else had the other half


def test_without_metrics_acceptance_is_unknown_with_the_reason(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file)
    assert found.data["acceptance"] is None
    assert "answered 404" in found.data["acceptance_missing"]


def test_nonsense_for_metrics_costs_acceptance_only(stub: Stub, prompts_file: Path) -> None:
    stub.metrics = lambda: "<html>not found</html>"
    found = run(stub, prompts_file)
    assert (found.verdict, found.data["acceptance"]) == ("yes", None)


def test_the_collector_is_on_again_afterwards(stub: Stub, prompts_file: Path) -> None:
    import gc

    run(stub, prompts_file)
    assert gc.isenabled()


@pytest.mark.parametrize(
    "chosen",
    [
        {"base_url": "localhost:8000"},
        {"base_url": "http://user:secret@host/v1"},
        {"concurrency": []},
        {"concurrency": [0]},
        {"concurrency": [4, 4]},
        {"arrivals": "poisson", "rate": 2.0, "concurrency": [4]},
        {"base_url": "http://h/v1?key=secret"},
        {"arrivals": "poisson"},
        {"rate": 2.0},
        {"arrivals": "poisson", "rate": 2.0, "burstiness": 2.0},
        {"arrivals": "poisson", "rate": 20.0, "max_rps": 10.0},
        {"repeats": 0},
        {"unknown": 1},
        {"slo": {"ttft": 1}},
    ],
)
def test_settings_that_make_no_sense_are_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BaselineSettings(**{"base_url": "http://h/v1", "model": "m", "prompts": Path("p")} | chosen)
