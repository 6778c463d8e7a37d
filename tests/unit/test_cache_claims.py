"""The state of prefix caches in the judgement: counters, cells of cache state, and first tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import made_windows
import pytest
from made_windows import judged, plan, windows
from pydantic import ValidationError

from specops.config import Ab
from specops.errors import PromptsError, UsageError
from specops.experiment import cache_claims, sentences
from specops.experiment.findings import Finding, Ternary
from specops.experiment.plan import Window, cache_state
from specops.experiment.records import WindowRecord
from specops.experiment.run import plan_of
from specops.load.arrivals import Level
from specops.load.settings import BaselineSettings
from specops.load.shared_prefix import shared_prefix
from specops.load.workload import Prompt, PromptSet
from specops.phases.ab.settings import AbSettings
from specops.prometheus.exposition import CacheCounts, NoData, cache_counts, parse
from specops.serving import ENGINES
from specops.serving.metrics import Series
from specops.stats import texts

LEVEL = Level(concurrency=1)


@pytest.fixture(autouse=True)
def _alike_sampled_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "compare_samples", lambda *_, **__: 0.5)


def counted(records: list[WindowRecord], **share_of_arm: float) -> list[WindowRecord]:
    """The records, with counters of the servers' prefix caches."""
    changed = []
    for record in records:
        share = share_of_arm.get(record.arm)
        counts = None if share is None else CacheCounts(1000 * share + record.cycle % 3, 1000.0)
        cell = record.cell.model_copy(update={"cache_counts": counts})
        changed.append(record.model_copy(update={"cell": cell}))
    return changed


def cached_finding(records: list[WindowRecord]) -> Finding | None:
    return cache_claims.cached_tokens(made_windows.evidence(records), LEVEL, 0.9)


@pytest.mark.parametrize(
    ("draft", "verdict", "cause"),
    [(0.6, "shown", None), (0.9, "open", "cache"), (0.1, "shown", "cache"), (0.63, "shown", None)],
)
def test_where_no_answer_reports_its_cache_the_counters_do(
    draft: float, verdict: Ternary, cause: str | None
) -> None:
    finding = cached_finding(counted(windows(cycles=8), standard=0.6, draft=draft))
    assert finding is not None
    assert (finding.verdict, finding.cause) == (verdict, cause)
    assert not finding.examples


def test_counters_of_one_arm_alone_say_nothing() -> None:
    assert cached_finding(counted(windows(cycles=8), standard=0.6)) is None
    assert cached_finding(windows(cycles=8)) is None


def test_answers_of_both_arms_come_before_counters() -> None:
    def answer(window: Window, prompt: str, time_s: float) -> dict[str, Any]:
        return {"prompt_tokens": 100, "cached_tokens": 50}

    records = counted(windows(cycles=8, answer=answer), standard=0.1, draft=0.9)
    finding = cached_finding(records)
    assert finding is not None
    assert finding.verdict == "shown"
    assert finding.counts is not None
    assert finding.counts.challenger * 2 == finding.counts.challenger_n


def test_counters_decide_where_the_answers_of_an_arm_report_no_hit() -> None:
    """Some releases report 0 cached tokens though the cache hits."""

    def answer(window: Window, prompt: str, time_s: float) -> dict[str, Any]:
        return {"prompt_tokens": 100, "cached_tokens": 50 if window.arm == "draft" else 0}

    records = windows(cycles=8, answer=answer)
    finding = cached_finding(counted(records, standard=0.5, draft=0.5))
    assert finding is not None
    assert (finding.verdict, finding.cause) == ("shown", None)
    finding = cached_finding(records)
    assert finding is not None
    assert (finding.verdict, finding.cause, finding.examples) == ("open", "cache", [])


def test_a_challenger_without_its_cache_whose_first_token_is_late_loses() -> None:
    """TTFT itself is not compared, and the loss stands under its own name."""

    def answer(window: Window, prompt: str, time_s: float) -> dict[str, Any]:
        return {"ttft_ms": 400.0 if window.arm == "draft" else 100.0}

    judgement = judged(counted(windows(cycles=24, answer=answer), standard=0.6, draft=0.0))
    assert judgement.decision.verdict == "no"
    assert "the challenger had 0% of its prompt tokens in its cache" in judgement.decision.reason
    assert "its TTFT is 4.0" in judgement.decision.reason
    first_tokens = [finding for finding in judgement.findings if finding.claim == "first token"]
    assert {(finding.verdict, finding.cause) for finding in first_tokens if finding.scope == "measured"} == {
        ("unknown", "cache")
    }
    rows = sentences.table([finding for finding in judgement.findings if finding.claim == "cached tokens"])
    assert all(row[1].startswith("0 of") or row[1].endswith(")") for row in rows)


def test_an_equally_early_first_token_is_not_shown_where_the_challenger_had_more() -> None:
    judgement = judged(counted(windows(cycles=24), standard=0.1, draft=0.9))
    assert judgement.decision.verdict == "undecided"
    assert (
        "TTFT is unknown: first tokens can be compared only at equal cache state" in judgement.decision.reason
    )


def finding_of(claim: Any, verdict: Ternary, cause: Any = None) -> Finding:
    return Finding(claim=claim, verdict=verdict, cause=cause)


@pytest.mark.parametrize("verdict", ["shown", "open", "against", "unknown"])
@pytest.mark.parametrize(
    ("cached", "unknown"),
    [
        (None, {"unknown"}),
        (("shown", None), {"unknown"}),
        (("unknown", None), {"unknown"}),
        (("open", None), {"unknown", "shown", "open"}),
        (("open", "cache"), {"unknown", "shown", "open"}),
        (("shown", "cache"), {"unknown", "against", "open"}),
        (("against", "cache"), {"unknown", "against", "open"}),
    ],
)
def test_first_tokens_are_unknown_where_a_cache_may_have_made_them(
    cached: tuple[Ternary, Any] | None, unknown: set[str], verdict: Ternary
) -> None:
    caches = None if cached is None else finding_of("cached tokens", *cached)
    judged_token = cache_claims.at_equal_state(finding_of("first token", verdict), caches)
    assert judged_token.verdict == ("unknown" if verdict in unknown else verdict)


def states(cold_ms: float, **planned: Any) -> list[WindowRecord]:
    """Half of the prompts begin with the shared prefix; each other request takes the challenger `cold_ms`
    longer."""
    records = windows(3.0, cycles=36, classes=("chat",), prefix_share=0.5, **planned)
    changed = []
    for record in records:
        rows = tuple(
            row.model_copy(
                update={
                    name: getattr(row, name) + cold_ms
                    for name in ("e2e_ms", "e2e_with_retries_ms", "ttft_ms")
                    if record.arm == "draft" and cache_state(row.variant, row.turn) == 0
                }
            )
            for row in record.cell.rows
        )
        changed.append(record.model_copy(update={"cell": record.cell.model_copy(update={"rows": rows})}))
    return changed


def test_a_gain_behind_the_shared_prefix_alone_is_not_deployed() -> None:
    judgement = judged(states(cold_ms=70.0), settings=Ab(first_token_ms=100.0))
    assert judgement.together[0].speedup is not None
    assert judgement.together[0].speedup.low > 1.01, "the mean gains"
    assert judgement.decision.verdict == "undecided"
    assert "depends on what of the prompt is cached" in judgement.decision.reason
    assert "on cold prompts" in judgement.decision.reason
    assert "behind a shared prefix" in judgement.decision.reason


def test_a_gain_in_each_cache_state_is_deployed() -> None:
    records = states(cold_ms=0.0)
    judgement = judged(records)
    assert judgement.decision.verdict == "yes", judgement.decision.reason
    report = made_windows.judgement(records)
    (challenger,) = report.data["challengers"].values()
    assert [figures["state"] for figures in challenger["cache_states"]] == ["cold", "shared prefix"]
    assert sum(figures["prompts"] for figures in challenger["cache_states"]) == 36 * 6


def test_sessions_have_cache_states_by_their_shares_and_both_arms_the_same() -> None:
    made = plan(prompts=50, prefix_share=0.4, cold_share=0.2, concurrency=(1, 4))
    marks: list[str] = []
    of_arm: dict[tuple[Any, ...], set[tuple[str, ...]]] = {}
    for window in made.windows():
        if window.cycle == 40:
            break
        variants = tuple(request.variant for request in window.requests)
        of_arm.setdefault((window.cycle, window.kind, window.level), set()).add(variants)
        if window.kind == "measured":
            marks += [variant.rpartition(".")[2] for variant in variants]
    assert all(len(drawn) == 1 for drawn in of_arm.values())
    assert marks.count("prefix") / len(marks) == pytest.approx(0.4, abs=0.04)
    assert marks.count("cold") / len(marks) == pytest.approx(0.2, abs=0.04)
    plain = replace(made, prefix_share=0.0, cold_share=0.0)
    variants = {request.variant for request in next(plain.windows()).requests}
    assert all(variant.rpartition(".")[2].isdigit() for variant in variants)


@pytest.mark.parametrize(
    ("variant", "turn", "state"),
    [
        ("1.0.3", 1, 0),
        ("1.0.3", 2, 2),
        ("1.0.3.prefix", 1, 1),
        ("1.0.3.prefix~0a1b2c3d", 3, 2),
        ("1.0.3.cold", 2, 0),
        ("", 1, 0),
        ("~0a1b2c3d", 2, 2),
    ],
)
def test_the_variant_says_what_a_cache_may_know(variant: str, turn: int, state: int) -> None:
    assert cache_state(variant, turn) == state


EXPOSED = {
    "vllm": ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    "vllm before 0.11": ("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total"),
    "sglang": ("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
    "trtllm": ("trtllm_kv_cache_reused_blocks_total", "trtllm_kv_cache_missed_blocks_total"),
}


@pytest.mark.parametrize("engine", EXPOSED)
def test_the_counters_of_each_engine_are_read(engine: str) -> None:
    hits, others = EXPOSED[engine]
    series: Series = next(iter(ENGINES[engine.partition(" ")[0]].namings.values()))

    def scrape(hit: int, other: int) -> Any:
        return parse(
            f'{series.generated}{{model_name="m"}} 5\n'
            f'{hits}{{model_name="m",cache_source="device"}} {hit}\n'
            f'{others}{{model_name="m"}} {other}\n'
        )

    lookups = 100 if engine == "trtllm" else 90
    assert cache_counts(scrape(10, 100), scrape(20, 190), "m") == CacheCounts(10.0, lookups)
    restarted = cache_counts(scrape(10, 100), scrape(0, 0), "m")
    assert isinstance(restarted, NoData)


@pytest.mark.parametrize("share", ["prefix_share", "cold_share"])
def test_what_decides_itself_what_a_cache_knows_refuses_cache_states(share: str) -> None:
    prompts = PromptSet((Prompt("a", "all", "Hello"),), "prompts.json", "playbook", "0" * 64)
    requests = BaselineSettings(base_url="http://127.0.0.1:9/v1", model="m")
    settings = AbSettings(**{share: 0.5})
    assert getattr(plan_of(["a", "b"], requests, settings, prompts, 0.7), share) == 0.5
    for refusing in ({"same_prompts": True}, {"arrivals": "ramp:1-2/1m"}):
        with pytest.raises(UsageError, match="decide themselves what a cache knows"):
            plan_of(["a", "b"], requests.model_copy(update=refusing), settings, prompts, 0.7)


def test_shares_above_1_are_refused() -> None:
    with pytest.raises(ValidationError, match="together above 1"):
        AbSettings(prefix_share=0.6, cold_share=0.5)


def test_a_prefix_has_its_length_and_is_another_in_another_run(tmp_path: Path) -> None:
    prompts = PromptSet((Prompt("a", "all", "Hello there"),), str(tmp_path), "playbook", "0" * 64)
    one, other_run = (shared_prefix(prompts, 300, run, None) for run in ("one", "two"))
    assert len(one.removesuffix("\n\n")) == 4 * 300
    assert one[10:] == other_run[10:]
    assert one != other_run
    assert len(shared_prefix(prompts, 300, "one", lambda text: len(text) // 2)) == 2 * 300 + 2
    ids = PromptSet((Prompt("a", "all", (1, 2)),), str(tmp_path / "ids.json"), "openai-batch", "0" * 64)
    with pytest.raises(PromptsError, match="token ids"):
        shared_prefix(ids, 300, "one", None)
