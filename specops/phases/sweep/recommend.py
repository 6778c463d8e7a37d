"""Which setting pays, which of those is best, and what would have to be measured where nothing is sure. Pure.

Recommended is the setting with the highest measured speed-up among those whose interval lies above 1, at the
lightest load at which there are any. Intervals of all settings at all loads hold together (Bonferroni), so
that the best of many is no luckier than the one of one; where the time was spent by what had been seen so
far, at every rung as well. Nothing that was not measured is recommended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specops import stats
from specops.phases.ab import verdict
from specops.phases.ab.settings import AbSettings
from specops.phases.ab.speedups import Pairs
from specops.phases.ab.verdict import Decision, times
from specops.phases.sweep.jobs import Setting
from specops.phases.sweep.speedups import Swept, Where, shown
from specops.stats import Interval
from specops.trees import parse_tree

MARGIN = 0.01
"""Speed-ups nearer to each other than this are one: nobody would serve more tokens of draft for it. And what
may be none, and surely is no more than this, is not worth measuring further."""

TOO_WIDE = 2.0
"""An interval whose ends are so many times apart is made by the few starts of its servers, not by prompts."""

_TTFT_VETO = AbSettings()


@dataclass(frozen=True)
class Candidate:
    """A setting somewhere, and what was decided on it."""

    setting: Setting
    decision: Decision
    """yes: it pays. no: it is slower, gains too little, or TTFT vetoes it."""

    speedup: Interval | None
    """End to end."""


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


def contest(swept: Swept, where: Where, settings: Sequence[Setting], confidence: float) -> Contest:
    """Between `settings`, at `where`; `confidence` is of each interval."""
    found = []
    for setting in settings:
        pairs = swept.pairs(setting.name, where)
        if pairs.all:
            decision = decide(pairs, confidence)
            speedup = decision.speedup or pairs.ratio("e2e", confidence)
            found.append(Candidate(setting, decision, speedup))
    return Contest(where, tuple(found), best(found, lambda one, other: apart(swept, where, one, other)))


def apart(swept: Swept, where: Where, one: str, other: str) -> bool:
    """Whether two settings are told apart by the prompts that both answered, with 95% confidence."""
    ratio = swept.pairs(one, where, over=other).ratio("e2e", 0.95)
    return ratio is not None and not ratio.low <= 1 <= ratio.high


def decide(pairs: Pairs, confidence: float) -> Decision:
    """On the pairs of one setting at one load."""
    decision = verdict.of_class(pairs, confidence, _TTFT_VETO)
    speedup = decision.speedup
    if decision.verdict == "undecided" and speedup is not None and speedup.high < 1 + MARGIN:
        reason = f"{times(speedup)}: gains less than {MARGIN:.0%} at best"
        return Decision(verdict="no", reason=reason, speedup=speedup)
    return decision


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
    open_ = [(where, c) for where, c in everything if c.decision.verdict == "undecided"]
    where, closest = max(open_ or everything, key=lambda item: estimate(item[1]))
    told = shown(closest.speedup) if closest.speedup else closest.decision.reason
    if not open_:
        reason = f"do not deploy: nothing pays; the best is {closest.setting.name} at {where.level}, {told}"
        return Decision(verdict="no", reason=reason, speedup=closest.speedup)
    more = _prompts_to_tell([candidate for _, candidate in open_], closest)
    return Decision(
        verdict="undecided",
        reason=f"not enough evidence: the most hopeful is {closest.setting.name} at {where.level}, {told} "
        f"({_tells(more, closest.speedup)})",
        speedup=closest.speedup,
        more_prompts=more,
    )


def _tells(more: int | None, speedup: Interval | None) -> str:
    if more:
        return f"about {more} more prompts would tell"
    if speedup is not None and speedup.high / speedup.low > TOO_WIDE:
        return "the machine drifted, or starts differ, by more than it gains: more repeats would tell"
    return "a hundred times as many prompts would not tell"


def _prompts_to_tell(open_: Sequence[Candidate], hope: Candidate) -> int | None:
    """Of yes, as many as the most hopeful takes; where all look slower, of no, as many as the last takes."""
    if hope.speedup is None or hope.speedup.estimate > 1:
        return hope.decision.more_prompts
    needed = [stats.pairs_needed(c.speedup) if c.speedup else c.decision.more_prompts for c in open_]
    known = [more for more in needed if more is not None]
    return max(known) if len(known) == len(needed) else None


def estimate(candidate: Candidate) -> float:
    """Of its speed-up; 0 where none is known."""
    return candidate.speedup.estimate if candidate.speedup is not None else 0.0
