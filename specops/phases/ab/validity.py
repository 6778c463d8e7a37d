"""Whether a comparison answers its question: is the standard without speculation, and are there two servers?
Pure.

A comparison whose standard speculates does not say whether to turn speculation on, and an A/A of one server
measures noise. Neither deploys anything: every decision of it is undecided, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specops.load.counters import Observed, several_tokens, speculating_standard
from specops.load.validity import COUNT_ADVICE
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.report import Challenger, Noise
from specops.phases.ab.speedups import Shown, levels_of
from specops.phases.ab.verdict import Decision, times


def standard(
    visits: Sequence[VisitRecord], standard: str, challenger: str, facts: Mapping[str, Any] | None
) -> tuple[str | None, str | None]:
    """Why the comparison does not answer its question, and what else is to be noted of the standard.

    `facts` is what is known of the standard. One that was configured to speculate, with `--arm
    NAME=embedded:TREE`, was meant to: that is a note, unless the challenger does not speculate.
    """
    ours, theirs = observed(visits, standard), observed(visits, challenger)
    wrong = speculating_standard(ours, theirs)
    configured = ((facts or {}).get("pool") or {}).get("speculation") is not None
    if wrong is not None and configured and theirs.speculates:
        return None, wrong
    return wrong, None if wrong is not None else several_tokens(ours)


def miscounting(facts: Mapping[str, Mapping[str, Any]], arms: Iterable[str]) -> str | None:
    """Which of `arms` counts tokens wrongly: then neither lengths nor times per token can be compared."""
    found = [f"{arm}: {facts[arm]['miscount']}" for arm in arms if facts.get(arm, {}).get("miscount")]
    return f"{'; '.join(found)}; {COUNT_ADVICE}, and compare again" if found else None


def observed(visits: Iterable[VisitRecord], arm: str) -> Observed:
    """Drafts over all loads. Tokens per chunk at the lightest load: under load, chunks may wait and be
    joined."""
    cells = [visit.cell for visit in visits if visit.arm == arm]
    counts = [
        cell.drafts.drafts if cell.verified is None and cell.drafts is not None else cell.verified
        for cell in cells
    ]
    known = [count for count in counts if count is not None]
    lightest = levels_of(visit for visit in visits if visit.arm == arm)[:1]
    rows = [row for cell in cells if cell.level in lightest for row in cell.rows if row.error is None]
    sized = [(row.tokens, row.chunks) for row in rows if row.tokens is not None and row.chunks]
    chunks = sum(number for _, number in sized)
    tokens = sum(number for number, _ in sized)
    return Observed(sum(known) if known else None, tokens / chunks if chunks else None)


def void(challenger: Challenger, reason: str) -> Challenger:
    """`challenger` with every decision undecided for `reason`, and nothing to deploy."""
    if challenger.failed is not None:  # that it failed is an answer
        return challenger

    def undecided(decision: Decision) -> Decision:
        told = f"{reason}; by speed alone: {decision.reason}"
        return decision.model_copy(update={"verdict": "undecided", "reason": told, "more_prompts": None})

    classes = {
        name: of.model_copy(
            update={
                "decision": undecided(of.decision),
                "levels": [
                    level.model_copy(update={"decision": undecided(level.decision)}) for level in of.levels
                ],
            }
        )
        for name, of in challenger.classes.items()
    }
    levels = [level.model_copy(update={"decision": undecided(level.decision)}) for level in challenger.levels]
    return challenger.model_copy(
        update={
            "decision": Decision(verdict="undecided", reason=reason),
            "deploy": [],
            "pays_up_to": None,
            "load": "",
            "classes": classes,
            "levels": levels,
        }
    )


def noise(challengers: Mapping[str, Challenger]) -> list[Noise]:
    """What an A/A found: how far one server is from itself, by arm and load, all classes together."""
    return [
        Noise(arm=name, level=level.speedups.level, e2e=level.speedups.e2e, below=_below(level.speedups.e2e))
        for name, challenger in challengers.items()
        for level in challenger.levels
    ]


def _below(interval: Shown | None) -> float | None:
    """A relative difference below which an interval as wide as this one may include 1."""
    if interval is None:
        return None
    return round(max(interval.high / interval.estimate, interval.estimate / interval.low) - 1, 4)


def of_noise(found: Sequence[Noise]) -> str:
    """The result of an A/A in a sentence."""
    known = [(one, one.e2e, one.below) for one in found if one.e2e is not None and one.below is not None]
    if not known:
        return "an A/A of one server: too few prompts for an interval"
    below = ", ".join(f"{100 * share:.1f}% at {one.level}" for one, _, share in known)
    reason = f"an A/A of one server: differences below {below} are within the noise here"
    apart = [
        f"{times(interval)} at {one.level}"
        for one, interval, _ in known
        if not interval.low <= 1 <= interval.high
    ]
    return reason + (f"; the server differs from itself: {', '.join(apart)}" if apart else "")
