"""Segments in, findings out. Pure.

The requests of a phase are paired: each server was sent the same ones in the same pass. A pass is one cluster
of a ratio of mean times (stats/paired.py), since requests that ran side by side are not independent.

The best of several settings was partly lucky, so a ratio to it would look worse than it is. Against this:

- The estimate is taken on halves. The best setting of the even passes is compared on the odd ones, and the
  other way round, so that no setting is compared on the passes that chose it.
- The interval holds for all settings at the same time (Bonferroni, over settings, phases and the whole). The
  adaptive server is at most as fast, relative to the best setting, as relative to any. So the interval goes
  from the least of the lower ends to the least of the upper ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from specops import stats
from specops.config import LoadPhase
from specops.phases.referee.dynamics import Course, Floats, adaptation_of, swings_of
from specops.phases.referee.records import (
    ADAPTIVE,
    OFF,
    Adaptation,
    Findings,
    PhaseFinding,
    SegmentRecord,
    Swing,
    Word,
)
from specops.render.figures import count
from specops.stats import Interval

FEWEST_PASSES = 4
"""Passes without which a phase is not judged: they are the clusters of its intervals."""

FEWEST_REQUESTS = 8
"""Requests of a pass without which a phase is too short."""


@dataclass(frozen=True)
class Limits:
    confidence: float
    """Of all ratios together."""

    margin: float
    length_margin: float
    max_error_share: float
    failure_margin: float
    """Share of requests that may fail beyond that of off before a yes."""


@dataclass(frozen=True)
class Answered:
    """One whole answer."""

    at_s: float
    """When it was sent, in seconds since the beginning of the segment."""

    e2e_ms: float
    tokens: int | None = None
    drafting: float | None = None
    """Drafted tokens for each token of the answer."""

    prompt_tokens: int | None = None


@dataclass(frozen=True)
class Segment:
    """One phase of the programme on one server, in one pass."""

    arm: str
    phase: int
    pass_number: int
    began: float
    answers: Mapping[tuple[str, str], Answered]
    """By prompt and variant, in the order of sending."""

    requests: int
    sent: int
    """Those, and the ones before and after them that fill the streams."""

    failures: int
    """Of all that were sent."""

    unusable: str = ""
    """Why its times say nothing; empty where they do."""

    @classmethod
    def of_record(cls, record: SegmentRecord) -> Segment:
        cell = record.cell
        sent = [row for row in cell.sent if row.part != "warm-up"]
        start_s = min((row.sent_s for row in sent), default=0.0)
        answers = {
            (row.prompt, row.variant): Answered(
                row.sent_s - start_s,
                row.e2e_ms,
                row.tokens,
                row.drafted / row.tokens if row.drafted is not None and row.tokens else None,
                row.prompt_tokens,
            )
            for row in sorted(cell.rows, key=lambda row: row.sent_s)
            if row.error is None
        }
        unusable = cell.client_bound or ("" if cell.complete else cell.aborted or "it was stopped")
        return cls(
            arm=record.arm,
            phase=record.phase,
            pass_number=record.pass_number,
            began=record.began,
            answers=answers,
            requests=len(cell.rows),
            sent=len(cell.sent),
            failures=cell.failed,
            unusable=unusable,
        )


def judge(
    segments: Iterable[Segment], phases: Sequence[LoadPhase], statics: Sequence[str], limits: Limits
) -> Findings:
    """Judge the adaptive server against off and the static settings, by phase and over the programme."""
    return _Judge(list(segments), phases, statics, limits).findings()


class _Judge:
    def __init__(
        self, segments: list[Segment], phases: Sequence[LoadPhase], statics: Sequence[str], limits: Limits
    ) -> None:
        self.segments, self.phases, self.statics, self.limits = segments, phases, statics, limits
        self.usable = {
            (segment.arm, segment.phase, segment.pass_number): segment
            for segment in segments
            if not segment.unusable
        }
        self.passes = sorted({segment.pass_number for segment in segments})
        error = 1 - limits.confidence
        self.level = 1 - error / ((len(phases) + 1) * (len(statics) + 1))
        self.phase_level = 1 - error / len(phases)
        self.least_ratio = 1 / (1 + limits.margin)

    def findings(self) -> Findings:
        phases = [self._phase(number) for number in range(len(self.phases))]
        everything = range(len(self.phases))
        left_out = {name for phase in phases for name in phase.left_out}
        statics = [name for name in self.statics if name not in left_out]
        judged = all(phase.verdict != "unknown" for phase in phases)
        off = self._ratio(OFF, everything) if judged else None
        static, best = self._against_best(statics, everything) if judged else (None, None)
        return Findings(
            verdict=_overall([phase.verdict for phase in phases], off),
            phases=phases,
            off=off,
            static=static,
            best=best,
            collapses=list(self._collapses(phases)),
        )

    def _phase(self, number: int) -> PhaseFinding:
        failing = {name: why for name in self.statics if (why := self._failing(name, number))}
        unknown = {
            name: why
            for name in self.statics
            if name not in failing and (why := self._unfit(name, number) or self._other_lengths(name, number))
        }
        left_out = failing | unknown
        statics = [name for name in self.statics if name not in left_out]
        off = self._ratio(OFF, [number])
        static, best = self._against_best(statics, [number])
        nearest, _ = self._against_best([OFF, *statics], [number])
        verdict, why = self._verdict(number, off, static, nearest, unknown, failing)
        collapse = (
            verdict == "loses"
            and off is not None
            and static is not None
            and max(off.high, static.high) < self.least_ratio
        )
        adaptation, swings, swings_unknown = self._dynamics(number, statics, best, verdict)
        regret = nearest.inverse if nearest is not None else None
        return PhaseFinding(
            load=self.phases[number].load,
            traffic=self.phases[number].traffic,
            verdict=verdict,
            why=why,
            passes=len(self._passes_of([OFF, ADAPTIVE], [number])),
            requests=len(self._pairs(OFF, [number])),
            off=off,
            static=static,
            best=best,
            regret=None
            if regret is None
            else Interval(regret.estimate - 1, regret.low - 1, regret.high - 1, regret.n, regret.level),
            collapse=collapse,
            adaptation=adaptation,
            swings=swings,
            swings_unknown=swings_unknown,
            left_out=left_out,
        )

    # --- what the segments allow to say

    def _verdict(
        self,
        number: int,
        off: Interval | None,
        static: Interval | None,
        nearest: Interval | None,
        unknown: Mapping[str, str],
        failing_statics: Mapping[str, str],
    ) -> tuple[Word, str]:
        reference = self._unfit(OFF, number)
        if reference:
            return "unknown", f"off: {reference}"
        (failures, sent), (off_failures, off_sent) = (self._failures(arm, number) for arm in (ADAPTIVE, OFF))
        more = failures / sent - off_failures / off_sent > self.limits.failure_margin if sent else False
        failing = self._failing(ADAPTIVE, number)
        if failing and more:
            return "loses", f"{failing}, {off_failures} of {off_sent} with off"
        wrong = self._unfit(ADAPTIVE, number) or self._other_lengths(OFF, number)
        if wrong:
            return "unknown", wrong
        if static is None or off is None or nearest is None:
            left_out = {**failing_statics, **unknown}
            if not self.statics:
                return "unknown", "all static settings failed"
            reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
            outweighed = "one pass outweighs the others: the machine's own speed changed"
            return "unknown", reasons if len(left_out) == len(self.statics) else outweighed
        if off.high < 1:
            return "loses", "surely slower than off"
        if nearest.high < self.least_ratio:
            return "loses", f"the best fixed setting is surely over {self.limits.margin:.0%} faster"
        if unknown:
            return "unknown", "; ".join(f"{name} was not compared: {why}" for name, why in unknown.items())
        if more:
            return "undecided", f"{failures} of {sent} requests failed, {off_failures} of {off_sent} with off"
        near = nearest.low > self.least_ratio
        if near and off.low > 1:
            return "pays", ""
        if near:
            return "even", "a gain over off is not shown"
        return "undecided", f"a fixed setting may be over {self.limits.margin:.0%} faster"

    def _unfit(self, arm: str, number: int) -> str:
        """Why a server's times in a phase say nothing; empty where they do."""
        segments = [segment for segment in self.segments if (segment.arm, segment.phase) == (arm, number)]
        usable = [segment for segment in segments if not segment.unusable]
        if len(usable) < FEWEST_PASSES:
            unusable = [segment.unusable for segment in segments if segment.unusable]
            why = f": {unusable[0]}" if unusable else ""
            return f"{len(usable)} of {len(self.passes)} passes can be used, expected {FEWEST_PASSES}{why}"
        fewest = min(segment.requests for segment in usable)
        if fewest < FEWEST_REQUESTS:
            return f"too short: {count(fewest, 'request')} in a pass, expected {FEWEST_REQUESTS}"
        return self._failing(arm, number)

    def _failures(self, arm: str, number: int) -> tuple[int, int]:
        """The number of failed requests of a phase, and of all that were sent."""
        segments = [segment for segment in self.segments if (segment.arm, segment.phase) == (arm, number)]
        return sum(segment.failures for segment in segments), sum(segment.sent for segment in segments)

    def _failing(self, arm: str, number: int) -> str:
        failures, sent = self._failures(arm, number)
        return f"{failures} of {sent} requests failed" * (failures > self.limits.max_error_share * sent)

    def _other_lengths(self, fixed: str, number: int) -> str:
        """Why the answers of a server are not as long as the adaptive one's, so that their times differ."""
        pairs = self._pairs(fixed, [number])
        tokens = [(own.tokens, standard.tokens) for _, standard, own in pairs]
        if any(None in pair for pair in tokens):
            return "the lengths of answers are not known: give measure.tokenizer"
        adaptive, reference = (sum(pair[place] or 0 for pair in tokens) for place in (0, 1))
        if tokens and abs(adaptive / max(reference, 1) - 1) > self.limits.length_margin:
            return f"the adaptive answers have {adaptive / max(reference, 1):.2f} times the tokens of {fixed}"
        read = [(own.prompt_tokens, standard.prompt_tokens) for _, standard, own in pairs]
        counted = [pair for pair in read if None not in pair]
        adaptive, reference = (sum(pair[place] or 0 for pair in counted) for place in (0, 1))
        if counted and abs(adaptive / max(reference, 1) - 1) > self.limits.length_margin:
            return f"the adaptive server reads {adaptive / max(reference, 1):.2f} times the tokens of {fixed}"
        return ""

    # --- ratios

    def _passes_of(self, arms: Sequence[str], phases: Iterable[int]) -> list[int]:
        places = [(arm, phase) for arm in arms for phase in phases]
        return [number for number in self.passes if all((*place, number) in self.usable for place in places)]

    def _pairs(
        self, fixed: str, phases: Sequence[int], passes: Sequence[int] | None = None
    ) -> list[tuple[int, Answered, Answered]]:
        """Pass, answer of the fixed setting, answer of the adaptive server, of the same requests."""
        numbers = self._passes_of([fixed, ADAPTIVE], phases)
        pairs = []
        for number in numbers if passes is None else sorted({*numbers} & {*passes}):
            for phase in phases:
                standard = self.usable[fixed, phase, number].answers
                own = self.usable[ADAPTIVE, phase, number].answers
                pairs += [(number, standard[key], answer) for key, answer in own.items() if key in standard]
        return pairs

    def _ratio(self, fixed: str, phases: Sequence[int]) -> Interval | None:
        """Time of a fixed setting over that of the adaptive server; None with too few passes."""
        pairs = self._pairs(fixed, phases)
        numbers = [number for number, _, _ in pairs]
        if len(set(numbers)) < FEWEST_PASSES:
            return None
        began = {number: self.usable[ADAPTIVE, phases[0], number].began for number in set(numbers)}
        return stats.paired_ratio(
            [standard.e2e_ms for _, standard, _ in pairs],
            [own.e2e_ms for _, _, own in pairs],
            level=self.level,
            clusters=numbers,
            instants=began,
        )

    def _against_best(
        self, settings: Sequence[str], phases: Sequence[int]
    ) -> tuple[Interval | None, str | None]:
        """The ratio to the best of several settings, and its name over all passes; the head of this file says
        how. None where a setting has too few passes."""
        ratios = [ratio for name in settings if (ratio := self._ratio(name, phases)) is not None]
        if not settings or len(ratios) < len(settings):
            return None, None
        numbers = self._passes_of([*settings, ADAPTIVE], phases)
        halves = numbers[::2], numbers[1::2]
        times = np.zeros(2)
        for half, chosen_on in (halves, halves[::-1]):
            best = min(settings, key=partial(self._time_ratio, phases=phases, passes=chosen_on))
            times += self._times(best, phases, half)
        low, high = min(ratio.low for ratio in ratios), min(ratio.high for ratio in ratios)
        estimate = min(max(float(times[0] / times[1]), low), high) if times[1] else low
        interval = Interval(estimate, low, high, min(ratio.n for ratio in ratios), self.level)
        return interval, min(settings, key=partial(self._time_ratio, phases=phases, passes=numbers))

    def _times(self, fixed: str, phases: Sequence[int], passes: Sequence[int]) -> tuple[float, float]:
        pairs = self._pairs(fixed, phases, passes)
        return sum(standard.e2e_ms for _, standard, _ in pairs), sum(own.e2e_ms for _, _, own in pairs)

    def _time_ratio(self, fixed: str, phases: Sequence[int], passes: Sequence[int]) -> float:
        standard_ms, own_ms = self._times(fixed, phases, passes)
        return standard_ms / own_ms if own_ms else 1.0

    # --- within a phase

    def _dynamics(
        self, number: int, statics: Sequence[str], best: str | None, verdict: Word
    ) -> tuple[Adaptation | None, list[Swing], str | None]:
        phase, before = self.phases[number], self.phases[number - 1]
        if best is None or verdict == "unknown":
            return None, [], None
        first = [] if number else self.passes[:1]  # nothing comes before it
        fixed = [OFF, *statics]
        passes = self._passes_of([*fixed, ADAPTIVE], [number])
        courses = {name: self._course(number, name, fixed, best) for name in passes}
        adaptation = None
        if str(phase) != str(before) and phase.streams is not None:  # else queues grow, and load varies
            changed = [course for name, course in courses.items() if name not in first]
            margin = self.limits.margin
            adaptation = adaptation_of(changed, verdict, margin, self.phase_level)
        if phase.streams is None:  # the load itself varies
            return adaptation, [], None
        adapted = adaptation is not None and adaptation.outcome in ("adapts", "slows")
        since_s = (adaptation.time_s or 0.0) if adaptation is not None and adapted else 0.0
        swings, unknown = swings_of(list(courses.values()), since_s, self.limits.margin, self.phase_level)
        return adaptation, swings, unknown

    def _course(self, phase: int, number: int, fixed: Sequence[str], best: str) -> Course:
        own = self.usable[ADAPTIVE, phase, number].answers
        by_arm = {name: self.usable[name, phase, number].answers for name in fixed}
        keys = [key for key in own if all(key in answers for answers in by_arm.values())]

        def times_ms(answers: Mapping[tuple[str, str], Answered]) -> Floats:
            return np.array([answers[key].e2e_ms for key in keys])

        drafting = [own[key].drafting for key in keys]
        return Course(
            at_s=np.array([own[key].at_s for key in keys]),
            adaptive_ms=times_ms(own),
            off_ms=times_ms(by_arm[OFF]),
            static_ms=times_ms(by_arm[best]),
            fixed_ms=np.mean([times_ms(answers) for answers in by_arm.values()], axis=0),
            drafting=np.array([np.nan if share is None else share for share in drafting]),
        )

    # --- thresholds

    def _collapses(self, phases: Sequence[PhaseFinding]) -> Iterator[str]:
        """Where it collapses: the lightest such load of each kind of traffic, and the next lighter one."""
        loads: dict[tuple[str, str], list[tuple[float, PhaseFinding]]] = defaultdict(list)
        for phase, finding in zip(self.phases, phases, strict=True):
            if phase.ramp is not None:
                if finding.collapse:
                    yield f"collapse in the {phase}"
            else:
                kind = "rate" if phase.streams is None else "streams"
                loads[kind, phase.traffic].append((phase.rate or phase.streams or 0.0, finding))
        for (_, traffic), findings in loads.items():
            of_traffic = f" ({traffic})" if traffic else ""
            lightest = min((load for load, finding in findings if finding.collapse), default=None)
            if lightest is None:
                continue
            name = next(finding.load for load, finding in findings if load == lightest)
            lighter = [
                (load, finding.load)
                for load, finding in findings
                if load < lightest and finding.verdict in ("pays", "even", "undecided", "loses")
            ]
            if lighter:
                yield f"collapse between {max(lighter)[1]} and {name}{of_traffic}"
            elif lightest > min(load for load, _ in findings):
                yield f"collapse at {name}{of_traffic}; lighter loads are unknown"
            elif len(loads) == 1:
                yield f"collapse at {name}{of_traffic}, the lightest load of the programme"
            else:
                yield f"collapse at {name}{of_traffic}, the lightest load of its kind"


def _overall(verdicts: Sequence[Word], off: Interval | None) -> Word:
    if "loses" in verdicts:
        return "loses"
    if "unknown" in verdicts:
        return "unknown"
    gains = off is not None and off.low > 1
    return "pays" if gains and set(verdicts) <= {"pays", "even"} else "undecided"
