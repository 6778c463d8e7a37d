"""The search for the highest rate at an objective: on queues of known capacity, and rule by rule."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

import pytest
from benchmark_scripts import load_benchmark

from specops.config import Costs
from specops.errors import UsageError
from specops.load.record import Row
from specops.load.request_times import Exchange, Objectives
from specops.load.workload import Prompt
from specops.phases.capacity.answer import Conclusion, conclude
from specops.phases.capacity.judge import blocks_of, judge, logit, unsteady
from specops.phases.capacity.measure import Saturation, attained
from specops.phases.capacity.records import ARMS, Objective, Probe, ProbePlan, parse_objective
from specops.phases.capacity.search import FEWEST_BLOCKS, Search

LIMITS = Objectives(ttft_ms=300, tpot_ms=30)
OBJECTIVE = Objective(limits=LIMITS, attain=0.95)
COSTS = Costs(standard_per_hour=3.6)

queues = load_benchmark("capacity")


def searched(ratio: float, seed: str, *, precision: float = 0.08) -> tuple[list[Probe], Search, float]:
    """The probes of a search on two simulated queues, and the true rate of the standard."""
    standard, speculative = queues.Queue(8, 2.0, 0.6), queues.Queue(8, 2.0 / ratio, 0.6 / ratio)
    servers = {"standard": standard, "speculative": speculative}
    _, probes = queues.search(servers, seed, precision=precision)
    return probes, Search(0.95, precision, math.inf), standard.capacity()


def concluded(probes: list[Probe], search: Search | None = None) -> Conclusion:
    return conclude(probes, search or Search(0.95, 0.08, math.inf), OBJECTIVE, COSTS)


@pytest.fixture(scope="module")
def faster() -> tuple[list[Probe], Search, float]:
    return searched(1.25, "faster")


def test_simulated_queues_of_known_capacity_are_found_and_the_direction_never_flips() -> None:
    """A queue with times and limit divided by 1.25 carries exactly 1.25 times the rate."""
    covered, estimates = 0, []
    for run in range(6):
        probes, search, _ = searched(1.25, f"run {run}", precision=0.07)
        done = concluded(probes, search)
        assert done.verdict == "yes", done.reason
        assert done.answer.ratio is not None
        covered += done.answer.ratio["low"] <= 1.25 <= done.answer.ratio["high"]
        estimates.append(done.answer.ratio["estimate"])
    assert covered >= 5
    assert sorted(estimates)[2] == pytest.approx(1.25, rel=0.04)


@pytest.mark.slow
def test_intervals_cover_the_true_ratio_and_pairing_saves_time() -> None:
    paired = queues.figures("queue", 30, paired=True)
    assert paired["covered"] >= 0.85  # of 30 at 95%: 3 in 1,000 have fewer
    assert paired["median"] == pytest.approx(paired["truth"], rel=0.02)
    assert paired["widest"] <= 0.05
    assert paired["wrong_direction"] == 0


def test_equal_servers_are_not_called_different() -> None:
    verdicts = [concluded(searched(1.0, f"equal {run}")[0]).verdict for run in range(3)]
    assert verdicts.count("undecided") >= 2


def test_a_slower_arm_is_a_no(faster: tuple[list[Probe], Search, float]) -> None:
    swapped = [
        probe.model_copy(
            update={"plan": probe.plan.model_copy(update={"arm": ARMS[1 - ARMS.index(probe.plan.arm)]})}
        )
        for probe in faster[0]
    ]
    done = concluded(swapped)
    assert done.verdict == "no"
    assert done.reason.startswith("speculation lowers the highest rate at the objective from ")


def test_the_answer_of_a_faster_arm(faster: tuple[list[Probe], Search, float]) -> None:
    probes, search, truth = faster
    done = concluded(probes, search)
    standard = done.answer.arms["standard"]
    assert standard["rate"] is not None
    assert standard["rate"]["estimate"] == pytest.approx(truth, rel=0.08)
    assert standard["in_flight"] == pytest.approx(standard["rate"]["estimate"] * 2.0, rel=0.25)
    assert done.answer.cost_ratio is None, "no tokens were counted"
    assert done.reason.startswith("speculation moves the highest rate at the objective from ")
    assert done.reason.endswith("%]")


def with_tokens(probes: list[Probe], tokens: int) -> list[Probe]:
    return [probe.model_copy(update={"tokens": tokens * probe.answered}) for probe in probes]


def test_a_million_tokens_cost_the_price_of_the_time_that_they_take(faster) -> None:
    done = concluded(with_tokens(faster[0], 100))
    standard, speculative = (done.answer.arms[arm] for arm in ARMS)
    assert standard["rate"]
    assert standard["cost_per_million"]
    assert speculative["cost_per_million"]
    # 3.6 an hour is 0.001 a second, in which the rate times 100 tokens are answered.
    expected = 0.001 / (100 * standard["rate"]["estimate"]) * 1e6
    assert standard["cost_per_million"]["estimate"] == pytest.approx(expected, rel=1e-3)
    assert standard["cost_per_million"]["low"] < expected < standard["cost_per_million"]["high"]
    assert done.answer.cost_ratio
    assert done.answer.ratio
    assert done.answer.cost_ratio["estimate"] == pytest.approx(1 / done.answer.ratio["estimate"], rel=1e-3)


def test_the_probes_of_a_block_share_arrivals_and_each_arm_is_first_equally_often(faster) -> None:
    blocks = blocks_of(faster[0])
    assert len(blocks) >= FEWEST_BLOCKS
    first = []
    for block in blocks.values():
        plans = [probe.plan for probe in block]
        assert len({(plan.before, plan.counted, plan.after) for plan in plans}) == 1
        assert {(plan.arm, plan.place) for plan in plans} == {
            (arm, place) for arm in ARMS for place in ("low", "high")
        }
        for arm in ARMS:
            low, high = (
                next(p.rate for p in plans if (p.arm, p.place) == (arm, place)) for place in ("low", "high")
            )
            assert low < high
        first.append(plans[0])
    for four in (first[:4], first[4:8]):
        assert len({(plan.arm, plan.place) for plan in four}) == 4


def test_the_next_probes_follow_from_the_probes_so_far_alone(faster) -> None:
    probes, search, _ = faster
    index = next(index for index, probe in enumerate(probes) if probe.plan.place in ("low", "high"))
    for start in (0, 1, 2, 5, index, index + 4, index + 40):
        planned = search.next_probes(probes[:start])
        assert [probe.plan for probe in probes[start : start + len(planned)]] == list(planned)
    assert search.next_probes(probes) == []


def test_the_search_ends_when_its_time_is_over(faster) -> None:
    probes, _, _ = faster
    spent = sum(probe.seconds for probe in probes[:30])
    assert not Search(0.95, 0.01, spent).next_probes(probes[:30])
    assert Search(0.95, 0.01, spent + 1).next_probes(probes[:30])
    located = [probe for probe in probes if probe.plan.place in ("alone", "locate")]
    done = concluded(located)
    assert (done.verdict, done.answer.ratio) == ("undecided", None)
    assert done.reason == "the time was over before the ratio of the rates could be measured"
    few = concluded(probes[: len(located) + 4 * 8])
    assert few.verdict == "undecided"
    assert f"too few to rely on: expected {FEWEST_BLOCKS}" in few.reason


def changed(probes: list[Probe], change: Callable[[Probe], dict[str, object]]) -> list[Probe]:
    return [probe.model_copy(update=change(probe)) for probe in probes]


def test_a_figure_that_was_not_read_leaves_it_undecided_and_ends_the_search(faster) -> None:
    probes, search, _ = faster
    unread = changed(probes, lambda probe: {"attained": 0, "unknown": probe.attained, "missing": "no usage"})
    assert search.next_probes(unread[:2]) == []
    done = concluded(unread[:2])
    assert done.verdict == "undecided"
    assert done.reason == "a limited figure of 12 of 12 requests to standard is not known: no usage"


def test_a_few_unknown_figures_widen_the_interval_to_whatever_they_were(faster) -> None:
    probes, _, _ = faster

    def one_unknown(probe: Probe) -> dict[str, object]:
        inside = probe.attained - 1 if probe.plan.arm == "speculative" else probe.attained
        unknown = probe.plan.arm == "speculative" and probe.plan.place in ("low", "high")
        return {"attained": inside, "unknown": 1, "missing": "?"} if unknown else {}

    whole, unread = judge(probes, 0.95), judge(changed(probes, one_unknown), 0.95)
    assert whole is not None
    assert unread is not None
    assert unread.ratio.low < whole.ratio.low
    assert unread.ratio.high >= whole.ratio.high - 0.005


@pytest.mark.parametrize(("arm", "verdict"), [("standard", "undecided"), ("speculative", "no")])
def test_an_arm_that_misses_the_objective_alone_has_no_rate(faster, arm, verdict) -> None:
    def misses(probe: Probe) -> dict[str, object]:
        failing = probe.plan.arm == arm and probe.plan.place == "alone"
        return {"attained": 6, "failed": 6, "detail": "HTTP 500"} if failing else {}

    probes = changed([p for p in faster[0] if p.plan.place in ("alone", "locate")], misses)
    planned = Search(0.95, 0.05, math.inf).next_probes(probes[:2])
    assert {plan.arm for plan in planned} == (set() if arm == "standard" else {"standard"})
    assert Search(0.95, 0.05, math.inf).next_probes(probes) == []
    done = concluded(probes)
    assert done.verdict == verdict
    assert done.reason == (
        f"{arm} meets the objective at no rate: 6 of 12 requests did that were sent one after the other, such"
        " as: HTTP 500"
    )


def test_blocks_that_the_client_bound_decide_nothing(faster) -> None:
    late = changed(
        faster[0], lambda probe: {"client_bound": "the client was late"} if probe.plan.number % 2 else {}
    )
    done = concluded(late)
    assert done.verdict == "undecided"
    assert done.reason.startswith("the client was late; this was so in ")


def straight(first: float, last: float, blocks: int = 20) -> list[Probe]:
    """Probes on straight lines: the standard's rate is 4, and the speculative one is `first` times as high in
    the first half of the blocks, and `last` times in the second. A block is a little off for both arms."""
    probes = []
    for number in range(blocks):
        off = 0.02 * (-1) ** number
        for arm, place in ((arm, place) for arm in ARMS for place in ("low", "high")):
            rate = 4.0 * math.exp(-0.08 if place == "low" else 0.08) * (1.2 if arm == "speculative" else 1.0)
            truth = 4.0 * math.exp(off)
            if arm == "speculative":
                truth *= first if number < blocks // 2 else last
            share = 1 / (1 + math.exp(-logit(0.95) + 10 * math.log(rate / truth)))
            plan = ProbePlan(arm=arm, place=place, number=number, rate=rate, before=4, counted=2000, after=2)
            probes.append(probe_of(plan, round(2000 * share)))
    return probes


def probe_of(plan: ProbePlan, inside: int) -> Probe:
    return Probe(
        plan=plan,
        attained=inside,
        unknown=0,
        failed=0,
        tokens=None,
        answered=plan.counted,
        mean_s=1.0,
        seconds=80.0,
        began=0.0,
        ended_by=None,
        client_bound=None,
        missing=None,
        detail=None,
    )


def test_the_judge_finds_the_rates_of_straight_lines() -> None:
    judged = judge(straight(1.2, 1.2), 0.95)
    assert judged is not None
    assert judged.ratio.estimate == pytest.approx(1.2, rel=2e-3)
    assert judged.rates["standard"].estimate == pytest.approx(4.0, rel=5e-3)
    assert judged.half_width < 0.01, "what a block did to both arms cancels"
    assert judged.rates["standard"].high / judged.rates["standard"].low > 1.1, "and stays in a rate"


@pytest.mark.parametrize("seed", range(5))
def test_a_share_that_hardly_falls_with_the_rate_decides_nothing(seed: int) -> None:
    """As where 5% miss the objective at any rate: where the line crosses it is chance."""
    dice = random.Random(seed)
    probes = [
        probe.model_copy(update={"attained": sum(dice.random() < 0.95 for _ in range(probe.plan.counted))})
        for probe in straight(1.0, 1.0)
    ]
    done = concluded(probes)
    assert done.verdict == "undecided"
    assert [figures["rate"] for figures in done.answer.arms.values()] == [None, None]


def test_servers_that_changed_on_the_way_are_undecided() -> None:
    assert unsteady(blocks_of(straight(1.2, 1.2)), 0.95) is None
    done = concluded(straight(1.15, 1.25))
    assert done.verdict == "undecided"
    assert done.reason.startswith(
        "the ratio changed while it was measured, from 1.15 in the first half of the blocks to 1.25"
    )


def row(**changes: object) -> Row:
    fields: dict[str, object] = {
        "prompt": "a",
        "class": "chat",
        "sent_s": 1.0,
        "due_s": 1.0,
        "lag_ms": 0.0,
        "ttft_ms": 200.0,
        "tpot_ms": 20.0,
        "e2e_ms": 900.0,
        "e2e_with_retries_ms": 900.0,
        "retries": 0,
        "chunks": 5,
        "n_first": 1,
        "tokens": 36,
        "tokens_from": "usage",
        "finish_reason": "stop",
        "text": "x",
        "error": None,
        "detail": None,
    }
    return Row.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("changes", "inside"),
    [
        ({}, True),
        ({"ttft_ms": 301.0}, False),
        ({"lag_ms": 150.0}, False),  # it was due 150 ms before it was sent
        ({"e2e_with_retries_ms": 1100.0}, False),  # retries took 200 ms
        ({"tpot_ms": 31.0}, False),
        ({"tpot_ms": None}, None),
        ({"tpot_ms": None, "ttft_ms": 400.0}, False),
        ({"tpot_ms": None, "missing": {"tpot_ms": "the answer came all at once"}}, True),
        ({"ttft_ms": None}, None),
        ({"error": "http", "detail": "HTTP 500"}, False),
        ({"error": "timeout", "ttft_ms": None, "tpot_ms": None}, False),
    ],
)
def test_a_request_is_inside_the_objective(changes, inside) -> None:
    assert attained(row(**changes), LIMITS) is inside


def test_over_saturation_counts_requests_that_wait_and_those_that_ended() -> None:
    watch, now = Saturation(Objectives(ttft_ms=300), counted=10), time.perf_counter()
    exchanges = [Exchange(Prompt(str(index), "chat", "x"), scheduled=now) for index in range(6)]
    for exchange in exchanges:
        watch.begin(exchange)
    assert watch.ends(now + 0.2) is None
    assert "6 requests had missed the objective, 6 of them still in flight" in str(watch.ends(now + 0.4))
    answered = exchanges[0]
    answered.reads.append((now + 0.1, b"data"))
    answered.ended = now + 2
    watch.add(answered)
    assert watch.ends(now + 5) is None, "five of ten are at most half"


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft_p95<300ms, tpot_p95<30ms", {"ttft_ms": 300, "tpot_ms": 30}),
        ("e2e<2s", {"e2e_ms": 2000}),
        ("TTFT <= 0.5s", {"ttft_ms": 500}),
    ],
)
def test_objectives_are_read(text, limits) -> None:
    assert parse_objective(text, 0.95) == pytest.approx(limits)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttft_p99<300ms", "is about 99% of the requests, and --attain about 95%"),
        ("ttft<300", "is not an objective"),
        ("ttft<0s", "is not an objective"),
        ("ttft<1s, ttft<2s", "is named twice"),
        ("throughput>5", "is not an objective"),
        ("tpot<30ms", "no limit on the time to the first token or to the end"),
    ],
)
def test_other_objectives_are_refused(text, message) -> None:
    with pytest.raises(UsageError, match=message):
        parse_objective(text, 0.95)


def test_a_probe_that_is_not_whole_is_no_block() -> None:
    plan = ProbePlan(arm="standard", place="low", number=0, rate=1.0, before=4, counted=80, after=2)
    probe = probe_of(plan, 76)
    assert blocks_of([probe]) == {}
    assert judge([probe], 0.95) is None
