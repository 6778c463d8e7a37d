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
from specops.phases.sweep.speedups import Swept, Where


def rivals(swept: Swept, choices: Sequence[Contest], choice: Choice) -> list[Rival]:
    """The others that looked as if they paid, where all prompts together recommend a setting. Its runner-up
    is compared with it by the confirmation, the rest by the choice."""
    ours = choice.setting
    if ours is None or choice.only:
        return []
    where = Where(choice.at or 1)
    contest = next(found for found in choices if found.where.concurrency == where.concurrency)
    names = {one.setting.name for one in contest.candidates if one.decision.verdict == "yes"}
    found = []
    for other in swept.challengers:
        pairs = swept.evidence(ours.name, where, over=other.name)
        if other.name != ours.name and (other.name in names or swept.confirmed(other.name, where)):
            ratio = pairs.ratio("e2e", 0.95)
            apart = ratio is not None and not ratio.low <= 1 <= ratio.high
            found.append(Rival(setting=other.name, ratio=ratio, apart=apart))
    return found


def crossed(contests: Sequence[Contest], choice: Choice) -> Crossover | None:
    """Of the recommended setting, from the load on at which it was decided."""
    ours, at = choice.setting, choice.at
    if ours is None or at is None:
        return None
    found = [(contest.where.concurrency, contest.of(ours.name)) for contest in contests]
    return crossover(
        ours.name, [(count, one.decision) for count, one in found if one is not None and count >= at]
    )


def planned(
    swept: Swept, choices: Sequence[Contest], finals: Sequence[Contest], choice: Choice
) -> tuple[Schedule | None, str | None]:
    """Of the settings that a server with the recommended one's draft can change between; or why there is
    none. At each load the confirmation decides on what it measured, and the choice on the rest."""
    ours = choice.setting
    if ours is None:
        return None, "nothing is recommended"
    if choice.only:
        return None, "it pays for some traffic classes only, and a batch has them all"
    family = costs.family(ours)
    if family is None:
        return None, f"{ours.name} is a tree that branches, and a schedule is of chains"
    best, unconfirmed = {}, []
    for chosen, final in zip(choices, finals, strict=True):
        streams = final.where.concurrency
        here = [one for one in final.candidates if swept.confirmed(one.setting.name, final.where)]
        confirmed = final.best if final.best and costs.family(final.best.setting) == family else None
        if streams == choice.at:
            best[streams] = ours.k
        elif confirmed is not None:
            best[streams] = confirmed.setting.k
        else:
            known = {one.setting.name for one in here}
            rest = [
                one
                for one in chosen.candidates
                if costs.family(one.setting) == family and one.setting.name not in known
            ]
            found = recommend.best(rest, partial(recommend.apart, swept, chosen.where))
            if here or rest:
                best[streams] = found.setting.k if found else 0
            if found:
                unconfirmed.append(streams)
    return schedule(best, unconfirmed), None
