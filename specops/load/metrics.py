"""The figures of one request and of a window of requests. Pure; durations in seconds unless a name says ms.

- TTFT: request sent to the first chunk with output.
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
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pydantic import BaseModel, ConfigDict, Field

from specops.load.answer import Answer
from specops.load.observation import Observation

_FIRST_CHUNK_DOUBT = 0.02
"""A TPOT between two bounds that differ by no more than this is given as their middle: right within 1%."""


class Objectives(BaseModel):
    """Latency objectives, in milliseconds, that a request must meet to count as goodput; None sets none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ttft_ms: float | None = Field(default=None, gt=0)
    tpot_ms: float | None = Field(default=None, gt=0)
    e2e_ms: float | None = Field(default=None, gt=0)

    def __bool__(self) -> bool:
        return (self.ttft_ms, self.tpot_ms, self.e2e_ms) != (None, None, None)


def ttft(observation: Observation) -> float | None:
    chunks = observation.answer.chunks
    return chunks[0].at - observation.sent if chunks else None


def tpot(observation: Observation) -> float | None:
    """None where the tokens are unknown, or came all at once; `tpot_missing` says which."""
    answer = observation.answer
    after_first = _after_first(answer)
    if not after_first or all_at_once(observation):
        return None
    return (_last_at(answer) - answer.chunks[0].at) / after_first


def tpot_missing(observation: Observation) -> str | None:
    """Why a request has no TPOT; None where it has one."""
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
    """Whether no token came after the first chunk: then nobody waited between tokens."""
    answer = observation.answer
    if not answer.chunks or answer.tokens is None:
        return False
    first = answer.chunks[0]
    return _last_at(answer) == first.at or (first.tokens is not None and first.tokens >= answer.tokens)


def _last_at(answer: Answer) -> float:
    return answer.chunks[-1].at if answer.finished is None else answer.finished


def _after_first(answer: Answer) -> float | None:
    """The tokens that came after the first chunk; None where they are unknown.

    Where the server does not count each chunk, the first one's share of the text says how many it has, give
    or take a factor of two: it counts where the TPOT is known within 1% all the same.
    """
    if not answer.chunks or answer.tokens is None:
        return None
    first = answer.chunks[0]
    if first.tokens is not None:
        return answer.tokens - first.tokens
    most = max(1, answer.tokens - len(answer.chunks) + 1)  # every other chunk has one at least
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
    """How late the request was sent by its schedule: the client's own time, with that of connecting."""
    return observation.first_sent - observation.scheduled


def chunk_gaps(observation: Observation) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(observation.answer.chunks)]


def amortised_itl(observation: Observation) -> list[float]:
    """Empty where the server does not count each chunk's tokens."""
    return [
        (later.at - earlier.at) / later.tokens
        for earlier, later in pairwise(observation.answer.chunks)
        if later.tokens
    ]


def tokens_per_chunk(observation: Observation) -> float | None:
    answer = observation.answer
    return answer.tokens / len(answer.chunks) if answer.chunks and answer.tokens is not None else None


def output_tokens(observations: Sequence[Observation]) -> int | None:
    """Tokens of the whole answers among `observations`; None where some answer's tokens are unknown."""
    counts = [observation.answer.tokens for observation in observations if observation.ok]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def meets(observation: Observation, objectives: Objectives) -> bool:
    """Whether a request met every objective. A failed one did not, nor one whose figure is unknown.

    An answer that came all at once has no TPOT, and kept nobody waiting between tokens: it meets any.
    """
    figures = (
        (ttft(observation), objectives.ttft_ms),
        (0.0 if all_at_once(observation) else tpot(observation), objectives.tpot_ms),
        (e2e_with_retries(observation), objectives.e2e_ms),
    )
    return observation.ok and all(
        bound is None or (value is not None and value * 1000 <= bound) for value, bound in figures
    )


def peak_throughput(observations: Sequence[Observation], span: float = 1.0) -> float | None:
    """Tokens/s in the busiest `span` seconds. None where the tokens of some chunk are unknown."""
    marks: list[tuple[float, int]] = []
    for observation in observations:
        for chunk in observation.answer.chunks:
            if chunk.tokens is None:
                return None
            marks.append((chunk.at, chunk.tokens))
    marks.sort()
    best = within = start = 0
    for at, tokens in marks:
        within += tokens
        while marks[start][0] <= at - span:
            within -= marks[start][1]
            start += 1
        best = max(best, within)
    return best / span if marks else None
