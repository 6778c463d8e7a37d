"""Which settings pay, which of those is best, and what more would decide where nothing is sure. Pure.

The choice: among the settings whose interval lies above 1, that with the highest speed-up, at the lightest
load at which there are any. Intervals of all settings at all loads hold together (Bonferroni); where the time
was spent by what had been measured so far, at every rung as well. What was chosen so is measured again
(confirmation.py), and only what is confirmed is recommended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specops import stats
from specops.phases.ab import verdict
from specops.phases.ab.settings import AbSettings
from specops.phases.ab.speedups import Pairs
from specops.phases.ab.verdict import Basis, Decision, times
from specops.phases.sweep.jobs import Setting
from specops.phases.sweep.speedups import Swept, Where, shown
from specops.stats import Interval
from specops.trees import parse_tree

MARGIN = 0.01
"""Speed-ups nearer to each other than this are one: nobody would serve more tokens of draft for it. And what
may be none, and surely is no more than this, is not worth measuring further."""

STARTS_DIFFER = "the machine drifted, or starts differ, by more than it gains (more repeats would decide)"


@dataclass(frozen=True)
class Candidate:
    """A setting somewhere, and what was decided on it."""

    setting: Setting
    decision: Decision
    """yes: it pays. no: it is slower, gains too little, or TTFT vetoes it."""

    speedup: Interval | None
    """End to end."""

    vetoed: bool = False
    """Something is against it however fast it is (vetoes.py)."""


@dataclass(frozen=True)
class Contest:
    """All settings that were measured somewhere."""

    where: Where
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    """None where nothing pays."""

    def of(self, setting: str) -> Candidate | None:
        return next((c for c in self.candidates if c.setting.name == setting), None)


def of_each(confidence: float, settings: int, groups: int, looks: int) -> float:
    """Of one interval, such that those of all settings in all groups hold together at every look."""
    return 1 - (1 - confidence) / max(1, settings * groups * looks)


Limit = Callable[[Setting, Where, Decision], Decision]
"""The decision on a setting at a load, or a lesser one where something is against it (vetoes.py)."""


def contest(
    swept: Swept,
    where: Where,
    settings: Sequence[Setting],
    confidence: float,
    margins: AbSettings,
    limit: Limit,
) -> Contest:
    """Between `settings`, at `where`, by the evidence of the choice; `confidence` is of each interval."""
    where = replace(where, stage="choice")
    found = []
    for setting in settings:
        pairs = swept.pairs(setting.name, where)
        if pairs.all:
            found.append(candidate(setting, where, pairs, confidence, margins, limit))
    return Contest(where, tuple(found), best(found, lambda one, other: apart(swept, where, one, other)))


def candidate(
    setting: Setting, where: Where, pairs: Pairs, confidence: float, margins: AbSettings, limit: Limit
) -> Candidate:
    """What is decided on a setting's pairs, unless something is against it."""
    decision = decide(pairs, confidence, margins)
    limited = limit(setting, where, decision)
    speedup = decision.speedup or pairs.ratio("e2e", confidence)
    return Candidate(setting, limited, speedup, vetoed=limited.verdict != decision.verdict)


def unconfirmed(candidate: Candidate) -> Candidate:
    """What only the choice measured: it may be ruled out by that, and never pays."""
    decision = candidate.decision
    if decision.verdict != "yes":
        return candidate
    reason = f"{decision.reason} when the setting was chosen, and not confirmed"
    return replace(candidate, decision=Decision(verdict="undecided", reason=reason, speedup=decision.speedup))


def apart(swept: Swept, where: Where, one: str, other: str) -> bool:
    """Whether two settings are told apart by the prompts that both answered, with 95% confidence."""
    ratio = swept.pairs(one, where, over=other).ratio("e2e", 0.95)
    return ratio is not None and not ratio.low <= 1 <= ratio.high


def decide(pairs: Pairs, confidence: float, margins: AbSettings) -> Decision:
    """On the pairs of one setting at one load."""
    decision = verdict.of_class(pairs, confidence, margins)
    speedup = decision.speedup
    if speedup is None:
        return decision
    if decision.verdict == "undecided" and speedup.high < 1 + MARGIN:
        reason = f"{shown(speedup)}: gains less than {MARGIN:.0%} at best"
        return Decision(verdict="no", reason=reason, speedup=speedup)
    by_speed = decision.verdict == "undecided" and decision.reason.startswith(times(speedup))
    if by_speed and _starts_hide(pairs, decision.basis, confidence):
        reason = f"{shown(speedup)} includes 1: {STARTS_DIFFER}"
        return decision.model_copy(update={"reason": reason, "more_prompts": None})
    return decision.model_copy(update={"reason": f"{decision.reason}, n={speedup.n}"})


def _starts_hide(pairs: Pairs, basis: Basis, confidence: float) -> bool:
    """Whether the prompts alone would decide, and the few starts of the servers leave it open."""
    alone = replace(pairs, starts={}).ratio(basis, confidence)
    return alone is not None and not alone.low <= 1 <= alone.high


def best(candidates: Sequence[Candidate], apart: Callable[[str, str], bool]) -> Candidate | None:
    """The fastest of those that pay; of those as fast, the one that drafts fewest tokens.

    As fast: within `MARGIN` of the fastest, and `apart` does not tell the two settings apart. None where
    nothing pays.
    """
    paying = {c.setting.name: c for c in candidates if c.decision.verdict == "yes" and c.speedup is not None}
    if not paying:
        return None
    fastest = max(paying.values(), key=estimate)
    as_fast = [
        candidate
        for name, candidate in paying.items()
        if estimate(candidate) * (1 + MARGIN) >= estimate(fastest)
        and (candidate is fastest or not apart(name, fastest.setting.name))
    ]
    return min(as_fast, key=lambda candidate: (_drafted(candidate.setting), -estimate(candidate)))


def _drafted(setting: Setting) -> int:
    """Tokens a step; of a tree that branches, its nodes."""
    return parse_tree(setting.tree).nodes if setting.tree else setting.k


def nothing_pays(contests: Sequence[Contest]) -> Decision:
    """No, or undecided: where nothing pays in any of them. At least one was entered by a setting."""
    everything = [(contest.where, c) for contest in contests for c in contest.candidates]
    # Loads are decided from the lightest: one that pays beyond a load that does not is left open.
    open_ = [(where, c) for where, c in everything if c.decision.verdict != "no"]
    where, closest = max(open_ or everything, key=lambda item: estimate(item[1]))
    name, found = f"{closest.setting.name} at {where.level}", closest.decision.reason
    if not open_:
        reason = f"do not deploy: nothing pays; the best is {name}, {found}"
        return Decision(verdict="no", reason=reason, speedup=closest.speedup)
    if closest.decision.verdict == "yes":
        reason = f"{name} pays, {found}, and was not shown to pay at the lighter load that decides"
        more = None
    else:
        more = _prompts_to_decide([candidate for _, candidate in open_], closest)
        reason = f"the most promising is {name}, {found}"
    return Decision(
        verdict="undecided",
        reason=f"not enough evidence: {reason}",
        speedup=closest.speedup,
        more_prompts=more,
    )


def _prompts_to_decide(open_: Sequence[Candidate], hope: Candidate) -> int | None:
    """Of yes, as many as the most hopeful takes; where all look slower, of no, as many as the last takes."""
    if hope.speedup is None or hope.speedup.estimate > 1:
        return hope.decision.more_prompts
    needed = [stats.pairs_needed(c.speedup) if c.speedup else c.decision.more_prompts for c in open_]
    known = [more for more in needed if more is not None]
    return max(known) if len(known) == len(needed) else None


def estimate(candidate: Candidate) -> float:
    """Of its speed-up; 0 where none is known."""
    return candidate.speedup.estimate if candidate.speedup is not None else 0.0
