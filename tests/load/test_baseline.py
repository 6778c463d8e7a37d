"""`measure`: cells, what is kept of them, how a run resumes, and when its verdict is no."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import ValidationError
from stub import CHUNKS, Body, Reply, Stub, fault, stream

from specops import prometheus, results
from specops.errors import EndpointError, FileError, PromptsError
from specops.load.settings import BaselineSettings
from specops.phases.baseline import measure
from specops.progress import Silent
from specops.results import Result


def settings(stub: Stub, prompts: Path, **chosen: Any) -> BaselineSettings:
    fields = {"base_url": stub.base_url, "model": "stub", "prompts": prompts, "warmup": 0, "repeats": 1}
    return BaselineSettings(**fields | chosen)


def run(stub: Stub, prompts: Path, previous: Result | None = None, **chosen: Any) -> Result:
    return measure(settings(stub, prompts, **chosen), Silent(), previous)


def asked(stub: Stub) -> list[str]:
    return [request["messages"][0]["content"] for request in stub.requests]


def test_every_prompt_is_sent_once_for_each_level_and_repeat(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file, concurrency=[1, 4], repeats=2)
    assert (found.verdict, found.phase) == ("yes", "baseline")
    cells = found.data["cells"]
    assert [(c["concurrency"], c["repeat"]) for c in cells] == [(1, 0), (4, 0), (1, 1), (4, 1)]
    everything = {f"p{i}" for i in range(12)}
    assert all({row["prompt"] for row in cell["rows"]} == everything for cell in cells)
    assert len(stub.requests) == 1 + 4 * 12  # the probe, and no warm-up here
    assert found.data["errors"]["failed"] == 0


def test_the_order_is_shuffled_by_the_seed_and_the_same_for_every_arm(stub: Stub, prompts_file: Path) -> None:
    orders = []
    for seed in (0, 0, 1):
        stub.requests.clear()
        run(stub, prompts_file, seed=seed)
        orders.append(asked(stub)[1:])
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_what_a_result_says(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=0.002)
    found = run(stub, prompts_file, repeats=2, slo={"e2e_ms": 60_000})
    assert {k for k in found.summary if k.endswith(("_ms", "_tokens", "_sec"))} == {
        "ttft_p50_ms",
        "ttft_p95_ms",
        "tpot_p50_ms",
        "tpot_p95_ms",
        "e2e_p50_ms",
        "e2e_p95_ms",
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
    assert len(stub.requests) == 1 + 3 + 12
    assert found.data["errors"]["requests"] == 12


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
    found = run(stub, prompts_file, concurrency=[12], max_rps=100)
    sent = sorted(row["sent_s"] for row in found.data["cells"][0]["rows"])
    assert sent[-1] >= 11 * 0.01 - 0.002


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
    assert found.summary["total_tokens"] == 12 * 6
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
    assert acceptance["drafts"] == 2 * 12 * 3
    assert acceptance["length"] == pytest.approx(1 + 5 / 3)
    assert acceptance["rate"] == pytest.approx(5 / 9)
    assert acceptance["per_position"] == [1.0, pytest.approx(2 / 3)]
    assert acceptance["share_of_server_tokens"] == 0.5  # someone else had the other half


def test_without_metrics_acceptance_is_unknown_with_the_reason(stub: Stub, prompts_file: Path) -> None:
    found = run(stub, prompts_file)
    assert found.data["acceptance"] is None
    assert "answered 404" in found.data["acceptance_missing"]


def test_nonsense_for_metrics_costs_acceptance_only(stub: Stub, prompts_file: Path) -> None:
    stub.metrics = lambda: "<html>not found</html>"
    found = run(stub, prompts_file)
    assert (found.verdict, found.data["acceptance"]) == ("yes", None)


# resuming


def test_an_interrupted_run_goes_on_with_the_cells_it_lacks(stub: Stub, prompts_file: Path) -> None:
    partials: list[Result] = []
    whole = measure(settings(stub, prompts_file, repeats=3), Silent(), None, partials.append)
    assert [len(p.data["cells"]) for p in partials] == [1, 2, 3]
    assert partials[0].verdict == "partial"
    assert partials[0].reason == "stopped after 1 of 3 cells"
    stub.requests.clear()
    found = run(stub, prompts_file, partials[0], repeats=3)
    assert len(stub.requests) == 1 + 2 * 12
    assert found.verdict == "yes"
    assert found.data["cells"][0] == whole.data["cells"][0]


def test_a_whole_run_is_not_measured_again(stub: Stub, prompts_file: Path) -> None:
    whole = run(stub, prompts_file)
    stub.requests.clear()
    again = run(stub, prompts_file, whole)
    assert stub.requests == []
    assert again.summary == whole.summary


def test_other_settings_or_prompts_are_measured_anew(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    whole = run(stub, prompts_file)
    other = tmp_path / "other.json"
    other.write_text(json.dumps([{"text": "Other"}]))
    for file, chosen in ((prompts_file, {"temperature": 0.5}), (other, {})):
        stub.requests.clear()
        run(stub, file, whole, **chosen)
        assert stub.requests


def test_an_identity_stands_for_an_address_that_changes(stub: Stub, prompts_file: Path) -> None:
    one = settings(stub, prompts_file, identity="pool")
    two = one.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
    whole = measure(one, Silent())
    assert measure(two, Silent(), whole).summary == whole.summary
    bare = [s.model_copy(update={"identity": None}) for s in (one, two)]
    hashes = [s.inputs(_prompts(prompts_file))["settings"] for s in bare]
    assert hashes[0] != hashes[1]


def test_cells_that_failed_are_measured_again(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) > 7 else Reply(stream(body, CHUNKS))
    failed = run(stub, prompts_file)
    assert failed.verdict == "no"
    stub.answer = lambda body: Reply(stream(body, CHUNKS))
    assert run(stub, prompts_file, failed).verdict == "yes"


def test_a_damaged_earlier_result_is_refused(stub: Stub, prompts_file: Path) -> None:
    whole = run(stub, prompts_file)
    del whole.data["cells"][0]["rows"][0]["ttft_ms"]
    with pytest.raises(FileError, match=r"damaged: data\.cells\.0\.rows\.0\.ttft_ms"):
        run(stub, prompts_file, whole)


# faults


def test_too_many_failures_are_a_no_with_their_kinds(stub: Stub, prompts_file: Path) -> None:
    def flaky(body: Body) -> Reply:
        number = len(stub.requests)
        if number in (3, 5):
            return Reply(stream(body, CHUNKS)[:2], cut=True)
        return fault(500, "boom") if number == 7 else Reply(stream(body, CHUNKS))

    stub.answer = flaky
    found = run(stub, prompts_file)
    assert found.verdict == "no"
    assert found.reason == "3 of 12 requests failed: 2 cut, 1 http_500"
    assert found.data["by_concurrency"][0]["requests"] == 12  # the others are kept
    assert run(stub, prompts_file, max_error_share=0.5).verdict == "yes"


def test_retries_are_reported(stub: Stub, prompts_file: Path) -> None:
    def busy(body: Body) -> Reply:
        return fault(429, "x", Retry_After="0.2") if len(stub.requests) == 4 else Reply(stream(body, CHUNKS))

    stub.answer = busy
    found = run(stub, prompts_file)
    assert found.verdict == "yes"
    assert (found.data["errors"]["retries"], found.data["errors"]["retried_requests"]) == (1, 1)
    assert found.reason == "measured 12 requests in 1 cells; 1 retried"
    level = found.data["by_concurrency"][0]
    assert level["e2e_with_retries_ms"]["n"] == 12
    assert level["e2e_with_retries_ms"]["max"] >= 200


def test_a_failing_endpoint_is_left_in_peace(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) > 5 else Reply(stream(body, CHUNKS))
    found = run(stub, prompts_file, repeats=3, abort_window=4)
    assert found.verdict == "no"
    assert "3 of the last 4 requests failed" in found.reason
    assert len(stub.requests) == 1 + 4 + 3  # the probe, four good ones, three failures
    assert found.data["errors"]["requests"] == 7
    assert not found.data["cells"][0]["complete"]


def test_the_abort_rule_remembers_the_cells_before(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) > 2 else Reply(stream(body, CHUNKS))
    found = run(stub, prompts_file, repeats=3, abort_window=16)  # more than a cell has prompts
    assert found.verdict == "no"
    assert "of the last 16 requests failed" in found.reason
    assert len(stub.requests) == 1 + 16


def test_an_endpoint_that_turns_slow_is_left_in_peace(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: Reply(stream(body, CHUNKS), first_s=0.05)
    found = run(stub, prompts_file, abort_window=3, abort_e2e_ms=20)
    assert found.verdict == "no"
    assert "median latency" in found.reason
    assert found.data["errors"]["requests"] == 3


def test_nothing_measured_is_an_error_not_a_verdict(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "boom") if len(stub.requests) > 1 else Reply(stream(body, CHUNKS))
    kept: list[Result] = []
    with pytest.raises(EndpointError, match=r"all 12 requests failed; .*boom"):
        measure(settings(stub, prompts_file), Silent(), None, kept.append)
    assert kept[-1].data["errors"]["by_kind"] == {"http_500": 12}


def test_prompts_that_cannot_be_sent_are_refused_before_the_first_request(stub: Stub, tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps({"body": {"prompt": [1, 2]}}) + "\n")
    with pytest.raises(PromptsError, match="token ids"):
        run(stub, path)
    assert stub.requests == []


def test_one_bad_answer_does_not_cost_the_result(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    def odd(body: Body) -> Reply:
        chunks = {3: [("\ud83d", 1)], 5: [("x" * 9, 1), ("\ude00", 1)]}.get(len(stub.requests), CHUNKS)
        return Reply(stream(body, chunks))

    stub.answer = odd
    found = run(stub, prompts_file)
    assert found.verdict == "yes"
    results.write(tmp_path / "b.json", found)
    assert results.read(tmp_path / "b.json").data == found.data


def test_a_fault_of_ours_keeps_what_was_measured(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr("specops.load.client.failure_of", lost)
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) > 6 else Reply(stream(body, CHUNKS))
    kept: list[Result] = []
    with pytest.raises(openai.InternalServerError):  # itself, not in a group
        measure(settings(stub, prompts_file), Silent(), None, kept.append)
    assert [len(cell["rows"]) for cell in kept[-1].data["cells"]] == [5]
    assert kept[-1].verdict == "partial"


def test_a_result_that_cannot_be_written_is_tried_once(stub: Stub, prompts_file: Path) -> None:
    tried: list[Result] = []

    def full(result: Result) -> None:
        tried.append(result)
        raise FileError("could not write it: No space left on device")

    with pytest.raises(FileError):
        measure(settings(stub, prompts_file), Silent(), None, full)
    assert len(tried) == 1


def test_a_stop_while_the_counters_are_read_keeps_the_cell(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scrape(_: str) -> dict[Any, float]:
        if len(stub.requests) > 1:  # the closing one
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(prometheus, "scrape", scrape)
    kept: list[Result] = []
    with pytest.raises(KeyboardInterrupt):
        measure(settings(stub, prompts_file), Silent(), None, kept.append)
    assert kept[-1].data["cells"][0]["complete"]
    assert kept[-1].data["acceptance_missing"] == "stopped before they were read"


def test_nothing_is_kept_of_a_run_without_a_request(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prometheus, "scrape", stop)  # the opening one
    kept: list[Result] = []
    with pytest.raises(KeyboardInterrupt):
        measure(settings(stub, prompts_file), Silent(), None, kept.append)
    assert kept == []


def test_the_api_key_is_sent_and_kept_nowhere(
    stub: Stub, prompts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECOPS_API_KEY", "sk-very-secret")
    found = run(stub, prompts_file)
    assert stub.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in found.model_dump_json()


def test_the_collector_is_on_again_afterwards(stub: Stub, prompts_file: Path) -> None:
    import gc

    run(stub, prompts_file)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


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


def _prompts(path: Path) -> Any:
    from specops.load.workload import load_prompts

    return load_prompts(path)
