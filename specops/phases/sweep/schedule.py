"""The best K by the number of requests in a batch, as vLLM takes it. Pure.

`num_speculative_tokens_per_batch_size` (vLLM 0.24 and later) is a list of [first, last, K], both ends
included: the first starts at 1, none overlap, 0 is off. Above the last range vLLM goes on with its K up to
the largest batch, and no K is above `num_speculative_tokens`, so that has to be the schedule's largest
(vllm/v1/spec_decode/dynamic/utils.py, read in 0.32).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pydantic import BaseModel, ConfigDict

Range = tuple[int, int, int]
"""First and last size of the batch, and K."""


class Schedule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ranges: list[Range]
    largest: int
    """The `num_speculative_tokens` that it needs; 0 where it never speculates, and is no schedule at all."""

    message: str
    """What of it was not measured."""


def schedule(best: Mapping[int, int], unconfirmed: Sequence[int] = ()) -> Schedule:
    """From the best K at each concurrency that was measured; at least one. At those `unconfirmed`, K is by
    the choice alone.

    Between two measured loads of unlike K the boundary is their geometric middle, which is an interpolation:
    nothing was measured there. Nothing is said above the largest load.
    """
    measured = sorted(best.items())
    ranges: list[Range] = []
    first = 1
    for (concurrency, k), (following, other) in pairwise(measured):
        if k != other:
            last = math.isqrt(concurrency * following)
            ranges.append((first, last, k))
            first = last + 1
    ranges.append((first, measured[-1][0], measured[-1][1]))
    return Schedule(
        ranges=ranges, largest=max(k for _, _, k in ranges), message=_message(measured, ranges, unconfirmed)
    )


def _message(measured: list[tuple[int, int]], ranges: list[Range], unconfirmed: Sequence[int]) -> str:
    lightest, heaviest = measured[0][0], measured[-1]
    said = [f"measured at {', '.join(str(concurrency) for concurrency, _ in measured)}"]
    if len(ranges) > 1:
        said.append("boundaries lie at the geometric middle between two of them, where nothing was measured")
    if lightest > 1:
        said.append(f"below {lightest} nothing was measured")
    if heaviest[1] > 0:
        said.append(f"above {heaviest[0]} nothing was measured, and vLLM goes on with K = {heaviest[1]}")
    if unconfirmed:
        said.append(f"not confirmed at {', '.join(map(str, unconfirmed))}")
    return "; ".join(said)
