"""Which setting that pays is the best, and what is picked to be measured again: from given figures."""

from __future__ import annotations

import pytest
from made_sweeps import setting

from specops.experiment.findings import Decision
from specops.phases.sweep.recommend import Candidate, Contest, best, pick
from specops.phases.sweep.speedups import Stratum
from specops.results import Verdict
from specops.stats import Interval


def candidate(
    name: str, estimate: float | None, verdict: Verdict = "yes", k: int = 3, *, vetoed: bool = False
) -> Candidate:
    shown = None if estimate is None else Interval(estimate, estimate - 0.1, estimate + 0.1, 32)
    return Candidate(
        setting(k, name=name, tree=None),
        Decision(verdict=verdict, reason="r", speedup=shown),
        shown,
        vetoed,
    )


def contest(streams: int, *candidates: Candidate) -> Contest:
    return Contest(Stratum(streams), candidates, best(candidates, lambda one, other: False))


def chosen(*candidates: Candidate, differs: bool = False) -> str | None:
    found = best(candidates, lambda one, other: differs)
    return found.setting.name if found else None


def test_of_those_as_fast_that_draft_as_much_the_faster_is_the_best() -> None:
    """Of two drafts with one K."""
    assert chosen(candidate("a", 1.595), candidate("b", 1.6)) == "b"
    assert chosen(candidate("a", 1.6), candidate("b", 1.595)) == "a"


@pytest.mark.parametrize(
    ("estimate", "differs", "name"),
    [(1.599, False, "small"), (1.599, True, "large"), (1.58, False, "large"), (1.585, False, "small")],
)
def test_a_tie_is_within_a_hundredth_and_not_told_apart(estimate: float, differs: bool, name: str) -> None:
    both = candidate("small", estimate, k=3), candidate("large", 1.6, k=5)
    assert chosen(*both, differs=differs) == name
    assert chosen(*both[::-1], differs=differs) == name


def test_what_does_not_pay_is_not_the_best() -> None:
    assert chosen(candidate("a", 1.2), candidate("b", 1.9, "undecided"), candidate("c", 1.8, "no")) == "a"
    assert chosen(candidate("b", 1.9, "undecided"), candidate("c", 1.8, "no")) is None
    assert chosen() is None


def test_the_best_and_its_runner_up_are_picked() -> None:
    at = contest(1, candidate("a", 1.3), candidate("b", 1.6), candidate("c", 1.5, "undecided"))
    found = pick([at], {}, fresh=True)
    assert found is not None
    assert (found.settings, found.streams, found.only, found.fresh) == (("b", "c"), (1,), (), True)


def test_what_surely_loses_or_is_vetoed_is_no_runner_up() -> None:
    lost = candidate("a", 1.5, "no"), candidate("b", 1.4, "undecided", vetoed=True)
    slower = candidate("c", 0.99, "undecided")
    found = pick([contest(1, candidate("d", 1.2), *lost, slower)], {}, fresh=False)
    assert found is not None
    assert (found.settings, found.fresh) == (("d",), False)


@pytest.mark.parametrize(
    ("said", "streams"),
    [
        (("yes", "yes", "yes"), (1, 2, 4)),
        (("yes", "no", "yes"), (1,)),  # beyond a load at which it surely loses it is not deployed
        (("yes", "undecided", "no"), (1, 2)),
        (("no", "yes", "undecided"), (2, 4)),
        (("undecided", "yes", "no"), (2,)),
    ],
)
def test_it_is_confirmed_up_to_the_load_at_which_it_surely_loses(
    said: tuple[Verdict, ...], streams: tuple[int, ...]
) -> None:
    contests = [contest(2**n, candidate("a", 1.2, verdict)) for n, verdict in enumerate(said)]
    found = pick(contests, {}, fresh=True)
    assert found is not None
    assert found.streams == streams


def test_where_nothing_is_sure_the_most_promising_is_picked() -> None:
    open_ = contest(1, candidate("a", 1.02, "undecided"), candidate("b", 1.1, "undecided"))
    found = pick([open_], {}, fresh=True)
    assert found is not None
    assert found.settings == ("b", "a")
    too_few = pick([contest(1, candidate("a", None, "undecided"))], {}, fresh=True)
    assert too_few is not None
    assert too_few.settings == ("a",)


@pytest.mark.parametrize("one", [candidate("a", 1.0, "undecided"), candidate("a", 1.3, "no")])
def test_what_does_not_look_faster_is_not_measured_again(one: Candidate) -> None:
    assert pick([contest(1, one)], {}, fresh=True) is None
    assert pick([], {}, fresh=True) is None
    assert pick([Contest(Stratum(1), (), None)], {}, fresh=True) is None


def test_classes_are_picked_where_all_together_show_nothing() -> None:
    together = contest(1, candidate("a", 0.9, "no"), candidate("b", 0.95, "undecided"))
    classes = {
        "long": contest(1, candidate("a", 1.6), candidate("b", 1.2)),
        "edit": contest(1, candidate("a", 1.2), candidate("b", 1.3)),
        "short": contest(1, candidate("a", 0.7, "no"), candidate("b", 1.1)),
    }
    found = pick([together], classes, fresh=True)
    assert found is not None
    assert (found.settings, found.only) == (("a",), ("long", "edit"))
    sure = pick([contest(1, candidate("b", 1.2))], classes, fresh=True)
    assert sure is not None
    assert sure.only == ()
