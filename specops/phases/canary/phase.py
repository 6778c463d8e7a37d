"""The canary as a phase of the playbook: does the speculative pool answer as the standard one?"""

from __future__ import annotations

from typing_extensions import TypedDict

from specops.config import Rollout
from specops.errors import ServerError
from specops.phases.canary import canary, inputs, resumable
from specops.phases.canary.pool_pair import Conformance
from specops.phases.inputs import changed_where_served
from specops.phases.measurement import Keep
from specops.phases.phase import (
    MeasuredPhase,
    PhaseInput,
    PlannedPhase,
    Skipped,
    Step,
    Timing,
    gpus_of,
    no_room,
)
from specops.results import Content, Result

CHECKS_SENT = 38
"""Checks that send requests of their own, about."""

REQUESTS_OF_A_CHECK = 24
"""Requests of such a check to each pool, on average: each feature comes again while others overlap."""

REQUESTS_OF_A_PROMPT = 40
"""Requests that send a prompt of the set, about: most are of the checks that disturb a pool."""

SAMPLED = 2
"""Checks that draw `canary.samples` answers."""

STREAMS_TIMED = 8
"""Streams at which the canary's requests are timed in a forecast."""


class Summary(TypedDict):
    checks: int
    passed: int
    failed: list[str]
    undecided: list[str]
    unsupported: list[str]


class _Canary(MeasuredPhase):
    name = "canary"
    content = Content(Conformance, summary=Summary)
    pools = ("standard", "speculative")
    noiseless = True
    data = Conformance
    change = "fix what {result} shows"
    again = "run {rollout} --only canary --fresh"
    remake = "canary {rollout}"

    def inputs(self, task: PhaseInput) -> dict[str, str]:
        return inputs(task.rollout)

    def unlike(self, rollout: Rollout, result: Result) -> str | None:
        pools = [rollout.pools.standard, rollout.pools.speculative]
        return changed_where_served(result, inputs(rollout), pools)

    def stands(self, task: PhaseInput, previous: Result) -> bool:
        return previous.verdict in ("yes", "no")

    def resumes(self, task: PhaseInput, previous: Result) -> bool:
        return resumable(previous, self.inputs(task), str(task.path(self.name)))

    def measure(self, task: PhaseInput, previous: Result | None, keep: Keep) -> Result:
        return canary(task.rollout, task.folder, task.progress, previous=previous, on_partial=keep)

    def run(self, task: PhaseInput) -> Step | Skipped:
        try:
            return super().run(task)
        except ServerError as error:
            return no_room(task, self.name, error)

    def forecast(self, task: PhaseInput, timing: Timing) -> PlannedPhase:
        pools, settings = task.rollout.pools, task.rollout.canary
        pool_pair = [pools.standard, pools.speculative]
        starts = sum(pool.endpoint is None for pool in pool_pair)
        requests = 2 * (
            SAMPLED * settings.samples
            + REQUESTS_OF_A_PROMPT * settings.prompts
            + REQUESTS_OF_A_CHECK * CHECKS_SENT
        )
        span = timing.start_s() * starts + timing.request_s(STREAMS_TIMED) * requests
        reused, streams = self.reusable(task), settings.concurrency
        return PlannedPhase(
            self.name,
            starts,
            requests,
            span.most,
            streams,
            reused,
            "about",
            least_s=span.least,
            gpus=gpus_of(pool_pair),
        )


PHASE = _Canary()
