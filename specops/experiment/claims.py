"""What must hold before a challenger is deployed: a fixed list, each with its margin. Pure.

Superiority in the time that a user waits; non-inferiority in everything else. A deployment needs all of
them, so each is tested at its own level (an intersection-union test: Berger, Technometrics 1982), and
their number costs no confidence. Rare events are counted over all loads together, since n requests
without an event bound their share by about 3/n; each load's count stands beside it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

from specops import stats
from specops.config import Ab
from specops.experiment import answers
from specops.experiment.factors import CONFIDENCE, FACTORS, NOTABLE, OF_TRAFFIC
from specops.experiment.findings import Basis, Cause, Counts, Finding, Part, Ternary
from specops.experiment.judge import judge
from specops.experiment.records import Place, WindowRecord, levels_of, sent_to
from specops.experiment.samples import FIGURES, Lateness, Sample, pair_up, ratio_of, waited_ms
from specops.load.arrivals import Level
from specops.load.record import Row, acceptance, positive
from specops.load.request_times import Objectives
from specops.load.workload import OWN_HISTORY
from specops.stats import shares

ONE_SIDED = 0.95
"""Confidence of a bound of non-inferiority: none of n events then bounds a share by 3/n."""

LEAST_GAIN = 1.01
"""The lower end of a speed-up must exceed it: the interval has the noise of requests, and not the
client's own error, which differs between servers that keep and close their connections."""

BESIDE_MARGIN = 0.9
"""In an open loop, and of sampled requests beside greedy ones, the speed-up must surely exceed it."""

MOST_UNMATCHED = 0.1
"""Share of the turns on own answers that may have no partner: the gain of more of them is not observed."""

SAMPLED_LENGTH_MARGIN = 0.1
"""Sampled answers vary in length, so that 3% would take thousands of them."""

BesideFigure = Literal["e2e", "equal_length"]
"""End to end; where answers differ in length, as if they did not: a longer answer is no slower one."""

ALWAYS = 2
"""A prompt always fails that fails in so many requests, and in no request does not."""


@dataclass(frozen=True)
class Evidence:
    """All that was observed of one challenger and the standard."""

    windows: Sequence[WindowRecord]
    standard: str
    challenger: str
    settings: Ab
    temperature: float
    timeout_ms: float
    objectives: Objectives = field(default_factory=Objectives)
    margins: Mapping[Place, float | None] = field(default_factory=dict)
    not_for: Collection[tuple[str, Level]] = ()
    """Classes that are surely slower at a load, where they are not to be deployed: they are late there, which
    says nothing of the others."""

    @cached_property
    def samples(self) -> list[Sample]:
        return pair_up(self.windows, self.standard, self.challenger)

    @cached_property
    def lateness(self) -> Lateness:
        return Lateness(self.windows, self.standard, self.objectives)

    @cached_property
    def levels(self) -> list[Level]:
        return levels_of(self.windows)

    @cached_property
    def classes(self) -> list[str]:
        return sorted({sample.traffic_class for sample in self.samples if sample.kind == "measured"})

    @cached_property
    def late(self) -> set[int]:
        """Identities of the rows that were answered late, where their class may be deployed."""
        return self._rows_that(self.lateness.is_late)

    @cached_property
    def outliers(self) -> set[int]:
        """Those of them that are far from what is usual in the standard."""
        return self._rows_that(self.lateness.is_outlier)

    def _rows_that(self, holds: Callable[[WindowRecord, Row], bool]) -> set[int]:
        return {
            id(row)
            for window in self.windows
            for row in window.cell.sent
            if (row.traffic_class, window.level) not in self.not_for and holds(window, row)
        }

    @cached_property
    def hopeless(self) -> set[tuple[str, float]]:
        """What always fails in both arms."""
        return always_failing(self.windows, self.standard) & always_failing(self.windows, self.challenger)

    @cached_property
    def unusable(self) -> dict[str, list[tuple[answers.Scope, Row, str]]]:
        """By arm, the answers that nobody can use. A text that both arms gave to one request is as good in
        both: a model that loops is no fault of speculation."""
        arms = (self.standard, self.challenger)
        texts_of_standard, texts_of_challenger = (
            {(row.prompt, row.variant, row.text) for row in sent_to(self.windows, arm) if row.error is None}
            for arm in arms
        )
        in_both_arms = texts_of_standard & texts_of_challenger
        accepted = {"stump"} if self.settings.accept_length_change else set()
        return {
            arm: [
                (scope, row, fault)
                for scope, row, fault in answers.unusable(self.windows, self.standard, arm)
                if fault not in accepted
                and not (fault in answers.OF_TEXT and (row.prompt, row.variant, row.text) in in_both_arms)
            ]
            for arm in arms
        }

    def at(self, level: Level, traffic_class: str | None = None) -> list[Sample]:
        return [
            sample
            for sample in self.samples
            if sample.kind == "measured"
            and sample.level == level
            and traffic_class in (None, sample.traffic_class)
        ]

    def unmatched(self, level: Level, traffic_class: str | None) -> float:
        """The share of the answered turns on own answers that no turn of the other arm is compared with, in
        windows that both arms have."""
        samples = self.at(level)
        cycles = {sample.cycle for sample in samples}
        sent = sum(
            OWN_HISTORY in row.variant and row.error is None and traffic_class in (None, row.traffic_class)
            for window in self.windows
            if window.kind == "measured" and window.level == level and window.cycle in cycles
            for row in (window.cell.rows if window.arm in (self.standard, self.challenger) else ())
        )
        matched = sum(
            OWN_HISTORY in sample.standard.variant and sample.answered
            for sample in samples
            if traffic_class in (None, sample.traffic_class)
        )
        return 1 - 2 * matched / sent if sent else 0.0

    def of_body(self, samples: Iterable[Sample]) -> list[Sample]:
        """Without requests that failed, were refused at first or were outliers in either arm: those are
        counted, not averaged."""
        return [
            s
            for s in samples
            if s.answered
            and not any(row.retries or id(row) in self.outliers for row in (s.standard, s.challenger))
        ]

    def of_classes(self, names: Collection[str]) -> Evidence:
        """The requests of some classes alone."""

        def of_these(rows: Sequence[Row]) -> tuple[Row, ...]:
            return tuple(row for row in rows if row.traffic_class in names)

        windows = []
        for window in self.windows:
            rows, beside = of_these(window.cell.rows), of_these(window.cell.beside)
            cell = window.cell.model_copy(update={"rows": rows, "beside": beside})
            windows.append(window.model_copy(update={"cell": cell}))
        return replace(self, windows=windows)

    def of_loads(self, levels: Collection[Level]) -> Evidence:
        """Some loads alone, and all windows in an open loop or with sampled requests."""
        windows = [window for window in self.windows if window.kind != "measured" or window.level in levels]
        return replace(self, windows=windows)

    @property
    def restarts(self) -> bool:
        return self.settings.design == "abba-restart"


def wait(
    evidence: Evidence, level: Level, traffic_class: str | None, basis: Basis, confidence: float
) -> Finding:
    """Superiority in the time that a user waits, end to end; per token where lengths differ."""
    sent = evidence.at(level, traffic_class)
    samples = evidence.of_body(sent)

    def estimate(part: Sequence[Sample]) -> Finding:
        ratio = ratio_of(part, basis, confidence, restarts=evidence.restarts)
        equal = ratio_of(part, "equal_length", confidence) if basis != "e2e" else ratio
        lacking = _lacking(ratio, part, len(sent), basis)
        verdict: Ternary = "open"
        if equal is None and ratio is not None:
            lacking = _lacking(None, part, len(sent), "equal_length")
        elif ratio is not None and equal is not None:
            if min(ratio.low, equal.low) > LEAST_GAIN:
                verdict = "shown"
            elif min(ratio.high, equal.high) < LEAST_GAIN:
                verdict = "against"
        return Finding(
            claim="wait",
            traffic_class=traffic_class,
            load=level,
            verdict=verdict,
            ratio=ratio,
            bound=ratio.low if ratio else None,
            margin=LEAST_GAIN,
            n=len(part),
            basis=basis,
            **lacking if verdict == "open" else {},
        )

    finding = estimate(samples)
    unmatched = evidence.unmatched(level, traffic_class)
    if finding.verdict == "shown" and unmatched > MOST_UNMATCHED:
        update = {"verdict": "open", "cause": "unmatched", "examples": [f"{unmatched:.0%}"]}
        return finding.model_copy(update=update)
    if finding.verdict == "shown" and _client_bound(evidence, level):
        return finding.model_copy(
            update={"verdict": "open", "cause": "client", "examples": [_client_bound(evidence, level)]}
        )
    if traffic_class is None:
        factors = (*(OF_TRAFFIC if len(evidence.classes) < 2 else ()), *FACTORS)
    else:  # what leaves a doubt is looked at over all classes together, which has more power
        factors = (*OF_TRAFFIC, *(factor for factor in FACTORS if factor.restrict))
    finding = judge(finding, samples, basis, estimate, evidence.settings.confidence, factors)
    if traffic_class is not None:
        decoding = ratio_of(samples, "tpot", confidence) if finding.verdict == "shown" else None
        if basis == "e2e" and decoding is not None and decoding.high < 1:
            return finding.model_copy(update={"verdict": "open", "cause": "not decoding", "needs": None})
        return finding
    if basis != "tpot" or finding.cause is not None:
        return finding
    whole, decoding = gains(evidence, level, confidence)
    if whole is None or decoding is None or whole.low <= max(decoding.high, LEAST_GAIN):
        return finding
    parts = [Part(name="end to end", ratio=whole), Part(name="per output token", ratio=decoding)]
    return finding.model_copy(update={"cause": "not decoding", "parts": parts})


def gains(
    evidence: Evidence, level: Level, confidence: float
) -> tuple[stats.Interval | None, stats.Interval | None]:
    """The speed-up of answers of equal length, and that per output token.

    Speculation shortens the time per output token. What is gained before the first token or after the last
    one comes from elsewhere, such as a limit, a queue or slow connections in front of the standard.
    """
    samples = evidence.of_body(evidence.at(level))
    whole, decoding = (
        ratio_of(samples, figure, confidence, restarts=evidence.restarts)
        for figure in ("equal_length", "tpot")
    )
    return whole, decoding


def _lacking(
    ratio: stats.Interval | None,
    body: Sequence[Sample],
    sent: int,
    figure: str,
    margin: float = LEAST_GAIN,
) -> dict[str, Any]:
    """What an open ratio lacks: further requests, or, of `sent` pairs of requests, any that can be
    compared."""
    if ratio is not None:
        more = stats.pairs_needed(ratio.times(1 / margin)) if ratio.estimate > margin else None
        return {"needs": more}
    if sent >= stats.MIN_PAIRS and not any(FIGURES[figure](sample) for sample in body):
        return {"cause": "incomparable"}
    return {"cause": "few windows", "needs": stats.MIN_PAIRS}


def _client_bound(evidence: Evidence, level: Level) -> str:
    arms = (evidence.standard, evidence.challenger)
    return next(
        (
            window.cell.client_bound
            for window in evidence.windows
            if window.kind == "measured"
            and window.level == level
            and window.arm in arms
            and window.cell.client_bound
        ),
        "",
    )


def cost_of_late(evidence: Evidence, level: Level) -> Finding:
    """Against, where the requests that fail or are late surely cost more than the others gain.

    A mean over all requests has an interval too wide to decide, since a few requests make it. The cost is at
    least the lower bound of their share times what such a request takes more; a failed one waits for its
    timeout.
    """
    windows = [window for window in evidence.windows if window.kind == "measured" and window.level == level]
    counts = _troubles(evidence, windows, evidence.outliers)
    finding = Finding(
        claim="failures", load=level, verdict="shown", cause="late", counts=counts, n=counts.challenger_n
    )
    troubled = [
        evidence.timeout_ms if row.error else waited_ms(row)
        for row in sent_to(windows, evidence.challenger)
        if row.error or id(row) in evidence.outliers
    ]
    body = evidence.of_body(evidence.at(level))
    if not troubled or not body:
        return finding
    share = shares.difference_lower(
        counts.standard, counts.standard_n, counts.challenger, counts.challenger_n, ONE_SIDED
    )
    standard, challenger = (
        fmean(waited_ms(row) for row in rows)
        for rows in zip(*((s.standard, s.challenger) for s in body), strict=True)
    )
    if share * (fmean(troubled) - challenger) > max(0.0, standard - challenger):
        return finding.model_copy(update={"verdict": "against"})
    return finding


def _troubles(evidence: Evidence, windows: Sequence[WindowRecord], late: Collection[int]) -> Counts:
    """Requests that failed, were refused at first, or are among `late`, in each arm. What always fails
    in both arms says nothing of either."""
    numbers = []
    for arm in (evidence.standard, evidence.challenger):
        rows = [
            row for row in sent_to(windows, arm) if (row.prompt, row.temperature) not in evidence.hopeless
        ]
        numbers += [
            sum(bool(row.error) or row.retries > 0 or id(row) in late for row in rows),
            len(rows),
        ]
    return Counts(standard=numbers[0], standard_n=numbers[1], challenger=numbers[2], challenger_n=numbers[3])


def always_failing(windows: Sequence[WindowRecord], arm: str) -> set[tuple[str, float]]:
    """The prompts and temperatures at which every request to `arm` failed, `ALWAYS` or more, while others
    were answered: of one prompt, or of all prompts at a temperature that a server does not take."""
    by_prompt: dict[tuple[str, float], list[bool]] = defaultdict(list)
    by_temperature: dict[float, list[bool]] = defaultdict(list)
    for row in sent_to(windows, arm):
        by_prompt[row.prompt, row.temperature].append(row.error is not None)
        by_temperature[row.temperature].append(row.error is not None)

    def always(failed: Sequence[bool]) -> bool:
        return all(failed) and len(failed) >= ALWAYS

    failing = {
        request
        for request, failed in by_prompt.items()
        if always(failed) or always(by_temperature[request[1]])
    }
    return failing if len(failing) < len(by_prompt) else set()


def _name_requests(requests: Collection[tuple[str, float]], windows: Sequence[WindowRecord]) -> list[str]:
    """The temperatures of which all requests are among `requests`, then the prompts of the others."""
    sent = {(row.prompt, row.temperature) for window in windows for row in window.cell.sent}
    whole = sorted({t for _, t in requests} - {t for _, t in sent - set(requests)})
    prompts = sorted({prompt for prompt, temperature in requests if temperature not in whole})
    return [*(f"temperature {temperature:g}" for temperature in whole), *prompts]


def failures(evidence: Evidence) -> list[Finding]:
    """Requests that fail, are refused or are late: over all together, and beside it each load alone."""
    margin = evidence.settings.failure_margin
    failing = always_failing(evidence.windows, evidence.challenger)
    findings = [
        judge_share(
            "failures",
            _troubles(evidence, evidence.windows, evidence.late),
            margin,
            _failure_examples(evidence, evidence.windows),
        )
    ]
    if only := failing - evidence.hopeless:
        examples = _name_requests(only, evidence.windows)
        update = {"verdict": "against", "cause": "always fails", "examples": examples}
        findings[0] = findings[0].model_copy(update=update)
    elif failing and findings[0].verdict == "shown":
        update = {"cause": "always fails", "examples": _name_requests(failing, evidence.windows)}
        findings[0] = findings[0].model_copy(update=update)
    for scope, windows in windows_by_scope(evidence.windows).items():
        counts = _troubles(evidence, windows, evidence.late)
        finding = judge_share("failures", counts, margin, _failure_examples(evidence, windows), scope)
        findings.append(finding)
    return findings


def _failure_examples(evidence: Evidence, windows: Sequence[WindowRecord]) -> list[str]:
    rows = [
        row
        for row in sent_to(windows, evidence.challenger)
        if row.error or row.retries or id(row) in evidence.late
    ]
    kinds = Counter(
        str(row.error or ("late" if id(row) in evidence.late else "refused at first")) for row in rows
    )
    details = [str(row.detail) for row in rows if row.detail]
    return [*(f"{kind} {number}" for kind, number in kinds.most_common(3)), *details[:1]]


def windows_by_scope(windows: Sequence[WindowRecord]) -> dict[answers.Scope, list[WindowRecord]]:
    scopes: dict[answers.Scope, list[WindowRecord]] = defaultdict(list)
    for window in windows:
        scopes[window.kind, window.level].append(window)
    return scopes


def judge_share(
    claim: Any, counts: Counts, margin: float, examples: list[str], scope: answers.Scope | None = None
) -> Finding:
    numbers = (counts.standard, counts.standard_n, counts.challenger, counts.challenger_n)
    upper = shares.difference_upper(*numbers, ONE_SIDED)
    lower = shares.difference_lower(*numbers, ONE_SIDED)
    verdict: Ternary = "shown" if upper <= margin else "against" if lower > margin else "open"
    return Finding(
        claim=claim,
        load=scope[1] if scope else None,
        scope=scope[0] if scope else "measured",
        verdict=verdict,
        counts=counts,
        bound=upper,
        margin=margin,
        n=counts.challenger_n,
        needs=_requests_needed(counts, margin) if verdict == "open" else None,
        examples=examples,
    )


MOST_NEEDED = 100_000


def _requests_needed(counts: Counts, margin: float) -> int | None:
    """Further requests that would settle a share at the rates observed, by doubling; None where none
    would."""
    factor = 1.25
    while counts.challenger_n and factor * counts.challenger_n < MOST_NEEDED:
        numbers = [
            round(value * factor)
            for value in (counts.standard, counts.standard_n, counts.challenger, counts.challenger_n)
        ]
        upper = shares.difference_upper(numbers[0], numbers[1], numbers[2], numbers[3], ONE_SIDED)
        lower = shares.difference_lower(numbers[0], numbers[1], numbers[2], numbers[3], ONE_SIDED)
        if upper <= margin or lower > margin:
            return max(1, round((factor - 1) * counts.challenger_n))
        factor *= 1.25
    return None


def length(evidence: Evidence, level: Level, confidence: float) -> Finding:
    """Answers are as long as the standard's, in tokens; in characters where only those surely differ: a
    server may count tokens that it did not send."""
    margin = evidence.settings.length_margin
    if evidence.temperature > 0:
        margin = max(margin, SAMPLED_LENGTH_MARGIN)
    samples, accepted = evidence.at(level), evidence.settings.accept_length_change
    tokens, characters = (
        judge_length(ratio_of(samples, unit, confidence), margin, len(samples), accepted)
        for unit in ("tokens", "characters")
    )
    finding = characters if characters.verdict == "against" and tokens.verdict != "against" else tokens
    return finding.model_copy(update={"load": level})


def judge_length(
    standard_over_challenger: stats.Interval | None, margin: float, n: int, accepted: bool
) -> Finding:
    """The finding on lengths from their ratio; None: too few for an interval. `accepted`: whoever compares
    accepts that they differ."""
    ratio = standard_over_challenger.inverse if standard_over_challenger else None
    verdict: Ternary = "open"
    if ratio is not None:
        if 1 / (1 + margin) <= ratio.low and ratio.high <= 1 + margin:
            verdict = "shown"
        elif ratio.high < 1 / (1 + margin) or ratio.low > 1 + margin:
            verdict = "against"
    cause: Cause | None = "accepted" if accepted and verdict != "shown" else None
    return Finding(
        claim="length",
        verdict="shown" if cause else verdict,
        cause=cause,
        ratio=ratio,
        bound=max(ratio.high, 1 / ratio.low) if ratio else None,
        margin=1 + margin,
        n=n,
    )


def first_token(evidence: Evidence, level: Level, confidence: float) -> Finding:
    """The first token comes at most a fifth later, or at most by so many milliseconds: a user does not
    notice a fifth of very little."""
    finding = _first_token_of(evidence, evidence.at(level), confidence)
    return finding.model_copy(update={"load": level})


def open_first_token(evidence: Evidence, level: Level, confidence: float) -> Finding:
    """The same where requests meet a server that was idle, or has a queue."""
    finding = _first_token_of(evidence, [s for s in evidence.samples if s.kind == "open"], confidence)
    return finding.model_copy(update={"load": level, "scope": "open"})


def _first_token_of(evidence: Evidence, samples: Iterable[Sample], confidence: float) -> Finding:
    body = evidence.of_body(samples)
    ratio = ratio_of(body, "ttft", confidence, restarts=evidence.restarts)
    times_ms = [pair for sample in body if (pair := FIGURES["ttft"](sample)) is not None]
    return judge_first_token(ratio, times_ms, evidence.settings, len(body))


def judge_first_token(
    standard_over_challenger: stats.Interval | None,
    times_ms: Sequence[tuple[float, float]],
    settings: Ab,
    n: int,
) -> Finding:
    """The finding on TTFT from its ratio and the times of standard and challenger; unknown without them."""
    slower = standard_over_challenger.inverse if standard_over_challenger else None
    verdict: Ternary = "unknown"
    bound, margin = slower.high if slower else None, settings.first_token_ratio
    unit: Literal["", "ms"] = ""
    if slower is not None and times_ms:
        standard_ms = fmean(standard for standard, _ in times_ms)
        least_ms, most_ms = (standard_ms * (end - 1) for end in (slower.low, slower.high))
        if slower.high <= settings.first_token_ratio:
            verdict = "shown"
        elif most_ms <= settings.first_token_ms:
            verdict = "shown"
            bound, margin, unit = most_ms, settings.first_token_ms, "ms"
        elif slower.low > settings.first_token_ratio and least_ms > settings.first_token_ms:
            verdict = "against"
        else:
            verdict = "open"
    change_ms = fmean(challenger - standard for standard, challenger in times_ms) if times_ms else None
    return Finding(
        claim="first token",
        verdict=verdict,
        ratio=slower,
        bound=bound,
        margin=margin,
        unit=unit,
        n=n,
        examples=[] if change_ms is None else [f"{change_ms:+.0f} ms"],
    )


def open_loop(
    evidence: Evidence, level: Level, traffic_class: str | None, figure: BesideFigure, confidence: float
) -> list[Finding]:
    """Waits from when requests were due, where they arrive whether or not the server keeps up; empty where no
    such window was measured at that load."""
    samples = [
        sample
        for sample in evidence.samples
        if sample.kind == "open" and sample.level == level and traffic_class in (None, sample.traffic_class)
    ]
    if not evidence.of_body(samples):
        return []
    finding = _beside(evidence, samples, figure, confidence)
    update = {"claim": "open-loop wait", "load": level, "scope": "open", "traffic_class": traffic_class}
    return [finding.model_copy(update=update)]


def sampled_wait(evidence: Evidence, level: Level, figure: BesideFigure, confidence: float) -> Finding:
    """Waits of sampled requests that share batches with greedy ones: of them, fewer drafts are accepted.

    They have prompts that were sent before. Where the standard answers what comes again from a cache, a
    longer wait is no evidence.
    """
    samples = [s for s in evidence.samples if s.kind == "mixed" and s.standard.temperature > 0]
    finding = _beside(evidence, samples, figure, confidence)
    finding = finding.model_copy(update={"claim": "sampled wait", "load": level, "scope": "mixed"})
    if finding.verdict == "against" and _caches(evidence, evidence.standard, level):
        return finding.model_copy(update={"verdict": "open", "cause": "repeat", "needs": None})
    if _caches(evidence, evidence.challenger, level):
        return finding.model_copy(update={"cause": "repeat"})
    return finding


def _caches(evidence: Evidence, arm: str, level: Level) -> bool:
    """Whether `arm` surely and notably answers greedy requests faster that come again."""
    first: dict[tuple[str, str], float] = {}
    logs = []
    for window in sorted(evidence.windows, key=lambda window: window.began):
        for row in window.cell.sent:
            if (window.arm, window.level, row.temperature) != (arm, level, 0) or row.error:
                continue
            waited = positive(waited_ms(row))  # no clock resolves a zero
            if waited is None:
                continue
            if (request := (row.prompt, row.variant)) in first:
                logs.append(math.log(first[request] / waited))
            else:
                first[request] = waited
    gain = stats.mean_interval(logs, CONFIDENCE)
    return gain is not None and gain.n >= stats.MIN_PAIRS and gain.low > math.log(NOTABLE)


def _beside(
    evidence: Evidence, samples: Iterable[Sample], figure: BesideFigure, confidence: float
) -> Finding:
    """Non-inferiority of the wait in windows beside the measured ones."""
    sent = list(samples)
    samples = evidence.of_body(sent)
    ratio = ratio_of(samples, figure, confidence, restarts=evidence.restarts)
    verdict: Ternary = "open"
    if ratio is not None:
        verdict = (
            "shown" if ratio.low > BESIDE_MARGIN else "against" if ratio.high < BESIDE_MARGIN else "open"
        )
    return Finding(
        claim="wait",
        verdict=verdict,
        ratio=ratio,
        bound=ratio.low if ratio else None,
        margin=BESIDE_MARGIN,
        n=len(samples),
        **_lacking(ratio, samples, len(sent), figure, BESIDE_MARGIN) if verdict == "open" else {},
    )


def gain_of_speculation(evidence: Evidence) -> Finding:
    """The gain is speculation's: some drafted tokens were accepted. Unknown where the engine does not say."""
    cells = [window.cell for window in evidence.windows if window.arm == evidence.challenger]
    counts, missing = acceptance(cells)
    if counts is None or not counts.draft_tokens:
        verified = [cell.verified for cell in cells if cell.verified is not None]
        if verified and not any(verified):
            return Finding(claim="speculation", verdict="against", bound=0.0, margin=0.0)
        return Finding(claim="speculation", verdict="unknown", examples=[missing] if missing else [])
    accepted, drafted = round(counts.accepted_tokens), round(counts.draft_tokens)
    return Finding(
        claim="speculation",
        verdict="shown" if accepted > 0 else "against",
        counts=Counts(standard=0, standard_n=0, challenger=accepted, challenger_n=drafted),
        bound=accepted / drafted,
        margin=0.0,
        n=drafted,
    )
