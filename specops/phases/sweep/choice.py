"""Which setting is recommended, for what, and why, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specops.config import EmbeddedPool, SglangPool, VllmPool
from specops.phases.ab.verdict import Decision, times
from specops.phases.sweep.jobs import Setting
from specops.phases.sweep.recommend import Candidate, Contest, nothing_pays
from specops.trees import parse_tree


@dataclass(frozen=True)
class Choice:
    decision: Decision
    setting: Setting | None
    """None where nothing is recommended."""

    at: int | None
    """Streams: the load that it was decided at. None where nothing was measured."""

    only: tuple[str, ...] = ()
    """Traffic classes, where it pays for some and all together do not show it."""


def choose(
    contests: Sequence[Contest], classes: Mapping[str, Contest], failed: Mapping[str, str], standard: str
) -> Choice:
    """From the contests at each concurrency, the lightest first, and those of the classes at `deciding`.

    `failed` says why, by setting. All prompts together decide; where they show nothing, a class may.
    """
    entered = [contest for contest in contests if contest.candidates]
    told = [f"{name} failed: {why}" for name, why in failed.items() if name != standard]
    if not entered:
        return Choice(_nothing_measured(failed, standard, told), None, None)
    at = deciding(entered)
    if at.best is not None:
        lighter = [c for c in entered if c.where.concurrency < at.where.concurrency]
        reasons = [
            f"deploy {_named(at.best, at)}",
            *[f"nothing is shown to pay at {contest.where.level}" for contest in lighter],
            *_not_for(classes, at.best.setting),
            *told,
        ]
        decision = Decision(verdict="yes", reason="; ".join(reasons), speedup=at.best.speedup)
        return Choice(decision, at.best.setting, at.where.concurrency)
    nothing = nothing_pays(entered)
    for_some = [(name, contest) for name, contest in classes.items() if contest.best is not None]
    if for_some:
        return _for_some(for_some, nothing, told)
    return Choice(
        nothing.model_copy(update={"reason": "; ".join([nothing.reason, *told])}),
        None,
        at.where.concurrency,
    )


def deciding(contests: Sequence[Contest]) -> Contest:
    """The lightest load at which something pays, else the lightest that was measured at all."""
    entered = [contest for contest in contests if contest.candidates]
    return next((contest for contest in entered if contest.best is not None), [*entered, *contests][0])


def _for_some(found: Sequence[tuple[str, Contest]], nothing: Decision, told: Sequence[str]) -> Choice:
    """The setting that is best for the class that gains most, for all classes that it pays for."""
    _, gains_most = max(found, key=lambda item: _speedup(item[1].best))
    assert gains_most.best is not None
    setting = gains_most.best.setting
    paying = {
        name: candidate
        for name, contest in found
        if (candidate := contest.of(setting.name)) and candidate.decision.verdict == "yes"
    }
    shown = ", ".join(f"{name}: {candidate.decision.reason}" for name, candidate in paying.items())
    reason = f"deploy {setting.name} for {shown}, at {gains_most.where.level}"
    return Choice(
        Decision(
            verdict="yes",
            reason="; ".join([reason, f"all classes together: {nothing.reason}", *told]),
            speedup=gains_most.best.speedup,
        ),
        setting,
        gains_most.where.concurrency,
        tuple(paying),
    )


def _not_for(classes: Mapping[str, Contest], setting: Setting) -> list[str]:
    found = [(name, contest.of(setting.name)) for name, contest in classes.items()]
    entered = [
        (name, one.decision) for name, one in found if one is not None and one.decision.verdict != "yes"
    ]
    few = [name for name, decision in entered if decision.verdict == "undecided" and decision.speedup is None]
    told = [
        f"{'not' if decision.verdict == 'no' else 'undecided'} for {name}: {decision.reason}"
        for name, decision in entered
        if name not in few
    ]
    return [*told, f"too few prompts to decide for {', '.join(few)}"] if few else told


def _nothing_measured(failed: Mapping[str, str], standard: str, told: Sequence[str]) -> Decision:
    if standard in failed:
        return Decision(verdict="undecided", reason=f"the standard failed: {failed[standard]}")
    if told:
        return Decision(
            verdict="no", reason="; ".join(["do not deploy: no setting could be measured", *told])
        )
    none = "no prompt was answered by a setting and by the standard of its rung"
    return Decision(verdict="undecided", reason=none)


def _named(candidate: Candidate, contest: Contest) -> str:
    shown = times(candidate.speedup) if candidate.speedup else candidate.decision.reason
    return f"{candidate.setting.name}: {shown} at {contest.where.level}"


def _speedup(candidate: Candidate | None) -> float:
    return candidate.speedup.estimate if candidate and candidate.speedup else 0.0


def method_of(setting: Setting) -> str | None:
    """As its engine calls it; None of a server whose method specops does not know."""
    match setting.pool:
        case VllmPool(speculation=speculation) if speculation:
            return speculation.method
        case SglangPool(speculation=speculation) if speculation:
            return speculation.algorithm
        case EmbeddedPool(speculation=speculation) if speculation:
            return "draft_model" if parse_tree(speculation.tree).takes_draft else "ngram"
    return None
