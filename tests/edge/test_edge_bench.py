"""What `edge bench` makes of its visits: figures that can be reckoned by hand, and the verdict."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from calling import specops

from specops import results
from specops.cli.edge_bench import lines, tables
from specops.economics import Prices
from specops.phases.edge_bench.judging import Comparison, compare, figures, summed, verdict
from specops.phases.edge_bench.records import (
    Answer,
    ClientEffort,
    Lateness,
    ServerEffort,
    VisitRecord,
    Visits,
)
from specops.phases.edge_bench.settings import AUTOREGRESSIVE, SERVER_ONLY, Arm, arms_of
from specops.phases.plot import plot
from specops.results import Result

ARMS = arms_of([0, 1], ["adaptive"], [0])
BARE, PAPER = (arm.name for arm in ARMS if arm.kind == "edge")
WITH_AHEAD = arms_of([0, 1], ["adaptive"], [0, 16])
AHEAD = WITH_AHEAD[-1].name
PRICES = Prices(3600.0, 360.0)  # 1 a second, and a tenth


def answer(prompt: str, gap: float, a_round: int, *, rounds: int = 4, last: int = 0) -> Answer:
    """The first token after 0.5 s, then `rounds` rounds of `a_round` tokens, each `gap` seconds long."""
    chunks = [(0.5, 1)] + [(0.5 + gap * (i + 1), a_round) for i in range(rounds)]
    tokens = list(range(rounds * a_round + 1))
    return Answer(prompt=prompt, client=0, sent_s=0.0, chunks=chunks, tokens=[*tokens[:-1], last])


def visit(
    arm: str, answers: list[Answer], *, clients: int = 1, block: int = 0, busy: float = 1.0
) -> VisitRecord:
    drafts = arm in (BARE, PAPER, AHEAD)
    rounds = sum(a.verifications for a in answers)
    effort = ClientEffort(
        verdicts=rounds,
        waited_s=0.01 * rounds,
        step_s=0.03 * rounds,
        up_bytes=100 * rounds,
        down_bytes=40 * rounds,
    )
    if drafts:
        effort = effort.model_copy(
            update={
                "rounds": rounds, "nodes": 8 * rounds, "hits": rounds // 2, "misses": rounds - rounds // 2,
                "passes": 4 * rounds, "run": 8 * rounds, "wasted": rounds,
                "draft_s": 0.02 * rounds, "network_s": 0.015 * rounds,
                "taken": rounds // 4 if arm == AHEAD else 0,
            }
        )  # fmt: skip
    return VisitRecord(
        arm=arm,
        clients=clients,
        block=block,
        order=0,
        seconds=2.0,
        answers=answers,
        server=ServerEffort(
            steps=max(rounds // 2, 1), rounds=rounds, busy_s=busy, starved_s=0.5, empty_s=0.5
        ),
        effort=effort,
        target_pace=Lateness(passes=10, late=1, over_s=0.1, declared_s=1.0),
        draft_pace=None,
    )


def all_arms(gaps: Mapping[str, float], prompts: int = 12, a_round: int = 2) -> list[VisitRecord]:
    """Prompts of unlike lengths, so that pairs are not all the same."""
    return [
        visit(
            arm, [answer(f"p{i}", gap * (1 + 0.02 * (i % 3)), a_round, rounds=4 + i) for i in range(prompts)]
        )
        for arm, gap in gaps.items()
    ]


def judged(gaps: Mapping[str, float], prompts: int = 12) -> Comparison:
    return compare(ARMS, all_arms(gaps, prompts), PRICES, greedy=True, confidence=0.95)


def test_figures_by_hand() -> None:
    found = figures([visit(BARE, [answer("a", 0.04, 4), answer("b", 0.08, 2)])], PRICES)
    assert (found.answers, found.tokens) == (2, 17 + 9)
    # 16 tokens in 4 rounds of 40 ms, and 8 in 4 of 80 ms
    assert found.itl_ms == pytest.approx(1000 * (0.16 + 0.32) / 24)
    assert found.itl_p50_ms == pytest.approx(10.0)
    assert found.itl_p95_ms == pytest.approx(40.0)
    assert found.ttft_ms == pytest.approx(500.0)
    assert found.tokens_a_verification == pytest.approx(24 / 8)
    assert found.accepted == [1.0, 0.5, 0.5]
    assert found.tokens_per_s == pytest.approx(13.0)
    assert found.tokens_per_busy_s == pytest.approx(26.0)
    assert found.trees_a_step == pytest.approx(2.0)
    assert (found.busy, found.idle) == pytest.approx((2 / 3, 1 / 3))
    used = 0.5 + 0.16 + 0.5 + 0.32  # of the edges, at a tenth of the server's price
    assert found.cost_per_million == pytest.approx((2.0 + 0.1 * used) / 26 * 1e6)
    assert found.filled_cost_per_million == pytest.approx((1.0 + 0.1 * used) / 26 * 1e6)
    assert (found.late_passes, found.late_s) == pytest.approx((0.1, 0.1))


def test_a_round_by_hand_and_none_where_the_server_drafts() -> None:
    edge = figures([visit(PAPER, [answer("a", 0.04, 4)]), visit(PAPER, [answer("b", 0.08, 2)])], None).edge
    assert edge is not None
    assert (edge.nodes, edge.passes, edge.hit_rate, edge.wasted) == (8.0, 4.0, 0.5, 0.125)
    assert edge.taken == 0
    assert (edge.draft_ms, edge.network_ms, edge.waited_ms, edge.step_ms) == pytest.approx((20, 15, 10, 30))
    assert (edge.up_bytes, edge.down_bytes) == (100, 40)
    served = figures([visit(SERVER_ONLY, [answer("a", 0.04, 4)])], PRICES)
    assert served.edge is None
    assert served.cost_per_million == pytest.approx(2.0 / 17 * 1e6)  # nobody pays for an edge


def test_rounds_that_had_been_sent_ahead_are_a_share_of_all() -> None:
    edge = figures([visit(AHEAD, [answer("a", 0.04, 4), answer("b", 0.08, 2)])], None).edge
    assert edge is not None
    assert (edge.hit_rate, edge.taken) == (0.5, 0.25)


def test_efforts_are_summed() -> None:
    one = ClientEffort(verdicts=2, nodes=3, taken=1, draft_s=0.5)
    assert summed([one, one]) == ClientEffort(verdicts=4, nodes=6, taken=2, draft_s=1.0)
    assert summed([]) == ClientEffort()


def test_one_answer_of_one_token_has_no_pace() -> None:
    found = figures([visit(BARE, [answer("a", 0.04, 2, rounds=0)])], None)
    assert (found.itl_ms, found.tokens_a_verification, found.accepted) == (None, None, [])


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


def test_faster_at_the_edge_is_a_yes_that_names_the_arm() -> None:
    found = judged({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.09, PAPER: 0.05})
    said, why = verdict(found)
    assert said == "yes"
    assert f"1 client, {PAPER}: 2.00×" in why
    ratio = found.ratio("latency", PAPER, SERVER_ONLY, 1)
    assert ratio is not None
    assert ratio.interval is not None
    assert ratio.interval.level == pytest.approx(0.975)  # two edge arms share the error
    over = found.ratio("latency", PAPER, BARE, 1)
    assert over is not None
    assert over.estimate == pytest.approx(0.09 / 0.05)


def test_slower_at_the_edge_is_a_no() -> None:
    said, why = verdict(judged({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.15, PAPER: 0.14}))
    assert said == "no"
    assert "slower for 1 client: 0.71×" in why


def test_too_few_prompts_decide_nothing() -> None:
    said, why = verdict(judged({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.05, PAPER: 0.05}, prompts=4))
    assert said == "undecided"
    assert "an interval needs 8 prompts" in why


def test_other_answers_are_a_no_however_fast() -> None:
    visits = all_arms({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.05, PAPER: 0.05})
    wrong = visits[-1].answers[3].model_copy(update={"tokens": [*visits[-1].answers[3].tokens[:-1], 99]})
    visits[-1] = visits[-1].model_copy(
        update={"answers": [wrong, *visits[-1].answers[:3], *visits[-1].answers[4:]]}
    )
    found = compare(ARMS, visits, None, greedy=True, confidence=0.95)
    said, why = verdict(found)
    assert said == "no"
    assert f"{PAPER}: 1 of 12, first p3 at token {len(wrong.tokens) - 1}" in why
    assert "differ between arms" in lines(found)[1]
    assert compare(ARMS, visits, None, greedy=False, confidence=0.95).parity == []


def test_a_failed_answer_is_told_and_counts_for_nothing() -> None:
    visits = all_arms({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.05, PAPER: 0.05})
    broken = Answer(prompt="p0", client=0, sent_s=0.0, chunks=[(0.1, 1)], tokens=[0], error="it went away")
    visits[-1] = visits[-1].model_copy(update={"answers": [broken, *visits[-1].answers[1:]]})
    found = compare(ARMS, visits, PRICES, greedy=True, confidence=0.95)
    assert found.at(PAPER, 1).answers == 11
    said, why = verdict(found)
    assert said == "undecided"
    assert f"{PAPER}, p0: it went away" in why


def test_throughput_and_cost_pair_by_block() -> None:
    blocks = [
        visit(arm, [answer(f"p{block}", 0.05, 2)], block=block, busy=busy * (1 + 0.1 * (block % 2)))
        for arm, busy in ((AUTOREGRESSIVE, 1.0), (SERVER_ONLY, 1.0), (BARE, 0.4), (PAPER, 0.5))
        for block in range(8)
    ]
    found = compare(ARMS, blocks, PRICES, greedy=False, confidence=0.95)
    filled = found.ratio("filled throughput", BARE, SERVER_ONLY, 1)
    assert filled is not None
    assert filled.estimate == pytest.approx(2.5)
    assert filled.interval is not None
    cost = found.ratio("filled cost", PAPER, SERVER_ONLY, 1)
    assert cost is not None
    assert cost.estimate == pytest.approx(1.05 / (0.5 * 1.05 + 0.1 * 0.7))


def test_the_page_has_every_arm_and_every_ratio() -> None:
    found = judged({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.09, PAPER: 0.05})
    pages = tables(found, "USD")
    assert [table.title for table in pages] == [
        "1 client at a time",
        "a round, on average",
        "verifications that accepted so many tokens",
        "times as good",
    ]
    speeds = {row[0]: row for row in pages[0].rows}
    assert set(speeds) == {arm.name for arm in ARMS}
    assert all(len(row) == len(table.columns) for table in pages for row in table.rows)
    assert [row[0] for row in pages[1].rows] == [BARE, PAPER]
    assert any(row[0] == f"{PAPER} over {SERVER_ONLY}" and "2.00×" in row[1] for row in pages[3].rows)
    assert "too slow for some of the declared times" in lines(found)[-1]


def test_rounds_sent_ahead_are_shown_where_some_are_and_compared_with_none() -> None:
    gaps = {AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.08, PAPER: 0.06, AHEAD: 0.04}
    found = compare(WITH_AHEAD, all_arms(gaps), PRICES, greedy=True, confidence=0.95)
    over = {name: found.ratio("latency", AHEAD, name, 1) for name in (BARE, PAPER)}
    assert over[BARE] is not None
    assert over[PAPER] is not None
    assert (over[BARE].estimate, over[PAPER].estimate) == pytest.approx((2.0, 1.5))
    table = tables(found, "USD")[1]
    columns, rows = table.columns, table.rows
    shares = {row[0]: row[columns.index("ahead")] for row in rows}
    assert shares == {BARE: "0%", PAPER: "0%", AHEAD: "25%"}
    assert "ahead: rounds sent before the previous verdict" in lines(found)[0]
    without = judged({arm: gap for arm, gap in gaps.items() if arm != AHEAD})
    assert "ahead" not in tables(without, "USD")[1].columns
    assert "ahead:" not in lines(without)[0]


def test_what_is_kept_can_be_read_again() -> None:
    found = judged({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.09, PAPER: 0.05})
    kept = found.model_dump_json()  # intervals are rounded
    assert Comparison.model_validate_json(kept).model_dump_json() == kept
    assert Arm.model_validate(found.arms[0].model_dump()) == found.arms[0]


def test_a_plot_has_a_panel_for_each_quality_and_a_row_for_each_pair(tmp_path: Path) -> None:
    visits = all_arms({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.09, PAPER: 0.05})
    found = compare(ARMS, visits, PRICES, greedy=True, confidence=0.95)
    stored = [one.model_dump(mode="json") for one in visits]
    data = found.model_dump(mode="json") | {"visits": stored}
    out = tmp_path / "edge.svg"
    plot(Result(phase="edge-bench", verdict="yes", reason="faster", data=data), tmp_path / "edge.json", out)
    text = out.read_text()
    assert text.count(">latency<") == 1
    assert text.count(f"over {SERVER_ONLY}") == 2
    assert "against" not in text


def test_a_yes_names_an_arm_that_is_surely_faster() -> None:
    """One that is faster on average, by a few prompts, is not what the yes rests on."""
    visits = all_arms({AUTOREGRESSIVE: 0.2, SERVER_ONLY: 0.1, BARE: 0.09})
    wild = [answer(f"p{i}", 0.001 if i % 2 else 0.12, 2, rounds=4 + i) for i in range(12)]
    found = compare(ARMS, [*visits, visit(PAPER, wild)], PRICES, greedy=False, confidence=0.95)
    estimates = {arm: found.ratio("latency", arm, SERVER_ONLY, 1) for arm in (BARE, PAPER)}
    assert estimates[PAPER].estimate > estimates[BARE].estimate  # type: ignore[union-attr]
    assert estimates[PAPER].interval.low < 1 < estimates[BARE].interval.low  # type: ignore[union-attr]
    said, why = verdict(found)
    assert said == "yes"
    assert f"1 client, {BARE}: 1.11×" in why


def test_a_visit_of_which_every_answer_failed_has_no_pace() -> None:
    refused = Answer(prompt="p0", client=0, sent_s=0.0, chunks=[], tokens=[], error="too long")
    empty = visit(BARE, [refused]).model_copy(update={"seconds": 0.0, "effort": ClientEffort()})
    found = figures([empty], PRICES)
    assert (found.tokens_per_s, found.itl_ms, found.cost_per_million) == (0.0, None, None)


def test_what_an_early_end_left_has_a_page() -> None:
    visits = all_arms({AUTOREGRESSIVE: 0.2}, prompts=1, a_round=1)
    found = compare(ARMS, visits, PRICES, greedy=True, confidence=0.95)
    assert [table.title for table in tables(found, "USD")] == ["1 client at a time"]
    assert not any("greedy answers" in line for line in lines(found))


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_what_was_measured_and_says_where(
    number: signal.Signals, code: int, saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits = all_arms({AUTOREGRESSIVE: 0.2}, prompts=1, a_round=1)
    found = compare(ARMS, visits, PRICES, greedy=True, confidence=0.95)
    data = found.model_dump(mode="json") | Visits(visits=tuple(visits)).model_dump(mode="json")
    result = Result(phase="edge-bench", verdict="partial", reason="1 of 4", data=data)

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
    assert not saved or results.read(out).verdict == "partial"
