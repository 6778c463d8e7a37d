"""The plan of a sweep: prompts dealt fairly, rungs in turn, and what is left of one that was stopped."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import loads, settings, swept

from specops.load.workload import Prompt
from specops.phases.sweep import plan
from specops.phases.sweep.plan import (
    ANY_LENGTH,
    Job,
    Load,
    PlannedCell,
    Rung,
    Sample,
    SweptCell,
    Timing,
    load_of,
)

DECK = tuple(f"p{n:03}" for n in range(12))
PLANNED = Rung(
    Job(0, settings()[0], tuple(PlannedCell(load, 0, DECK) for load in loads(1, 4))),
    tuple(
        Job(0, setting, tuple(PlannedCell(load, 0, DECK) for load in loads(1, 4)))
        for setting in settings(3, 5)[1:]
    ),
)


def one_rung() -> list[SweptCell]:
    speeds = {"k=3": 1.2, "k=5": 1.1}
    return swept(speeds, settings(3, 5), loads(1, 4), prompts=12, rungs=1, confirming=0)


def asked(planned: Rung | None) -> set[tuple[str, int, Load]]:
    """Setting, turn and load of every cell that an executor on one machine would measure."""
    if planned is None:
        return set()
    starts = [(planned.standard, 1), *((job, 0) for job in planned.jobs)]
    starts += [] if "here" in planned.begun else [(planned.standard, 0)]
    return {(job.setting.name, turn, cell.load) for job, turn in starts for cell in job.cells}


@given(
    st.dictionaries(st.sampled_from(["code", "chat", "edit"]), st.integers(1, 30), min_size=1),
    st.integers(0, 9),
)
def test_every_beginning_of_a_deck_has_the_mix_of_the_whole(sizes: dict[str, int], seed: int) -> None:
    prompts = [Prompt(f"{name}-{n}", name, "text") for name, size in sizes.items() for n in range(size)]
    deck = plan.deal(prompts, seed)
    assert sorted(deck) == sorted(prompt.id for prompt in prompts)
    for length in range(1, len(deck) + 1):
        seen = Counter(name.split("-")[0] for name in deck[:length])
        for name, size in sizes.items():
            assert abs(seen[name] - size * length / len(deck)) <= len(sizes)


def test_every_setting_is_asked_every_prompt_at_every_load_in_every_rung() -> None:
    grid = loads(1, 4, temperatures=(0.0, 0.7))
    rungs = plan.whole(settings(3, 5, 8), grid, plan.StagePrompts({ANY_LENGTH: DECK}, {}, fresh=True), 3)
    assert [rung.standard.rung for rung in rungs] == [0, 1, 2]
    for rung in rungs:
        for job in (rung.standard, *rung.jobs):
            assert [cell.load for cell in job.cells] == grid
            assert all(cell.prompts == DECK and cell.repeat == rung.standard.rung for cell in job.cells)
    forwards = [job.setting.k for job in rungs[0].jobs]
    assert forwards == [3, 5, 8]
    assert [job.setting.k for job in rungs[1].jobs] == forwards[::-1]


def test_the_standard_is_asked_wherever_another_is_and_nowhere_else() -> None:
    one, other, third = loads(1, 2, 4)
    prompts = dict.fromkeys((one, other, third), DECK)
    planned = plan.rung(0, settings(3, 5), {one: ["k=3"], other: ["k=3", "k=5"], third: []}, prompts)
    assert [cell.load for cell in planned.standard.cells] == [one, other]
    assert [(job.setting.name, job.turn, [cell.load for cell in job.cells]) for job in planned.jobs] == [
        ("k=3", 0, [one, other]),
        ("k=5", 0, [other]),
        ("k=3", 1, [one]),  # which has no rival there
    ]


@given(st.sets(st.sampled_from(list(product(range(8), range(2))))))
def test_what_is_missing_and_what_was_measured_make_the_whole(lost: set[tuple[int, int]]) -> None:
    measured = one_rung()
    starts = list(dict.fromkeys((cell.setting, cell.turn) for cell in measured))
    good = [
        cell
        for cell in measured
        if (starts.index((cell.setting, cell.turn)), int(load_of(cell).concurrency == 4)) not in lost
    ]
    left = plan.missing(PLANNED, good)
    whole = {("standard", 0, load) for load in loads(1, 4)}
    if not whole <= {(cell.setting, cell.turn, load_of(cell)) for cell in good}:
        assert left == PLANNED  # without its standard before them, jobs are compared with nothing
        return
    had = {(cell.setting, cell.turn, load_of(cell)) for cell in good}
    assert had | asked(left) == asked(PLANNED)
    for setting, turn, load in had & asked(left):  # the standard's turns are measured whole
        assert setting == "standard"
        assert turn == 1 or not had >= {("standard", 0, other) for other in loads(1, 4)}, load


def test_nothing_is_missing_of_what_is_whole() -> None:
    measured = one_rung()
    assert plan.missing(PLANNED, measured) is None


def test_a_rung_takes_its_starts_and_its_prompts_warm_ups_too() -> None:
    samples = [Sample(4, 0.5, "k=3", loads(4)[0], 10.0), Sample(4, 1.0, "standard", loads(4)[0], 20.0)]
    job = Job(0, settings()[0], (PlannedCell(loads(4)[0], 0, DECK),))
    rung = Rung(job, (Job(0, settings(3)[1], job.cells),))
    assert Timing(samples, warmup=3).rung(rung) == 2 * (20 + 15 * 1.0) + (10 + 15 * 0.5)
    assert Timing(samples, warmup=3, slack=2.0).rung(rung) == 2 * 87.5
    twice = Rung(job, (Job(0, settings(3)[1], job.cells), Job(0, settings(3)[1], (), turn=1)))
    assert Timing(samples, warmup=3).expected(twice) == {"standard": 35.0, "k=3": 17.5}


def test_what_was_not_measured_is_guessed_from_the_nearest() -> None:
    one, four, many = loads(1, 4, 32)
    timing = Timing([Sample(1, 1.0, "k=3", one, 5.0), Sample(4, 0.25), Sample(16, 0.125)], warmup=0)

    def seconds(name: int, load: Load) -> float | None:
        return timing.job(Job(0, settings(name)[-1], (PlannedCell(load, 0, DECK),)))

    assert seconds(3, one) == 5 + 12
    assert seconds(5, one) == 5 + 12  # as another setting at this load
    assert seconds(5, four) == 5 + 3  # as a baseline of as many streams
    assert seconds(5, many) == 5 + 1.5


def test_a_rung_that_was_stopped_is_finished() -> None:
    two, at = settings(3, 5), loads(1, 4)
    cells = swept({"k=3": 1.2, "k=5": 1.1}, two, at, prompts=12, rungs=2, confirming=0)
    assert plan.unfinished(two, cells) is None
    assert plan.unfinished(two, []) is None
    open_ = [cell for cell in cells if (cell.rung, cell.setting, cell.turn) != (1, "standard", 1)]
    closing = plan.unfinished(two, open_)
    assert closing is not None
    assert (closing.standard.rung, closing.jobs, closing.begun) == (1, (), frozenset({"here"}))
    assert [cell.load for cell in closing.standard.cells] == at
    alone = [cell for cell in open_ if cell.rung == 0 or cell.setting == "standard"]
    begun = plan.unfinished(two, alone)
    assert begun is not None
    assert [job.setting.name for job in begun.jobs] == ["k=5", "k=3"]
    assert set(begun.jobs[0].cells[0].prompts) == {row.prompt for row in alone[-1].cell.rows}


@given(st.integers(1, 80), st.integers(1, 6))
def test_no_prompt_of_the_confirmation_had_a_part_in_the_choice(prompts: int, others: int) -> None:
    deck = {"short": DECK * 20, "long": tuple(f"q{n}" for n in range(prompts))}
    found = plan.divided(deck, others)
    both = set(found.choice["long"]) & set(found.confirmation["long"])
    assert found.fresh == (others == 1 or prompts >= 16)
    assert bool(both) == (others == 1 or prompts < 16)
    if not both:
        assert set(found.choice["long"]) | set(found.confirmation["long"]) == set(deck["long"])
        assert min(len(found.choice["long"]), len(found.confirmation["long"])) >= 8


def test_nothing_is_warmed_up_with_what_is_measured() -> None:
    """A server that answers repeats from a cache would have had it."""
    decks = plan.divided({ANY_LENGTH: tuple(f"p{n}" for n in range(40))}, 2)
    at = loads(1, 4)
    counts = [dict.fromkeys(at, 5)] * 2
    rungs = plan.confirmation(3, settings(3, 5), at, decks, counts, {})
    for rung in [*plan.whole(settings(3, 5), at, decks, 1), *rungs]:
        for job in (rung.standard, *rung.jobs):
            for cell in job.cells:
                assert not set(cell.warm_up) & set(cell.prompts)
                assert not set(cell.warm_up) & set(decks.confirmation[ANY_LENGTH])
    for load in at:  # in both rungs together, and in one start at both loads: none twice
        ours = [cell.prompts for rung in rungs for cell in rung.standard.cells if cell.load == load]
        assert len({name for prompts in ours for name in prompts}) == 10
    for rung in rungs:
        assert len({name for cell in rung.standard.cells for name in cell.prompts}) == 10
    assert [rung.standard.stage for rung in rungs] == ["confirmation"] * 2
    assert [rung.standard.rung for rung in rungs] == [3, 4]
