"""The decision on one traffic class at one load: deploy, do not deploy, or undecided, and why. Pure.

A class pays at a load where the interval of its speed-up lies above 1. The speed-up is the end-to-end one
where the answers of both arms are shown to be equally long; otherwise it is that of the time per output
token. What takes a yes away: TTFT that surely grows, requests that fail or take far too long, answers that
are surely longer or shorter, stumps of answers, one answer to several prompts, and a client that limited the
load.

Loads are tested from the lightest upwards until one does not surely pay, a fixed sequence, which costs no
confidence. The intervals of all classes and challengers hold together (Bonferroni), at all looks
(specops.stats.sequential). challengers.py decides over classes and loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from specops import stats
from specops.experiment.claims import LEAST_GAIN
from specops.experiment.findings import Basis, Decision
from specops.experiment.sentences import PER
from specops.load.arrivals import Level
from specops.phases.ab.settings import AbSettings
from specops.phases.sweep.pairs import Pairs
from specops.phases.sweep.request_counts import Lengths, RequestCounts, Requests, compare_lengths
from specops.render.figures import times
from specops.results import Verdict


@dataclass(frozen=True)
class Checks:
    """Counts of requests of all classes at one load, which limit the decision on each class there."""

    failures: RequestCounts | None = None
    refused: RequestCounts | None = None
    slow: RequestCounts | None = None
    late: RequestCounts | None = None
    stock: RequestCounts | None = None
    stumps: RequestCounts | None = None
    looped: RequestCounts | None = None
    unanswered: RequestCounts | None = None
    filtered: RequestCounts | None = None
    client_bound: str | None = None

    @classmethod
    def counted(cls, requests: Requests, confidence: float, client_bound: str | None) -> Checks:
        return cls(
            failures=requests.counted("failed", confidence),
            refused=requests.counted("refused", confidence),
            slow=requests.counted("slow", confidence),
            late=requests.counted("late", confidence),
            stock=requests.counted("stock", confidence),
            stumps=requests.counted("stump", confidence),
            looped=requests.counted("looped", confidence),
            unanswered=requests.counted("unanswered", confidence),
            filtered=requests.counted("filtered", confidence),
            client_bound=client_bound,
        )

    def limit(self, decision: Decision, settings: AbSettings) -> Decision:
        """Return `decision`, unless requests of the challenger failed, were too slow or were hardly answered,
        or the client was too slow."""
        margin = settings.failure_margin
        stumps = None if settings.accept_length_change else self.stumps
        of_answers = (self.stock, stumps, self.looped, self.unanswered, self.filtered)
        for counted in (self.failures, self.slow, self.refused, self.late, *of_answers):
            if counted is not None and counted.surely_more(margin):
                return Decision(verdict="no", reason=str(counted))
        if self.client_bound is not None:
            return Decision(verdict="undecided", reason=self.client_bound)
        for counted in (self.failures, self.slow, self.refused):
            if decision.verdict != "no" and counted is not None and counted.possibly_more(margin):
                more: int | None = counted.more_prompts(margin)
                reason = f"{counted}; about {more} more prompts without such a request would decide"
                if decision.verdict == "undecided":
                    more = most_prompts(
                        [decision, Decision(verdict="undecided", reason="", more_prompts=more)]
                    )
                return Decision(verdict="undecided", reason=reason, more_prompts=more)
        for counted in (self.stock, self.unanswered, self.filtered):
            alone = counted is not None and counted.challenger and not counted.standard
            if decision.verdict == "yes" and alone:
                return Decision(verdict="undecided", reason=str(counted))
        return decision


@dataclass(frozen=True)
class Cell:
    """One class, or all together, at one load."""

    level: Level
    decision: Decision
    lengths: Lengths | None


def of_cell(pairs: Pairs, level: Level, confidence: float, settings: AbSettings) -> Cell:
    """The decision on pairs at one level, by their speed and their lengths, and the lengths it rests on."""
    lengths = compare_lengths(pairs.all, settings.length_margin, confidence)
    if lengths is None or lengths.finding == "equal":
        basis: Basis = "e2e"
    else:
        basis = "tpot" if lengths.unit == "tokens" else "per_character"
    decision = _ttft_veto(pairs, confidence, settings) or _decided(pairs, basis, confidence)
    if lengths is not None:
        decision = _as_long(decision, lengths, settings)
    return Cell(level, decision, lengths)


def _ttft_veto(pairs: Pairs, confidence: float, settings: AbSettings) -> Decision | None:
    change, ttft = pairs.change_ms("ttft"), pairs.ratio("ttft", confidence)
    if ttft is None or change is None:
        return None
    if ttft.high < 1 / settings.first_token_ratio and change >= settings.first_token_ms:
        reason = f"TTFT grows by {change:.0f} ms, to {1 / ttft.estimate:.2f} times as much"
        return Decision(verdict="no", reason=reason)
    return None


def _decided(pairs: Pairs, basis: Basis, confidence: float) -> Decision:
    speedup = pairs.ratio(basis, confidence)
    if speedup is None:
        sent = len(pairs.all)
        if sent < stats.MIN_PAIRS:
            short = f"{sent} prompts were sent to both arms; an interval needs {stats.MIN_PAIRS}"
            return Decision(
                verdict="undecided", reason=short, basis=basis, more_prompts=max(stats.MIN_PAIRS - sent, 1)
            )
        short = f"no interval for {_FIGURES[basis]}: a few prompts dominate the mean"
        return Decision(verdict="undecided", reason=short, basis=basis, more_prompts=sent)
    shown = f"{times(speedup)}{PER[basis]}"

    def decision(verdict: Verdict, reason: str, more: int | None = None) -> Decision:
        return Decision(verdict=verdict, reason=reason, speedup=speedup, basis=basis, more_prompts=more)

    if speedup.high < 1:
        return decision("no", f"{shown}: slower")
    if speedup.low > 1:
        answered = pairs.ratio("answered", confidence) if basis == "e2e" else speedup
        if answered is None or answered.low <= 1:
            rest = f" ({times(answered)} without them)" if answered else ""
            return decision(
                "undecided", f"{shown}, but only because of requests that failed or were refused{rest}"
            )
        equal = pairs.ratio("equal_length", confidence) if basis != "e2e" else None
        if equal is not None and equal.low <= 1:
            reason = f"{shown}, but {times(equal)} end to end at equal length"
            return decision("no" if equal.high < 1 else "undecided", reason)
        tpot = pairs.ratio("tpot", confidence) if basis == "e2e" else None
        if tpot is not None and tpot.estimate - 1 < (speedup.estimate - 1) / 2:
            found = _decided(pairs, "tpot", confidence)
            if found.verdict == "yes":  # what speculation gains, and no more
                reason = f"{found.reason}; end to end it is {times(speedup)}: {_beside(pairs)}"
                return found.model_copy(update={"reason": reason})
            return decision("undecided", f"{shown}, but {times(tpot)} per output token: {_beside(pairs)}")
        if speedup.estimate < LEAST_GAIN:
            small = f"a gain below {LEAST_GAIN - 1:.0%} may be the client's error"
            return decision("undecided", f"{shown}: {small}")
        return decision("yes", shown)
    if speedup.high < LEAST_GAIN:
        return decision("undecided", f"{shown}: a gain of {LEAST_GAIN - 1:.0%} is excluded")
    more = stats.pairs_needed(speedup)
    takes = (
        f"about {more} more prompts would decide"
        if more
        else "even 100 times as many prompts would not decide"
    )
    return decision("undecided", f"{shown} includes 1 ({takes})", more)


def _beside(pairs: Pairs) -> str:
    """Return where a gain lies that is not in the time per output token."""
    ttft, e2e = pairs.change_ms("ttft"), pairs.change_ms("e2e")
    if ttft is not None and e2e is not None and ttft < e2e / 2 < 0:
        return (
            "first tokens come earlier (the standard may limit requests, open new connections, or lack a "
            "prefix cache)"
        )
    return "the gain lies between the last token and the end of the answer"


_FIGURES: Mapping[Basis, str] = {
    "e2e": "the end-to-end time",
    "tpot": "the time per output token",
    "per_character": "the time per character",
}


def _as_long(decision: Decision, lengths: Lengths, settings: AbSettings) -> Decision:
    """Return `decision`, on the time per token, unless the answers are not the standard's in length."""
    reason = f"{lengths}; {decision.reason}"
    if lengths.differ:
        if settings.accept_length_change:
            reason = f"{lengths}, which is accepted; {decision.reason}"
        if decision.verdict == "no" or settings.accept_length_change:
            return decision.model_copy(update={"reason": reason})
        if lengths.finding == "shorter":
            return decision.model_copy(update={"verdict": "no", "reason": reason, "more_prompts": None})
        why = "the standard may truncate its answers, or the other arm may not stop"
        if lengths.standard_cut:
            cut = lengths.standard_cut
            why = f"the standard truncates: {cut} of its answers end at the length limit before the other's"
        changed = {"verdict": "undecided", "reason": f"{lengths} ({why}); {decision.reason}"}
        return decision.model_copy(update=changed | {"more_prompts": None})
    if lengths.finding == "open" and decision.verdict == "yes" and lengths.more_prompts != 0:
        more = lengths.more_prompts
        takes = f"about {more} more prompts would decide" if more else "more prompts would hardly decide"
        changed = {"verdict": "undecided", "reason": f"{lengths} ({takes}); {decision.reason}"}
        return decision.model_copy(update=changed | {"more_prompts": more})
    return decision


def most_prompts(undecided: Iterable[Decision]) -> int | None:
    needed = [decision.more_prompts for decision in undecided]
    known = [more for more in needed if more is not None]
    return max(known) if known and len(known) == len(needed) else None
