"""Does text come in bursts? The playbook's third symptom: it lies in verifying several tokens at once."""

from __future__ import annotations

import math

from specops.phases.diagnose.asking.thresholds import BURST, GAP_MS
from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Observations, Stream
from specops.phases.monitor.thresholds import OURS

BURSTS = Asks("bursts-in-streams", "bursts")
FRAME_MS = 20
"""What a client redraws at, and what a buffer is rounded up to."""
NO_SUCH_EFFECT = (
    "--disable-frontend-multiprocessing, which the playbook names, has no such effect, and is gone from vLLM"
    " 0.19 on"
)


def bursts(seen: Observations) -> Finding:
    stream = seen.stream
    if stream is None:
        why = seen.why_not("stream")
        return BURSTS.unknown(
            f"how streams come is not known: {why}", show="specops diagnose ROLLOUT, where the pool answers"
        )
    evidence = _evidence(stream)
    most = "" if stream.tokens_per_chunk_p95 is None else f", {stream.tokens_per_chunk_p95:.0f} at p95"
    gaps = (
        ""
        if stream.gap_p50_ms is None or stream.gap_p95_ms is None
        else f"; gaps of {stream.gap_p50_ms:.0f} ms, {stream.gap_p95_ms:.0f} at p95"
    )
    told = (
        f"{stream.tokens_per_chunk:.1f} tokens a chunk on average{most}{gaps}, in {stream.requests} answers"
    )
    if stream.tokens_per_chunk < BURST:
        return BURSTS.ruled_out(told, *evidence)
    fix, paste = f"{_pacing(stream)}; {NO_SUCH_EFFECT}", _settings(stream)
    if stream.gap_p95_ms is not None and stream.gap_p95_ms >= GAP_MS:
        return BURSTS.so(f"{told}: what a draft wins comes at once", *evidence, fix=fix, paste=paste)
    cause = f"what a draft wins comes at once; gaps below {GAP_MS} ms are hard to see"
    return BURSTS.contributing(told, *evidence, cause=cause, fix=fix, paste=paste)


def _evidence(stream: Stream) -> tuple[Evidence, ...]:
    mean = Evidence(
        what="tokens a chunk",
        value=round(stream.tokens_per_chunk, 2),
        source=stream.source,
        threshold=BURST,
        threshold_source=OURS,
    )
    gap = stream.gap_p95_ms
    return (mean,) if gap is None else (mean, _gap(stream, gap))


def _gap(stream: Stream, gap: float) -> Evidence:
    return Evidence(
        what="p95 gap, ms", value=round(gap, 1), source=stream.source, threshold=GAP_MS, threshold_source=OURS
    )


def buffered_ms(stream: Stream) -> int | None:
    """The buffer, rounded up to whole frames of a client."""
    return None if stream.buffer_ms is None else FRAME_MS * math.ceil(stream.buffer_ms / FRAME_MS)


def _pacing(stream: Stream) -> str:
    held = buffered_ms(stream)
    first = "" if held is None else f", after holding the first text back for {held} ms"
    pace = f"{stream.tokens_per_s:.0f} tokens a second"
    return f"let the client draw text evenly, {pace}{first}, and what is left at the end at once"


def _settings(stream: Stream) -> str:
    """For the client: the pace at which text comes, and the buffer that would have kept every answer that was
    seen from running dry: the largest t_i - t_0 - N_i / pace, with N_i tokens before chunk i."""
    held = buffered_ms(stream)
    lines = [f"tokens_per_second: {stream.tokens_per_s:.1f}"]
    if held is not None:
        lines.append(f"buffer_ms: {held}  # the largest measured t_i - t_0 - N_i / pace, rounded up")
    return "\n".join(lines) + "\n"
