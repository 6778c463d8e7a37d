"""Is it slower than without speculation at all? The playbook's first symptom. And is it speculation?"""

from __future__ import annotations

from specops.phases.diagnose.asking.thresholds import (
    NEEDS_PROMETHEUS,
    ROOM,
    SLOWER,
    TimesAsLong,
    times_as_long,
    why_not_expected,
)
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Live, Observations
from specops.phases.monitor.thresholds import PLAYBOOK

SLOW = Asks("slower-than-standard", "slower")
BOTH = Asks("both-pools-slow", "slower")


def slower(seen: Observations) -> Finding:
    """By what users have now, over the baseline at the same load; else by the comparison."""
    found = _live(seen)
    if found is not None:
        return found
    compared = seen.compared
    if compared is None or compared.e2e is None:
        why = f"whether it is slower is not known: {why_not_expected(seen)}"
        return SLOW.unknown(why, show="specops run ROLLOUT")
    evidence = Evidence(what="E2E speed-up", value=str(compared.e2e), threshold=1.0, source=compared.source)
    told = f"E2E {compared.e2e} as fast as the standard pool, when they were compared"
    if compared.e2e.high < 1:
        return SLOW.so(told, evidence)
    if compared.e2e.low <= 1:
        again = "specops run ROLLOUT --only ab --fresh"
        return SLOW.unknown(f"{told}: the interval includes 1", evidence, show=again)
    load = seen.live.load if seen.live else None
    if load is not None and compared.streams is not None and load > compared.streams * ROOM:
        return SLOW.contributing(
            f"{told} at {compared.streams} streams; {load:.1f} are there now, and the baseline was not"
            " measured at that load",
            evidence,
            cause="what was faster at few streams may be slower at many",
            fix="specops run ROLLOUT --only baseline, with the load of now in measure.concurrency",
        )
    return SLOW.ruled_out(told, evidence)


def _live(seen: Observations) -> Finding | None:
    found = times_as_long(seen.live, seen.baseline)
    if found is None or seen.live is None:
        return None
    told = (
        f"mean {found.name} {found.now_ms:.1f} ms over {seen.live.over}; the standard pool was measured at"
        f" {found.baseline_ms:.1f} ms at this load, {seen.live.load:.1f} streams:"
        f" {found.ratio:.2f} times as long"
    )
    evidence = _over_baseline("speculative", found, seen.live)
    return SLOW.so(told, evidence) if found.ratio > SLOWER else SLOW.ruled_out(told, evidence)


def faster_now(seen: Observations) -> bool:
    """Measured at the load of now to take no longer than the baseline."""
    found = times_as_long(seen.live, seen.baseline)
    return found is not None and found.ratio <= 1.0


def both(seen: Observations) -> Finding:
    """Whether the standard pool is slow as well, each at its own load."""
    ours, theirs = (times_as_long(live, seen.baseline) for live in (seen.live, seen.standard))
    if theirs is None or seen.standard is None:
        why = seen.why_not("standard", "baseline")
        if seen.standard is not None and seen.baseline is not None:
            why = "it has too few answers, or a load that the baseline was not measured at"
        return BOTH.unknown(f"the standard pool's latency now is not known: {why}", show=NEEDS_PROMETHEUS)
    told = f"the standard pool takes {theirs.ratio:.2f} times as long as its baseline"
    evidence: tuple[Evidence, ...] = (_over_baseline("standard", theirs, seen.standard),)
    if theirs.ratio <= SLOWER:
        return BOTH.ruled_out(told, *evidence)
    if ours is not None and seen.live is not None:
        told += f", and the speculative pool {ours.ratio:.2f} times"
        evidence = (_over_baseline("speculative", ours, seen.live), *evidence)
    cause = "both pools are slow: not speculation's doing"
    fix = (
        "look at what both pools share: hosts, GPU clocks, network, longer prompts; if the traffic has"
        " changed, specops run ROLLOUT --only baseline --fresh"
    )
    if ours is not None and SLOWER < ours.ratio <= theirs.ratio * SLOWER:
        return BOTH.cause(told, *evidence, cause=cause, fix=fix)
    cause = "a part of the slowness is not speculation's: the standard pool has it, too"
    return BOTH.contributing(told, *evidence, cause=cause, fix=fix)


def _over_baseline(pool: str, found: TimesAsLong, live: Live) -> Evidence:
    return Evidence(
        what=f"{found.name} over the baseline's, {pool} pool",
        value=round(found.ratio, 4),
        source=live.source,
        threshold=SLOWER,
        threshold_source=PLAYBOOK,
    )
