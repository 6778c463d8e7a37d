"""Does the first token come later? Users wait for it, and it vetoes speculation."""

from __future__ import annotations

from specops.phases.diagnose.asking.thresholds import VETO, VETO_MS, expected, why_not_expected
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Observations

TTFT = Asks("first-token-late", "slower")
OF_AB = "the TTFT veto of the comparison"


def first_token(seen: Observations) -> Finding:
    """By now over the baseline's at the same load, else by the comparison."""
    live, without = seen.live, expected(seen.live, seen.baseline)
    if live is not None and live.ttft_ms is not None and without is not None and without.ttft_ms:
        ratio, more = live.ttft_ms / without.ttft_ms, live.ttft_ms - without.ttft_ms
        source, late = live.source, ratio > VETO and more >= VETO_MS
        told = f"mean TTFT {live.ttft_ms:.0f} ms, {ratio:.2f} times the standard pool's at this load"
    elif seen.compared is not None and seen.compared.ttft is not None:
        compared, ttft = seen.compared, seen.compared.ttft
        ratio, more = 1 / ttft.estimate, compared.ttft_change_ms or 0.0
        source, late = compared.source, 1 / ttft.high > VETO and more >= VETO_MS
        told = f"TTFT {ratio:.2f} times the standard pool's ({more:+.0f} ms) when they were compared"
    else:
        why = f"whether the first token comes later is not known: {why_not_expected(seen)}"
        return TTFT.unknown(why, show="specops run ROLLOUT")
    evidence = Evidence(
        what="TTFT over the standard's",
        value=round(ratio, 4),
        source=source,
        threshold=VETO,
        threshold_source=f"{OF_AB}, and {VETO_MS:g} ms",
    )
    if not late:
        return TTFT.ruled_out(told, evidence)
    return TTFT.cause(
        told,
        evidence,
        cause="prompts wait for steps that verify drafts, or the draft reads the prompt as well",
        fix="keep short answers standard (route.min_tokens), or a smaller max_num_batched_tokens",
    )
