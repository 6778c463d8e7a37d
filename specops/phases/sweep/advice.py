"""What follows from the choice of a setting: what else would do, from where on it stops paying, and which K
at which load. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from specops.phases.sweep import costs, recommend
from specops.phases.sweep.choice import Choice
from specops.phases.sweep.crossover import Crossover, crossover
from specops.phases.sweep.recommend import Contest
from specops.phases.sweep.report import Rival
from specops.phases.sweep.schedule import Schedule, schedule
from specops.phases.sweep.speedups import Swept


def rivals(swept: Swept, contests: Sequence[Contest], choice: Choice) -> list[Rival]:
    """The others that pay as well, where all prompts together recommend a setting."""
    ours = choice.setting
    if ours is None or choice.only:
        return []
    contest = next(found for found in contests if found.where.concurrency == choice.at)
    return [
        Rival(
            setting=other.setting.name,
            ratio=swept.pairs(ours.name, contest.where, over=other.setting.name).ratio("e2e", 0.95),
            apart=recommend.apart(swept, contest.where, ours.name, other.setting.name),
        )
        for other in contest.candidates
        if other.decision.verdict == "yes" and other.setting is not ours
    ]


def crossed(contests: Sequence[Contest], choice: Choice) -> Crossover | None:
    """Of the recommended setting, from the load on at which it was decided."""
    ours, at = choice.setting, choice.at
    if ours is None or at is None:
        return None
    found = [(contest.where.concurrency, contest.of(ours.name)) for contest in contests]
    return crossover(
        ours.name, [(count, one.decision) for count, one in found if one is not None and count >= at]
    )


def planned(swept: Swept, contests: Sequence[Contest], choice: Choice) -> tuple[Schedule | None, str | None]:
    """Of the settings that a server with the recommended one's draft can change between; or why there is
    none."""
    ours = choice.setting
    if ours is None:
        return None, "nothing is recommended"
    if choice.only:
        return None, "it pays for some traffic classes only, and a batch has them all"
    family = costs.family(ours)
    if family is None:
        return None, f"{ours.name} is a tree that branches, and a schedule is of chains"
    best = {}
    for contest in contests:
        of_family = [one for one in contest.candidates if costs.family(one.setting) == family]
        if of_family:
            chosen = recommend.best(of_family, partial(recommend.apart, swept, contest.where))
            best[contest.where.concurrency] = chosen.setting.k if chosen else 0
    return schedule(best), None
