"""Turns of the guard over targets that fail or are switched by another hand; and its section of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from made_evaluations import seen

from specops.actions.action import Target
from specops.config import Rollout, load
from specops.config.guard import Guard as Section
from specops.errors import ConfigError, EndpointError
from specops.guard import switch as switching
from specops.guard.guard import CapacityGate, Guard, status
from specops.guard.journal import FILE, Entry, Journal, history
from specops.guard.policy import GuardRules
from specops.guard.service import GuardMetrics
from specops.guard.signals.observation import BadRow
from specops.guard.state import Evaluation, Override
from specops.guard.switch import Switch
from specops.phases.capacity.gate import Capacity, Demand, Rate
from specops.phases.commands import Commands
from specops.phases.guard import blind, gate, guarding
from specops.prometheus import series

ENDPOINT = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
PIN = Override(pool="standard", by="ada", why="so", left_s=None)


class Router(Target):
    def __init__(self, name: str) -> None:
        self.name, self.percent, self.down, self.sets = name, 100, False, 0

    def read(self) -> int:
        if self.down:
            raise EndpointError(f"could not read {self.name}")
        return self.percent

    def set(self, percent: int) -> None:
        if self.down:
            raise EndpointError(f"could not set {self.name}")
        self.percent, self.sets = percent, self.sets + 1


class World:
    """A guard in a folder, over two routers, that sees what it is told to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(switching, "WAIT_S", 0.0)
        self.a, self.b = Router("a"), Router("b")
        self.path = folder / FILE
        self.now = self.passed = 0.0
        self.verdicts: Iterator[str] = iter(())
        self.gate = CapacityGate(reason="it carries it")
        self.guard = self.started()

    def started(self, *, dry_run: bool = False) -> Guard:
        return Guard(
            rules=GuardRules(cooldown_s=120, hold=1, steps=(30,)),
            observe=lambda now, *_: Evaluation.model_validate(
                {"ts": now, "verdict": next(self.verdicts), "reason": "r"}
            ),
            switch=Switch([self.a, self.b]),
            journal=Journal(self.path),
            gate=lambda: self.gate,
            dry_run=dry_run,
            clock=lambda: self.now,
            steady=lambda: self.passed,
        )

    def see(self, *verdicts: str) -> Entry:
        self.verdicts = iter(verdicts)
        for _ in verdicts:
            self.wait(60)
            entry = self.guard.turn()
        return entry

    def wait(self, seconds: float) -> None:
        self.now, self.passed = self.now + seconds, self.passed + seconds

    @property
    def percents(self) -> list[int]:
        return [self.a.percent, self.b.percent]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_it_falls_back_once_and_says_what_the_capacity_gate_said(world) -> None:
    world.gate = CapacityGate(reason="not known")
    entry = world.see("bad", "bad", "bad")
    assert world.percents == [0, 0]
    assert entry.evidence.capacity == "not known"
    assert entry.result is not None
    assert entry.result.outcome == "done"
    world.see("no_traffic")
    assert (world.a.sets, world.b.sets) == (1, 1)
    assert world.guard.unconfirmed is None


def test_what_the_standard_pool_cannot_carry_stays(world) -> None:
    world.gate = CapacityGate(reason="no", floor=40)
    world.see("bad", "bad", "bad")
    assert world.percents == [40, 40]


@pytest.mark.parametrize(("signal", "left"), [("errors", 0), ("tpot", 40)])
def test_where_requests_fail_all_move_whatever_the_capacity(world, signal: str, left: int) -> None:
    world.gate = CapacityGate(reason="no", floor=40)
    world.guard._observe = lambda now, *_: seen("bad", signal).model_copy(update={"ts": now})
    for _ in range(3):
        world.wait(60)
        world.guard.turn()
    assert world.percents == [left, left]


def test_both_pools_slow_is_told_and_nothing_is_switched(world) -> None:
    slow = Evaluation(ts=60.0, verdict="unknown", reason="both pools are slow", both_slow=True)
    world.guard._observe = lambda now, *_: slow
    for _ in range(5):
        world.wait(60)
        world.guard.turn()
    assert world.percents == [100, 100]
    assert f"{series.GUARD_BOTH_SLOW} 1.0" in GuardMetrics(world.guard).render().decode()
    world.guard._observe = lambda now, *_: Evaluation(ts=now, verdict="healthy", reason="r")
    world.guard.turn()
    assert f"{series.GUARD_BOTH_SLOW} 0.0" in GuardMetrics(world.guard).render().decode()


def test_what_alerts_read_of_a_verdict_is_exported(world) -> None:
    parts = [
        {"signal": "tpot", "replica": "a:1", "verdict": "bad", "why": "slow"},
        {"signal": "e2e", "traffic_class": "code", "verdict": "bad", "why": "slow"},
        {"signal": "drafting", "verdict": "bad", "why": "none"},
        {"signal": "acceptance", "verdict": "healthy", "why": "well"},
    ]
    evaluation = Evaluation.model_validate(
        {"ts": 60.0, "verdict": "degraded", "reason": "r", "findings": parts, "not_covered": ("b:1: away",)}
    )
    world.guard._observe = lambda now, *_: evaluation.model_copy(update={"ts": now})
    for _ in range(3):
        world.wait(60)
        world.guard.turn()
    exported = GuardMetrics(world.guard).render().decode()
    parts_bad = [line for line in exported.splitlines() if line.startswith(f"{series.GUARD_PART_BAD}{{")]
    bad = {line for line in parts_bad if line.endswith(" 1.0")}
    assert bad == {
        f'{series.GUARD_PART_BAD}{{part="replica a:1",signal="tpot"}} 1.0',
        f'{series.GUARD_PART_BAD}{{part="class code",signal="e2e"}} 1.0',
        f'{series.GUARD_PART_BAD}{{part="all replicas",signal="drafting"}} 1.0',
    }
    verdicts = [line for line in exported.splitlines() if line.startswith(f"{series.GUARD_VERDICT}{{")]
    assert {line for line in verdicts if line.endswith(" 1.0")} == {
        f'{series.GUARD_VERDICT}{{verdict="degraded"}} 1.0'
    }
    assert len(verdicts) == 6
    assert f"{series.GUARD_NOT_COVERED} 1.0" in exported
    assert f"{series.GUARD_BLIND} 120.0" in exported, "since the first of the three"


def test_the_live_effect_is_exported_with_the_ends_that_it_has(world) -> None:
    now = {"figure": "tpot", "direction": "open", "ratio": 1.1, "low": 0.9, "high": None, "since": 0.0}
    standing = {**now, "requests": 500, "holdout_requests": 50}
    evaluation = Evaluation.model_validate(
        {"ts": 60.0, "verdict": "healthy", "reason": "r", "effect": (standing,)}
    )
    world.guard._observe = lambda at, *_: evaluation.model_copy(update={"ts": at})
    world.wait(60)
    world.guard.turn()
    exported = GuardMetrics(world.guard).render().decode().splitlines()
    assert {line for line in exported if line.startswith(f"{series.GUARD_EFFECT}{{")} == {
        f'{series.GUARD_EFFECT}{{end="low",latency="tpot"}} 0.9',
        f'{series.GUARD_EFFECT}{{end="estimate",latency="tpot"}} 1.1',
    }


def test_how_long_it_is_blind_does_not_follow_a_clock_that_is_set(world) -> None:
    world.see("no_data", "unknown")
    world.now += 86400.0
    world.see("no_data")
    assert world.guard.blind_s == 120.0
    world.see("healthy")
    assert world.guard.blind_s == 0.0


def test_a_row_is_told_to_the_next_look(world) -> None:
    rows: list[object] = []

    def observe(now: float, since: float | None, row: object) -> Evaluation:
        rows.append(row)
        return Evaluation(ts=now, verdict="bad", reason="r", observed_at=now + 5, repeated=None)

    world.guard._observe = observe
    for _ in range(2):
        world.wait(60)
        world.guard.turn()
    assert rows == [None, BadRow(began=65.0, last=65.0, passed_s=60.0)]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"cooldown_s": 299}, "guard.cooldown_s is less than"),
        ({"hold_evaluations": 4}, "guard.hold_evaluations x guard.interval_s is 240 s, less than"),
        ({"interval_s": 59}, "# write 6 or more"),
    ],
)
def test_a_step_is_not_judged_by_what_was_before_it(tmp_path, section, said) -> None:
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    addresses = {"routers": ["127.0.0.1:9"]}
    file = Rollout.model_validate({"rollout": "r", "pools": pools, "guard": section, "addresses": addresses})
    with (
        pytest.raises(ConfigError) as refused,
        guarding(Commands(file, tmp_path / "rollout.yaml", tmp_path), blind),
    ):
        raise AssertionError
    assert said in f"{refused.value.message} {refused.value.hint}"


def test_a_router_that_is_down_is_named_and_switched_once_it_is_back(world) -> None:
    world.b.down = True
    entry = world.see("bad", "bad", "bad")
    assert entry.result is not None
    assert entry.result.outcome == "failed"
    assert world.percents == [0, 100]
    assert "could not set b" in (world.guard.unconfirmed or "")
    world.b.down = False
    world.see("no_traffic")
    assert world.percents == [0, 0]
    assert world.guard.unconfirmed is None


def test_a_router_that_comes_up_with_more_is_brought_down_and_less_is_left(world) -> None:
    world.see("bad", "bad", "bad")
    world.a.percent = 100
    world.see("no_traffic")
    assert world.percents == [0, 0]
    world.see("no_traffic", "no_traffic", "healthy", "healthy", "healthy")
    assert (world.guard.state.mode, world.percents) == ("on", [100, 100])
    world.a.percent = 0
    world.see("healthy", "healthy")
    assert world.percents == [0, 100], "somebody switched it"
    assert "changed outside the guard" in (world.guard.unconfirmed or "")
    world.guard.release("ada", "mine")
    assert world.percents == [30, 30], "handed back, it comes up by steps"


def test_a_new_guard_switches_nothing(world) -> None:
    world.a.percent = 20
    world.see("healthy")
    assert (world.a.sets, world.b.sets) == (0, 0)


def test_the_same_override_again_is_nothing_new(world) -> None:
    assert world.guard.pin(PIN) is not None
    assert world.percents == [0, 0]
    assert world.guard.pin(PIN) is None
    world.guard.release("ada", "done")
    assert world.percents == [100, 100]


def test_the_same_override_again_is_done_again_where_it_failed(world) -> None:
    world.b.down = True
    world.guard.pin(PIN)
    world.b.down = False
    assert world.guard.pin(PIN) is not None
    assert world.percents == [0, 0]


def test_a_dry_run_decides_and_acts_on_nothing(world) -> None:
    world.guard = world.started(dry_run=True)
    entry = world.see("bad", "bad", "bad")
    assert entry.result is not None
    assert entry.result.outcome == "dry_run"
    told = GuardMetrics(world.guard).render().decode()
    assert series.GUARD_EVALUATIONS in told
    assert series.GUARD_STATE not in told, "an alert would take it for what is so"
    assert series.GUARD_PERCENT not in told
    assert world.percents == [100, 100]
    assert world.guard.unconfirmed is None
    assert world.see("no_traffic").action is None


def test_an_evaluation_that_fails_is_unknown(world) -> None:
    def fails(now: float, since: float | None, row: object) -> Evaluation:
        raise EndpointError("nobody answers")

    world.guard._observe = fails
    assert world.guard.turn().verdict == "unknown"


def test_it_looks_back_to_the_last_switch_or_to_its_beginning(world) -> None:
    asked: list[float | None] = []

    def observe(now: float, since: float | None, row: object) -> Evaluation:
        asked.append(since)
        return Evaluation(ts=now, verdict="bad", reason="r")

    world.guard._observe = observe
    for _ in range(4):
        world.wait(60)
        world.guard.turn()
    assert asked == [None, 60.0, 60.0, 180.0]


def test_what_is_left_open_is_told_of_a_guard_that_ended(world) -> None:
    world.b.down = True
    world.see("bad", "bad", "bad")
    found = status(Journal(world.path).standing)
    assert (found.running, found.target_percent) == (None, 0)
    assert found.unconfirmed is not None
    assert [entry.id for entry in history(world.path)] == [1, 2, 3, 3]


def demand(low: float | None, estimate: float) -> Demand:
    return Demand(
        unit="requests/s",
        peak=10,
        offered=Rate(estimate=estimate, low=low, high=None, n=3),
        answer="no",
        servers=2,
    )


@pytest.mark.parametrize(
    ("verdict", "demands", "floor"),
    [
        ("yes", [], 0),
        ("undecided", [], 0),
        ("no", [demand(6.0, 7.0)], 40),
        ("no", [demand(None, 7.0)], 30),
        ("no", [demand(6.0, 7.0), demand(2.5, 3.0)], 75),
        ("no", [demand(-1.0, 0.01)], 99),
    ],
)
def test_what_the_capacity_gates_answer_means(verdict, demands: Sequence[Demand], floor) -> None:
    found = Capacity(verdict=verdict, reason="because", change=None, demands=list(demands))
    assert gate(found).floor == floor
    assert "because" in gate(found).reason


def test_a_rollout_file_without_the_section_has_the_playbooks_numbers() -> None:
    guard = Rollout.model_validate(
        {"rollout": "r", "pools": {"standard": ENDPOINT, "speculative": ENDPOINT}}
    ).guard
    assert (guard.interval_s, guard.consecutive, guard.max_regression) == (60, 3, 0.20)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"canary_percents": [50, 5]}, "must go up"),
        (
            {"actions": [{"kind": "http", "url": "http://flags/api", "body": {"on": True}}]},
            "exactly one value",
        ),
        ({"actions": [{"kind": "command", "set": ["switch"], "read": ["switch"]}]}, "no word of set"),
        ({"actions": [{"kind": "nginx"}]}, "guard.actions.0.kind is 'nginx'; it is router, flag_file"),
        ({"actions": [{"path": "/tmp/flag"}]}, "lacks the key 'kind'"),
        ({"actions": [{"kind": "flag_file", "path": "here"}]}, "path is 'here'"),
        ({"intervall_s": 5}, "unknown key 'guard.intervall_s'"),
    ],
)
def test_a_wrong_section_is_told_by_its_key(tmp_path, section, said) -> None:
    path = tmp_path / "rollout.yaml"
    pools = {"standard": ENDPOINT, "speculative": ENDPOINT}
    path.write_text(yaml.safe_dump({"rollout": "r", "pools": pools, "guard": section}))
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert said in caught.value.message
    assert caught.value.hint


def test_what_can_be_set_by_steps() -> None:
    flag = {"kind": "http", "url": "http://flags/api"}
    file = {"kind": "flag_file", "path": "/tmp/flag"}
    by_percent = flag | {"body": {"percent": "{percent}"}}
    assert GuardRules.from_settings(Section.model_validate({"actions": [file, by_percent]})).steps == (
        5,
        25,
        50,
    )
    assert GuardRules.from_settings(Section.model_validate({"actions": [file, flag]})).steps == ()


STEPS = (-86400.0, -90.0, 90.0, 86400.0)
"""Seconds that the clock of this host is set by."""


@pytest.mark.parametrize("step", STEPS)
def test_an_override_lasts_as_long_as_it_was_given_however_the_clock_is_set(world, step: float) -> None:
    """A step of the clock is not time that passed; time without a guard is."""
    world.see("healthy")
    world.guard.pin(PIN.model_copy(update={"left_s": 600.0}))
    world.see("healthy")
    world.now += step
    world.see(*["healthy"] * 8)
    assert world.percents == [0, 0], "9 of 10 minutes passed"
    world.see("healthy")
    assert world.percents == [100, 100]
    again = world.started()
    assert again.state == world.guard.state


def test_an_override_s_time_runs_while_no_guard_does(world) -> None:
    world.see("healthy")
    world.guard.pin(PIN.model_copy(update={"left_s": 600.0}))
    world.wait(601)
    world.guard = world.started()
    world.see("healthy")
    assert world.percents == [100, 100]


@pytest.mark.parametrize("step", STEPS)
def test_a_clock_that_is_set_switches_nothing_and_ends_no_cool_down(world, step: float) -> None:
    world.see("healthy", "healthy")
    world.now += step
    world.see("healthy", "no_data", "healthy")
    assert (world.percents, world.a.sets) == ([100, 100], 0)
    world.see("bad", "bad", "bad")
    assert world.percents == [0, 0], "three bad ones in a row are three, whatever the clock says"
    world.now += step
    world.see("healthy")
    assert world.percents == [0, 0], "one of the two minutes of its cool-down"
    world.see("healthy")
    assert world.percents == [30, 30]


@pytest.mark.parametrize("step", STEPS)
def test_it_looks_back_no_further_than_the_last_switch_however_the_clock_is_set(world, step: float) -> None:
    """Samples of before a switch are of another share of the traffic."""
    looked: list[tuple[float | None, float | None]] = []

    def observe(now: float, since: float | None, row: BadRow | None) -> Evaluation:
        looked.append((None if since is None else now - since, row and row.passed_s))
        return Evaluation(ts=now, verdict="bad", reason="r", observed_at=world.passed)

    world.guard._observe = observe
    world.wait(60)
    world.guard.turn()
    world.now += step
    for _ in range(3):
        world.wait(60)
        world.guard.turn()
    world.now += step
    world.wait(60)
    world.guard.turn()
    assert looked == [(None, None), (60.0, 60.0), (120.0, 120.0), (60.0, None), (120.0, 60.0)]


@pytest.mark.parametrize("step", STEPS)
def test_one_dip_is_one_bad_evaluation_however_the_clock_is_set_in_it(world, step: float) -> None:
    """Alerts make it evaluate at once, and evaluations less than half an interval apart count once."""
    world.see("bad")
    for _ in range(3):
        world.now += step
        world.wait(1)
        world.verdicts = iter(["bad"])
        world.guard.turn(("an alert",))
    assert (world.guard.state.bad_in_a_row, world.percents) == (1, [100, 100])
