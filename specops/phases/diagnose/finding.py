"""Findings of checks, with their evidence; and what observations are compared with: by what was measured,
else by the playbook, else a default of ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specops.phases.ab.settings import AbSettings
from specops.phases.baseline_at_load import at_load, e2e
from specops.phases.diagnose.observations import BaselineFigures, Live, Observations
from specops.phases.monitor.thresholds import DEFAULT, LOW
from specops.section import Frozen

Symptom = Literal["slower", "acceptance", "bursts", "vocabulary", "answers", "watching"]
Severity = Literal["symptom", "cause", "contributing", "ruled_out", "unknown"]
"""`symptom`: confirmed; other checks of the same symptom find why. `cause`: past its threshold.
`contributing`: possibly a part of the cause. `ruled_out`: observed, and not the cause. `unknown`: not
observed."""
ROOM = 1.25
"""Times the load that paid, which the load may be above it: it was measured at few loads."""
SLOWER = 1.1
"""The playbook's symptom begins at 10% slower."""
DRAFT_SHARE = 0.5
"""The playbook's: drafting a token takes half of a step of the target, or more."""
FAILING = 0.05
"""Share of requests: as guard.max_error_share, if the rollout file does not set it."""
FEWER_TOKENS = 3
"""The K that the playbook goes down to where memory is short."""
WEEKLY_FALLBACKS = 5
"""The playbook's."""
VETO = AbSettings().first_token_ratio
VETO_MS = AbSettings().first_token_ms
ENOUGH_DRAFTED = 200
"""Tokens: with fewer, an acceptance rate is off by more than 0.07 (two standard errors at 0.5), and more,
since the tokens of one draft fare alike."""
ENOUGH_MADE = 1000
"""Tokens of a server, of which some are drafted wherever it speculates; copying drafters draft few."""
ENOUGH_ANSWERS = 50
"""With fewer, a mean latency is one of the prompts that happened to come."""
LONGEST = 8
"""Tokens of a draft where that is not known: the longest of the playbook's."""
PRESENT_S = 600.0
"""Seconds up to which figures of a pool are of now: two windows of the rules."""
BURST = 1.5
"""Tokens a chunk on average, from which on text comes in bursts."""
GAP_MS = 100
"""A gap that readers notice: 0.1 s is what feels instantaneous (Nielsen, Usability Engineering, 1993)."""

NEEDS_PROMETHEUS = "specops monitor check ROLLOUT  # the Prometheus in addresses.prometheus"


class Evidence(Frozen):
    what: str
    value: float | str
    source: str
    threshold: float | None = None
    threshold_source: str | None = None
    age_s: float | None = None
    """Seconds since it was so; None: not known."""


class DiagnosisFinding(Frozen):
    """`data.findings[]` of diagnose.json."""

    id: str
    symptom: Symptom
    severity: Severity
    message: str
    evidence: tuple[Evidence, ...] = ()
    cause: str | None = None
    fix: str | None = None
    """A command or a setting; of `unknown`, the command that would answer it."""

    paste: str | None = None
    """YAML for the rollout file, or settings of a client."""


@dataclass(frozen=True)
class DiagnosisCheck:
    """A check: each of its findings has this id and symptom."""

    id: str
    symptom: Symptom

    def symptom_holds(
        self, message: str, *evidence: Evidence, fix: str | None = None, paste: str | None = None
    ) -> DiagnosisFinding:
        return self._finding("symptom", message, evidence, None, fix, paste)

    def cause(
        self, message: str, *evidence: Evidence, cause: str, fix: str, paste: str | None = None
    ) -> DiagnosisFinding:
        return self._finding("cause", message, evidence, cause, fix, paste)

    def contributing(
        self, message: str, *evidence: Evidence, cause: str, fix: str, paste: str | None = None
    ) -> DiagnosisFinding:
        return self._finding("contributing", message, evidence, cause, fix, paste)

    def ruled_out(self, message: str, *evidence: Evidence) -> DiagnosisFinding:
        return self._finding("ruled_out", message, evidence, None, None, None)

    def unknown(self, why: str, *evidence: Evidence, show: str | None) -> DiagnosisFinding:
        """Return the finding that the answer is unknown. `show`: the command that would answer it."""
        return self._finding("unknown", why, evidence, None, show, None)

    def _finding(
        self,
        severity: Severity,
        message: str,
        evidence: tuple[Evidence, ...],
        cause: str | None,
        fix: str | None,
        paste: str | None,
    ) -> DiagnosisFinding:
        return DiagnosisFinding(
            id=self.id,
            symptom=self.symptom,
            severity=severity,
            message=message,
            evidence=evidence,
            cause=cause,
            fix=fix,
            paste=paste,
        )


@dataclass(frozen=True)
class AcceptanceRate:
    """An acceptance, and the one below which speculation does not pay."""

    value: float
    error: float
    """Two standard errors. The tokens of one draft fare alike, so a draft is one sample, and not K."""

    source: str
    gate: float | None
    """None of a tree that branches, where no sweep measured it."""

    gate_source: str


def acceptance(observed: Observations) -> AcceptanceRate | None:
    """Live where enough was drafted, else of the comparison. None where there is neither."""
    live, comparison = observed.live, observed.compared
    if live is not None and live.acceptance is not None and (live.drafted or 0) >= ENOUGH_DRAFTED:
        value, source = live.acceptance, live.source
        drafts = (live.drafted or 0) / (len(live.per_position) or LONGEST)
    elif comparison is not None and comparison.acceptance is not None:
        value, source = comparison.acceptance, comparison.source
        drafts = comparison.drafts
    else:
        return None
    error = 2 * math.sqrt(value * (1 - value) / drafts) if drafts else 1.0
    return AcceptanceRate(value, error, source, *pays_from(observed))


def why_not(observed: Observations, *parts: str) -> str:
    """Return why there is no acceptance to go by; else which of these other parts is missing."""
    if observed.live is not None and observed.live.acceptance is not None:
        if (observed.live.drafted or 0) < ENOUGH_DRAFTED:
            return f"fewer than {ENOUGH_DRAFTED} tokens were drafted within {observed.live.over}"
        return observed.why_not(*parts)
    return observed.why_not("live", *parts)


def pays_from(observed: Observations) -> tuple[float | None, str]:
    """The acceptance below which speculation does not pay."""
    if observed.sweep is not None and observed.sweep.break_even is not None:
        return observed.sweep.break_even, f"break-even by {observed.sweep.source}"
    return (None, "no sweep measured a break-even") if observed.branches else (LOW, DEFAULT)


def why_not_expected(observed: Observations) -> str:
    """Return why latencies cannot be held against the baseline, nor taken from the comparison."""
    if observed.live is not None and observed.baseline is not None:
        if (observed.live.answers or 0) < ENOUGH_ANSWERS:
            return f"fewer than {ENOUGH_ANSWERS} answers ended within {observed.live.over}"
        return "the baseline was not measured at the current load"
    return observed.why_not("live", "baseline", "compared")


@dataclass(frozen=True)
class Expected:
    """The standard pool's latency, in milliseconds, as measured at the present load."""

    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None


@dataclass(frozen=True)
class TimesAsLong:
    """A pool's mean latency against the baseline's at the same load, in milliseconds."""

    name: str
    now_ms: float
    baseline_ms: float

    @property
    def ratio(self) -> float:
        return self.now_ms / self.baseline_ms


def expected(live: Live | None, baseline: BaselineFigures | None) -> Expected | None:
    """Return the expected latency at a pool's load; interpolated between measured loads, and never beyond
    them."""
    if live is None or baseline is None or live.load is None or (live.answers or 0) < ENOUGH_ANSWERS:
        return None
    ttft, tpot, token = (
        at_load(live.load, [(load.concurrency, getattr(load, name)) for load in baseline.loads])
        for name in ("ttft_ms", "tpot_ms", "token_ms")
    )
    answer = e2e(ttft, token, math.nan if live.answer_tokens is None else live.answer_tokens)
    return Expected(*(None if np.isnan(figure) else float(figure) for figure in (ttft, tpot, answer)))


def times_as_long(live: Live | None, baseline: BaselineFigures | None) -> TimesAsLong | None:
    """Return how many times as long an answer takes as expected, by E2E, else by TPOT. None where there is
    nothing to compare."""
    without = expected(live, baseline)
    if live is None or without is None:
        return None
    for name, now_ms, expected_ms in (
        ("E2E", live.e2e_ms, without.e2e_ms),
        ("TPOT", live.tpot_ms, without.tpot_ms),
    ):
        if now_ms is not None and expected_ms:
            return TimesAsLong(name, now_ms, expected_ms)
    return None
