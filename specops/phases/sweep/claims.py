"""The claims on a setting, as `ab` has them (specops.experiment.claims), from the cells of a sweep. Pure.

Rungs compare times (speedups.py). Every request that was sent is counted, warm-up too, and answers are
compared by the claims of specops.experiment. The choice selects: there, only a sign against a setting takes a
yes away. What it selects so looks better than it is, in rare events as in speed. So a confirmed setting pays
only where the requests of the confirmation alone, all loads together, bound rare events within the margins of
the rollout file, and an event of the choice counts as well.

What divides the samples of a sweep: repeats that come from a cache, the place in a visit, and time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from statistics import fmean, median
from typing import Self

from specops import stats
from specops.config import Ab
from specops.experiment import answer_claims, answers, claims, sentences
from specops.experiment.claims import LEAST_GAIN, ONE_SIDED, Evidence, judge_first_token, judge_length
from specops.experiment.decide import decide_claims
from specops.experiment.factors import CONFIDENCE
from specops.experiment.findings import Basis, Cause, ClaimName, Decision, Finding, Part, Ternary
from specops.experiment.records import Place, WindowRecord
from specops.experiment.sentences import describe
from specops.load.validity import CACHED
from specops.phases.sweep.plan import SweptCell
from specops.phases.sweep.speedups import Pairs, Stratum, SweepCells, hanging
from specops.stats import Interval, Times, shares

LARGEST_UNKNOWN = 1.15
"""An open length leaves a yes, per token, where a larger difference, either way, is excluded."""

STRETCH = 6
"""Requests of one server, in the order of time, whose mean is one value of a series."""

NOTABLE = 1.05
"""A change by less than a twentieth is not flagged, however sure: nobody would act on it."""


@dataclass(frozen=True)
class SweptEvidence(Evidence):
    """A setting and the standard at one concurrency. Late requests are those that hung."""

    cells: Sequence[SweptCell] = ()

    @cached_property
    def late(self) -> set[int]:
        """Identities of the rows of requests that hung."""
        return hanging(self.cells, self.standard)


def evidence_on(
    cells: Sequence[SweptCell],
    standard: str,
    setting: str,
    settings: Ab,
    margins: Mapping[Place, float | None],
) -> SweptEvidence:
    """Return all that was sent to `setting` and to the standard in `cells`."""
    arm_cells = [cell for cell in cells if cell.setting in (standard, setting)]
    temperature = max((cell.temperature for cell in arm_cells), default=0.0)
    return SweptEvidence(
        windows_of(arm_cells),
        standard,
        setting,
        settings,
        temperature,
        math.inf,
        margins=margins,
        cells=arm_cells,
    )


def windows_of(cells: Iterable[SweptCell]) -> list[WindowRecord]:
    """Return the cells as an experiment has them."""
    return [
        WindowRecord(
            cycle=cell.rung,
            kind="measured",
            level=record.level,
            order=cell.turn,
            period=cell.rung,
            arm=cell.setting,
            began=cell.began,
            cell=record,
        )
        for cell in cells
        for record in (cell.cell, cell.again)
        if record is not None
    ]


def of_requests(evidence: Evidence, *, sampled: bool = True) -> list[Finding]:
    """The findings on all requests to a setting: failures, answers, what a prompt was read as, speculation.
    Without `sampled`, none on the distribution of sampled answers, which takes the longest."""
    failures = claims.failures(evidence)[0]
    troubled = [
        row
        for window in evidence.windows
        if window.arm == evidence.challenger
        for row in window.cell.sent
        if row.error or row.retries or id(row) in evidence.late
    ]
    if troubled and all(row.part == "warm-up" for row in troubled):
        failures = failures.model_copy(update={"scope": "warm-up"})
    return [
        failures,
        _acceptable_answers(evidence),
        *([answer_claims.sampled_answers(evidence)] if sampled else []),
        claims.gain_of_speculation(evidence),
        *answer_claims.same_prompts_read(evidence),
    ]


_SEVERITY = ("shown", "unknown", "open", "against")


def worst_of(lists: Sequence[Sequence[Finding]]) -> list[Finding]:
    """Return the worst finding on each claim; of equal ones the first."""
    worst: dict[tuple[ClaimName, bool], Finding] = {}
    for finding in chain.from_iterable(lists):
        claim = finding.claim, finding.cause == "other prompts"
        earlier = worst.get(claim)
        if earlier is None or _SEVERITY.index(finding.verdict) > _SEVERITY.index(earlier.verdict):
            worst[claim] = finding
    return list(worst.values())


def _acceptable_answers(evidence: Evidence) -> Finding:
    """Before it is known how sure the standard was of its tokens, later differences of greedy answers are
    open, however many: they may be near ties. Different beginnings are another model."""
    finding = answer_claims.acceptable_answers(evidence)[0]
    if evidence.margins or finding.verdict != "against" or finding.cause != "other answers":
        return finding
    standard, setting = (
        answers.greedy_answers(evidence.windows, arm) for arm in (evidence.standard, evidence.challenger)
    )
    differences = answers.compare_greedy(standard, setting).differences
    beginnings = {difference.prompt for difference in differences if difference.character < answers.OPENING}
    sure = len(beginnings) >= answer_claims.SURE_DIFFERENCES
    return finding if sure else finding.model_copy(update={"verdict": "open"})


def of_speed(pairs: Pairs, where: Stratum, confidence: float, margins: Ab, *, sampled: bool) -> list[Finding]:
    """The findings on the times and lengths of one setting somewhere: the wait, the length, the first
    token."""
    scope = {"load": where.level, "traffic_class": where.traffic_class}
    margin = max(margins.length_margin, claims.SAMPLED_LENGTH_MARGIN) if sampled else margins.length_margin
    tokens, characters = (
        judge_length(
            pairs.ratio(unit, confidence), margin, len(pairs.means(unit)), margins.accept_length_change
        )
        for unit in ("tokens", "characters")
    )
    counted = 2 * tokens.n >= len(pairs.all)
    lengths = characters if characters.verdict == "against" and tokens.verdict != "against" else tokens
    lengths = lengths if counted else characters
    if lengths.ratio is None:
        lengths = lengths.model_copy(update={"needs": max(stats.MIN_PAIRS - len(pairs.all), 1)})
    basis: Basis = "e2e"
    if lengths.verdict != "shown" or lengths.cause == "accepted":
        basis = "tpot" if pairs.means("tpot") else "per_character"
    first_token = judge_first_token(
        pairs.ratio("ttft", 2 * ONE_SIDED - 1), pairs.means("ttft"), margins, len(pairs.all)
    )
    findings = [_wait(pairs, basis, confidence), lengths, first_token]
    return [finding.model_copy(update=scope) for finding in findings]


def _wait(pairs: Pairs, basis: Basis, confidence: float) -> Finding:
    ratio = pairs.ratio(basis, confidence)
    per_token = pairs.ratio("tpot", confidence) if basis == "e2e" else None
    if ratio and per_token and ratio.low > 1 and per_token.estimate - 1 < (ratio.estimate - 1) / 2:
        finding = _wait(pairs, "tpot", confidence)  # what speculation gains, and no more
        return finding if finding.verdict == "shown" else finding.model_copy(update={"verdict": "open"})
    verdict: Ternary = "open"
    cause: Cause | None = None
    needs = stats.pairs_needed(ratio) if ratio else max(stats.MIN_PAIRS - len(pairs.all), 1)
    if ratio is None:
        cause = "few windows"
    elif ratio.low > LEAST_GAIN:
        verdict = "shown"
    elif ratio.high < LEAST_GAIN:
        verdict = "against"
    elif _starts_hide(pairs, basis, confidence):
        cause, needs = "starts", None
    return Finding(
        claim="wait",
        verdict=verdict,
        ratio=ratio,
        bound=ratio.low if ratio else None,
        margin=LEAST_GAIN,
        n=ratio.n if ratio else len(pairs.all),
        basis=basis,
        cause=cause,
        needs=needs if verdict == "open" else None,
    )


def _starts_hide(pairs: Pairs, basis: Basis, confidence: float) -> bool:
    """Return whether the prompts alone would decide, and the few starts of the servers leave it open."""
    alone = Pairs(pairs.all).ratio(basis, confidence)
    return alone is not None and (alone.low > LEAST_GAIN or alone.high < 1)


@dataclass(frozen=True)
class Division:
    """What divides the requests of a setting and of the standard at one concurrency."""

    repeats: tuple[Interval | None, Interval | None] = (None, None)
    """First requests' time over their repeats': the standard's, the setting's."""

    turns: Mapping[tuple[int, int], Interval] = field(default_factory=dict)
    """The speed-up in each turn of each rung alone."""

    places: Sequence[Sequence[Times]] = ()
    """What the standard and the setting took of the first request of each visit, of the second one, and so
    on."""

    changes: Mapping[str, ServerChange] = field(default_factory=dict)
    """By arm, how its own speed changed during the sweep."""

    client_bound: str | None = None

    @classmethod
    def from_cells(cls, swept: SweepCells, evidence: SweptEvidence, where: Stratum) -> Division:
        bounds = (window.cell.client_bound for window in evidence.windows)
        setting = evidence.challenger
        changes = {
            arm: change
            for arm, favourable in ((evidence.standard, min), (setting, max))
            if (change := ServerChange.of(evidence, arm, favourable)) is not None
        }
        return cls(
            (swept.repeats(swept.standard, where), swept.repeats(setting, where)),
            swept.by_turn(setting, where),
            swept.by_place(setting, where),
            changes,
            next((bound for bound in bounds if bound), None),
        )

    def limit(self, wait: Finding) -> Finding:
        """Return `wait`, unless something that divides the requests may have made the gain, or may be why
        starts of a server differ."""
        if wait.verdict != "shown" and wait.cause != "starts":
            return wait
        if self.client_bound:
            update = {"verdict": "open", "cause": "client", "examples": [self.client_bound]}
            return wait.model_copy(update=update)
        causes: Mapping[Cause, list[Part]] = {
            "repeat": self._cached(),
            "place": self._woke(),
            "time": self._drifted(wait.ratio) or self._changed(wait.ratio),
        }
        for cause, parts in causes.items():
            if parts:
                return wait.model_copy(
                    update={"verdict": "open", "cause": cause, "parts": parts, "needs": None}
                )
        return wait

    def _cached(self) -> list[Part]:
        """Repeats from a cache that only the setting has. Where the setting had no repeats, a cache of the
        standard's is one that the setting may share, and the standard goes first."""
        standard, setting = self.repeats
        if setting is None:
            shared = standard is not None and standard.low > CACHED
            return [Part(name="as long in the standard's first requests as in its repeats", ratio=standard)][
                :shared
            ]
        if setting.low <= CACHED or (standard is not None and standard.high >= setting.low):
            return []
        return [Part(name="as long in first requests as in repeats", ratio=setting)]

    def _woke(self) -> list[Part]:
        """Visits that begin with a higher speed-up than they go on with, where only the beginning shows a
        gain: the standard had been idle, and woke up. In production it would not be idle."""
        ratios = [
            math.exp(fmean(math.log(standard_ms / setting_ms) for standard_ms, setting_ms in took))
            for took in self.places
            if took
        ]
        start = stats.changed_start(ratios)
        if start is None or start[1].low <= NOTABLE:
            return []
        place, change = start
        later = [pair for took in self.places[place:] for pair in took]
        ratio = stats.paired_ratio(*zip(*later, strict=True)) if later else None
        if ratio is not None and ratio.low > 1:
            return []
        return [
            Part(name=f"as high in about the first {place} requests of each visit", ratio=change),
            Part(name="in the later ones", ratio=ratio),
        ]

    def _drifted(self, speedup: Interval | None) -> list[Part]:
        """Turns that surely differ, where one does not show the gain or an even change of one server could
        have made it. Of a latency that grows evenly to R times, the mean is (1 + R) / 2 of what it was at
        first."""
        if not self.turns:
            return []
        least = min(self.turns, key=lambda turn: self.turns[turn].high)
        most = max(self.turns, key=lambda turn: self.turns[turn].low)
        if self.turns[most].low <= self.turns[least].high:
            return []
        drift = (1 + self.turns[most].estimate / self.turns[least].estimate) / 2
        exceeds = speedup is not None and speedup.low > drift
        if (
            exceeds and self.turns[least].low > NOTABLE
        ):  # a turn has noise of its own, which its interval lacks
            return []
        return [
            Part(name=f"in turn {turn + 1} of rung {rung + 1}", ratio=self.turns[rung, turn])
            for rung, turn in sorted((least, most))
        ]

    def _changed(self, speedup: Interval | None) -> list[Part]:
        """A server whose own speed changed within its turns, where the gain is less than what the change
        made of it: a standard that slows down makes any setting faster. What both servers share, such as a
        machine that slows down, pairs have cancelled."""
        lows, highs = ([getattr(c.ratio, end) for c in self.changes.values()] for end in ("low", "high"))
        if len(self.changes) == 2 and max(lows) <= min(highs):
            return []
        made = math.prod(change.made for change in self.changes.values())
        if speedup is None or speedup.low / made > NOTABLE:
            return []
        return [
            Part(name=f"as long in {arm}'s later requests as in its earlier ones", ratio=change.ratio)
            for arm, change in sorted(self.changes.items())
        ]


@dataclass(frozen=True)
class ServerChange:
    """A lasting change of one server's speed, from its own requests in the order of time."""

    ratio: Interval
    """How many times as long later requests take as earlier ones, for the same prompts."""

    made: float
    """By how much it changed the server's mean from that of its less favourable state."""

    @classmethod
    def of(cls, evidence: SweptEvidence, arm: str, state: Callable[[Iterable[float]], float]) -> Self | None:
        """None where it surely or notably did not change. `state` picks the less favourable of its mean
        logarithms of time before and after the change: the least of the standard."""
        sent: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
        for cell in evidence.cells:
            for row in cell.cell.rows if cell.setting == arm else ():
                if row.error is None and id(row) not in evidence.outliers and row.e2e_ms > 0:
                    instant = cell.began + row.sent_s
                    sent[row.prompt, row.temperature].append((instant, math.log(row.e2e_ms)))
        beside_usual = sorted(
            (instant, value - median(log for _, log in times))
            for times in sent.values()
            for instant, value in times
        )
        values = [value for _, value in beside_usual]
        stretches = [fmean(values[at : at + STRETCH]) for at in range(0, len(values) - STRETCH + 1, STRETCH)]
        step = stats.largest_step(stretches, CONFIDENCE)
        if step is None or step[1].low <= 1 <= step[1].high or 1 / NOTABLE < step[1].estimate < NOTABLE:
            return None
        place, ratio = step
        unlike = state((fmean(stretches[:place]), fmean(stretches[place:])))
        return cls(ratio, math.exp(abs(fmean(stretches) - unlike)))


def decide(findings: Sequence[Finding], margins: Ab, *, confirmed: bool) -> Decision:
    """The decision on a setting somewhere, from all findings on it; one is on the wait. Before it is
    confirmed, what is not shown only matters where something is a sign against it."""
    needed = [finding for finding in findings if confirmed or not _without_a_sign(finding)]
    return decide_claims(needed)


def _without_a_sign(finding: Finding) -> bool:
    """Return whether a claim that is not shown has no sign against it either."""
    if finding.verdict not in ("open", "unknown"):
        return False
    match finding.claim:
        case "failures":
            counts = finding.counts
            return counts is not None and (
                counts.challenger * counts.standard_n <= counts.standard * counts.challenger_n
            )
        case "answers":
            return finding.cause != "other prompts" and not _surely_more(finding)
        case "length":
            return finding.bound is not None and finding.bound <= LARGEST_UNKNOWN
        case "sampled answers" | "first token" | "speculation":
            return True
        case _:
            return False


def _surely_more(finding: Finding) -> bool:
    """Return whether answers are surely unacceptable more often than the standard's."""
    counts = finding.counts
    if counts is None or finding.cause == "other answers":
        return False
    return (
        shares.difference_lower(
            counts.standard, counts.standard_n, counts.challenger, counts.challenger_n, ONE_SIDED
        )
        > 0
    )


def noted(findings: Sequence[Finding]) -> list[str]:
    """Sentences on what was observed and takes no yes away: events within their margins, and what `ab` notes
    as well."""
    events = [
        finding
        for finding in findings
        if finding.claim in ("failures", "answers")
        and finding.counts is not None
        and finding.counts.challenger
    ]
    return [*map(describe, events), *sentences.noted(findings)]
