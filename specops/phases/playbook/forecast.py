"""What a walk would do: phases, server starts, requests, and the time they take. Nothing is run or sent.

Times come from earlier measurements in the run folder: the sweep's or the baseline's cells. Without any, a
token and a start are assumed to take `ASSUMED_TOKEN_S` and `ASSUMED_START_S`, and the forecast says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from statistics import fmean

from specops import results
from specops.config import Pool
from specops.errors import FileError
from specops.load.settings import BaselineSettings
from specops.phases import PHASES, Phase
from specops.phases.ab.settings import AbSettings, Arm
from specops.phases.ab.visits import schedule
from specops.phases.canary import inputs as canary_inputs
from specops.phases.inputs import changed, inputs_of, inputs_of_arms, settings_of
from specops.phases.playbook.step import Given
from specops.phases.sweep.plan import Sample
from specops.phases.sweep.spec import forecast as forecast_sweep
from specops.phases.sweep.spec import samples_of, spec_of

ASSUMED_TOKEN_S = 0.02
ASSUMED_START_S = 30.0
ASSUMED_TOKENS = 256
"""Of an answer whose prompt and settings give no max_tokens."""

QUICK_S = 2.0
"""Of a phase that only renders files or judges results."""

CANARY_CHECKS = 24
DRILL_S = 60.0


@dataclass(frozen=True)
class PlannedPhase:
    phase: Phase
    starts: int = 0
    """Servers that specops starts."""

    requests: int = 0
    """At most: a comparison ends early once it is decided."""

    seconds: float = QUICK_S
    reused: bool = False
    """An earlier result has the same inputs and stands."""

    note: str = ""


@dataclass(frozen=True)
class WalkForecast:
    phases: tuple[PlannedPhase, ...]
    assumed: bool
    """No earlier measurement: times are by the assumptions above."""

    @property
    def total_s(self) -> float:
        return sum(one.seconds for one in self.phases if not one.reused)

    @property
    def known_s(self) -> Mapping[str, float | None]:
        """Expected seconds by phase, for progress; None where they would be an assumption."""
        return {
            one.phase: 0.0
            if one.reused
            else None
            if self.assumed and one.starts + one.requests
            else one.seconds
            for one in self.phases
        }


class _Times:
    """How long a request and a start take, by what was measured."""

    def __init__(self, samples: list[Sample], requested: BaselineSettings) -> None:
        self.samples = samples
        self.tokens = requested.max_tokens or ASSUMED_TOKENS

    def request_s(self, streams: int) -> float:
        """A request's share of the time at so many streams."""
        if not self.samples:
            return self.tokens * ASSUMED_TOKEN_S / streams
        apart = [abs(log(sample.streams / streams)) for sample in self.samples]
        near = [s.prompt_s for s, far in zip(self.samples, apart, strict=True) if far == min(apart)]
        return fmean(near)

    def start_s(self) -> float:
        known = [sample.up_s for sample in self.samples if sample.up_s is not None]
        return fmean(known) if known else ASSUMED_START_S


def forecast(at: Given, only: Phase | None = None) -> WalkForecast:
    """Raises what the phases raise for wrong settings or damaged results."""
    requested = settings_of(at.rollout, at.rollout.pools.standard)
    samples, _ = samples_of(at.path("sweep"))
    times = _Times(samples, requested)
    planned = tuple(
        _PLANS.get(phase, _quick)(at, phase, requested, times) for phase in PHASES if only in (None, phase)
    )
    return WalkForecast(planned, assumed=not samples)


def _started(*pools: Pool) -> int:
    return sum(pool.endpoint is None for pool in pools)


def _stands(at: Given, phase: Phase, inputs: Mapping[str, str]) -> bool:
    path = at.path(phase)
    if at.fresh or not path.exists():
        return False
    try:
        previous = results.read(path)
    except FileError:
        return False  # the phase itself says what is wrong with it
    return previous.verdict not in ("partial", "no") and changed(previous, dict(inputs)) is None


def _quick(at: Given, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    return PlannedPhase(phase)


def _baseline(at: Given, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pool, prompts = at.rollout.pools.standard, len(requested.prompt_set().prompts)
    starts = _started(pool)
    each = [level.concurrency or 1 for level in requested.levels() for _ in range(requested.repeats)]
    requests = (prompts + requested.warmup) * len(each)
    seconds = starts * times.start_s() + sum((prompts + requested.warmup) * times.request_s(n) for n in each)
    return PlannedPhase(phase, starts, requests, seconds, _stands(at, phase, inputs_of(requested, pool)))


def _sweep(at: Given, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pool = at.rollout.pools.speculative
    if pool.endpoint is not None or pool.fixed_k is not None:
        return PlannedPhase(phase, seconds=0.0, note="not run: specops cannot set K of this pool")
    spec = spec_of(at.rollout, at.file.parent)
    known = forecast_sweep(spec, at.path("sweep"))
    starts, requests = sum(rung.starts for rung in known.rungs), sum(rung.requests for rung in known.rungs)
    if spec.budget_min is not None:
        seconds, note = 60.0 * spec.budget_min, "a budget: later rungs depend on the first"
    else:
        streams = max(load.concurrency for load in spec.loads)
        seconds, note = known.seconds or starts * times.start_s() + requests * times.request_s(streams), ""
    return PlannedPhase(phase, starts, requests, seconds, _stands(at, phase, spec.inputs()), note)


def _ab(at: Given, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pools = (at.rollout.pools.standard, at.rollout.pools.speculative)
    arms = [Arm("standard", pools[0]), Arm("speculative", pools[1])]
    settings, prompts = AbSettings(**at.rollout.ab.model_dump()), requested.prompt_set()
    visits = schedule(
        settings.design,
        [arm.name for arm in arms],
        requested.levels(),
        [(prompt.id, prompt.traffic_class) for prompt in prompts.prompts],
        rounds=requested.repeats,
        looks=settings.looks,
        seed=requested.seed,
    )
    turns = len({(visit.arm, visit.period) for visit in visits})
    starts = turns if settings.design == "abba-restart" else _started(*pools)
    requests = sum(len(visit.prompts) for visit in visits)
    seconds = starts * times.start_s()
    seconds += sum(len(visit.prompts) * times.request_s(visit.level.concurrency or 1) for visit in visits)
    inputs = inputs_of_arms(arms, requested, settings, prompts)
    return PlannedPhase(
        phase, starts, requests, seconds, _stands(at, phase, inputs), "at most: ends once decided"
    )


def _canary(at: Given, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pools, settings = at.rollout.pools, at.rollout.canary
    starts = _started(pools.standard, pools.speculative)
    requests = 2 * (settings.samples + 4 * settings.prompts + 4 * CANARY_CHECKS)
    seconds = starts * times.start_s() + requests * times.request_s(8)
    return PlannedPhase(
        phase, starts, requests, seconds, _stands(at, phase, canary_inputs(at.rollout)), "about"
    )


def _drill(at: Given, phase: Phase, requested: BaselineSettings, times: _Times) -> PlannedPhase:
    pools = at.rollout.pools
    if pools.standard.endpoint or pools.speculative.endpoint:
        return PlannedPhase(phase, seconds=0.0, note="not run: it would move live traffic")
    return PlannedPhase(phase, 2, 0, 2 * times.start_s() + DRILL_S, note="and NGINX, on loopback")


_PLANS: Mapping[Phase, Callable[[Given, Phase, BaselineSettings, _Times], PlannedPhase]] = {
    "baseline": _baseline,
    "sweep": _sweep,
    "ab": _ab,
    "canary": _canary,
    "guard-drill": _drill,
}
