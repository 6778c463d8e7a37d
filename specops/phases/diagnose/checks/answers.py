"""Checks of answers: JSON and tools, and whether greedy answers equal the standard's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb

from specops.config.monitor import OURS
from specops.phases.diagnose.finding import BURST, GAP_MS, DiagnosisCheck, DiagnosisFinding, Evidence
from specops.phases.diagnose.observations import CanaryFigures, Observations, StreamFigures
from specops.serving import of_check

CONFORMANCE = DiagnosisCheck("requests-that-break", "answers")
PARITY = DiagnosisCheck("greedy-differs", "answers")
ALMOST = 0.95
"""Share of equal greedy answers that counts as all, where the standard did not answer twice: batches change
logits' last bits."""

LUCK = 0.05
"""The chance of calling answers different that are not."""


def conformance(observed: Observations) -> DiagnosisFinding:
    canary = observed.canary
    if canary is None:
        why = observed.why_not("canary")
        return CONFORMANCE.unknown(f"requests that fail are not known: {why}", show="specops canary ROLLOUT")
    broken = [check for check in canary.checks if check.status == "fail"]
    unlike = [check for check in canary.checks if check.status == "differs"]
    evidence = tuple(
        Evidence(what=f"canary, {check.name}: {check.status}", value=check.message, source=canary.source)
        for check in (*broken, *unlike)
    )
    if broken:
        evidence += _known_issues(observed, [check.name for check in broken])
        return CONFORMANCE.cause(
            f"{', '.join(check.name for check in broken)}: wrong answers of the speculative pool",
            *evidence,
            cause="the engine's speculation is faulty for such requests",
            fix="keep such requests standard (route.classes, route.unsupported); report it to the engine",
            paste=next((check.request for check in broken if check.request), None),
        )
    if unlike:
        return CONFORMANCE.contributing(
            f"{', '.join(check.name for check in unlike)}: one pool accepts requests that the other refuses",
            *evidence,
            cause="the engine refuses such requests while it speculates, or the pools differ in settings",
            fix="specops route render ROLLOUT  # canary.json then keeps such requests standard",
        )
    passed = [check for check in canary.checks if check.status == "pass"]
    if not passed:
        return CONFORMANCE.unknown(
            f"the canary is undecided ({canary.source})",
            *_undecided(canary),
            show="specops canary ROLLOUT",
        )
    return CONFORMANCE.ruled_out(
        f"{len(passed)} of {len(canary.checks)} checks of the canary passed, none failed ({canary.source})",
        *_undecided(canary),
    )


def _known_issues(observed: Observations, checks: Sequence[str]) -> tuple[Evidence, ...]:
    """Known issues of this engine that such failures may be."""
    deployed = observed.deployed
    if deployed is None:
        return ()
    return tuple(
        Evidence(
            what=f"known issue {issue.id}", value=f"{issue.symptom}; {issue.workaround}", source=issue.source
        )
        for check in checks
        for issue in of_check(deployed.engine, deployed.version, check)
    )


def _undecided(canary: CanaryFigures) -> list[Evidence]:
    return [
        Evidence(what=f"canary, {check.name}: {check.status}", value=check.message, source=canary.source)
        for check in canary.checks
        if check.status == "undecided"
    ]


def parity(observed: Observations) -> DiagnosisFinding:
    """Held against how often the standard repeats itself, where that was measured; a cause, where by more
    than chance."""
    comparison = observed.compared
    if comparison is None or comparison.equal is None or not comparison.compared:
        why = (
            "it was not compared at temperature 0" if comparison is not None else observed.why_not("compared")
        )
        show = "specops run ROLLOUT  # with measure.temperature: 0"
        return PARITY.unknown(f"equality of greedy answers is not known: {why}", show=show)
    share = comparison.equal / comparison.compared
    limit = comparison.control if comparison.control is not None else ALMOST
    source = "the standard with itself" if comparison.control is not None else "a default of specops"
    evidence = Evidence(
        what="greedy answers that are the standard's",
        value=round(share, 4),
        source=comparison.source,
        threshold=round(limit, 4),
        threshold_source=source,
    )
    among = " where sampled requests share the batch" if comparison.mixed else ""
    message = f"{comparison.equal} of {comparison.compared} greedy answers equal the standard's{among}"
    if comparison.control is not None:
        message += f"; {comparison.control:.0%} when the standard pool repeats them"
    if share >= limit:
        return PARITY.ruled_out(message, evidence)
    if comparison.control is None or not _surely_fewer(
        comparison.equal, comparison.compared, comparison.control
    ):
        cause = "batches of another shape round differently, so near ties fall the other way; or a fault"
        return PARITY.contributing(message, evidence, cause=cause, fix="specops canary ROLLOUT")
    cause = "speculation changes answers: it is not lossless here"
    fix = "specops guard override ROLLOUT standard --why parity  # ab.json has the witness to report"
    return PARITY.cause(message, evidence, cause=cause, fix=fix)


def _surely_fewer(equal: int, answers: int, control: float) -> bool:
    """McNemar's exact test, at its most cautious: which prompts were unlike in the control is not in the
    result's shares, so as many of those as there were are taken to be equal between the pools."""
    gained = round((1 - control) * answers)
    lost = answers - equal
    tried = lost + gained
    return sum(comb(tried, k) for k in range(lost, tried + 1)) < LUCK * (1 << tried)


BURSTS = DiagnosisCheck("bursts-in-streams", "bursts")
FRAME_MS = 20
"""What a client redraws at, and what a buffer is rounded up to."""
NO_SUCH_EFFECT = "--disable-frontend-multiprocessing has no such effect, and is gone from vLLM 0.19 on"


def bursts(observed: Observations) -> DiagnosisFinding:
    stream = observed.stream
    if stream is None:
        why = observed.why_not("stream")
        return BURSTS.unknown(
            f"the streams are not known: {why}",
            show="specops diagnose ROLLOUT  # on a machine that reaches the pool",
        )
    evidence = _evidence(stream)
    most = "" if stream.tokens_per_chunk_p95 is None else f", {stream.tokens_per_chunk_p95:.0f} at p95"
    gaps = (
        ""
        if stream.gap_p50_ms is None or stream.gap_p95_ms is None
        else f"; gaps of {stream.gap_p50_ms:.0f} ms, {stream.gap_p95_ms:.0f} at p95"
    )
    message = (
        f"{stream.tokens_per_chunk:.1f} tokens per chunk on average{most}{gaps}, in {stream.requests} answers"
    )
    if stream.tokens_per_chunk < BURST:
        return BURSTS.ruled_out(message, *evidence)
    fix, paste = f"{_pacing(stream)}; {NO_SUCH_EFFECT}", _settings(stream)
    if stream.gap_p95_ms is not None and stream.gap_p95_ms >= GAP_MS:
        return BURSTS.symptom_holds(
            f"{message}: accepted tokens arrive together", *evidence, fix=fix, paste=paste
        )
    cause = f"accepted tokens arrive at once; readers hardly notice gaps below {GAP_MS} ms"
    return BURSTS.contributing(message, *evidence, cause=cause, fix=fix, paste=paste)


def _evidence(stream: StreamFigures) -> tuple[Evidence, ...]:
    mean = Evidence(
        what="tokens a chunk",
        value=round(stream.tokens_per_chunk, 2),
        source=stream.source,
        threshold=BURST,
        threshold_source=OURS,
    )
    if stream.gap_p95_ms is None:
        return (mean,)
    value, source = round(stream.gap_p95_ms, 1), stream.source
    gap = Evidence(what="p95 gap, ms", value=value, source=source, threshold=GAP_MS, threshold_source=OURS)
    return mean, gap


def buffered_ms(stream: StreamFigures) -> int | None:
    """The buffer, rounded up to whole frames of a client."""
    return None if stream.buffer_ms is None else FRAME_MS * math.ceil(stream.buffer_ms / FRAME_MS)


def _pacing(stream: StreamFigures) -> str:
    held = buffered_ms(stream)
    first = "" if held is None else f"; buffer the first {held} ms"
    pace = f"{stream.tokens_per_s:.0f} tokens/s"
    return f"display text in the client at a constant {pace}{first}; flush the rest at the end of the answer"


def _settings(stream: StreamFigures) -> str:
    """Return settings for the client: the pace at which text comes, and the buffer that would have prevented
    every answer that was observed from running dry: the largest t_i - t_0 - N_i / pace, with N_i tokens
    before chunk i."""
    held = buffered_ms(stream)
    lines = [f"tokens_per_second: {stream.tokens_per_s:.1f}"]
    if held is not None:
        lines.append(f"buffer_ms: {held}  # the largest measured t_i - t_0 - N_i / pace, rounded up")
    return "\n".join(lines) + "\n"
