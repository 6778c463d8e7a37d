"""The figures of one request and of a window of requests. Pure; durations in seconds unless a name says ms.

- TTFT: request sent to the first chunk with output.
- TPOT: (last token − first token) / (N − n_first); N from the server's usage, n_first the first chunk's
  tokens where the server says, else 1.
- Chunk gap: one sample for each gap between chunks. Amortised ITL: the gap over the later chunk's tokens.
- E2E: request sent to the end of the answer.
- Throughput: tokens over the wall time of the window, never over a sum of latencies.
- Goodput: requests that met every objective, over the wall time of the window. The end-to-end latency
  that it judges includes retries: the user waited for those too.
- Peak throughput: the most tokens in any one second, chunks weighted by their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pydantic import BaseModel, ConfigDict, Field

from specops.load.observation import Observation


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
    """None where the tokens are unknown, or came all at once."""
    answer = observation.answer
    if not answer.chunks or answer.tokens is None:
        return None
    first = answer.chunks[0]
    last_at = answer.chunks[-1].at if answer.finished is None else answer.finished
    after_first = answer.tokens - (1 if first.tokens is None else first.tokens)
    return (last_at - first.at) / after_first if after_first > 0 else None


def e2e(observation: Observation) -> float:
    return observation.ended - observation.sent


def e2e_with_retries(observation: Observation) -> float:
    return observation.ended - observation.first_sent


def lag(observation: Observation) -> float:
    """How late the request was sent, by its schedule."""
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
    answer = observation.answer
    all_at_once = bool(answer.chunks) and answer.tokens is not None and tpot(observation) is None
    figures = (
        (ttft(observation), objectives.ttft_ms),
        (0.0 if all_at_once else tpot(observation), objectives.tpot_ms),
        (e2e_with_retries(observation), objectives.e2e_ms),
    )
    return observation.ok and all(
        bound is None or (value is not None and value * 1000 <= bound) for value, bound in figures
    )


def peak_throughput(observations: Sequence[Observation], span: float = 1.0) -> float | None:
    """Tokens/s in the busiest `span` seconds; where only a whole answer's tokens are known, its chunks
    share them evenly. None where tokens are unknown."""
    marks: list[tuple[float, float]] = []
    for observation in observations:
        share = tokens_per_chunk(observation)
        for chunk in observation.answer.chunks:
            tokens = share if chunk.tokens is None else chunk.tokens
            if tokens is None:
                return None
            marks.append((chunk.at, tokens))
    marks.sort()
    best = within = 0.0
    start = 0
    for at, tokens in marks:
        within += tokens
        while marks[start][0] <= at - span:
            within -= marks[start][1]
            start += 1
        best = max(best, within)
    return best / span if marks else None
