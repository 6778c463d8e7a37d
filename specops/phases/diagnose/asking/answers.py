"""Are answers right? JSON and tools, and whether greedy answers are the standard's."""

from __future__ import annotations

from math import comb

from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Canary, Observations

CONFORMANCE = Asks("requests-that-break", "answers")
PARITY = Asks("greedy-differs", "answers")
ALMOST = 0.95
"""Of greedy answers the same, where the standard was not asked twice: batches change logits' last bits."""

LUCK = 0.05
"""The chance of calling answers different that are not."""


def conformance(seen: Observations) -> Finding:
    canary = seen.canary
    if canary is None:
        why = seen.why_not("canary")
        return CONFORMANCE.unknown(
            f"no canary tells of requests that break: {why}", show="specops canary ROLLOUT"
        )
    broken = [one for one in canary.checks if one.status == "fail"]
    unlike = [one for one in canary.checks if one.status == "differs"]
    evidence = tuple(
        Evidence(what=f"canary, {one.name}: {one.status}", value=one.message, source=canary.source)
        for one in (*broken, *unlike)
    )
    if broken:
        return CONFORMANCE.cause(
            f"{', '.join(one.name for one in broken)}: the speculative pool answers wrongly",
            *evidence,
            cause="the engine's speculation has a fault with such requests",
            fix="keep such requests standard (route.classes, route.unsupported); report it to the engine",
            paste=next((one.request for one in broken if one.request), None),
        )
    if unlike:
        return CONFORMANCE.contributing(
            f"{', '.join(one.name for one in unlike)}: one pool takes what the other does not",
            *evidence,
            cause="the engine refuses such requests while it speculates, or the pools are set up unlike",
            fix="specops route render ROLLOUT: the router keeps such requests standard, by canary.json",
        )
    passed = [one for one in canary.checks if one.status == "pass"]
    if not passed:
        return CONFORMANCE.unknown(
            f"the canary decided nothing ({canary.source})",
            *_undecided(canary),
            show="specops canary ROLLOUT",
        )
    return CONFORMANCE.ruled_out(
        f"{len(passed)} of {len(canary.checks)} checks of the canary passed, none failed ({canary.source})",
        *_undecided(canary),
    )


def _undecided(canary: Canary) -> list[Evidence]:
    return [
        Evidence(what=f"canary, {one.name}: {one.status}", value=one.message, source=canary.source)
        for one in canary.checks
        if one.status == "undecided"
    ]


def parity(seen: Observations) -> Finding:
    """Held against how often the standard repeats itself, where that was asked; a cause, where by more than
    chance."""
    compared = seen.compared
    if compared is None or compared.equal is None or not compared.compared:
        why = "it was not compared at temperature 0" if compared is not None else seen.why_not("compared")
        show = "specops run ROLLOUT, with measure.temperature 0"
        return PARITY.unknown(f"whether greedy answers are the standard's is not known: {why}", show=show)
    share = compared.equal / compared.compared
    limit = compared.control if compared.control is not None else ALMOST
    source = "the standard with itself" if compared.control is not None else "a default of specops"
    evidence = Evidence(
        what="greedy answers that are the standard's",
        value=round(share, 4),
        source=compared.source,
        threshold=round(limit, 4),
        threshold_source=source,
    )
    among = " where sampled requests share the batch" if compared.mixed else ""
    told = f"{compared.equal} of {compared.compared} greedy answers are the standard's{among}"
    if compared.control is not None:
        told += f"; {compared.control:.0%} are when the standard pool repeats them"
    if share >= limit:
        return PARITY.ruled_out(told, evidence)
    if compared.control is None or not _surely_fewer(compared.equal, compared.compared, compared.control):
        cause = "batches of another shape round otherwise: near ties fall the other way; or a fault"
        return PARITY.contributing(told, evidence, cause=cause, fix="specops canary ROLLOUT")
    cause = "verifying changes what is said: speculation is not lossless here"
    fix = "specops guard override ROLLOUT standard --why parity; ab.json has the witness to report"
    return PARITY.cause(told, evidence, cause=cause, fix=fix)


def _surely_fewer(equal: int, compared: int, control: float) -> bool:
    """McNemar's exact test, at its most cautious: which prompts were unlike in the control is not in the
    result's shares, so as many of those as there were are taken to be equal between the pools."""
    gained = round((1 - control) * compared)
    lost = compared - equal
    tried = lost + gained
    return sum(comb(tried, k) for k in range(lost, tried + 1)) < LUCK * (1 << tried)
