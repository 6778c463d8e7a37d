"""Logged requests on one server with measured costs: closed loops at a level, and arrivals at a rate. Pure.

A server that batches continuously gives each running request a turn in each step, so the pace of a request
depends only on how many run. The measured costs at a level contain what the others' prompts take. Between
two measured levels a time is interpolated; above the highest no request is started, and waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specops.phases.predict.acceptance import AnswerCounts, Floats
from specops.phases.predict.records import StepCosts

REQUESTS = 1000
"""Simulated arrivals at each rate."""

SEARCHED = 14
"""Halvings of the interval of rates: to within 0.01%."""

P95 = 0.95


@dataclass(frozen=True)
class RequestWork:
    """Requests of n answers with one setting, [n] each. The first step is part of the time to the first
    token; `after` counts the steps after it."""

    prompt: Floats
    after: Floats
    draft_steps: Floats
    drafted: Floats
    tokens: Floats

    @classmethod
    def of_counts(cls, counts: Sequence[AnswerCounts]) -> RequestWork:
        columns = np.array(
            [(c.prompt_tokens, c.steps, c.draft_steps, c.drafted, c.tokens) for c in counts], dtype=np.float64
        )
        prompt, steps, draft_steps, drafted, tokens = columns.T
        share = (steps - 1) / steps
        return cls(prompt, steps - 1, draft_steps * share, drafted * share, tokens)

    def without_drafts(self) -> RequestWork:
        """The same answers without speculation: a step a token."""
        nothing = np.zeros(len(self.tokens))
        return RequestWork(self.prompt, self.tokens - 1, nothing, nothing, self.tokens)

    def times_ms(self, costs: StepCosts) -> tuple[Floats, Floats]:
        """Milliseconds to the first token, and from there to the last, [n] each."""
        decode = (
            costs.step_ms * self.after + costs.draft_ms * self.draft_steps + costs.token_ms * self.drafted
        )
        return costs.first_ms + costs.prompt_ms * self.prompt, decode


@dataclass(frozen=True)
class ServedLoad:
    """Latencies of simulated requests, [n] each, in milliseconds."""

    ttft_ms: Floats
    e2e_ms: Floats
    tokens: Floats

    @property
    def tpot_ms(self) -> Floats:
        return np.asarray((self.e2e_ms - self.ttft_ms) / np.maximum(self.tokens - 1, 1))

    def meets(self, limits: Mapping[str, float]) -> bool:
        """Return whether the p95 of every limited latency, by its name, is within its limit."""
        return all(float(np.quantile(getattr(self, name), P95)) <= limit for name, limit in limits.items())


class Server:
    """One server with the costs at its measured levels, which serves the `work` of a log."""

    def __init__(self, costs: Sequence[StepCosts], work: RequestWork) -> None:
        levels = [level.streams for level in costs]
        times = [work.times_ms(level) for level in costs]
        self.most_streams = max(levels)
        batches = np.arange(1, self.most_streams + 1)
        self._tokens = work.tokens
        # [phases, batch, answer]: milliseconds of a phase, the prompt's and the decoding, alone at that batch
        self._phase_ms = np.stack(
            [_between(batches, levels, np.stack([pair[phase] for pair in times])) for phase in (0, 1)]
        )

    def serve(self, answers: Sequence[int], arrivals_ms: Sequence[float]) -> ServedLoad:
        """Serve the answers, by their number in the log, that arrive at these times in order."""
        number = len(answers)
        indices = np.array(answers)
        first, ended = np.zeros(number), np.zeros(number)
        left = np.ones((number, 2))  # share of each phase that is still to be done
        running: list[int] = []
        now, arrived, started = 0.0, 0, 0
        while started < number or running:
            while started < arrived and len(running) < self.most_streams:
                running.append(started)
                started += 1
            next_arrival = arrivals_ms[arrived] if arrived < number else np.inf
            if not running:
                now, arrived = next_arrival, arrived + 1
                continue
            active = np.array(running)
            phase = (left[active, 0] <= 0).astype(np.int64)
            pace_ms = np.maximum(self._phase_ms[phase, len(running) - 1, indices[active]], 1e-9)
            ends = now + left[active, phase] * pace_ms
            until = min(float(ends.min()), next_arrival)
            left[active, phase] -= (until - now) / pace_ms
            now = until
            if next_arrival <= until:
                arrived += 1
            done = ends <= until
            left[active[done], phase[done]] = 0.0
            first[active[done & (phase == 0)]] = now
            finished = active[done & (phase == 1)]
            ended[finished] = now
            running = [request for request in running if left[request, 1] > 0]
        arrivals = np.array(arrivals_ms)
        return ServedLoad(first - arrivals, ended - arrivals, self._tokens[indices])

    def capacity(self, limits: Mapping[str, float], seed: int) -> float:
        """The highest rate, in requests/s, of Poisson arrivals of answers of the log at which the p95 of each
        limit is met; 0 where not even a request alone meets it."""
        chance = np.random.default_rng(seed)
        answers = chance.integers(0, len(self._tokens), REQUESTS).tolist()
        gaps = chance.exponential(1.0, REQUESTS)

        def met(rate: float) -> bool:
            return self.serve(answers, np.cumsum(gaps * 1000 / rate).tolist()).meets(limits)

        # No more than a full server answers: an overload of a few minutes may meet wide limits.
        low, high = 0.0, self.most_streams * 1000 / float(self._phase_ms.sum(0)[-1].mean())
        for _ in range(SEARCHED):
            middle = (low + high) / 2
            low, high = (middle, high) if met(middle) else (low, middle)
        return low


def _between(batches: NDArray[np.signedinteger[Any]], levels: Sequence[int], times_ms: Floats) -> Floats:
    """Times at each batch, [batches, n], from those at the levels, [levels, n]. Below the lightest level
    they are those at it: then a time is not shorter than it was measured."""
    return np.stack(
        [np.interp(batches, levels, times_ms[:, answer]) for answer in range(times_ms.shape[1])], axis=1
    )
