"""Is it slower than without speculation at all? The playbook's first symptom."""

from __future__ import annotations

from specops.phases.diagnose.asking.thresholds import SLOWER, expected, why_not_expected
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Observations
from specops.phases.monitor.thresholds import PLAYBOOK

SLOW = Asks("slower-than-standard", "slower")


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
    if compared.e2e.low > 1:
        return SLOW.ruled_out(told, evidence)
    return SLOW.unknown(f"{told}: it may be either", evidence, show="specops run ROLLOUT --only ab --fresh")


def _live(seen: Observations) -> Finding | None:
    live, without = seen.live, expected(seen)
    if live is None or without is None:
        return None
    for name, ours, theirs in (("E2E", live.e2e_ms, without.e2e_ms), ("TPOT", live.tpot_ms, without.tpot_ms)):
        if ours is None or not theirs:
            continue
        ratio = ours / theirs
        told = (
            f"mean {name} {ours:.1f} ms over {live.over}; the standard pool was measured at {theirs:.1f} ms"
            f" at this load, {live.load:.1f} streams: {ratio:.2f} times as long"
        )
        evidence = Evidence(
            what=f"{name} over the baseline's",
            value=round(ratio, 4),
            source=live.source,
            threshold=SLOWER,
            threshold_source=PLAYBOOK,
        )
        return SLOW.so(told, evidence) if ratio > SLOWER else SLOW.ruled_out(told, evidence)
    return None
