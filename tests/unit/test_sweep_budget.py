"""A sweep with a budget, from its first rung to its result; servers and clock are simulated."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from made_worlds import PROMPTS, World

from specops.config import Rollout
from specops.errors import Exit, ServerError
from specops.load.record import Row
from specops.phases.sweep import sweep as module
from specops.phases.sweep.plan import Load, Measurements, Sample, measurements_of
from specops.phases.sweep.spec import SweepSpec, spec_of
from specops.phases.sweep.stages import BudgetError
from specops.progress import SilentProgress
from specops.results import Result
from specops.serving import Setting
from specops.serving.endpoint import EndpointPool

KS = (3, 4, 5, 6, 8)
SPEEDS = {"k=3": 1.4, "k=4": 1.6, "k=5": 1.55, "k=6": 1.2, "k=8": 0.8}


@pytest.fixture
def spec(tmp_path: Path) -> SweepSpec:
    prompts = [{"id": name, "text": name} for name in PROMPTS[:48]]
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    endpoint = EndpointPool(engine="endpoint", base_url="http://127.0.0.1:9/v1", model="m")
    fields = {
        "rollout": "simulated",
        "prompts": str(tmp_path / "prompts.json"),
        "pools": {"standard": endpoint.model_dump(), "speculative": endpoint.model_dump()},
        "measure": {"concurrency": [1, 4], "warmup": 0},
        "sweep": {"budget_min": 30.0},
        "ab": {"failure_margin": 0.05},  # which 59 requests bound
    }
    return spec_of(Rollout.model_validate(fields), tmp_path, dict.fromkeys((0, *KS), endpoint))


def swept(
    spec: SweepSpec,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    previous: Result | None = None,
    earlier: Sequence[Sample] = (),
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    clock = SimpleNamespace(monotonic=lambda: world.now, time=lambda: world.now)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module.clock, "now", lambda: world.now)
    return module.sweep(
        spec, world, SilentProgress(), previous=previous, earlier=earlier, on_partial=on_partial
    )


def kept(result: Result) -> Measurements:
    return measurements_of(result, "it")


def requests(result: Result) -> Counter[str]:
    asked: Counter[str] = Counter()
    for cell in kept(result).cells:
        asked[cell.setting] += len(cell.cell.rows)
    return asked


def share(result: Result) -> float:
    """Of all requests, those of the settings, without the standard's."""
    asked = requests(result)
    return 1 - asked["standard"] / asked.total()


def test_the_budget_is_kept_to_and_the_best_is_found(spec, monkeypatch) -> None:
    world = World(SPEEDS, start_noise=0.01)
    result = swept(spec, world, monkeypatch)
    assert world.now <= 30 * 60
    assert kept(result).spent_s == pytest.approx(world.now)
    assert result.verdict == "yes"
    assert result.summary["recommended"] in (4, 5)
    assert result.recommendation is not None
    assert result.recommendation["k"] == result.summary["recommended"]
    assert share(result) >= 0.4
    left = {(one.setting, one.concurrency) for one in kept(result).skipped}
    assert left >= {(f"k={k}", streams) for k in (3, 6, 8) for streams in (1, 4)}


def test_what_is_chosen_is_measured_again_with_prompts_that_did_not_choose_it(spec, monkeypatch) -> None:
    result = swept(spec, World(SPEEDS, start_noise=0.01), monkeypatch)
    found = kept(result)
    assert found.finalists is not None
    assert found.finalists.settings[0] == result.recommendation["setting"]
    stages: dict[str, set[str]] = defaultdict(set)
    for cell in found.cells:
        stages[cell.stage] |= {row.prompt for row in cell.cell.rows}
    assert not stages["choice"] & stages["confirmation"]
    again = {cell.setting for cell in found.cells if cell.stage == "confirmation"}
    assert again == {"standard", *found.finalists.settings}
    assert {cell.cell.concurrency for cell in found.cells if cell.stage == "confirmation"} == {1, 4}


WORLDS = st.builds(
    World,
    st.fixed_dictionaries({f"k={k}": st.floats(0.5, 2.0) for k in KS}),
    start_s=st.floats(0.0, 200.0),
    start_noise=st.floats(0.0, 0.1),
    noise=st.floats(0.01, 0.5),
    seed=st.integers(0, 99),
)


def check_shares(spec: SweepSpec, world: World, minutes: float, settings: int) -> None:
    asked = replace(spec, budget_min=minutes, settings=spec.settings[: settings + 1])
    with pytest.MonkeyPatch.context() as patch:
        result = swept_or_refused(asked, world, patch)
        if isinstance(result, BudgetError):
            assert {job.setting.name for rung in world.rungs for job in rung.jobs} == set()
            assert float(result.minutes) > minutes
            minutes = float(result.minutes)
            world = World(world.speed, world.start_s, world.noise, world.start_noise, world.seed)
            result = swept(replace(asked, budget_min=minutes), world, patch)
    assert share(result) >= 0.4
    assert len(requests(result)) > 1
    # What a job takes is known from few others: it may take longer than expected.
    assert world.now <= 60 * minutes + 2 * (world.start_s + 30)
    for rung in world.rungs:  # the standard is never measured alone, but for its very first turn
        assert rung.jobs or rung.begun or rung is world.rungs[0]


def swept_or_refused(asked: SweepSpec, world: World, patch: pytest.MonkeyPatch) -> Result | BudgetError:
    try:
        return swept(asked, world, patch)
    except BudgetError as error:
        return error


MINUTES, SETTINGS = st.floats(0.5, 60.0), st.integers(1, len(KS))
SHARED = [HealthCheck.function_scoped_fixture]


@examples(max_examples=8, suppress_health_check=SHARED, deadline=None)
@given(WORLDS, MINUTES, SETTINGS)
def test_settings_have_at_least_40_percent_of_the_requests_whatever_the_budget(
    spec: SweepSpec, world: World, minutes: float, settings: int
) -> None:
    """Or the budget is refused before any setting is started; the one that it names is enough."""
    check_shares(spec, world, minutes, settings)


@pytest.mark.slow
@examples(max_examples=150, suppress_health_check=SHARED, deadline=None)
@given(WORLDS, MINUTES, SETTINGS)
def test_settings_have_at_least_40_percent_in_many_more_budgets(
    spec: SweepSpec, world: World, minutes: float, settings: int
) -> None:
    check_shares(spec, world, minutes, settings)


@pytest.mark.slow
def test_a_setting_that_gains_nothing_is_hardly_ever_recommended(spec) -> None:
    said = []
    for seed in range(40):
        world = World({f"k={k}": 1.0 for k in KS}, start_noise=0.05, noise=0.1, seed=seed)
        with pytest.MonkeyPatch.context() as patch:
            said.append(swept(replace(spec, budget_min=20.0), world, patch).verdict)
    assert said.count("yes") <= 3  # of 40: more has a chance of 2% where one in 40 is


def test_one_setting_has_nothing_to_choose_and_is_confirmed_at_once(spec, monkeypatch) -> None:
    world = World(SPEEDS, start_noise=0.01)
    result = swept(replace(spec, settings=spec.settings[:2]), world, monkeypatch)
    assert {cell.stage for cell in kept(result).cells} == {"confirmation"}
    turns = [(c.setting, c.turn) for c in kept(result).cells if c.rung == 0 and c.cell.concurrency == 1]
    assert turns == [("standard", 0), ("k=3", 0), ("k=3", 1), ("standard", 1)]
    assert result.verdict == "yes"
    assert share(result) == 0.5


def test_slow_starts_leave_the_usual_k_alone(spec, monkeypatch) -> None:
    """How long a start takes is not known before the first. Then there is no time to choose."""
    world = World(SPEEDS, start_s=300.0)
    result = swept(spec, world, monkeypatch)
    assert world.now <= 30 * 60
    assert set(requests(result)) == {"standard", "k=5"}
    assert share(result) >= 0.4
    unmeasured = {one.setting: one.why for one in kept(result).skipped if one.setting != "k=5"}
    assert set(unmeasured.values()) == {"the budget has no time for it"}
    assert set(unmeasured) == {"k=3", "k=4", "k=6", "k=8"}


def test_a_budget_that_is_shorter_than_the_starts_is_refused_with_the_arithmetic(spec, monkeypatch) -> None:
    short = replace(spec, budget_min=3.0, settings=spec.settings[:2])
    world = World(SPEEDS, start_s=95.0)
    with pytest.raises(BudgetError) as caught:
        swept(short, world, monkeypatch)
    assert caught.value.exit_code == Exit.USAGE
    assert caught.value.message.startswith(
        "budget 3 min: the standard and one setting need 3 more server starts, 3 × 95.0 s, after "
    )
    assert ", which leaves nothing for 48 requests that take about " in caught.value.message
    assert "; the smallest useful budget is about " in caught.value.message
    assert caught.value.hint == (f"specops sweep ROLLOUT --budget {caught.value.minutes}")
    assert [len(rung.jobs) for rung in world.rungs] == [0]


def test_what_earlier_servers_took_refuses_it_before_anything_is_started(spec, monkeypatch) -> None:
    world = World(SPEEDS)
    known = [Sample(1, 1.0, up_s=95.0)]
    with pytest.raises(
        BudgetError, match=r"budget 3 min: .* need 4 server starts, 4 × 95\.0 s, which leaves"
    ):
        swept(replace(spec, budget_min=3.0), world, monkeypatch, earlier=known)
    assert world.rungs == []
    assert swept(spec, world, monkeypatch, earlier=known).verdict == "yes"


def test_more_minutes_go_on_where_the_time_was_up(spec, monkeypatch) -> None:
    nothing = {f"k={k}": 1.04 for k in KS}
    world = World(nothing, start_noise=0.05, noise=0.3)
    short = replace(spec, budget_min=12.0)
    first = swept(short, world, monkeypatch)
    assert first.verdict == "undecided"
    assert world.now <= 12 * 60
    assert kept(first).looks == 1
    again = swept(short, world, monkeypatch, first)
    assert kept(again).cells == kept(first).cells
    assert kept(again).spent_s == pytest.approx(kept(first).spent_s)
    assert kept(again).looks == 1
    more = swept(spec, world, monkeypatch, first)
    assert kept(more).cells[: len(kept(first).cells)] == kept(first).cells
    assert len(kept(more).cells) > len(kept(first).cells)
    assert kept(more).finalists == kept(first).finalists
    assert kept(more).looks == 2  # with a smaller share of the error
    assert world.now <= 30 * 60


def test_what_was_decided_is_not_measured_further(spec, monkeypatch) -> None:
    world = World(SPEEDS, start_noise=0.01)
    first = swept(replace(spec, budget_min=20.0), world, monkeypatch)
    assert first.verdict == "yes"
    now = world.now
    assert kept(swept(spec, world, monkeypatch, first)).cells == kept(first).cells
    assert world.now == now


@pytest.mark.parametrize("after", [1, 5, 14, 22, 30])
def test_a_sweep_that_was_stopped_anywhere_is_finished(spec, monkeypatch, after: int) -> None:
    world = World(SPEEDS, start_noise=0.01)
    partial: list[Result] = []

    def stop(result: Result) -> None:
        partial.append(result)
        if len(kept(result).cells) == after:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        swept(spec, world, monkeypatch, on_partial=stop)
    had = kept(partial[-1]).cells
    whole = swept(spec, world, monkeypatch, partial[-1])
    assert kept(whole).cells[: len(had)] == had
    assert whole.verdict == "yes"
    assert share(whole) >= 0.4
    for rung in {cell.rung for cell in kept(whole).cells}:
        turns = {(c.setting == "standard", c.turn) for c in kept(whole).cells if c.rung == rung}
        assert turns >= {(True, 0), (True, 1), (False, 0)}


def test_one_that_fails_is_left_out_and_told(spec, monkeypatch) -> None:
    world = World(SPEEDS, start_noise=0.01, fails=frozenset({"k=4"}))
    result = swept(spec, world, monkeypatch)
    assert [one.setting for one in kept(result).failed] == ["k=4"]
    assert {one.why for one in kept(result).skipped if one.setting == "k=4"} == {"it failed"}
    assert result.summary["recommended"] == 5


def test_without_the_standard_nothing_is_measured(spec, monkeypatch) -> None:
    world = World(SPEEDS, fails=frozenset({"standard", *SPEEDS}))
    with pytest.raises(ServerError, match="could not measure the standard, K = 0: it died"):
        swept(spec, world, monkeypatch)


@dataclass
class Refusing(World):
    """Refuses some of the first requests to k=4 in the confirmation at first."""

    refusals: int = 0

    def _row(self, setting: Setting, load: Load, prompt: str, luck: float) -> Row:
        answer = super()._row(setting, load, prompt, luck)
        stage = self.rungs[-1].standard.stage
        if (setting.name, stage) != ("k=4", "confirmation") or not self.refusals:
            return answer
        self.refusals -= 1
        return answer.model_copy(update={"retries": 1})


@pytest.mark.parametrize(
    ("refusals", "verdict", "rungs"), [(0, "yes", 1), (2, "yes", 2), (4, "undecided", 1)]
)
def test_without_a_budget_what_rare_events_leave_open_is_measured_further(
    spec, monkeypatch, refusals: int, verdict: str, rungs: int
) -> None:
    """Up to as many requests as a comparison may send, and not again where it was decided so."""
    unlimited = replace(
        spec,
        budget_min=None,
        requests=spec.requests.model_copy(update={"repeats": 1}),
        settings=spec.settings[:3],
    )
    world = Refusing({"k=3": 0.8, "k=4": 1.6}, refusals=refusals)
    result = swept(unlimited, world, monkeypatch)
    assert result.verdict == verdict, result.reason
    confirmed = [cell for cell in kept(result).cells if cell.stage == "confirmation"]
    assert len({cell.rung for cell in confirmed}) == rungs
    assert kept(result).looks == rungs
    again = swept(unlimited, world, monkeypatch, result)
    assert kept(again).cells == kept(result).cells
    assert (again.verdict, kept(again).looks) == (verdict, rungs)
