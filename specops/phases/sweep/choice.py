"""What is picked for the confirmation; then which setting is recommended, for what, and why. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specops.phases.ab.verdict import Decision
from specops.phases.sweep.jobs import Setting
from specops.phases.sweep.recommend import MARGIN, Candidate, Contest, estimate, nothing_pays
from specops.phases.sweep.records import Picked
from specops.phases.sweep.speedups import shown

NOT_FRESH = "there are too few prompts for two parts, so it was confirmed with those that it was chosen by"


@dataclass(frozen=True)
class Choice:
    decision: Decision
    setting: Setting | None
    """None where nothing is recommended."""

    at: int | None
    """Streams: the load that it was decided at. None where nothing was measured."""

    only: tuple[str, ...] = ()
    """Traffic classes, where it pays for some and all together do not show it."""


def pick(contests: Sequence[Contest], classes: Mapping[str, Contest], *, fresh: bool) -> Picked | None:
    """What to confirm, by the contests of the choice: at each concurrency, the lightest first, and those of
    the classes at `deciding`. None where nothing may pay.

    All prompts together pick; where none of their settings surely looks faster, a class may.
    """
    entered = [contest for contest in contests if contest.candidates]
    if not entered:
        return None
    at = deciding(entered)
    if at.best is not None:
        return _picked(contests, at, at.best, fresh)
    for_some = [(name, contest) for name, contest in classes.items() if contest.best is not None]
    if for_some:
        return _picked_for_some(for_some, at.where.concurrency, fresh)
    for contest in entered:
        hopeful = [one for one in contest.candidates if _may_pay(one)]
        if hopeful:
            return _picked(contests, contest, max(hopeful, key=estimate), fresh)
    return None


def deciding(contests: Sequence[Contest]) -> Contest:
    """The lightest load at which something pays, else the lightest that was measured at all."""
    entered = [contest for contest in contests if contest.candidates]
    return next((contest for contest in entered if contest.best is not None), [*entered, *contests][0])


def _may_pay(candidate: Candidate) -> bool:
    if candidate.vetoed or candidate.decision.verdict == "no":
        return False
    return candidate.speedup is None or candidate.speedup.estimate > 1


def _picked(contests: Sequence[Contest], at: Contest, chosen: Candidate, fresh: bool) -> Picked:
    """The chosen setting and the fastest of the others, up to the first load at which the chosen surely does
    not pay."""
    others = [one for one in at.candidates if one.setting is not chosen.setting and _may_pay(one)]
    runner_up = max(others, key=estimate, default=None)
    streams = [at.where.concurrency]
    for contest in contests:
        if contest.where.concurrency > at.where.concurrency:
            found = contest.of(chosen.setting.name)
            if found is not None and found.decision.verdict == "no":
                break
            streams.append(contest.where.concurrency)
    names = [chosen, runner_up] if runner_up else [chosen]
    return Picked(settings=tuple(one.setting.name for one in names), streams=tuple(streams), fresh=fresh)


def _picked_for_some(found: Sequence[tuple[str, Contest]], streams: int, fresh: bool) -> Picked:
    """The setting that is best for the class that gains most, for all classes for which it looks faster."""
    _, gains_most = max(found, key=lambda item: estimate(item[1].best) if item[1].best else 0.0)
    assert gains_most.best is not None
    name = gains_most.best.setting.name
    paying = [of for of, contest in found if (one := contest.of(name)) and one.decision.verdict == "yes"]
    return Picked(settings=(name,), streams=(streams,), only=tuple(paying), fresh=fresh)


def choose(
    contests: Sequence[Contest],
    classes: Mapping[str, Contest],
    picked: Picked | None,
    failed: Mapping[str, str],
    standard: str,
    apart: Callable[[str, str], bool],
) -> Choice:
    """From what was picked, by the contests at each concurrency, the lightest first, and those of the classes
    at the load that decides. In all of them the evidence on what was confirmed is that of the confirmation
    alone, and nothing else pays.

    `failed` says why, by setting; `apart` tells two settings apart by the confirmation.
    """
    entered = [contest for contest in contests if contest.candidates]
    failures = [f"{name} failed: {why}" for name, why in failed.items() if name != standard]
    if not entered:
        return Choice(_nothing_measured(failed, standard, failures), None, None)
    if picked is None:
        return _nothing(entered, failures)
    at = next((c for c in entered if c.where.concurrency == picked.streams[0]), entered[0])
    if picked.only:
        return _for_some(picked, classes, at, entered, failures)
    paying = [one for name in picked.settings if (one := at.of(name)) and one.decision.verdict == "yes"]
    if not paying:
        return _nothing(entered, failures, at.where.concurrency)
    chosen = _winner(paying, apart)
    assert chosen.speedup is not None
    lighter = [c for c in entered if c.where.concurrency < at.where.concurrency]
    reasons = [
        f"deploy {title(chosen.setting)} for {_traffic(classes, chosen.setting)} at {at.where.level} "
        f"({shown(chosen.speedup)})",
        *([chosen.decision.reason] if chosen.decision.basis != "e2e" else []),
        *_per_class(classes, chosen.setting),
        *[f"nothing is shown to pay at {contest.where.level}" for contest in lighter],
        *([] if picked.fresh else [NOT_FRESH]),
        *failures,
    ]
    decision = Decision(verdict="yes", reason="; ".join(reasons), speedup=chosen.speedup)
    return Choice(decision, chosen.setting, at.where.concurrency)


def _winner(paying: Sequence[Candidate], apart: Callable[[str, str], bool]) -> Candidate:
    """The chosen setting, which comes first, unless its runner-up is surely faster, and by more than MARGIN:
    to take the larger of two figures would make the one that is reported too high."""
    first, *others = paying
    for other in others:
        faster = estimate(other) > estimate(first) * (1 + MARGIN)
        if faster and apart(first.setting.name, other.setting.name):
            return other
    return first


def _nothing(entered: Sequence[Contest], failures: Sequence[str], at: int | None = None) -> Choice:
    decision = nothing_pays(entered)
    return Choice(
        decision.model_copy(update={"reason": "; ".join([decision.reason, *failures])}),
        None,
        deciding(entered).where.concurrency if at is None else at,
    )


def _for_some(
    picked: Picked,
    classes: Mapping[str, Contest],
    at: Contest,
    entered: Sequence[Contest],
    failures: Sequence[str],
) -> Choice:
    """The setting that was picked for some classes, for those that the confirmation shows."""
    found = {
        name: one
        for name in picked.only
        if name in classes and (one := classes[name].of(picked.settings[0])) is not None
    }
    paying = {name: one for name, one in found.items() if one.decision.verdict == "yes"}
    if not paying:
        told = [f"{name}: {one.decision.reason}" for name, one in found.items()]
        reason = "; ".join(
            [
                f"not enough evidence: {title_of(picked.settings[0])} is not confirmed for {', '.join(told)}",
                *failures,
            ]
        )
        more = [one.decision.more_prompts for one in found.values() if one.decision.more_prompts]
        decision = Decision(verdict="undecided", reason=reason, more_prompts=max(more, default=None))
        return Choice(decision, None, at.where.concurrency)
    best = max(paying.values(), key=estimate)
    each = ", ".join(f"{name} ({shown(one.speedup)})" for name, one in paying.items() if one.speedup)
    left = [f"{name}: {one.decision.reason}" for name, one in found.items() if name not in paying]
    reasons = [
        f"deploy {title(best.setting)} for {each} at {at.where.level}, and for no other class",
        *([f"not confirmed for {', '.join(left)}"] if left else []),
        *([] if picked.fresh else [NOT_FRESH]),
        *failures,
    ]
    decision = Decision(verdict="yes", reason="; ".join(reasons), speedup=best.speedup)
    return Choice(decision, best.setting, at.where.concurrency, tuple(paying))


def _traffic(classes: Mapping[str, Contest], setting: Setting) -> str:
    found = {name: one for name, contest in classes.items() if (one := contest.of(setting.name))}
    losing = [name for name, one in found.items() if _is(one, "no")]
    return f"all traffic but {', '.join(losing)}" if losing else "all traffic"


def _per_class(classes: Mapping[str, Contest], setting: Setting) -> list[str]:
    """One part of a sentence on the classes; empty where there is but one."""
    found = {name: one for name, contest in classes.items() if (one := contest.of(setting.name))}
    if not found:
        return []
    said = [f"{name} {shown(one.speedup)}" for name, one in found.items() if _is(one, "yes") and one.speedup]
    said += [f"not for {name}: {one.decision.reason}" for name, one in found.items() if _is(one, "no")]
    undecided = {name: one for name, one in found.items() if _is(one, "undecided")}
    if undecided:
        needed = [one.decision.more_prompts for one in undecided.values()]
        most = max((more for more in needed if more is not None), default=None)
        names = "" if len(undecided) == len(found) else f" for {', '.join(undecided)}"
        said.append(f"undecided{names}" + (f", needs about {most} more prompts" if most else ""))
    return [f"per class: {', '.join(said)}"]


def _is(candidate: Candidate, verdict: str) -> bool:
    return candidate.decision.verdict == verdict


def _nothing_measured(failed: Mapping[str, str], standard: str, failures: Sequence[str]) -> Decision:
    if standard in failed:
        return Decision(verdict="undecided", reason=f"the standard failed: {failed[standard]}")
    if failures:
        reason = "; ".join(["do not deploy: no setting could be measured", *failures])
        return Decision(verdict="no", reason=reason)
    none = "no prompt was answered by a setting and by the standard of its rung"
    return Decision(verdict="undecided", reason=none)


def title(setting: Setting) -> str:
    return title_of(setting.name)


def title_of(name: str) -> str:
    """A setting's name in a sentence: K=5 for k=5."""
    return re.sub(r"\bk=", "K=", name)


def method_of(setting: Setting) -> str | None:
    """As its engine calls it; None of a server whose method specops does not know."""
    return setting.pool.method
