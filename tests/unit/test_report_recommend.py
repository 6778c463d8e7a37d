"""What a report recommends, and that it keeps quiet where nothing follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from made_monitoring import MEASURED, rollout
from made_reports import DRAFTED, FILE, WINDOW, gauge, pool, seen, without_pool
from made_rules import ab_result, kept, pays_up_to, sweep_result

from specops.guard.journal import FILE as JOURNAL
from specops.guard.journal import Entry, EntryEvidence
from specops.guard.state import State
from specops.phases.monitor.thresholds import Measurements
from specops.phases.report import assembly, recommend
from specops.phases.report.delivery import read
from specops.phases.report.document import document
from specops.phases.report.prometheus_data import Gauge, Increases, PrometheusData, counters_of
from specops.phases.report.report import WeeklyReport
from specops.render.report.formats import markdown
from specops.results import Result
from specops.serving.sglang.pool import SERIES as SGLANG
from specops.serving.vllm.pool import SERIES as VLLM


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder that would have a baseline of 10, 16 and 26 ms a token at 1, 4 and 8 at a time."""
    monkeypatch.setattr(assembly, "measurements", lambda rollout, folder, unfit: known(tmp_path))
    return tmp_path


def known(folder: Path) -> Measurements:
    return replace(MEASURED, loads=() if (folder / "unmeasured").exists() else MEASURED.loads)


def made(of: PrometheusData, folder: Path, **changes: Any) -> WeeklyReport:
    return read(assembly.assemble(rollout(**changes), FILE, folder, of))


def written(report: WeeklyReport) -> str:
    return markdown(document(report, Result(phase="report", verdict="yes", reason="made")))


def rules(report: WeeklyReport) -> list[str]:
    return [one.rule for one in report.recommendations]


FAST = pool(tpot_s=0.006)


def fast(**changes: Any) -> PrometheusData:
    return seen(pools={"standard": pool(tpot_s=0.012), "speculative": FAST}, **changes)


def test_where_all_is_well_nothing_is_recommended(folder: Path) -> None:
    report = made(fast(), folder)
    assert rules(report) == []
    assert report.status == "good"
    assert report.speedup.by["tpot"].ratio == pytest.approx((0.01 + 0.006 / 3) / 0.006)


def test_low_acceptance_is_the_playbooks_rule_and_the_rollout_files(folder: Path) -> None:
    low = seen(pools={"standard": pool(), "speculative": pool(acceptance=0.5, tpot_s=0.006)})
    (one,) = [each for each in made(low, folder).recommendations if each.rule == "acceptance"]
    assert (one.value, one.threshold, one.source) == (0.5, 0.55, "default")
    assert one.command == f"specops sweep rollout.yaml --out {folder}"
    ends = {"engine": "endpoint", "base_url": "http://a:1/v1", "model": "m"}
    pools = {"standard": ends, "speculative": ends | {"base_url": "http://b:1/v1"}}
    (one,) = [each for each in made(low, folder, pools=pools).recommendations if each.rule == "acceptance"]
    assert "--attach 0=http://a:1/v1#m --attach 5=http://b:1/v1#m" in one.command.replace("'", "")
    mine = made(low, folder, report={"min_acceptance": 0.4})
    assert "acceptance" not in rules(mine)
    theirs = made(low, folder, report={"min_acceptance": 0.6}).recommendations[0]
    assert theirs.source == "report.min_acceptance of the rollout file"


def test_a_small_speed_up_questions_the_cost(folder: Path) -> None:
    report = made(seen(), folder)
    (one,) = [each for each in report.recommendations if each.rule == "speed-up"]
    assert one.threshold == 1.3
    assert one.value is not None
    assert 1 < one.value < 1.3


def test_a_load_that_was_not_measured_is_to_be_measured(folder: Path) -> None:
    heavy = seen(pools={"standard": pool(), "speculative": pool(running=20)})
    report = made(heavy, folder)
    (one,) = [each for each in report.recommendations if each.rule == "comparable load"]
    assert "[1, 4, 8, 20]" in one.command
    assert report.speedup.by["e2e"].ratio is None
    assert report.saved is None
    (folder / "unmeasured").touch()
    (none,) = [each for each in made(fast(), folder).recommendations if each.rule == "comparable load"]
    assert "unknown without a baseline" in none.message


def test_the_heaviest_hour_is_to_be_measured() -> None:
    pools = {"speculative": SimpleNamespace(load_by_hour=[2.0, None, 19.2, 3.0])}
    found = SimpleNamespace(pools=pools, speedup=SimpleNamespace(loads=[1, 4]), path="a.yaml")
    assert "[1, 4, 20]" in recommend._unmeasured_load(cast(Any, found), 0.5).command


@pytest.mark.parametrize(
    ("heavy", "running", "said"),
    [
        (pays_up_to(edit=1, long=1, short=1), 6.0, "shown to pay up to 1"),
        (pays_up_to(edit=1, long=8, short=1), 6.0, None),
        (pays_up_to(edit=8, long=8, short=8), 12.0, "shown to pay up to 8"),
        (pays_up_to(edit=0, long=0, short=0), 1.0, "shown to pay at no load"),
    ],
)
def test_a_load_at_which_it_was_not_shown_to_pay(
    folder: Path, heavy: Callable[[str, int], float], running: float, said: str | None
) -> None:
    kept(folder, "ab", ab_result(lambda name: 2.0, streams=(1, 8), heavy=heavy))
    spec = pool(tpot_s=0.006, running=running)
    report = made(seen(pools={"standard": pool(tpot_s=0.012), "speculative": spec}), folder)
    found = [each.message for each in report.recommendations if each.rule == "load that pays"]
    assert [text.rpartition("was ")[2] for text in found] == ([said] if said else [])


def test_a_speed_up_at_a_light_load_is_not_held_against_a_heavy_one(folder: Path) -> None:
    kept(folder, "ab", ab_result(lambda name: 2.0, streams=(1, 4)))

    def from_ab(running: float) -> list[str]:
        spec = pool(tpot_s=0.006, running=running)
        report = made(seen(pools={"standard": pool(tpot_s=0.012), "speculative": spec}), folder)
        return [each.source for each in report.drift if each.source.endswith("at a time")]

    assert [source.rpartition(", ")[2] for source in from_ab(4.0)] == ["4 at a time"]
    assert from_ab(6.0) == []


def entry(hours: float, number: int, state: State, *events: Any) -> Entry:
    ts = WINDOW.start + hours * 3600
    return Entry(
        ts=ts, id=number, verdict="bad", evidence=EntryEvidence(why="bad", events=events), state=state
    )


def journal(folder: Path, *entries: Entry) -> None:
    path = folder / "guard" / JOURNAL
    path.parent.mkdir()
    path.write_text("".join(each.model_dump_json() + "\n" for each in entries))


OFF, ON = State(mode="fallen", percent=0), State()


@pytest.mark.parametrize(("times", "told"), [(0, False), (1, True)])
def test_more_fall_backs_than_five_a_week(folder: Path, times: int, told: bool) -> None:
    """A day's share of five is less than one."""
    entries = [entry(0.5, 1, ON)]
    for number in range(times):
        entries += [
            entry(number + 1, 2 * number + 2, OFF, "fell_back"),
            entry(number + 1.5, 2 * number + 3, ON),
        ]
    journal(folder, *entries)
    report = made(fast(), folder)
    assert ("fallbacks" in rules(report)) == told
    if told:
        assert "guard fell back 1 time: check the draft" in written(report)
        assert "(default, 5 a week)" in written(report)
    assert report.fallbacks is not None
    assert len(report.fallbacks) == times


@pytest.mark.parametrize(("percent", "told"), [(0, "is off since"), (40, "is down to 40% since")])
def test_speculation_that_is_off_is_said(folder: Path, percent: int, told: str) -> None:
    journal(folder, entry(2, 1, State(mode="fallen", percent=percent), "fell_back"))
    report = made(fast(), folder)
    assert "speculation is off" in rules(report)
    assert told in report.recommendations[0].message
    assert report.fallbacks is not None
    assert report.fallbacks[0].ended is None
    assert report.fallbacks[0].seconds == 22 * 3600


def test_a_guard_that_was_down_is_told_in_hours(folder: Path) -> None:
    down = Gauge(
        {"alertname": "SpecopsGuardDown"}, WINDOW.start + np.arange(3600.0, 10800.0, 60), np.ones(120)
    )
    up = replace(gauge(1.0), times=np.arange(float(WINDOW.previous.start), WINDOW.end, 60))
    report = made(fast(firing=(down,), up=(up,)), folder)
    (one,) = [each for each in report.recommendations if each.rule == "guard"]
    assert one.value == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(("severity", "told"), [("critical", True), ("info", False)])
def test_what_still_fires_is_not_called_healthy(folder: Path, severity: str, told: bool) -> None:
    end = np.arange(WINDOW.end - 7200.0, WINDOW.end, 60)
    firing = Gauge({"alertname": "SpeculationErrors", "severity": severity}, end, np.ones(end.size))
    report = made(fast(firing=(firing,)), folder)
    assert ("open incidents" in rules(report)) == told
    assert (report.status == "look") == told


def test_a_pool_without_requests_is_not_called_healthy(folder: Path) -> None:
    idle = {name: replace(of, rows=0 * of.rows) for name, of in FAST.counters.items()}
    report = made(seen(pools={"standard": pool(), "speculative": replace(FAST, counters=idle)}), folder)
    assert report.pools["speculative"].requests == 0
    assert (report.status, rules(report)) == ("look", ["traffic"])


def test_healthy_is_said_of_what_is_known(folder: Path) -> None:
    assert "**Healthy, with parts unknown.**" in written(made(fast(), folder))
    journal(folder, entry(0.5, 1, ON))
    assert "**Healthy.**" in written(made(fast(), folder))


def test_memory_matters_where_requests_were_preempted(folder: Path) -> None:
    for preempted, told in ((0.0, False), (3.0, True)):
        full = seen(
            pools={"standard": pool(), "speculative": pool(tpot_s=0.006, kv=0.97, preempted=preempted)}
        )
        assert ("memory" in rules(made(full, folder))) == told


def test_acceptance_that_falls_is_drift_and_one_that_rises_is_not(folder: Path) -> None:
    hours = FAST.counters["vllm:spec_decode_num_accepted_tokens_total"].rows.shape[1]
    for by, told in ((-0.1, True), (0.1, False), (-0.01, False)):
        rates = np.concatenate([np.full(hours // 2, 0.7), np.full(hours // 2, 0.7 + by)])
        rates += 0.002 * np.sin(np.arange(hours))
        counters = dict(FAST.counters)
        name = "vllm:spec_decode_num_accepted_tokens_total"
        counters[name] = replace(counters[name], rows=DRAFTED * rates[np.newaxis, :])
        of = seen(pools={"standard": pool(), "speculative": replace(FAST, counters=counters)})
        report = made(of, folder)
        assert ("drift" in rules(report)) == told
        (week,) = [one for one in report.drift if one.what == "acceptance" and "before" in one.source]
        assert week.now - week.then == pytest.approx(by, abs=0.001)


def test_without_any_data_nothing_is_made_up(folder: Path) -> None:
    nothing = without_pool(FAST)
    result = assembly.assemble(
        rollout(), FILE, folder, seen(pools={"standard": nothing, "speculative": nothing}, up=())
    )
    report = read(result)
    assert (result.verdict, report.status, report.pools) == ("undecided", "no data", {})
    assert "http://prometheus:9090 has no data" in result.reason
    assert report.recommendations == []
    assert report.incidents is None
    assert report.fallbacks is None
    assert {one.what for one in report.missing} >= {"the speculative pool", "incidents", "fallbacks"}


def test_a_pool_that_is_not_seen_is_not_called_healthy(folder: Path) -> None:
    report = made(seen(pools={"standard": pool(), "speculative": without_pool(FAST)}), folder)
    assert (report.status, rules(report)) == ("look", ["data"])
    assert set(report.pools) == {"standard"}


def test_a_pool_that_was_not_scraped_for_a_while_is_named_with_how_long(folder: Path) -> None:
    gone = FAST.running[0]
    early = gone.times < WINDOW.end - 6 * 3600
    silent = replace(FAST, running=(replace(gone, times=gone.times[early], values=gone.values[early]),))
    report = made(seen(pools={"standard": pool(tpot_s=0.012), "speculative": silent}), folder)
    (found,) = [one for one in report.recommendations if one.rule == "data"]
    assert found.value == pytest.approx(0.25, abs=0.01)
    assert found.message.startswith("no data from the speculative pool for 25% ")


def test_one_server_of_a_pool_that_is_not_scraped_leaves_the_pool_known(folder: Path) -> None:
    one = gauge(2.0, VLLM.running, instance="b:8000")
    part = (one.times < WINDOW.start + 6 * 3600) | (one.times > WINDOW.end - 6 * 3600)
    silent = replace(
        FAST, running=(*FAST.running, replace(one, times=one.times[part], values=one.values[part]))
    )
    report = made(seen(pools={"standard": pool(tpot_s=0.012), "speculative": silent}), folder)
    assert [gap.server for gap in report.pools["speculative"].gaps] == ["b:8000"]
    assert "data" not in rules(report)


def test_an_engine_that_counts_no_drafted_tokens_has_no_acceptance(folder: Path) -> None:
    names = replace(SGLANG, ttft=FAST.names.ttft, tpot=FAST.names.tpot, e2e=FAST.names.e2e)
    counters = {
        name: FAST.counters.get(name, Increases((), np.empty((0, 48)))) for name in counters_of(names)
    }
    counters[names.finished] = FAST.counters[FAST.names.finished]
    counters[names.generated] = FAST.counters[FAST.names.generated]
    report = made(
        seen(pools={"standard": pool(), "speculative": replace(FAST, names=names, counters=counters)}), folder
    )
    assert report.pools["speculative"].acceptance is None
    assert report.pools["speculative"].requests == 24 * 50
    assert report.speedup.by["e2e"].ratio is not None
    assert [day.acceptance for day in report.days] == [None]
    assert "acceptance" in [one.what for one in report.missing]
    assert written(report)


@pytest.mark.parametrize(("draft_ms", "pays"), [(0.1, None), (3.5, 2), (12.0, 0)])
def test_a_draft_is_cut_where_it_costs_more_than_it_brings(
    folder: Path, draft_ms: float, pays: int | None
) -> None:
    """0.7, 0.49 and 0.34 of the drafts get that far; a plain step takes 10 ms."""
    cost = {"target_ms": 10.0, "draft_ms": draft_ms}
    kept(folder, "sweep", sweep_result(cost=cost))
    told = [one.threshold for one in made(fast(), folder).recommendations if one.rule == "draft length"]
    assert told == ([] if pays is None else [pays])


def test_costs_are_as_the_rollout_file_has_them(folder: Path) -> None:
    saved = made(fast(), folder, costs={"standard_per_hour": 2.0, "currency": "KRW"}).saved
    assert saved is not None
    assert saved.money == pytest.approx(2.0 * (saved.without_server_hours - saved.server_hours))
    assert saved.money > 0
    free = made(fast(), folder).saved
    assert free is not None
    assert free.money is None


def test_an_hour_above_the_rate_at_the_objective_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carries(rate: float) -> None:
        carried = recommend.CarriedRate(rate, "capacity.json of 2026-11-20")
        monkeypatch.setattr(assembly, "_carried", lambda run: carried)

    pools = made(fast(), folder).pools["speculative"]
    busiest = max(hour for hour in pools.requests_by_hour if hour is not None) / 3600 / pools.servers
    carries(busiest * 1.01)
    assert "capacity" not in rules(made(fast(), folder))
    carries(busiest * 0.99)
    (advice,) = [entry for entry in made(fast(), folder).recommendations if entry.rule == "capacity"]
    assert (advice.value, advice.threshold) == (pytest.approx(busiest), pytest.approx(busiest * 0.99))
    assert advice.command == f"specops capacity {FILE}"
