"""What `edge bench` concludes from its windows: figures by hand, decisions of the claims, and the page."""

from __future__ import annotations

import os
import random
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from calling import specops

from specops import results
from specops.assets import asset
from specops.config import load
from specops.economics import Prices
from specops.errors import FileError, UsageError
from specops.experiment.plan import Kind
from specops.load.answer import Answer, Chunk, Failure
from specops.load.arrivals import Level
from specops.load.record import Cell, CellRecord
from specops.load.request_times import Objectives, Observation
from specops.load.workload import Prompt
from specops.phases.edge_bench.document import notes, sections
from specops.phases.edge_bench.judging import ArmDecision, EdgeComparison, compare, figures, read
from specops.phases.edge_bench.measure import _seeded, planned
from specops.phases.edge_bench.records import ClientEffort, EdgeWindow, EdgeWindows, Lateness, ServerEffort
from specops.phases.edge_bench.sentences import verdict
from specops.phases.edge_bench.settings import (
    AUTOREGRESSIVE,
    SERVER_ONLY,
    EdgeBenchSettings,
    arms_of,
    settings_of,
)
from specops.phases.plot import plot
from specops.prometheus.exposition import DraftCounts
from specops.render.report.document import text_of
from specops.results import Result

ARMS = arms_of([0, 1], ["adaptive"], [0])
BARE, PAPER = (arm.name for arm in ARMS if arm.kind == "edge")
WITH_AHEAD = arms_of([0, 1], ["adaptive"], [0, 16])
AHEAD = WITH_AHEAD[-1].name
PRICES = Prices(3600.0, 360.0)  # 1 a second, and a tenth
FASTER = {AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.09, PAPER: 0.05}
ENOUGH = 13
"""Windows of six requests after which the bounds on failures are inside a margin of 5%; of 1%, 50."""


def settings(temperature: float = 0.0, failure_margin: float = 0.05) -> EdgeBenchSettings:
    of_file = settings_of(load(asset("playbooks", "edge.yaml")), temperature=temperature, clients=[1])
    margins = of_file.margins.model_copy(update={"failure_margin": failure_margin})
    return of_file.model_copy(update={"prices": PRICES, "margins": margins})


def observe(
    prompt: str,
    gap: float,
    a_round: int = 2,
    *,
    rounds: int = 4,
    sent: float = 100.0,
    text: str | None = None,
    temperature: float = 0.0,
    failure: Failure | None = None,
) -> Observation:
    """The first token after 0.5 s, then `rounds` rounds of `a_round` tokens, each `gap` seconds long."""
    chunks = [Chunk(sent + 0.5 + gap * index, a_round if index else 1) for index in range(rounds + 1)]
    answer = Answer(
        chunks=() if failure else tuple(chunks),
        text="" if failure else text or f"what {prompt} was answered by every arm alike",
        tokens=0 if failure else rounds * a_round + 1,
        tokens_from="usage",
        failure=failure,
    )
    return Observation(
        prompt, "chat", sent, sent, sent, chunks[-1].time_s, answer, temperature=temperature, connection=1
    )


def window(
    arm: str,
    observations: list[Observation],
    *,
    cycle: int = 0,
    clients: int = 1,
    busy: float = 1.0,
    kind: Kind = "measured",
) -> EdgeWindow:
    cell = CellRecord.from_cell(Cell(Level(clients), cycle, tuple(observations), True), Objectives())
    verifications = sum(max(len(o.answer.chunks) - 1, 0) for o in observations)
    drafts = arm != AUTOREGRESSIVE
    counts = DraftCounts(drafts=10, draft_tokens=80, accepted_tokens=12, accepted_per_position=(8.0, 4.0))
    effort = ClientEffort(
        verdicts=verifications, waited_s=0.01 * verifications, step_s=0.03 * verifications,
        rounds=verifications, nodes=8 * verifications, hits=verifications // 2,
        taken=verifications // 4 if arm == AHEAD else 0, passes=4 * verifications, run=8 * verifications,
        wasted=verifications, draft_s=0.02 * verifications, network_s=0.015 * verifications,
        up_bytes=100 * verifications, down_bytes=40 * verifications,
    )  # fmt: skip
    return EdgeWindow(
        cycle=cycle,
        kind=kind,
        level=Level(clients),
        order=cycle % 2 if drafts else 0,
        period=0,
        arm=arm,
        began=1000.0 + 10 * cycle,
        cell=cell.model_copy(update={"drafts": counts if drafts else None}),
        server=ServerEffort(
            steps=max(verifications // 2, 1), rounds=verifications, busy_s=busy, starved_s=0.5
        ),
        effort=effort if arm in (BARE, PAPER, AHEAD) else ClientEffort(),
        late=Lateness(passes=10, late=1, over_s=0.1, declared_s=1.0),
    )


def all_arms(gaps: Mapping[str, float], cycles: int = ENOUGH, *, clients: int = 1) -> list[EdgeWindow]:
    """Windows whose times scatter by 2%."""
    return [
        window(
            arm,
            [
                observe(f"p{i}", gap * (1 + 0.02 * ((i * cycle + len(arm)) % 3)), sent=100.0 + i)
                for i in range(6)
            ],
            cycle=cycle,
            clients=clients,
        )
        for cycle in range(cycles)
        for arm, gap in gaps.items()
    ]


def altered(windows: list[EdgeWindow], arm: str, prompts: set[str], cycles: set[int]) -> list[EdgeWindow]:
    """The windows with other texts of some answers."""

    def of_window(each: EdgeWindow) -> EdgeWindow:
        if each.arm != arm or each.cycle not in cycles:
            return each
        rows = tuple(
            row.model_copy(update={"text": f"so {row.text[3:]}"}) if row.prompt in prompts else row
            for row in each.cell.rows
        )
        return each.model_copy(update={"cell": each.cell.model_copy(update={"rows": rows})})

    return [of_window(each) for each in windows]


def judged(gaps: Mapping[str, float], cycles: int = ENOUGH) -> EdgeComparison:
    return compare(ARMS, all_arms(gaps, cycles), settings())


def decision(comparison: EdgeComparison, arm: str, clients: int = 1) -> ArmDecision:
    return next(d for d in comparison.decisions if (d.arm, d.clients) == (arm, clients))


def claims(of_arm: ArmDecision) -> dict[str, str]:
    return {finding.claim: finding.verdict for finding in of_arm.findings}


def test_figures_by_hand() -> None:
    answers = [observe("a", 0.04, 4), observe("b", 0.08, 2, sent=101.0)]
    of_arm = figures([window(BARE, answers)], PRICES)
    assert (of_arm.answers, of_arm.tokens) == (2, 17 + 9)
    assert of_arm.tpot_ms.mean == pytest.approx((10 + 40) / 2)
    assert of_arm.ttft_ms.p50 == pytest.approx(500.0)
    assert of_arm.tokens_a_verification == pytest.approx(24 / 8)
    assert of_arm.accepted == [0.8, 0.4]
    assert of_arm.seconds == pytest.approx(1.82)
    assert of_arm.tokens_per_s == pytest.approx(26 / 1.82)
    assert of_arm.tokens_per_busy_s == pytest.approx(26.0)
    assert of_arm.server.idle == pytest.approx(1 / 3)
    used = 0.5 + 0.16 + 0.5 + 0.32  # of the edges, at a tenth of the server's price
    assert of_arm.cost_per_million == pytest.approx((1.82 + 0.1 * used) / 26 * 1e6)
    assert of_arm.filled_cost_per_million == pytest.approx((1.0 + 0.1 * used) / 26 * 1e6)
    assert (of_arm.late.late, of_arm.late.over_share) == pytest.approx((1, 0.1))


def test_nobody_pays_for_an_edge_where_the_server_drafts() -> None:
    served = figures([window(SERVER_ONLY, [observe("a", 0.04, 4)])], PRICES)
    assert served.effort == ClientEffort()
    assert served.filled_cost_per_million == pytest.approx(1.0 / 17 * 1e6)


def test_efforts_are_summed_and_taken_apart() -> None:
    one = ClientEffort(verdicts=2, nodes=3, taken=1, draft_s=0.5)
    assert ClientEffort.sum([one, one]) == ClientEffort(verdicts=4, nodes=6, taken=2, draft_s=1.0)
    assert ClientEffort.sum([]) == ClientEffort()
    assert ClientEffort.sum([one, one]).since(one) == one


def test_one_answer_of_one_token_has_no_pace() -> None:
    of_arm = figures([window(BARE, [observe("a", 0.04, 2, rounds=0)])], None)
    assert (of_arm.tpot_ms.mean, of_arm.tokens_a_verification) == (None, None)


def test_a_window_of_which_every_answer_failed_has_no_pace() -> None:
    refused = observe("p0", 0.0, failure=Failure("refused", "too long"))
    of_arm = figures([window(BARE, [refused], busy=0.0)], PRICES)
    assert (of_arm.tokens_per_s, of_arm.tpot_ms.mean, of_arm.cost_per_million) == (0.0, None, None)


def test_arms_and_their_names() -> None:
    assert [arm.name for arm in arms_of([8, 0, 1, 1], ["adaptive"], [0])] == [
        AUTOREGRESSIVE, SERVER_ONLY, "edge, 0 heads", "edge, 1 head", "edge, 8 heads",
    ]  # fmt: skip
    assert [arm.name for arm in arms_of([1], ["included:4", "excluded:4"], [0])][2:] == [
        "edge, 1 head, included:4", "edge, 1 head, excluded:4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("heads", "ahead", "expected"),
    [
        ([0, 1, 8], [16, 0, 4], [(0, 0), (1, 0), (8, 0), (8, 4), (8, 16)]),
        ([1, 8], [16, 4, 4], [(1, 4), (8, 4), (8, 16)]),  # as few as were asked for
        ([0], [0, 16], [(0, 0)]),  # there is nothing to send ahead
    ],
)
def test_rounds_are_sent_ahead_with_the_most_heads(
    heads: list[int], ahead: list[int], expected: list[tuple[int, int]]
) -> None:
    assert [(arm.heads, arm.ahead) for arm in arms_of(heads, ["adaptive"], ahead)[2:]] == expected


def test_what_is_sent_ahead_is_in_the_arms_name() -> None:
    assert [arm.name for arm in arms_of([0, 8], ["included:4", "adaptive"], [0, 16])][-3:] == [
        "edge, 0 heads, adaptive", "edge, 8 heads, adaptive", "edge, 8 heads, 16 ahead, adaptive",
    ]  # fmt: skip


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_plan_is_the_experiments_without_an_open_loop(temperature: float) -> None:
    prompts = {f"p{i}": Prompt(f"p{i}", "chat", (i,)) for i in range(8)}
    wanted = settings(temperature)
    edge = wanted.edge.model_copy(update={"clients": [4, 1]})
    windows = planned(wanted.model_copy(update={"edge": edge, "count": 20}), ["a", "b"], prompts)
    assert {each.kind for each in windows} == ({"measured", "mixed"} if temperature else {"measured"})
    sent = Counter[tuple[str, Level]]()
    for each in windows:
        if each.kind == "measured":
            sent[each.arm, each.level] += len(each.requests)
    assert min(sent.values()) >= 20  # at each load
    assert sent["a", Level(4)] == sent["b", Level(4)]
    firsts = [each.arm for each in windows if each.order == 0]
    assert firsts.count("a") == firsts.count("b") == len(windows) / 4
    with pytest.raises(UsageError, match="could not bench 4 clients on 3 prompts"):
        planned(wanted.model_copy(update={"edge": edge, "count": 3}), ["a"], prompts)


def test_only_arms_share_the_seed_of_a_request() -> None:
    prompts = {f"p{i}": Prompt(f"p{i}", "chat", (i,)) for i in range(8)}
    windows = planned(settings(1.0).model_copy(update={"count": 12}), ["a", "b"], prompts)
    seeds = Counter(
        _seeded(request, number, each, prompts, 0).seed
        for each in windows
        for number, request in enumerate(each.requests)
    )
    assert set(seeds.values()) == {2}


@pytest.mark.slow
def test_the_shipped_margins_need_300_requests() -> None:
    assert settings_of(load(asset("playbooks", "edge.yaml"))).margins.failure_margin == 0.01
    for cycles, expected in ((49, "undecided"), (50, "yes")):
        comparison = compare(ARMS, all_arms(FASTER, cycles), settings(failure_margin=0.01))
        assert verdict(comparison)[0] == expected


def test_faster_at_the_edge_is_a_yes_that_names_the_arm_and_its_proof() -> None:
    comparison = judged(FASTER)
    answer, reason = verdict(comparison)
    assert answer == "yes"
    assert f"1 client, {PAPER}, 1." in reason
    assert "draft at the edge, tokens for" in reason
    best = decision(comparison, PAPER)
    assert best.decision.speedup is not None
    assert best.decision.speedup.low > 1.01
    assert best.decision.speedup.level == pytest.approx(0.975)  # two edge arms share the error
    assert set(claims(best).values()) == {"shown"}
    assert set(claims(best)) == {"wait", "length", "first token", "failures", "answers", "speculation"}
    failures = next(f for f in best.findings if f.claim == "failures" and f.load is None)
    assert failures.bound is not None
    assert failures.bound <= failures.margin == 0.05
    over = comparison.ratio("latency", PAPER, BARE, 1)
    assert over is not None
    assert over.estimate == pytest.approx(0.09 / 0.05, rel=0.02)


def test_slower_at_the_edge_is_a_no() -> None:
    answer, reason = verdict(judged(FASTER | {BARE: 0.15, PAPER: 0.14}, cycles=10))
    assert answer == "no"
    assert f"1 client, {PAPER}: do not draft at the edge: 0.8" in reason
    assert "slower" in reason


def test_a_speedup_without_bounds_on_failures_and_answers_is_not_a_yes() -> None:
    comparison = compare(ARMS, all_arms(FASTER, cycles=10), settings(failure_margin=0.01))
    answer, reason = verdict(comparison)
    assert answer == "undecided"
    best = decision(comparison, PAPER)
    assert (claims(best)["wait"], claims(best)["answers"]) == ("shown", "shown")
    assert "0 of 60 requests failed, were refused or were late" in reason
    assert "more requests would decide" in reason


def test_too_few_requests_decide_nothing() -> None:
    answer, reason = verdict(judged(FASTER, cycles=1))
    assert answer == "undecided"
    assert "too few requests for an interval" in reason


def test_passes_that_took_longer_than_declared_prove_nothing() -> None:
    late = Lateness(passes=10, late=5, over_s=0.06, declared_s=1.0)
    assert late.bottleneck == "this machine was the bottleneck: passes took 6% longer than declared"
    assert late.model_copy(update={"over_s": 0.05}).bottleneck is None
    assert Lateness().bottleneck is None
    first, *rest = all_arms(FASTER)
    assert first.arm == AUTOREGRESSIVE
    served, *rest = rest
    slow = served.model_copy(
        update={"cell": served.cell.model_copy(update={"client_bound": late.bottleneck})}
    )
    answer, reason = verdict(compare(ARMS, [first, slow, *rest], settings()))
    assert answer == "undecided"
    assert f"1 client, {PAPER}: not enough evidence: {late.bottleneck}" in reason


def test_a_load_may_pay_where_no_lighter_one_does() -> None:
    windows = [
        *all_arms(FASTER | {BARE: 0.15, PAPER: 0.14}, cycles=8),
        *all_arms(FASTER, cycles=8, clients=4),
    ]
    answer, reason = verdict(compare(ARMS, windows, settings(failure_margin=0.01)))
    assert answer == "undecided"  # a no at one load is none at the other
    assert f"1 client, {PAPER}: do not draft at the edge" in reason
    assert f"4 clients, {PAPER}" in reason
    assert "not enough evidence" in reason
    answer, reason = verdict(compare(ARMS, windows, settings()))
    assert answer == "yes"
    assert f"1 client, {PAPER}: do not draft at the edge" in reason
    assert f"4 clients, {PAPER}" in reason


@pytest.mark.parametrize(
    ("arm", "prompts", "cycles", "expected", "words"),
    [
        (PAPER, {"p1", "p3"}, set(range(ENOUGH)), "no", "differ from the standard's"),
        (PAPER, {"p3"}, {5}, "undecided", "1 of 78 answers differ from the standard's"),
        (SERVER_ONLY, {"p1", "p3"}, set(range(ENOUGH)), "no", "server-only does not answer as autoreg"),
        (SERVER_ONLY, {"p3"}, {5}, "undecided", "1 of 78 answers differ from the standard's"),
    ],
)
def test_other_answers_are_never_a_yes_however_fast(
    arm: str, prompts: set[str], cycles: set[int], expected: str, words: str
) -> None:
    windows = altered(all_arms(FASTER | {BARE: 0.15}), arm, prompts, cycles)
    comparison = compare(ARMS, windows, settings())
    answer, reason = verdict(comparison)
    assert answer == expected
    assert words in reason
    assert f"greedy answers differ in {len(prompts) * len(cycles)} answer" in list(notes(comparison))[1]


def test_a_loop_in_every_arm_is_the_same_answer_and_no_fault_of_an_arm() -> None:
    def looping(each: EdgeWindow) -> EdgeWindow:
        rows = tuple(
            row.model_copy(update={"text": "and so on, and so on, and so on, and so on"})
            if row.prompt == "p1"
            else row
            for row in each.cell.rows
        )
        return each.model_copy(update={"cell": each.cell.model_copy(update={"rows": rows})})

    comparison = compare(ARMS, [looping(each) for each in all_arms(FASTER)], settings())
    assert "greedy answers are the same in all arms (234 compared with autoregressive)" in notes(comparison)
    assert verdict(comparison)[0] == "yes"


def test_failed_answers_count_against_the_arm() -> None:
    windows = all_arms(FASTER | {BARE: 0.15})
    broken = [observe(f"p{i}", 0.0, failure=Failure("cut", "it went away")) for i in range(6)]
    windows = [window(PAPER, broken, cycle=w.cycle) if w.arm == PAPER and w.cycle < 4 else w for w in windows]
    comparison = compare(ARMS, windows, settings())
    assert comparison.figures_of(PAPER, 1).answers == 78 - 24
    assert claims(decision(comparison, PAPER))["failures"] == "against"
    answer, reason = verdict(comparison)
    assert answer == "no"
    assert "24 of 78 requests failed" in reason


def test_a_draft_of_which_nothing_is_accepted_gains_nothing() -> None:
    none = DraftCounts(drafts=10, draft_tokens=80, accepted_tokens=0, accepted_per_position=())
    windows = [
        w.model_copy(update={"cell": w.cell.model_copy(update={"drafts": none})}) for w in all_arms(FASTER)
    ]
    answer, reason = verdict(compare(ARMS, windows, settings()))
    assert answer == "no"
    assert "the gain is not speculation's" in reason


@pytest.mark.parametrize(
    ("mixed", "expected"),
    [pytest.param(False, "undecided"), pytest.param(True, "yes", marks=pytest.mark.slow)],
)
def test_sampled_answers_need_greedy_ones_beside_them(mixed: bool, expected: str) -> None:
    def texts(arm: str, cycle: int) -> list[Observation]:
        gap = FASTER[arm] * (1 + 0.02 * (cycle % 3))
        # Each answer is one of seven, whatever the arm: one distribution.
        return [
            observe(
                f"p{i}", gap, sent=100.0 + i, temperature=1.0,
                text=f"p{i} has one of the texts {random.Random(f'{arm}:{i}:{cycle}').randrange(7)}",
            )
            for i in range(6)
        ]  # fmt: skip

    def greedy(arm: str, cycle: int) -> list[Observation]:
        return [observe(f"p{i}", FASTER[arm], sent=100.0 + i) for i in range(4)]

    windows = [window(arm, texts(arm, cycle), cycle=cycle) for cycle in range(ENOUGH) for arm in FASTER]
    if mixed:
        windows += [
            window(arm, greedy(arm, cycle), cycle=cycle, kind="mixed")
            for cycle in range(16)
            for arm in FASTER
        ]
    comparison = compare(ARMS, windows, settings(1.0))
    answer, reason = verdict(comparison)
    assert answer == expected, reason
    assert claims(decision(comparison, PAPER))["answers"] == ("shown" if mixed else "unknown")
    assert claims(decision(comparison, PAPER))["sampled answers"] == "shown"


def test_throughput_and_cost_pair_by_window() -> None:
    windows = [
        window(arm, [observe(f"p{cycle}", 0.05)], cycle=cycle, busy=busy * (1 + 0.1 * (cycle % 2)))
        for arm, busy in ((AUTOREGRESSIVE, 1.0), (SERVER_ONLY, 1.0), (BARE, 0.4), (PAPER, 0.5))
        for cycle in range(8)
    ]
    comparison = compare(ARMS, windows, settings())
    filled = comparison.ratio("filled throughput", BARE, SERVER_ONLY, 1)
    assert filled is not None
    assert filled.estimate == pytest.approx(2.5)
    assert filled.interval is not None
    cost = comparison.ratio("filled cost", PAPER, SERVER_ONLY, 1)
    assert cost is not None
    assert cost.estimate == pytest.approx(1.05 / (0.5 * 1.05 + 0.1 * 0.7))


def test_the_page_has_every_arm_every_ratio_and_what_must_hold() -> None:
    comparison = compare(ARMS, all_arms(FASTER, cycles=10), settings(failure_margin=0.01))
    (section,) = sections(comparison, "USD")
    pages = section.tables
    assert section.title == "1 client at a time"
    assert [table.title for table in pages] == [
        "Speed",
        "A round, on average",
        "Drafts of which so many tokens were accepted",
        "Times as good",
        f"{PAPER}: what must hold",
    ]
    assert {row[0] for row in pages[0].rows} == {arm.name for arm in ARMS}
    assert all(len(row) == len(table.columns) for table in pages for row in table.rows)
    assert [row[0] for row in pages[1].rows] == [BARE, PAPER]
    bare = dict(zip(pages[1].columns, pages[1].rows[0], strict=True))
    assert (bare["nodes"], bare["passes"], bare["hits"], bare["wasted"]) == ("8.0", "4.0", "50%", "12%")
    assert (bare["drafting ms"], bare["network ms"]) == ("20.0", "15.0")
    assert (bare["waiting ms"], bare["step ms"], bare["bytes up"]) == ("10.0", "30.0", "100")
    ratios = {row[0]: dict(zip(pages[3].columns, row, strict=True)) for row in pages[3].rows}
    assert "2.0" in ratios[f"{PAPER} over {SERVER_ONLY}"]["latency"]
    assert [text_of(row[-1]) for row in pages[4].rows].count("not shown") == 1
    assert "too slow for some of the declared times" in list(notes(comparison))[-1]
    assert "greedy answers are the same in all arms (180 compared with autoregressive)" in notes(comparison)


def test_rounds_sent_ahead_are_shown_where_some_are_and_compared_with_none() -> None:
    gaps = {AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.08, PAPER: 0.06, AHEAD: 0.04}
    comparison = compare(WITH_AHEAD, all_arms(gaps, cycles=10), settings())
    over = {name: comparison.ratio("latency", AHEAD, name, 1) for name in (BARE, PAPER)}
    assert over[BARE] is not None
    assert over[PAPER] is not None
    estimates = (over[BARE].estimate, over[PAPER].estimate)
    assert estimates == pytest.approx((2.0, 1.5), rel=0.03)
    table = next(sections(comparison, "USD")).tables[1]
    shares = {row[0]: row[table.columns.index("ahead")] for row in table.rows}
    assert shares == {BARE: "0%", PAPER: "0%", AHEAD: "25%"}
    assert "ahead: rounds sent before the previous verdict" in next(notes(comparison))
    without = judged({arm: gap for arm, gap in gaps.items() if arm != AHEAD}, cycles=2)
    assert "ahead" not in next(sections(without, "USD")).tables[1].columns
    assert "ahead:" not in next(notes(without))


def stored(comparison: EdgeComparison, windows: list[EdgeWindow], answer: str = "yes") -> Result:
    data = EdgeWindows(windows=tuple(windows)).model_dump(mode="json", by_alias=True)
    data |= comparison.model_dump(mode="json")
    return Result(phase="edge-bench", verdict=answer, reason="faster", data=data)  # type: ignore[arg-type]


def test_a_result_can_be_read_again_and_an_older_one_is_refused(tmp_path: Path) -> None:
    windows = all_arms(FASTER, cycles=2)
    comparison = compare(ARMS, windows, settings())
    result = stored(comparison, windows)
    assert read(result, "edge.json").model_dump_json() == comparison.model_dump_json()
    assert EdgeWindows.model_validate(result.data).windows == tuple(windows)
    older = result.model_copy(update={"data": {"arms": [], "visits": []}})
    with pytest.raises(FileError, match=r"edge\.json was written by an earlier version") as error:
        read(older, "edge.json")
    assert error.value.hint == "specops edge bench --out edge.json"


def test_a_plot_has_a_panel_for_each_quality_and_a_row_for_each_pair(tmp_path: Path) -> None:
    windows = all_arms(FASTER, cycles=10)
    out = tmp_path / "edge.svg"
    plot(stored(compare(ARMS, windows, settings()), windows), tmp_path / "edge.json", out)
    text = out.read_text()
    assert text.count(">latency<") == 1
    assert text.count(f"over {SERVER_ONLY}") == 2 * 7
    assert "n = 240 answers" in text
    assert "against" not in text


def test_a_yes_names_an_arm_that_is_surely_faster() -> None:
    """One that is faster on average, by a few requests, is not what the yes rests on."""
    gaps = {AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.4, BARE: 0.3}
    wild = [
        window(PAPER, [observe(f"p{i}", 0.02 if cycle % 10 else 1.5) for i in range(6)], cycle=cycle)
        for cycle in range(ENOUGH)
    ]
    comparison = compare(ARMS, [*all_arms(gaps), *wild], settings())
    ratios = {arm: comparison.ratio("wait", arm, SERVER_ONLY, 1) for arm in (BARE, PAPER)}
    assert ratios[PAPER].estimate > ratios[BARE].estimate  # type: ignore[union-attr]
    answer, reason = verdict(comparison)
    assert answer == "yes"
    assert f"1 client, {BARE}, 1.2" in reason


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_what_was_measured_and_says_where(
    number: signal.Signals, code: int, saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = [window(AUTOREGRESSIVE, [observe("p0", 0.2, 1)])]
    comparison = compare(ARMS, windows, settings())
    assert "nothing to compare" in verdict(comparison)[1] or verdict(comparison)[0] == "undecided"
    result = stored(comparison, windows, "partial")

    def stopped(settings: object, progress: object, on_partial: Callable[[Result], None]) -> Result:
        try:
            os.kill(os.getpid(), number)
        finally:
            on_partial(result)
        raise AssertionError

    monkeypatch.setattr("specops.phases.edge_bench.measure.measure", stopped)
    out = tmp_path / "edge.json"
    words = ["edge", "bench", *(["--out", str(out)] if saved else [])]
    done = specops(*words)
    assert done.returncode == code
    name = "SIGTERM" if number == signal.SIGTERM else "Ctrl-C"
    assert done.stderr.splitlines()[-2:] == [
        f"stopped by {name}; partial results are above{f' and in {out}' if saved else ''}",
        f"start again with: {shlex.join(['specops', *words])}",
    ]
    assert "1 client at a time" in done.stdout
    assert "greedy answers" not in done.stdout
    assert not saved or results.read(out).verdict == "partial"
