"""Speed-ups of a sweep: paired with the standard of its machine and rung, drift out, restarts counted."""

from __future__ import annotations

import math
import random
from functools import partial

import made_sweeps
import pytest
from made_sweeps import loads, setting, settings

from specops.phases.sweep.plan import Load, SweptCell
from specops.phases.sweep.speedups import Stratum, SweepCells, speedup

THREE = settings(3, 5)
FASTER = {"k=3": 1.5, "k=5": 1.2}
swept = partial(made_sweeps.swept, confirming=0)
AT = loads(1)[0]


def found(cells: list[SweptCell], name: str = "k=3"):
    return SweepCells(cells, THREE).pairs(name, Stratum(1)).ratio("e2e", 0.95)


def without(cells: list[SweptCell], **fields: object) -> list[SweptCell]:
    return [c for c in cells if any(getattr(c, name) != value for name, value in fields.items())]


def test_a_speed_up_is_the_standards_time_over_the_settings() -> None:
    interval = speedup(swept(FASTER, THREE, noise=0), THREE, "k=3", AT, 0.95)
    assert interval is not None
    assert interval.estimate == pytest.approx(1.5)
    assert interval.n == 48
    assert found(swept(FASTER, THREE, noise=0), "k=5").estimate == pytest.approx(1.2)


def test_an_even_drift_changes_no_speed_up() -> None:
    """A machine that is half as fast at the end as at the beginning."""
    whole = swept(FASTER, THREE, noise=0)
    end = max(cell.began for cell in whole) - 1000
    drifted = swept(FASTER, THREE, noise=0, slower=lambda rung, name, turn, now: 1 + now / end)
    for name, truth in FASTER.items():
        assert found(drifted, name).estimate == pytest.approx(truth, rel=0.015)
    (first, *_) = SweepCells(drifted, THREE).turns(Stratum(1), "e2e")
    before, after = zip(*first.durations.values(), strict=True)
    assert sum(after) > 1.3 * sum(before)


def test_a_setting_is_never_held_against_another_machines_standard() -> None:
    def slower(rung: int, name: str, turn: int, now: float) -> float:
        return 3.0 if rung else 1.0

    cells = swept(FASTER, THREE, noise=0, slower=slower, machine=lambda rung, name: f"node {rung}")
    assert found(cells).estimate == pytest.approx(1.5)
    elsewhere = swept(FASTER, THREE, machine=lambda rung, name: "there" if name == "k=3" else "here")
    assert found(elsewhere) is None
    assert found(elsewhere, "k=5") is not None


def test_restarts_widen_the_intervals_by_what_they_are() -> None:
    dealer = random.Random(7)
    by_start: dict[tuple[int, str, int], float] = {}

    def slower(rung: int, name: str, turn: int, now: float) -> float:
        return by_start.setdefault((rung, name, turn), math.exp(0.08 * dealer.gauss(0, 1)))

    calm, shaken = swept(FASTER, THREE, rungs=4), swept(FASTER, THREE, rungs=4, slower=slower)
    one = SweepCells(shaken, THREE).one_start(Stratum(1), "e2e")
    assert one is not None
    assert 0.04 < math.sqrt(one.variance) < 0.14
    assert found(calm).high / found(calm).low < 1.03
    assert found(shaken).high / found(shaken).low > 1.08
    assert found(shaken).low < 1.5 < found(shaken).high


def test_one_rung_cannot_tell_drift_from_anything_else() -> None:
    """A step between the standard's turns: the interval is as wide as one degree of freedom deserves."""
    stepped = swept(FASTER, THREE, rungs=1, slower=lambda rung, name, turn, now: 1.1 if turn else 1.0)
    assert found(stepped).high / found(stepped).low > 1.5


def failing(cell: SweptCell, names: set[str], e2e_ms: float = 1.0) -> SweptCell:
    """Its requests of these prompts failed, after so many milliseconds."""
    failed = {"error": "timeout", "e2e_ms": e2e_ms, "e2e_with_retries_ms": e2e_ms}
    rows = [row.model_copy(update=failed) if row.prompt in names else row for row in cell.cell.rows]
    return cell.model_copy(update={"cell": cell.cell.model_copy(update={"rows": tuple(rows)})})


def test_prompts_that_the_standard_did_not_answer_are_left_out() -> None:
    cells = swept(FASTER, THREE, rungs=1)
    gone = {"standard": {"p001"}, "k=3": set[str](), "k=5": set[str]()}
    pairs = SweepCells([failing(cell, gone[cell.setting]) for cell in cells], THREE).pairs("k=3", Stratum(1))
    assert len(pairs.all) == 47
    assert "p001" not in {pair.prompt for pair in pairs.all}
    assert speedup(swept(FASTER, THREE, prompts=7), THREE, "k=3", AT, 0.95) is None
    assert speedup([], THREE, "k=3", AT, 0.95) is None


@pytest.mark.parametrize("after_ms", [1.0, 60_000.0])
def test_a_request_that_failed_has_no_part_in_a_time(after_ms: float) -> None:
    cells = swept(FASTER, THREE, rungs=1, noise=0)
    gone = {"standard": set[str](), "k=3": {"p002", "p003"}, "k=5": set[str]()}
    broken = SweepCells([failing(cell, gone[cell.setting], after_ms) for cell in cells], THREE)
    pairs = broken.pairs("k=3", Stratum(1))
    assert {pair.prompt for pair in pairs.all}.isdisjoint({"p002", "p003"})
    assert pairs.ratio("e2e", 0.95).estimate == pytest.approx(1.5)  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [None, "timeout"])
@pytest.mark.parametrize("seed", range(4))
def test_one_hung_request_of_a_setting_widens_no_interval(error: str | None, seed: int) -> None:
    """All settings share the error of one start of a server, which a request of 30 s would make."""
    cells = swept(FASTER, THREE, rungs=2, noise=0.05, seed=seed)
    hung = [
        cell.model_copy(
            update={
                "cell": cell.cell.model_copy(
                    update={
                        "rows": tuple(
                            row.model_copy(
                                update={"error": error, "e2e_ms": 30_000.0, "e2e_with_retries_ms": 30_000.0}
                            )
                            if (row.prompt, cell.setting, cell.rung) == ("p002", "k=5", 1)
                            else row
                            for row in cell.cell.rows
                        )
                    }
                )
            }
        )
        for cell in cells
    ]
    for name in FASTER:
        whole, beside = found(cells, name), found(hung, name)
        assert beside.high / beside.low < 1.05 * whole.high / whole.low
        assert beside.estimate == pytest.approx(whole.estimate, rel=0.02)


def test_a_setting_that_is_slow_throughout_does_not_hang() -> None:
    slow = swept({"k=3": 1 / 40, "k=5": 1.2}, THREE, noise=0.05)
    assert found(slow).estimate == pytest.approx(1 / 40, rel=0.02)


def test_what_a_setting_is_judged_by_is_not_what_it_was_chosen_by() -> None:
    def slower(rung: int, name: str, turn: int, now: float) -> float:
        return 1.5 if rung > 1 and name == "k=3" else 1.0

    cells = made_sweeps.swept(FASTER, THREE, noise=0, slower=slower)
    whole = SweepCells(cells, THREE)
    assert whole.evidence("k=3", Stratum(1)).ratio("e2e", 0.95).estimate == pytest.approx(1.0)  # type: ignore[union-attr]
    chosen = whole.pairs("k=3", Stratum(1, stage="choice")).ratio("e2e", 0.95)
    assert chosen.estimate == pytest.approx(1.5)  # type: ignore[union-attr]
    never = SweepCells([c for c in cells if c.setting != "k=5" or c.stage == "choice"], THREE)
    assert not never.confirmed("k=5", Stratum(1))
    assert never.evidence("k=5", Stratum(1)).ratio("e2e", 0.95).estimate == pytest.approx(1.2)  # type: ignore[union-attr]


def test_both_starts_of_a_setting_without_a_rival_count() -> None:
    """S A A S: both are paired with the standard at their own times; what differs between them is a start."""
    two, cells = settings(3), []
    for cell in swept({"k=3": 1.5}, two, rungs=1, noise=0):
        cells.append(cell)
        if cell.setting == "k=3":
            slow = [
                row.model_copy(update={"e2e_ms": 1.2 * row.e2e_ms, "e2e_with_retries_ms": 1.2 * row.e2e_ms})
                for row in cell.cell.rows
            ]
            again = cell.cell.model_copy(update={"rows": tuple(slow)})
            later = {"turn": 1, "began": cell.began + cell.cell.wall_s, "cell": again}
            cells.append(cell.model_copy(update=later))
    both = SweepCells(cells, two)
    (pair, *_) = both.pairs("k=3", Stratum(1)).all
    assert len(pair.figures["e2e"]) == 2
    assert both.pairs("k=3", Stratum(1)).ratio("e2e", 0.95).estimate == pytest.approx(1.5 / 1.1)  # type: ignore[union-attr]
    (turn,) = both.turns(Stratum(1), "e2e", "k=3")
    assert {round(after / before, 6) for before, after in turn.durations.values()} == {1.2}
    one = both.one_start(Stratum(1), "e2e")
    assert one is not None
    assert one.variance > 0


def test_a_standard_of_one_turn_still_tells() -> None:
    """A sweep that was stopped before the second, as it goes on."""
    stopped = without(swept(FASTER, THREE, noise=0), setting="standard", turn=1)
    assert found(stopped).estimate == pytest.approx(1.5)


def test_loads_classes_lengths_and_temperatures_are_kept_apart_and_put_together() -> None:
    lengths, at = ("short", "long"), loads(1, 4, temperatures=(0.0, 0.7), lengths=("short", "long"))

    def speed(name: str, load: Load, of: str) -> float:
        return {1: 2.0, 4: 1.0}[load.concurrency] * {"short": 1.5, "long": 1.0}[load.length]

    whole = SweepCells(swept(speed, THREE, at, noise=0), THREE)
    for length in lengths:
        for temperature in (0.0, 0.7):
            pairs = whole.pairs("k=3", Stratum(1, temperature, length))
            estimate = pairs.ratio("e2e", 0.95).estimate
            assert estimate == pytest.approx({"short": 3.0, "long": 2.0}[length])
    together = whole.pairs("k=3", Stratum(1))
    assert len(together.all) == 48
    assert {len(pair.figures["e2e"]) for pair in together.all} == {4}  # two rungs at two temperatures
    assert 2.0 < together.ratio("e2e", 0.95).estimate < 3.0
    of_class = whole.pairs("k=3", Stratum(1, traffic_class="edit"))
    assert {pair.traffic_class for pair in of_class.all} == {"edit"}


def test_two_settings_are_held_against_each_other_directly() -> None:
    ratio = SweepCells(swept(FASTER, THREE), THREE).pairs("k=3", Stratum(1), over="k=5").ratio("e2e", 0.95)
    assert ratio is not None
    assert ratio.low < 1.5 / 1.2 < ratio.high


def test_rungs_of_other_prompts_are_pooled() -> None:
    """As halving asks them: each rung goes on in the deck."""
    cells = swept(FASTER, THREE, rungs=4, noise=0.02)
    parts = []
    for cell in cells:
        rows = tuple(row for number, row in enumerate(cell.cell.rows) if number % 4 == cell.rung)
        parts.append(cell.model_copy(update={"cell": cell.cell.model_copy(update={"rows": rows})}))
    pairs = SweepCells(parts, THREE).pairs("k=3", Stratum(1))
    assert len(pairs.all) == 48
    interval = pairs.ratio("e2e", 0.95)
    assert interval is not None
    assert interval.low < 1.5 < interval.high


def test_the_standard_is_the_setting_without_drafts_whatever_its_name() -> None:
    named = [setting(3), setting(0, name="plain")]
    assert SweepCells([], named).standard == "plain"
