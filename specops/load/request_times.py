"""One request as it was observed, and the figures of requests. Pure.

Instants are seconds of `time.perf_counter`; durations are in seconds unless a name says ms.

- TTFT: request sent to the first chunk with output. In a replay, TTFT and E2E begin when the request was
  due: a client that is late hides no wait.
- TPOT: (last token − first token) / (N − n_first); N from the server's usage, n_first the first chunk's
  tokens where they are known, or where its share of the text leaves less than 1% of doubt in the TPOT.
- Chunk gap: one sample for each gap between chunks. Amortised ITL: the gap over the later chunk's tokens.
- E2E: request sent to the end of the answer, or to the failure that ended it.
- Lag: when a request should have been sent to when its first attempt was, by its last byte. The client's
  own time: queueing in its event loop, building the request, the set-up of a connection.
- Throughput: tokens over the wall time of the window, never over a sum of latencies.
- Goodput: requests that met every objective, over the wall time of the window. The end-to-end latency
  that it judges includes retries: the user waited for those too.
- Peak throughput: the most tokens in any one second, chunks weighted by their tokens.

`client_bound` says whether the client, and not the server, set the pace. A busy client does not falsify
TTFT: requests are clocked from their last byte, and reads by the kernel. It falsifies the load, since a
stream whose next request waits in the client is not in flight. It also falsifies the gaps between chunks,
once several chunks are read in one piece.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from specops.load.answer import Answer, Chunk, CountTokens, Failure, read_answer
from specops.load.workload import Prompt
from specops.quantities import MILLISECONDS
from specops.section import Frozen

Part = Literal["counted", "fill", "warm-up", "sampled"]
"""What a request is sent for. counted: its times are compared. fill: it keeps a stream full before, between
or after the counted ones. warm-up: it is sent before the window, for the first one at a load or before an
interruption. sampled: it shares batches with greedy requests. Whatever it is sent for, a request that fails
or hangs counts."""


@dataclass(slots=True)
class Exchange:
    """A request in flight or just over: raw bytes with the instants at which they came.

    Nothing is parsed while requests run, so that the work of reading one answer does not delay the stamps
    of another.
    """

    prompt: Prompt
    scheduled: float
    """When it should have been sent: at the drawn instant of an open loop; in a closed one when the answer
    before it had come."""

    first_sent: float = 0.0
    """When the last byte of its first attempt had gone to the kernel."""

    sent: float = 0.0
    """When the last byte of the attempt that counts had gone to the kernel; 0 before any attempt."""

    ended: float = 0.0
    connecting: float = 0.0
    """Seconds until the connection of the attempt that counts was there, where it needed a new one."""

    began: bool = False
    """Whether any byte of a response came."""

    reads: list[tuple[float, bytes]] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """Seconds that the bytes of each read waited for this program."""

    failure: Failure | None = None
    finish_reasons: bool = True
    """Whether the endpoint sends finish reasons."""

    retries: int = 0
    resent: bool = False
    """Sent again at once: the server had closed the connection that it had said it would keep."""

    part: Part = "counted"
    temperature: float = 0.0
    connection: int = 0
    """Number of the connection that carried it, in the order in which they were opened; 0: none did."""

    from_due: bool = False
    """Whether its latencies begin when it was due, as in a replay."""

    def observe(self, count_tokens: CountTokens | None) -> Observation:
        try:
            answer = read_answer(self.reads, self.failure, count_tokens, finish_reasons=self.finish_reasons)
        except Exception as error:  # one answer that nothing can read must not cost the others
            failure = Failure("malformed", f"could not be read: {type(error).__name__}: {error}"[:300])
            answer = Answer(failure=failure)
        return Observation(
            prompt=self.prompt.id,
            variant=self.prompt.variant,
            traffic_class=self.prompt.traffic_class,
            turn=self.prompt.turn,
            scheduled=self.scheduled,
            first_sent=self.first_sent,
            sent=self.scheduled if self.from_due else self.sent,
            ended=self.ended if answer.ended is None or answer.failure else answer.ended,
            answer=answer,
            retries=self.retries,
            resent=self.resent,
            connecting=self.connecting,
            delays=tuple(self.delays),
            part=self.part,
            temperature=self.temperature,
            connection=self.connection,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    prompt: str
    traffic_class: str
    scheduled: float
    first_sent: float
    sent: float
    """When its latencies begin: with the attempt that counts, in a replay when it was due."""

    ended: float
    answer: Answer
    retries: int = 0
    resent: bool = False
    connecting: float = 0.0
    part: Part = "counted"
    variant: str = ""
    turn: int = 1
    temperature: float = 0.0
    connection: int = 0
    delays: tuple[float, ...] = ()

    @property
    def ok(self) -> bool:
        return self.answer.failure is None


_FIRST_CHUNK_DOUBT = 0.02
"""A TPOT between two bounds that differ by no more than this is given as their middle: right within 1%."""


Objective = Annotated[float, Field(gt=0), MILLISECONDS] | None


class Objectives(Frozen):
    """Latency objectives, in milliseconds, that a request must meet to count as goodput; None sets none."""

    ttft_ms: Objective = None
    tpot_ms: Objective = None
    e2e_ms: Objective = None

    def __bool__(self) -> bool:
        return (self.ttft_ms, self.tpot_ms, self.e2e_ms) != (None, None, None)


def ttft(observation: Observation) -> float | None:
    chunks = observation.answer.chunks
    return chunks[0].time_s - observation.sent if chunks else None


def tpot(observation: Observation) -> float | None:
    """Return the TPOT of a request; None where the tokens are unknown, or came all at once; `tpot_missing`
    says which."""
    answer = observation.answer
    after_first = _after_first(answer)
    if not after_first or all_at_once(observation):
        return None
    return (_last_at(answer) - answer.chunks[0].time_s) / after_first


def tpot_missing(observation: Observation) -> str | None:
    """Return why a request has no TPOT; None where it has one."""
    answer = observation.answer
    if not answer.chunks:
        return "the answer has no output"
    if answer.tokens is None:
        return answer.tokens_missing or "the tokens are unknown"
    if all_at_once(observation):
        return "the answer came all at once"
    if _after_first(answer) is None:
        return f"the tokens of the first chunk are unknown: {answer.chunk_tokens_missing}"
    return None


def all_at_once(observation: Observation) -> bool:
    """Return whether no token came after the first chunk: then nobody waited between tokens."""
    answer = observation.answer
    if not answer.chunks or answer.tokens is None:
        return False
    first = _first(answer)
    return _last_at(answer) == first.time_s or (first.tokens is not None and first.tokens >= answer.tokens)


_LATE = 2.0
"""In longest gaps between two chunks of the answer."""


def _last_at(answer: Answer) -> float:
    """Return when the last token came, in seconds. A last token without text comes with the finish reason.
    A finish reason more than `_LATE` of the longest gap between chunks after the last text is not counted."""
    last = answer.chunks[-1].time_s
    if answer.finished is None:
        return last
    longest = max((later.time_s - earlier.time_s for earlier, later in pairwise(answer.chunks)), default=None)
    return last if longest is not None and answer.finished > last + _LATE * longest else answer.finished


def _first(answer: Answer) -> Chunk:
    """Return the chunks that arrived at the first instant as one chunk. A proxy may hold several back and
    send them together."""
    same = [chunk for chunk in answer.chunks if chunk.time_s == answer.chunks[0].time_s]
    counts = [chunk.tokens for chunk in same if chunk.tokens is not None]
    tokens = sum(counts) if len(counts) == len(same) else None
    return Chunk(same[0].time_s, tokens, sum(chunk.characters for chunk in same))


def _after_first(answer: Answer) -> float | None:
    """The tokens that came after the first chunk; None where they are unknown.

    Where the server does not count each chunk, the first one's share of the text says how many it has, give
    or take a factor of two: it counts where the TPOT is known within 1% all the same.
    """
    if not answer.chunks or answer.tokens is None:
        return None
    first = _first(answer)
    if first.tokens is not None:
        return answer.tokens - first.tokens
    later = sum(chunk.time_s > first.time_s for chunk in answer.chunks)
    most = max(1, answer.tokens - later)  # every other chunk has one at least
    characters = sum(chunk.characters for chunk in answer.chunks)
    share = answer.tokens * first.characters / characters if characters else most
    low, high = (min(most, max(1.0, share * factor)) for factor in (0.5, 2.0))
    left = answer.tokens - high
    if left <= 0 or (high - low) / left > _FIRST_CHUNK_DOUBT:
        return None
    return answer.tokens - (low + high) / 2


def e2e(observation: Observation) -> float:
    return observation.ended - observation.sent


def e2e_with_retries(observation: Observation) -> float:
    return observation.ended - observation.first_sent


def lag(observation: Observation) -> float:
    """Return how late the request was sent by its schedule: the client's own time, with that of
    connecting."""
    return observation.first_sent - observation.scheduled


def chunk_gaps(observation: Observation) -> list[float]:
    return [later.time_s - earlier.time_s for earlier, later in pairwise(observation.answer.chunks)]


def amortised_itl(observation: Observation) -> list[float]:
    """Empty where the server does not count each chunk's tokens, and where the answer came all at once."""
    if all_at_once(observation):
        return []
    return [
        (later.time_s - earlier.time_s) / later.tokens
        for earlier, later in pairwise(observation.answer.chunks)
        if later.tokens
    ]


def tokens_per_chunk(observation: Observation) -> float | None:
    answer = observation.answer
    return answer.tokens / len(answer.chunks) if answer.chunks and answer.tokens is not None else None


def output_tokens(observations: Sequence[Observation]) -> int | None:
    """Tokens of the whole answers among `observations`; None where some answer's tokens are unknown."""
    counts = [observation.answer.tokens for observation in observations if observation.ok]
    counted = [count for count in counts if count is not None]
    return sum(counted) if len(counted) == len(counts) else None


def meets(observation: Observation, objectives: Objectives) -> bool:
    """Return whether a request met every objective. A failed one did not, nor one whose figure is unknown.

    An answer that came all at once has no TPOT, and made nobody wait between tokens: it meets any.
    """
    figures = (
        (ttft(observation), objectives.ttft_ms),
        (0.0 if all_at_once(observation) else tpot(observation), objectives.tpot_ms),
        (e2e_with_retries(observation), objectives.e2e_ms),
    )
    return observation.ok and all(
        bound is None or (value is not None and value * 1000 <= bound) for value, bound in figures
    )


def peak_throughput(observations: Sequence[Observation]) -> float | None:
    """Tokens/s in the busiest second. None where the tokens of some chunk are unknown."""
    marks: list[tuple[float, int]] = []
    for observation in observations:
        for chunk in observation.answer.chunks:
            if chunk.tokens is None:
                return None
            marks.append((chunk.time_s, chunk.tokens))
    marks.sort()
    best = within = start = 0
    for time_s, tokens in marks:
        within += tokens
        while marks[start][0] <= time_s - 1.0:
            within -= marks[start][1]
            start += 1
        best = max(best, within)
    return float(best) if marks else None


MOST_LAG_SHARE = 0.05
"""Largest share of the time of requests, waiting in the client and in flight: what a stream is idle, it does
not load."""

LEAST_S = 0.005
"""A delay below this is that of any program on a shared machine."""

LEAST_IN_ALL_S = 0.5
"""Requests that waited for less than this all together are too few to say what set the pace."""


def client_bound(observations: Sequence[Observation]) -> str | None:
    """The sentence that says how the client was the bottleneck; None where it was not.

    What connections took to be set up is not the client's: a server far away takes longer.
    """
    return _late_to_send(observations) or _late_to_read(observations)


REPLAY_LAG_S = 0.05
"""A request of a replay that leaves later than this after it was due counts as late; the set-up of its
connection does not."""

REPLAY_LATE_SHARE = 0.01
"""Share of the requests of a window that may be late; one may be in any window."""


def behind_schedule(observations: Sequence[Observation]) -> str | None:
    """The sentence that says that a window of a replay is not what was to be sent; None where it is.

    Requests that were not sent, since too many were in flight, count as late.
    """
    late = sum(
        lag(observation) - observation.connecting > REPLAY_LAG_S
        or (observation.answer.failure is not None and observation.answer.failure.kind == "overrun")
        for observation in observations
    )
    if late <= max(1.0, REPLAY_LATE_SHARE * len(observations)):
        return None
    return (
        f"the client was late: {late} of {len(observations)} requests of a window left more than "
        f"{REPLAY_LAG_S * 1000:.0f} ms after they were due, or never (limit: {REPLAY_LATE_SHARE:.0%}, or one)"
    )


def _late_to_send(observations: Sequence[Observation]) -> str | None:
    lags = [max(0.0, lag(observation) - observation.connecting) for observation in observations]
    in_flight = sum(e2e_with_retries(observation) for observation in observations)
    usual = statistics.median(lags) if lags else 0.0
    if usual < LEAST_S or sum(lags) < LEAST_IN_ALL_S:
        return None
    share = sum(lags) / (sum(lags) + in_flight)
    if share <= MOST_LAG_SHARE:
        return None
    return (
        f"the client was the bottleneck: requests waited {usual * 1000:.0f} ms in it before they were sent "
        f"(median; {share:.0%} of their time)"
    )


def _late_to_read(observations: Sequence[Observation]) -> str | None:
    """Chunks that wait for longer than one takes to follow another are read several at a time.

    A read is clocked by the kernel, so a few that are late falsify a few gaps. It takes half of them to
    falsify what is usual.
    """
    delays = [delay for observation in observations for delay in observation.delays]
    delay = statistics.median(delays) if delays else None
    gaps = [statistics.fmean(gaps) for observation in observations if (gaps := chunk_gaps(observation))]
    if delay is None or not gaps or sum(delays) < LEAST_IN_ALL_S:
        return None
    if delay < max(LEAST_S, statistics.median(gaps)):
        return None
    return (
        f"the client was the bottleneck: received chunks waited {delay * 1000:.0f} ms before they were read "
        f"(median); chunks arrived every {statistics.median(gaps) * 1000:.0f} ms"
    )
