"""The choice of settings: which pay, which is picked for the confirmation, and which is recommended, for what
and why. Pure.

The choice: among the settings whose interval lies above 1, that with the highest speed-up, at the lightest
load at which there are any. Intervals of all settings at all loads hold together (Bonferroni); where the time
was spent by what had been measured so far, at every rung as well. What was chosen so is measured again
(stages.py), and only what is confirmed is recommended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specops import stats
from specops.config import Ab
from specops.experiment.findings import Decision, Finding
from specops.phases.sweep import claims
from specops.phases.sweep.claims import Division
from specops.phases.sweep.plan import Finalists
from specops.phases.sweep.speedups import Stratum, SweepCells, speedup_text
from specops.serving import Setting
from specops.stats import Interval
from specops.trees import parse_tree

MARGIN = 0.01
"""Speed-ups nearer to each other than this count as equal."""


@dataclass(frozen=True)
class Candidate:
    """A setting somewhere, and what was decided on it."""

    setting: Setting
    decision: Decision
    """yes: it pays. no: it is slower, gains too little, or a claim is against it."""

    speedup: Interval | None
    """End to end, or per token where that decides."""

    vetoed: bool = False
    """Something is against it however fast it is."""

    findings: tuple[Finding, ...] = ()
    """All that the decision rests on."""


@dataclass(frozen=True)
class Contest:
    """All settings that were measured somewhere."""

    where: Stratum
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    """None where nothing pays."""

    def candidate_of(self, setting: str) -> Candidate | None:
        return next((c for c in self.candidates if c.setting.name == setting), None)


def of_each(confidence: float, settings: int, groups: int, looks: int) -> float:
    """The confidence of one interval, such that those of all settings in all groups hold together at each
    look."""
    return 1 - (1 - confidence) / max(1, settings * groups * looks)


def candidate(
    setting: Setting,
    of_speed: Sequence[Finding],
    of_requests: Sequence[Finding],
    division: Division,
    margins: Ab,
    *,
    confirmed: bool,
) -> Candidate:
    """Return what is decided on a setting somewhere: by its times there, and by requests to it. Only a
    confirmed one needs all claims shown."""
    by_speed = claims.decide(of_speed, margins, confirmed=confirmed)
    wait, *beside = of_speed
    findings = (division.limit(wait), *beside, *of_requests)
    decision = claims.decide(findings, margins, confirmed=confirmed)
    if decision.speedup is not None:
        reason = f"{decision.reason}, n={decision.speedup.n}"
        decision = decision.model_copy(update={"reason": reason})
    return Candidate(setting, decision, wait.ratio, by_speed.verdict != decision.verdict, findings)


def unconfirmed(candidate: Candidate) -> Candidate:
    """A candidate that only the choice measured: it may be ruled out, and never pays."""
    decision = candidate.decision
    if decision.verdict != "yes":
        return candidate
    reason = f"{decision.reason} at the choice; not confirmed"
    return replace(candidate, decision=Decision(verdict="undecided", reason=reason, speedup=decision.speedup))


def differs(swept: SweepCells, where: Stratum, first: str, second: str) -> bool:
    """Return whether two settings surely differ in speed, by the prompts that both answered."""
    ratio = swept.pairs(first, where, over=second).ratio("e2e", stats.LEVEL)
    return ratio is not None and not ratio.low <= 1 <= ratio.high


def best(candidates: Sequence[Candidate], differs: Callable[[str, str], bool]) -> Candidate | None:
    """The fastest of those that pay; of those as fast, the one that drafts fewest tokens.

    As fast: within `MARGIN` of the fastest, and `apart` finds no difference between the two settings. None
    where nothing pays.
    """
    paying = {c.setting.name: c for c in candidates if c.decision.verdict == "yes" and c.speedup is not None}
    if not paying:
        return None
    fastest = max(paying.values(), key=estimate)
    as_fast = [
        candidate
        for name, candidate in paying.items()
        if estimate(candidate) * (1 + MARGIN) >= estimate(fastest)
        and (candidate is fastest or not differs(name, fastest.setting.name))
    ]
    return min(as_fast, key=lambda candidate: (_drafted(candidate.setting), -estimate(candidate)))


def _drafted(setting: Setting) -> int:
    """Drafted tokens a step: the nodes of a tree, else K."""
    return parse_tree(setting.tree).nodes if setting.tree else setting.k


def nothing_pays(contests: Sequence[Contest]) -> Decision:
    """No, or undecided: where nothing pays in any of them. At least one was entered by a setting."""
    everything = [(contest.where, c) for contest in contests for c in contest.candidates]
    # Loads are decided from the lightest: one that pays beyond a load that does not is left open.
    open_ = [(where, c) for where, c in everything if c.decision.verdict != "no"]
    where, closest = max(open_ or everything, key=lambda item: estimate(item[1]))
    name, closest_reason = f"{closest.setting.name} at {where.level}", closest.decision.reason
    if not open_:
        reason = f"do not deploy: nothing pays; the best is {name}, {closest_reason}"
        return Decision(verdict="no", reason=reason, speedup=closest.speedup)
    if closest.decision.verdict == "yes":
        reason = f"{name} pays ({closest_reason}), but is not shown to pay at a lighter load"
        more = None
    else:
        more = _prompts_to_decide([candidate for _, candidate in open_], closest)
        slower = closest.speedup is not None and closest.speedup.estimate <= 1
        hope = "no setting looks faster; the closest is" if slower else "the most promising is"
        reason = f"{hope} {name}, {closest_reason}"
    return Decision(
        verdict="undecided",
        reason=f"not enough evidence: {reason}",
        speedup=closest.speedup,
        more_prompts=more,
    )


def _prompts_to_decide(open_: Sequence[Candidate], hope: Candidate) -> int | None:
    """Prompts until the most hopeful surely pays; where all look slower, until the last surely does not."""
    if hope.speedup is None or hope.speedup.estimate > 1:
        return hope.decision.more_prompts
    needed = [stats.pairs_needed(c.speedup) if c.speedup else c.decision.more_prompts for c in open_]
    counts = [more for more in needed if more is not None]
    return max(counts) if len(counts) == len(needed) else None


def estimate(candidate: Candidate) -> float:
    """The estimate of its speed-up; 0 where none is known."""
    return candidate.speedup.estimate if candidate.speedup is not None else 0.0


NOT_FRESH = "there are too few prompts to split: the choice and the confirmation used the same ones"


@dataclass(frozen=True)
class Choice:
    decision: Decision
    setting: Setting | None
    """None where nothing is recommended."""

    decided_at: int | None
    """Streams: the load that it was decided at. None where nothing was measured."""

    only: tuple[str, ...] = ()
    """Traffic classes, where it pays for some and all together do not show it."""


def pick(contests: Sequence[Contest], classes: Mapping[str, Contest], *, fresh: bool) -> Finalists | None:
    """Return what to confirm, by the contests of the choice: at each concurrency, the lightest first, and
    those of the classes at `deciding`. None where nothing may pay.

    All prompts together pick; where none of their settings surely looks faster, a class may.
    """
    entered = [contest for contest in contests if contest.candidates]
    if not entered:
        return None
    deciding_contest = deciding(entered)
    if deciding_contest.best is not None:
        return _finalists(contests, deciding_contest, deciding_contest.best, fresh)
    for_some = [(name, contest) for name, contest in classes.items() if contest.best is not None]
    if for_some:
        return _finalists_for_some(for_some, deciding_contest.where.concurrency, fresh)
    for contest in entered:
        hopeful = [candidate for candidate in contest.candidates if _may_pay(candidate)]
        if hopeful:
            return _finalists(contests, contest, max(hopeful, key=estimate), fresh)
    return None


def deciding(contests: Sequence[Contest]) -> Contest:
    """The lightest load at which something pays, else the lightest that was measured at all."""
    entered = [contest for contest in contests if contest.candidates]
    return next((contest for contest in entered if contest.best is not None), [*entered, *contests][0])


def _may_pay(candidate: Candidate) -> bool:
    if candidate.vetoed or candidate.decision.verdict == "no":
        return False
    return candidate.speedup is None or candidate.speedup.estimate > 1


def _finalists(
    contests: Sequence[Contest], deciding_contest: Contest, chosen: Candidate, fresh: bool
) -> Finalists:
    """The chosen setting and the fastest of the others, up to the first load at which the chosen surely does
    not pay."""
    alternatives = [
        candidate
        for candidate in deciding_contest.candidates
        if candidate.setting is not chosen.setting and _may_pay(candidate)
    ]
    runner_up = max(alternatives, key=estimate, default=None)
    streams = [deciding_contest.where.concurrency]
    for contest in contests:
        if contest.where.concurrency > deciding_contest.where.concurrency:
            candidate = contest.candidate_of(chosen.setting.name)
            if candidate is not None and candidate.decision.verdict == "no":
                break
            streams.append(contest.where.concurrency)
    names = [chosen, runner_up] if runner_up else [chosen]
    return Finalists(
        settings=tuple(candidate.setting.name for candidate in names), streams=tuple(streams), fresh=fresh
    )


def _finalists_for_some(contests: Sequence[tuple[str, Contest]], streams: int, fresh: bool) -> Finalists:
    """The setting that is best for the class that gains most, for all classes for which it looks faster."""
    _, gains_most = max(contests, key=lambda item: estimate(item[1].best) if item[1].best else 0.0)
    assert gains_most.best is not None
    name = gains_most.best.setting.name
    paying = [
        traffic_class
        for traffic_class, contest in contests
        if (candidate := contest.candidate_of(name)) and candidate.decision.verdict == "yes"
    ]
    return Finalists(settings=(name,), streams=(streams,), only=tuple(paying), fresh=fresh)


def choose(
    contests: Sequence[Contest],
    classes: Mapping[str, Contest],
    finalists: Finalists | None,
    failed: Mapping[str, str],
    standard: str,
    differs: Callable[[str, str], bool],
) -> Choice:
    """Return the choice from what was picked, by the contests at each concurrency, the lightest first, and
    those of the classes at the load that decides. In all of them the evidence on what was confirmed is that
    of the confirmation alone, and nothing else pays.

    `failed` says why, by setting; `differs` separates two settings by the confirmation.
    """
    entered = [contest for contest in contests if contest.candidates]
    failures = [f"{name} failed: {why}" for name, why in failed.items() if name != standard]
    if not entered:
        return Choice(_nothing_measured(failed, standard, failures), None, None)
    if finalists is None:
        return _nothing(entered, failures)
    deciding_contest = next((c for c in entered if c.where.concurrency == finalists.streams[0]), entered[0])
    if finalists.only:
        return _for_some(finalists, classes, deciding_contest, entered, failures)
    paying = [
        candidate
        for name in finalists.settings
        if (candidate := deciding_contest.candidate_of(name)) and candidate.decision.verdict == "yes"
    ]
    if not paying:
        return _nothing(entered, failures, deciding_contest.where.concurrency)
    chosen = _winner(paying, differs)
    assert chosen.speedup is not None
    lighter = [c for c in entered if c.where.concurrency < deciding_contest.where.concurrency]
    reasons = [
        f"deploy {title(chosen.setting)} for {_traffic(classes, chosen.setting)} at "
        f"{deciding_contest.where.level} ({speedup_text(chosen.speedup)})",
        *([chosen.decision.reason] if chosen.decision.basis != "e2e" else []),
        *_per_class(classes, chosen.setting),
        *[f"nothing is shown to pay at {contest.where.level}" for contest in lighter],
        *([] if finalists.fresh else [NOT_FRESH]),
        *failures,
    ]
    decision = Decision(verdict="yes", reason="; ".join(reasons), speedup=chosen.speedup)
    return Choice(decision, chosen.setting, deciding_contest.where.concurrency)


def _winner(paying: Sequence[Candidate], differs: Callable[[str, str], bool]) -> Candidate:
    """The chosen setting, which comes first, unless its runner-up is surely faster, and by more than MARGIN:
    to take the larger of two figures would make the one that is reported too high."""
    first, *runners_up = paying
    for runner_up in runners_up:
        faster = estimate(runner_up) > estimate(first) * (1 + MARGIN)
        if faster and differs(first.setting.name, runner_up.setting.name):
            return runner_up
    return first


def _nothing(entered: Sequence[Contest], failures: Sequence[str], streams: int | None = None) -> Choice:
    decision = nothing_pays(entered)
    return Choice(
        decision.model_copy(update={"reason": "; ".join([decision.reason, *failures])}),
        None,
        deciding(entered).where.concurrency if streams is None else streams,
    )


def _for_some(
    finalists: Finalists,
    classes: Mapping[str, Contest],
    deciding_contest: Contest,
    entered: Sequence[Contest],
    failures: Sequence[str],
) -> Choice:
    """The setting that was picked for some classes, for those that the confirmation shows."""
    candidates = {
        name: candidate
        for name in finalists.only
        if name in classes and (candidate := classes[name].candidate_of(finalists.settings[0])) is not None
    }
    paying = {
        name: candidate for name, candidate in candidates.items() if candidate.decision.verdict == "yes"
    }
    if not paying:
        reasons = [f"{name} ({candidate.decision.reason})" for name, candidate in candidates.items()]
        reason = "; ".join(
            [
                f"not enough evidence: {title_of(finalists.settings[0])} is not confirmed for "
                f"{', '.join(reasons)}",
                *failures,
            ]
        )
        more = [
            candidate.decision.more_prompts
            for candidate in candidates.values()
            if candidate.decision.more_prompts
        ]
        decision = Decision(verdict="undecided", reason=reason, more_prompts=max(more, default=None))
        return Choice(decision, None, deciding_contest.where.concurrency)
    chosen = next(iter(paying.values())).setting
    gains = ", ".join(
        f"{name} ({speedup_text(candidate.speedup)})"
        for name, candidate in paying.items()
        if candidate.speedup
    )
    left = [
        f"{name} ({candidate.decision.reason})"
        for name, candidate in candidates.items()
        if name not in paying
    ]
    reasons = [
        f"deploy {title(chosen)} for {gains} at {deciding_contest.where.level}, and for no other class",
        *([f"not confirmed for {', '.join(left)}"] if left else []),
        *([] if finalists.fresh else [NOT_FRESH]),
        *failures,
    ]
    decision = Decision(verdict="yes", reason="; ".join(reasons))
    return Choice(decision, chosen, deciding_contest.where.concurrency, tuple(paying))


def _traffic(classes: Mapping[str, Contest], setting: Setting) -> str:
    candidates = {
        name: candidate
        for name, contest in classes.items()
        if (candidate := contest.candidate_of(setting.name))
    }
    losing = [name for name, candidate in candidates.items() if _is(candidate, "no")]
    return f"all traffic but {', '.join(losing)}" if losing else "all traffic"


def _per_class(classes: Mapping[str, Contest], setting: Setting) -> list[str]:
    """One part of a sentence on the classes; empty where there is but one."""
    candidates = {
        name: candidate
        for name, contest in classes.items()
        if (candidate := contest.candidate_of(setting.name))
    }
    if not candidates:
        return []
    parts = [
        f"{name} ({speedup_text(candidate.speedup)})"
        for name, candidate in candidates.items()
        if _is(candidate, "yes") and candidate.speedup
    ]
    parts += [
        f"not for {name} ({candidate.decision.reason})"
        for name, candidate in candidates.items()
        if _is(candidate, "no")
    ]
    undecided = {name: candidate for name, candidate in candidates.items() if _is(candidate, "undecided")}
    if undecided:
        needed = [candidate.decision.more_prompts for candidate in undecided.values()]
        most = max((more for more in needed if more is not None), default=None)
        names = "" if len(undecided) == len(candidates) else f" for {', '.join(undecided)}"
        parts.append(f"undecided{names}" + (f" (about {most} more prompts would decide)" if most else ""))
    return [f"per class: {', '.join(parts)}"]


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
    """The method of speculation as the engine names it; None where it is not known."""
    return setting.pool.method
