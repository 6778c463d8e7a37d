"""The judgement of an edge bench: decisions from the experiment's claims, and figures beside them. Pure.

Server-only drafting is the standard, and each edge arm a challenger. Answers are compared with autoregressive
decoding, where nothing speculates. Some figures are not judged, since no claim is on them: a user who waits
does not notice the server's seconds and money for each token, nor what a round carries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from specops import stats
from specops.economics import Prices, TokenTime
from specops.edge.settings import DEFAULT
from specops.errors import FileError
from specops.experiment import answer_claims, claims
from specops.experiment.answers import compare_greedy, greedy_answers
from specops.experiment.claims import ONE_SIDED, Evidence
from specops.experiment.decide import decide_claims
from specops.experiment.findings import Decision, Finding, StoredInterval
from specops.experiment.records import levels_of
from specops.experiment.samples import FIGURES, Figure, figure_of, pair_up
from specops.load.arrivals import Level
from specops.load.record import Row, Spread, acceptance
from specops.phases.ab.report import EqualCounts
from specops.phases.edge_bench.records import ClientEffort, EdgeWindow, Lateness, ServerEffort
from specops.phases.edge_bench.settings import AUTOREGRESSIVE, SERVER_ONLY, Arm, EdgeBenchSettings
from specops.phases.measurement import checked
from specops.results import Result
from specops.section import Frozen

FORMAT = 2
"""Format of `data`; what has another is refused."""


class BenchFigures(Frozen):
    """Figures of one arm at one number of clients."""

    arm: str
    clients: int
    answers: int
    tokens: int
    seconds: float
    """Time that passed, first prompt sent to last answer ended, of all windows."""

    tpot_ms: Spread
    ttft_ms: Spread
    tokens_a_verification: float | None
    """Tokens after the first chunk over chunks after it: what arrives together was verified together."""

    accepted: list[float]
    """Share of the server's drafts that were accepted so far down, by depth from 1."""

    server: ServerEffort
    effort: ClientEffort
    late: Lateness
    cost_per_million: float | None
    """Cost of a million tokens, where the server is paid for all the time that passed."""

    filled_cost_per_million: float | None
    """Cost of a million tokens, where the server is paid only for its busy time: others pay for the rest."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all clients, over the time that passed."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_busy_s(self) -> float | None:
        """Tokens a second over the time in steps: what the server would carry if others filled the rest."""
        return self.tokens / self.server.busy_s if self.server.busy_s else None


def figures(windows: Sequence[EdgeWindow], prices: Prices | None) -> BenchFigures:
    """Return the figures of windows of one arm at one number of clients."""
    cells = [window.cell for window in windows]
    rows = [row for cell in cells for row in cell.rows if row.error is None]
    tokens, seconds = sum(row.tokens or 0 for row in rows), math.fsum(cell.wall_s for cell in cells)
    verifications = sum(row.chunks - 1 for row in rows)
    after_first = sum((row.tokens or 0) - (row.n_first or 0) for row in rows)
    server = ServerEffort.sum(window.server for window in windows)
    effort = ClientEffort.sum(window.effort for window in windows)
    edge_s = math.fsum(row.e2e_ms / 1000 for row in rows) if effort.nodes else 0.0
    drafts, _ = acceptance(cells)
    return BenchFigures(
        arm=windows[0].arm,
        clients=windows[0].level.concurrency or 1,
        answers=len(rows),
        tokens=tokens,
        seconds=seconds,
        tpot_ms=Spread.of([row.tpot_ms for row in rows if row.tpot_ms is not None]),
        ttft_ms=Spread.of([row.ttft_ms for row in rows if row.ttft_ms is not None]),
        tokens_a_verification=after_first / verifications if verifications else None,
        accepted=[share for share in drafts.per_position if share is not None] if drafts else [],
        server=server,
        effort=effort,
        late=Lateness.sum(window.late for window in windows),
        cost_per_million=TokenTime(tokens, seconds, edge_s).per_million(prices) if prices else None,
        filled_cost_per_million=TokenTime(tokens, server.busy_s, edge_s).per_million(prices)
        if prices
        else None,
    )


Quality = Literal[
    "wait", "latency", "tokens a verification", "throughput", "filled throughput", "cost", "filled cost"
]
"""wait: the whole answer. latency: a token after the first."""


class BenchRatio(Frozen):
    """The ratio by which `arm` is better than `over`. Without an interval where there are too few pairs for
    one."""

    of: Quality
    arm: str
    over: str
    clients: int
    estimate: float
    interval: StoredInterval | None


def _verifications_a_token(row: Row) -> float | None:
    after_first = (row.tokens or 0) - (row.n_first or 0)
    return (row.chunks - 1) / after_first if after_first else None


_OF_REQUESTS: dict[Quality, Figure] = {
    "wait": FIGURES["e2e"],
    "latency": FIGURES["tpot"],
    "tokens a verification": figure_of(_verifications_a_token),
}
_OF_WINDOWS: dict[Quality, Callable[[BenchFigures], float | None]] = {
    "throughput": lambda f: 1 / f.tokens_per_s if f.tokens_per_s else None,
    "filled throughput": lambda f: 1 / f.tokens_per_busy_s if f.tokens_per_busy_s else None,
    "cost": lambda f: f.cost_per_million,
    "filled cost": lambda f: f.filled_cost_per_million,
}
"""What a token takes of time or money in a window. Requests share it, so a pair is one of windows."""


def ratios(
    windows: Sequence[EdgeWindow], arm: str, over: str, prices: Prices | None, confidence: float
) -> list[BenchRatio]:
    """Return every ratio of two arms from windows at one number of clients; each interval has `confidence`
    by itself."""
    samples = pair_up(windows, over, arm)
    began = {sample.window: sample.began for sample in samples}
    pairs = {
        quality: [(sample.window, *pair) for sample in samples if (pair := values(sample)) is not None]
        for quality, values in _OF_REQUESTS.items()
    }
    standard, challenger = (
        {(w.cycle, w.kind, w.level): figures([w], prices) for w in windows if w.arm == name}
        for name in (over, arm)
    )
    for quality, value_of in _OF_WINDOWS.items():
        pairs[quality] = [
            (window, before, after)
            for window in began
            if (before := value_of(standard[window])) and (after := value_of(challenger[window]))
        ]
    return [
        BenchRatio(
            of=quality,
            arm=arm,
            over=over,
            clients=windows[0].level.concurrency or 1,
            estimate=math.fsum(before for _, before, _ in listed) / math.fsum(after for *_, after in listed),
            interval=stats.paired_ratio(
                [before for _, before, _ in listed],
                [after for *_, after in listed],
                level=confidence,
                clusters=[window for window, *_ in listed],
                instants=began,
            ),
        )
        for quality, listed in pairs.items()
        if listed
    ]


class ArmDecision(Frozen):
    """Whether to draft at the edge with one arm, at one number of clients."""

    arm: str
    clients: int
    decision: Decision
    findings: list[Finding]


class EdgeComparison(Frozen):
    """`data` of a bench beside its windows."""

    format: int = FORMAT
    arms: list[Arm]
    figures: list[BenchFigures]
    ratios: list[BenchRatio]
    decisions: list[ArmDecision]
    answers: dict[str, list[Finding]]
    """By arm: whether its answers are those of autoregressive decoding."""

    parity: dict[str, EqualCounts]
    """By arm: greedy answers that are autoregressive decoding's. An equal one may be unacceptable: a loop."""

    @property
    def clients(self) -> list[int]:
        return sorted({figure.clients for figure in self.figures})

    @property
    def edges(self) -> list[str]:
        return [arm.name for arm in self.arms if arm.kind == "edge"]

    def figures_of(self, arm: str, clients: int) -> BenchFigures:
        return next(f for f in self.figures if f.arm == arm and f.clients == clients)

    def ratio(self, quality: Quality, arm: str, over: str, clients: int) -> BenchRatio | None:
        return next(
            (r for r in self.ratios if (r.of, r.arm, r.over, r.clients) == (quality, arm, over, clients)),
            None,
        )


def read(result: Result, name: str) -> EdgeComparison:
    """The comparison in a result that is called `name` in the message of the FileError."""
    if result.data.get("format") != FORMAT:
        raise FileError(
            f"{name} was written by an earlier version of specops: expected format {FORMAT} of its data",
            hint="specops edge bench --out edge.json",
        )
    fields = {key: value for key, value in result.data.items() if key in EdgeComparison.model_fields}
    return checked(EdgeComparison, fields, f"{name} is damaged: data")


def compare(
    arms: Sequence[Arm], windows: Sequence[EdgeWindow], settings: EdgeBenchSettings
) -> EdgeComparison:
    """All that is concluded from the windows. Speed-ups of all edge arms at all loads hold together: chance
    could make any of them true. A load may pay where no lighter one does: edges relieve a busy server."""
    levels = levels_of(windows)
    at_level = {level: [w for w in windows if w.kind == "measured" and w.level == level] for level in levels}
    answers = {arm.name: _answers(arm, windows, settings) for arm in arms if arm.kind != "autoregressive"}
    greedy = {arm.name: greedy_answers(windows, arm.name) for arm in arms}
    parity = {name: compare_greedy(greedy[AUTOREGRESSIVE], greedy[name]) for name in answers}
    edges = [arm for arm in arms if arm.kind == "edge"]
    confidence = 1 - (1 - settings.margins.confidence) / max(1, len(edges) * len(levels))
    decisions = []
    for arm in edges:
        evidence = _evidence(windows, SERVER_ONLY, arm.name, settings)
        # With a standard that answers wrongly, no speed-up over it counts.
        common = [claims.failures(evidence)[0], *answers[arm.name], *answers[SERVER_ONLY]]
        common.append(claims.gain_of_speculation(evidence))
        for level in levels:
            findings = [*_findings(evidence, level, confidence), *common]
            decision = decide_claims(findings)
            clients = level.concurrency or 1
            decisions.append(ArmDecision(arm=arm.name, clients=clients, decision=decision, findings=findings))
    measured = [
        [window for window in of_level if window.arm == arm.name]
        for of_level in at_level.values()
        for arm in arms
    ]
    return EdgeComparison(
        arms=list(arms),
        figures=[figures(of_arm, settings.prices) for of_arm in measured if of_arm],
        ratios=[
            ratio
            for of_level in at_level.values()
            for arm, over in _ratio_pairs(arms)
            for ratio in ratios(of_level, arm, over, settings.prices, settings.margins.confidence)
        ],
        decisions=decisions,
        answers=answers,
        parity={
            name: EqualCounts(equal=counts.equal, compared=counts.compared) for name, counts in parity.items()
        },
    )


def _evidence(
    windows: Sequence[EdgeWindow], standard: str, challenger: str, settings: EdgeBenchSettings
) -> Evidence:
    return Evidence(
        windows=windows,
        standard=standard,
        challenger=challenger,
        settings=settings.margins,
        temperature=settings.temperature,
        timeout_ms=1000 * DEFAULT.patience_s,
    )


def _findings(evidence: Evidence, level: Level, confidence: float) -> list[Finding]:
    """The claims on one load. Whole answers are compared, since all have the same number of tokens; the claim
    on lengths shows that. Claims on an open loop do not apply: a client sends one prompt after another."""
    beside = 2 * ONE_SIDED - 1
    return [
        claims.wait(evidence, level, None, "e2e", confidence),
        claims.length(evidence, level, beside),
        claims.first_token(evidence, level, beside),
        claims.cost_of_late(evidence, level),
    ]


def _answers(arm: Arm, windows: Sequence[EdgeWindow], settings: EdgeBenchSettings) -> list[Finding]:
    """Whether answers are those of autoregressive decoding. All arms are sent the same token ids, so no claim
    on prompts applies; none on sampled answers does where all are greedy."""
    evidence = _evidence(windows, AUTOREGRESSIVE, arm.name, settings)
    findings = [answer_claims.acceptable_answers(evidence)[0]]
    return [*findings, answer_claims.sampled_answers(evidence)] if settings.temperature > 0 else findings


def _ratio_pairs(arms: Sequence[Arm]) -> Iterable[tuple[str, str]]:
    """The pairs of arms whose ratios are shown: those without an edge, and an edge without what it does while
    the server verifies."""
    edges = [arm for arm in arms if arm.kind == "edge"]
    for arm in edges:
        yield from ((arm.name, SERVER_ONLY), (arm.name, AUTOREGRESSIVE))
        for plainer in edges:
            without_heads = plainer.heads == 0 < arm.heads
            without_ahead = plainer.ahead == 0 < arm.ahead and plainer.heads == arm.heads
            if plainer.depth == arm.depth and (without_heads or without_ahead):
                yield arm.name, plainer.name
    yield SERVER_ONLY, AUTOREGRESSIVE
