"""Since when? Acceptance against the week before, against what was measured, and since the servers' start."""

from __future__ import annotations

from specops.phases.diagnose.asking.thresholds import ENOUGH_DRAFTED, NEEDS_PROMETHEUS, acceptance, why_not
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Live, Observations
from specops.phases.monitor.thresholds import DRIFT, OURS

DRIFTED = Asks("acceptance-drift", "acceptance")
DECAY = Asks("decay-with-uptime", "acceptance")
TOO_FEW = "it may have fallen: too little was drafted to tell"
AGAIN = "specops diagnose ROLLOUT, after more traffic"


def drifted(seen: Observations) -> Finding:
    live = _counted(seen)
    before = [
        (value, what, source)
        for value, what, source in (
            (seen.compared.acceptance, "when it was compared", seen.compared.source)
            if seen.compared
            else (None, "", ""),
            (seen.earlier.week, "in the week before", seen.earlier.source)
            if seen.earlier
            else (None, "", ""),
        )
        if value is not None
    ]
    if live is None or live.acceptance is None or not before:
        why = why_not(seen, "earlier", "compared")
        return DRIFTED.unknown(
            f"whether acceptance changed is not known: {why}",
            show=NEEDS_PROMETHEUS,
        )
    now = live.acceptance
    evidence = tuple(
        Evidence(
            what=f"acceptance now, less {what}",
            value=round(now - value, 4),
            source=f"{live.source}; {source}",
            threshold=-DRIFT,
            threshold_source=OURS,
        )
        for value, what, source in before
    )
    told = f"acceptance {now:.2f} over {live.over}; " + ", ".join(
        f"{value:.2f} {what}" for value, what, _ in before
    )
    if all(now > value - DRIFT for value, _, _ in before):
        return DRIFTED.ruled_out(told, *evidence)
    if not any(_fell(seen, value) for value, _, _ in before):
        return DRIFTED.contributing(told, *evidence, cause=TOO_FEW, fix=AGAIN)
    return DRIFTED.cause(
        told,
        *evidence,
        cause="the traffic is another, or the target or the draft was replaced",
        fix="specops run ROLLOUT --only ab --fresh, with prompts of today's traffic; then another draft, or"
        " route what it is weak in",
    )


def decay(seen: Observations) -> Finding:
    live, earlier = _counted(seen), seen.earlier
    if live is None or live.acceptance is None or earlier is None or earlier.after_start is None:
        why = why_not(seen, "earlier")
        return DECAY.unknown(
            f"whether acceptance falls with uptime is not known: {why}",
            show=NEEDS_PROMETHEUS,
        )
    fell = earlier.after_start - live.acceptance
    hours = f"{earlier.up_hours:.0f} hours" if earlier.up_hours is not None else "a while"
    evidence = Evidence(
        what="acceptance lost since the first hour",
        value=round(fell, 4),
        source=earlier.source,
        threshold=DRIFT,
        threshold_source=OURS,
    )
    told = (
        f"{hours} up: acceptance {live.acceptance:.2f} now, and {earlier.after_start:.2f} in the first hour"
        " after the start"
    )
    if fell < DRIFT:
        return DECAY.ruled_out(told, evidence)
    if not _fell(seen, earlier.after_start):
        return DECAY.contributing(told, evidence, cause=TOO_FEW, fix=AGAIN)
    return DECAY.cause(
        told,
        evidence,
        cause="acceptance decays with uptime (as in sglang#37326), unless the traffic changed since",
        fix="start one server of the pool anew and compare it with the others; if it recovers, start them"
        " all anew in turn, regularly",
    )


def _fell(seen: Observations, before: float) -> bool:
    """By as much as counts, and by more than the error of what there is now."""
    now = acceptance(seen)
    return now is not None and now.value <= before - max(DRIFT, now.error)


def _counted(seen: Observations) -> Live | None:
    """The live figures, where enough was drafted for a rate."""
    live = seen.live
    enough = live is not None and live.acceptance is not None and (live.drafted or 0) >= ENOUGH_DRAFTED
    return live if enough else None
