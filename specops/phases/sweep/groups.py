"""What the recommended setting does for one group of prompts: a class, a length, a temperature. Pure."""

from __future__ import annotations

from specops.phases.ab.verdict import Decision
from specops.phases.sweep.recommend import MARGIN, Candidate, Contest, estimate, nothing_pays
from specops.phases.sweep.report import OfGroup


def of_group(contest: Contest, recommended: str | None) -> OfGroup:
    """By the contest among that group's prompts alone."""
    nothing = _nothing(contest)
    ours = contest.of(recommended) if recommended else contest.best
    best = ours if ours and _as_good(ours, contest.best) else contest.best
    decision = ours.decision if ours else nothing
    return OfGroup(
        verdict=decision.verdict,
        reason=decision.reason,
        setting=ours.setting.name if ours else None,
        speedup=ours.speedup if ours else decision.speedup,
        best=best.setting.name if best else None,
        k=best.setting.k if best else 0 if nothing.verdict == "no" else None,
    )


def _as_good(ours: Candidate, best: Candidate | None) -> bool:
    """Whether nobody would change the setting for this group's sake."""
    if best is None or ours.decision.verdict != "yes":
        return False
    return estimate(ours) * (1 + MARGIN) >= estimate(best)


def _nothing(contest: Contest) -> Decision:
    if contest.candidates:
        return nothing_pays([contest])
    return Decision(verdict="undecided", reason="not measured")
