"""Segments as a referee's measurement would have left them, of servers whose speed is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from specops.config import LoadPhase
from specops.phases.referee.judging import Answered, Limits, Segment, judge
from specops.phases.referee.records import ADAPTIVE, OFF, Findings
from specops.phases.referee.sentences import reason_of
from specops.results import Result

LIMITS = Limits(confidence=0.95, margin=0.05, length_margin=0.03, max_error_share=0.05, failure_margin=0.01)
STEPS = (LoadPhase(streams=1), LoadPhase(streams=4), LoadPhase(streams=16))

Speed = Callable[[LoadPhase, float, int], float]
"""By the phase, the seconds since it began, and the pass: how many times as fast as off at one stream."""


def fixed(*speeds: float) -> Speed:
    """By the phase of STEPS."""
    by_streams = dict(zip((1, 4, 16), speeds, strict=True))
    return lambda phase, at_s, pass_number: by_streams[phase.streams or 1]


SERVERS: dict[str, Speed] = {
    OFF: fixed(1.0, 0.8, 0.5),
    "k=3": fixed(1.6, 1.0, 0.4),
    "k=5": fixed(1.9, 0.9, 0.3),
    ADAPTIVE: fixed(1.9, 1.0, 0.5),
}
"""The best fixed settings are k=5, k=3 and off; the adaptive server has their speeds."""


def segments(
    servers: Mapping[str, Speed],
    phases: Sequence[LoadPhase] = STEPS,
    *,
    seed: int = 0,
    passes: int = 6,
    requests: int = 24,
    noise: float = 0.03,
    pass_noise: float = 0.01,
    drafting: Speed | None = None,
    tokens: Mapping[str, int] = {},  # never written
    failures: Mapping[str, int] = {},
    machine: Speed = lambda phase, at_s, pass_number: 1.0,
) -> list[Segment]:
    """One second a request at speed 1, times its length. `noise`: of each request of a server; `pass_noise`:
    of each segment. `failures`: failed requests of each segment. `machine` is the speed of all servers."""
    chance = np.random.default_rng(seed)
    measured = []
    for pass_number in range(passes):
        for place, phase in enumerate(phases):
            streams = phase.streams or 1
            lengths = np.exp(chance.normal(0, 0.5, requests))
            for arm, speed in servers.items():
                whole = math.exp(chance.normal(0, pass_noise))
                answers, free = {}, [0.0] * streams
                for number, length in enumerate(lengths):
                    stream = int(np.argmin(free))
                    at_s = free[stream]
                    pace = speed(phase, at_s, pass_number) * machine(phase, at_s, pass_number)
                    e2e_s = length * whole * math.exp(chance.normal(0, noise)) / pace
                    free[stream] += e2e_s
                    answers["p", str(number)] = Answered(
                        at_s,
                        1000 * e2e_s,
                        tokens.get(arm, 100),
                        drafting(phase, at_s, pass_number) if drafting and arm == ADAPTIVE else None,
                    )
                failed = failures.get(arm, 0)
                measured.append(
                    Segment(
                        arm=arm,
                        phase=place,
                        pass_number=pass_number,
                        began=100.0 * (pass_number * len(phases) + place),
                        answers=dict(list(answers.items())[failed:]),
                        requests=requests,
                        sent=requests,
                        failures=failed,
                    )
                )
    return measured


def judged(servers: Mapping[str, Speed], phases: Sequence[LoadPhase] = STEPS, **options: object) -> Findings:
    statics = [name for name in servers if name not in (OFF, ADAPTIVE)]
    return judge(segments(servers, phases, **options), phases, statics, LIMITS)  # type: ignore[arg-type]


def refereed() -> Result:
    """A finished result without its requests."""
    findings = judged(SERVERS, noise=0.01, pass_noise=0.003)
    return Result(
        phase="referee",
        verdict="yes",
        reason=reason_of(findings, {}, LIMITS.margin),
        settings={"arms": {name: {} for name in SERVERS}, "margin": LIMITS.margin},
        data=findings.model_dump(mode="json"),
    )
