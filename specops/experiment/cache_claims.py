"""The claims on prefix caches: both arms have like shares of their prompts in the cache, and first tokens are
compared only where they have. Pure.

Shares are those of the answers (`cached_tokens`), whose requests are the compared ones. Where an arm's
answers report no hit, the servers' counters decide, which count every request of a window: some releases
report 0 tokens though the cache hits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from specops import stats
from specops.experiment import claims
from specops.experiment.claims import Evidence
from specops.experiment.findings import Counts, Finding
from specops.load.arrivals import Level

CACHE_MARGIN = 0.1
"""Share of the prompt tokens that one arm may have more of in its cache than the other."""

Source = Literal["answers", "counters"]


@dataclass(frozen=True)
class CacheShares:
    """What both arms had in their caches at one load, by pair of windows: hits and lookups of the standard,
    hits and lookups of the challenger."""

    source: Source
    windows: Mapping[object, tuple[float, float, float, float]]
    silent: tuple[str, ...] = ()
    """Arms whose answers report none: it counts as none, since vLLM reports no zero."""

    def difference(self, confidence: float) -> stats.Interval | None:
        """The challenger's share less the standard's; None with too few pairs of windows."""
        differences = [
            after / of_after - before / of_before
            for before, of_before, after, of_after in self.windows.values()
            if of_before and of_after
        ]
        enough = len(differences) >= stats.MIN_PAIRS
        return stats.mean_interval(differences, confidence) if enough else None

    @property
    def totals(self) -> tuple[float, float, float, float]:
        before, of_before, after, of_after = (
            sum(numbers[place] for numbers in self.windows.values()) for place in range(4)
        )
        return before, of_before, after, of_after


def cache_shares(evidence: Evidence, level: Level) -> CacheShares | None:
    """Return what the arms had in their caches at a load; None where neither answers nor counters say."""
    windows: dict[object, tuple[float, float, float, float]] = defaultdict(lambda: (0.0, 0.0, 0.0, 0.0))
    silent = {evidence.standard, evidence.challenger}
    without_hits = set(silent)
    for sample in evidence.at(level):
        arms = {evidence.standard: sample.standard, evidence.challenger: sample.challenger}
        silent -= {arm for arm, row in arms.items() if row.cached_tokens is not None}
        without_hits -= {arm for arm, row in arms.items() if row.cached_tokens}
        if sample.answered and all(row.prompt_tokens for row in arms.values()):
            numbers = [n for row in arms.values() for n in (row.cached_tokens or 0, row.prompt_tokens or 0)]
            before, of_before, after, of_after = (
                a + b for a, b in zip(windows[sample.window], numbers, strict=True)
            )
            windows[sample.window] = before, of_before, after, of_after
    counted = _counted(evidence, level) if without_hits else {}
    if counted:
        return CacheShares("counters", counted)
    return CacheShares("answers", windows, tuple(sorted(silent))) if len(silent) < 2 else None


def _counted(evidence: Evidence, level: Level) -> dict[object, tuple[float, float, float, float]]:
    """The counters of both arms by cycle; empty where one of them shows none."""
    by_cycle: dict[int, dict[str, tuple[float, float]]] = defaultdict(dict)
    for window in evidence.windows:
        counts = window.cell.cache_counts
        if window.kind == "measured" and window.level == level and counts is not None:
            by_cycle[window.cycle][window.arm] = counts.hits, counts.lookups
    arms = evidence.standard, evidence.challenger
    return {
        cycle: (*counts[arms[0]], *counts[arms[1]])
        for cycle, counts in by_cycle.items()
        if all(arm in counts for arm in arms)
    }


def cached_tokens(
    evidence: Evidence, level: Level, confidence: float, *, traffic_class: str | None = None
) -> Finding | None:
    """The challenger does not have a larger share of its prompt tokens in its cache: else its first token,
    and part of what it gains, are the cache's. A smaller share is its own loss: against, where its first
    token surely comes later, else only named. None where neither arm reports any.

    Of one class counters say nothing.
    """
    part = evidence if traffic_class is None else evidence.of_classes([traffic_class])
    shares = cache_shares(part, level)
    if shares is None:
        return None
    more = shares.difference(confidence)
    before, of_before, after, of_after = map(round, shares.totals)
    # Silence hides nothing of prompts that no cache can know, or that the standard has in its own.
    reused = any(sample.factors["cache"] for sample in part.at(level))
    hidden = reused and evidence.challenger in shares.silent and of_before - before > CACHE_MARGIN * of_before
    if more is None or hidden or (traffic_class is not None and shares.source == "counters"):
        silent = [f"{arm} reports none" for arm in shares.silent]
        return Finding(
            claim="cached tokens", load=level, verdict="unknown", margin=CACHE_MARGIN, examples=silent
        )
    finding = Finding(
        claim="cached tokens",
        traffic_class=traffic_class,
        load=level,
        verdict="shown" if more.high <= CACHE_MARGIN else "open",
        cause="cache" if more.low > CACHE_MARGIN or more.high < -CACHE_MARGIN else None,
        counts=Counts(standard=before, standard_n=of_before, challenger=after, challenger_n=of_after),
        bound=more.high,
        margin=CACHE_MARGIN,
        n=of_after,
        examples=[f"{arm} reports none" for arm in shares.silent],
    )
    if more.high < -CACHE_MARGIN:
        later = claims.first_token(part, level, confidence)
        if later.verdict == "against":
            return finding.model_copy(update={"verdict": "against", "ratio": later.ratio})
    return finding


def at_equal_state(first_token: Finding, cached: Finding | None) -> Finding:
    """Return a finding on the first token; unknown where the state of the caches may have made it.

    More of a prompt in the cache brings the first token sooner, never later. So a challenger that may have
    had more is not shown to be as fast, and one that surely had less is not shown to be slower.
    """
    if cached is None or first_token.verdict == "unknown":
        return first_token
    fewer = cached.cause == "cache" and cached.verdict in ("shown", "against")
    excused = ("against", "open") if fewer else ("shown", "open") if cached.verdict == "open" else ()
    if first_token.verdict not in excused:
        return first_token
    return first_token.model_copy(update={"verdict": "unknown", "cause": "cache"})
