"""Is it the draft? How well it guesses, what it costs, and how far ahead it guesses."""

from __future__ import annotations

from specops import economics
from specops.economics import StepCost
from specops.phases.diagnose.asking.slower import slower
from specops.phases.diagnose.asking.thresholds import DRAFT_SHARE, WEEKLY_FALL_BACKS, acceptance, why_not
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Observations
from specops.phases.monitor.thresholds import CRITICAL, LOW, PLAYBOOK

QUALITY = Asks("draft-quality", "slower")
COST = Asks("draft-cost", "slower")
LENGTH = Asks("draft-length", "slower")
FALL_BACKS = Asks("fall-backs", "slower")
ANOTHER = (
    "another draft (`specops verify-draft TARGET --guide` names some), or speculation off:"
    " specops guard override ROLLOUT standard --why acceptance"
)

ALL_THE_SAME = "and it is not slower all the same"


def quality(seen: Observations) -> Finding:
    """Below a measured break-even it is the draft. Without one, by the playbook: below 0.3 it is, below 0.5
    it may be, unless it is seen to be faster all the same."""
    rate = acceptance(seen)
    if rate is None:
        why = f"acceptance is not known: {why_not(seen, 'compared')}"
        return QUALITY.unknown(why, show="specops run ROLLOUT")
    evidence = Evidence(
        what="acceptance",
        value=round(rate.value, 4),
        source=rate.source,
        threshold=rate.gate,
        threshold_source=rate.gate_source,
    )
    told = f"acceptance {rate.value:.2f} ± {rate.error:.2f}"
    if rate.gate is None:
        why = f"{told}, of trees that branch, and {rate.gate_source}"
        return QUALITY.unknown(why, evidence, show="specops sweep ROLLOUT")
    gate = f"{rate.gate:.2f} ({rate.gate_source})"
    if rate.value - rate.error >= rate.gate:
        return QUALITY.ruled_out(f"{told} is not below {gate}: not the draft", evidence)
    if rate.value + rate.error >= rate.gate:
        cause = "it may be the draft: what was drafted is too little to tell, or just breaks even"
        again = "specops diagnose ROLLOUT, after more traffic"
        return QUALITY.contributing(f"{told} is about {gate}", evidence, cause=cause, fix=again)
    cause = "the draft guesses too badly: a step brings fewer tokens than it costs time"
    if rate.gate_source != PLAYBOOK:
        return QUALITY.cause(f"{told} is below {gate}", evidence, cause=cause, fix=ANOTHER)
    if _pays(seen):
        told = f"{told} is below {gate}, {ALL_THE_SAME}; its break-even was not measured"
        return QUALITY.contributing(told, evidence, cause=cause, fix="specops sweep ROLLOUT")
    if rate.value + rate.error < CRITICAL:
        told = f"{told} is below {CRITICAL:.2f} ({PLAYBOOK}): it is the draft"
        low = evidence.model_copy(update={"threshold": CRITICAL})
        return QUALITY.cause(told, low, cause=cause, fix=ANOTHER)
    likely = f"below {LOW} the draft is likely too weak; where it breaks even was not measured"
    fix = f"specops sweep ROLLOUT; {ANOTHER}"
    return QUALITY.contributing(f"{told} is below {gate}", evidence, cause=likely, fix=fix)


def _pays(seen: Observations) -> bool:
    """Seen not to be slower: what is past the playbook's threshold may cost, and is no cause of that."""
    return slower(seen).severity == "ruled_out"


def cost(seen: Observations) -> Finding:
    """By the sweep's step times, for no engine says how long drafting takes."""
    swept = seen.swept
    if swept is None or swept.draft_ms is None or not swept.target_ms:
        why = seen.why_not("swept") if swept is None else "the sweep has no line through its step times"
        return COST.unknown(f"what a drafted token costs is not known: {why}", show="specops sweep ROLLOUT")
    share = swept.draft_ms / swept.target_ms
    evidence = Evidence(
        what="a drafted token's time over a target step's",
        value=round(share, 4),
        source=swept.source,
        threshold=DRAFT_SHARE,
        threshold_source=PLAYBOOK,
    )
    target = f"a target step's {swept.target_ms:.2f} ms"
    told = f"a drafted token costs {swept.draft_ms:.2f} ms, {share:.0%} of {target}"
    if share >= DRAFT_SHARE:
        cause = "drafting and verifying a token costs about as much as a plain one"
        fix = "a smaller draft, a head (EAGLE-3) or n-grams; then specops sweep ROLLOUT"
        if _pays(seen):
            return COST.contributing(f"{told}, {ALL_THE_SAME}", evidence, cause=cause, fix=fix)
        return COST.cause(told, evidence, cause=cause, fix=fix)
    return COST.ruled_out(f"{told}: below {DRAFT_SHARE:.0%}, not the draft's time", evidence)


def length(seen: Observations) -> Finding:
    """Whether the last positions bring what they cost: acceptance by position, with the sweep's costs."""
    swept, live = seen.swept, seen.live
    if seen.branches:
        return LENGTH.unknown("a tree that branches has no K to cut", show="specops sweep ROLLOUT")
    curve, source = (live.per_position, live.source) if live and live.per_position else ((), "")
    if not curve and swept is not None:
        curve, source = swept.per_position, swept.source
    if not curve:
        why = f"acceptance by position is not known: {seen.why_not('live', 'swept')}"
        return LENGTH.unknown(why, show="specops sweep ROLLOUT")
    shown = " ".join(f"{share:.2f}" for share in curve)
    if swept is None or swept.draft_ms is None or not swept.target_ms:
        evidence = Evidence(what="acceptance by position", value=shown, source=source)
        why = f"accepted by position: {shown}; what a position costs was not measured"
        return LENGTH.unknown(why, evidence, show="specops sweep ROLLOUT")
    costs = StepCost(swept.target_ms, swept.draft_ms, None, ())
    best = economics.cut(economics.positions(curve, costs))
    worth = f"a position's worth by {swept.source}"
    evidence = Evidence(
        what="acceptance by position", value=shown, source=source, threshold=best, threshold_source=worth
    )
    if best >= len(curve):
        return LENGTH.ruled_out(f"all {len(curve)} positions bring more than they cost ({shown})", evidence)
    told = f"of {len(curve)} positions ({shown}) only the first {best} bring more than they cost"
    if best == 0:
        told = f"not even the first of {len(curve)} positions ({shown}) brings what it costs"
        if _pays(seen):
            cause = "what was swept and what was compared disagree: noise, or another load"
            return LENGTH.contributing(
                f"{told}, {ALL_THE_SAME}", evidence, cause=cause, fix="specops sweep ROLLOUT"
            )
        return LENGTH.cause(told, evidence, cause="no K pays with this draft here", fix=ANOTHER)
    cause = f"K is too large: what is drafted after position {best} is mostly thrown away"
    return LENGTH.contributing(
        told,
        evidence,
        cause=cause,
        fix=f"K = {best} (num_speculative_tokens, or chain:{best}), then sweep it",
    )


def fall_backs(seen: Observations) -> Finding:
    found = seen.fall_backs
    if found is None:
        why = seen.why_not("fall_backs")
        return FALL_BACKS.unknown(
            f"the guard's fall-backs are not known: {why}", show="specops guard run ROLLOUT"
        )
    evidence = Evidence(
        what="fall-backs in 7 days",
        value=found.week,
        source=found.source,
        threshold=WEEKLY_FALL_BACKS,
        threshold_source=PLAYBOOK,
    )
    last = f"; the last: {found.last}" if found.last else ""
    told = f"{found.week} fall-backs within 7 days{last}"
    if found.week > WEEKLY_FALL_BACKS:
        return FALL_BACKS.contributing(told, evidence, cause="speculation keeps going bad", fix=ANOTHER)
    return FALL_BACKS.ruled_out(told, evidence)
