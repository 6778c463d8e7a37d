"""rules.yml: the playbook's names and what panels and alerts read, whichever engine serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specops.config import Rollout
from specops.prometheus import recorded
from specops.prometheus.exposed import POOLS, exposed
from specops.prometheus.promql import LATENCIES, Signals, selector
from specops.prometheus.series import POOL, ROLLOUT, ROUTE_REQUESTS, Series
from specops.render.prometheus import baseline
from specops.render.prometheus.rule_file import Record, duration, rule_file

BY = (ROLLOUT, POOL, "model_name")
ABOUT = (
    "Ratios divide increases of counters; without traffic they have no sample, which is neither 0 nor NaN.",
    "Latencies are means: an engine's buckets are too coarse to see a change of 20%.",
)


@dataclass(frozen=True)
class Measured:
    """What is known from before, and becomes a constant series."""

    loads: Sequence[baseline.Load] = ()
    """Of the baseline, by concurrency."""

    acceptance: float | None = None


def rules(rollout: Rollout, measured: Measured) -> str:
    """The text of the file."""
    return rule_file(rollout.rollout, f"specops-{rollout.rollout}", records(rollout, measured), *ABOUT)


def records(rollout: Rollout, measured: Measured) -> list[Record]:
    """Each reads only what stands before it."""
    found = [
        record for series, labels in _by_series(rollout) for record in _of_engine(rollout, series, labels)
    ]
    found += _errors(rollout)
    if rollout.addresses.gpus:
        found.append(_gpu_memory(rollout))
    found += baseline.constants(rollout.rollout, measured.loads)
    if measured.acceptance is not None:
        where = {ROLLOUT: rollout.rollout, POOL: "speculative"}
        found.append(Record(recorded.RECORDED_ACCEPTANCE, f"vector({measured.acceptance:.4g})", where))
    found += baseline.expected(rollout.rollout, measured.loads)
    return found


def _by_series(rollout: Rollout) -> list[tuple[Series, dict[str, str]]]:
    """Names and the labels that have them: pools that have the same are asked for together."""
    ours = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
    one, other = (exposed(rollout, pool) for pool in POOLS)
    if one == other:
        return [(one, ours)]
    return [(exposed(rollout, pool), ours | {POOL: pool}) for pool in POOLS]


def _of_engine(rollout: Rollout, series: Series, labels: dict[str, str]) -> Iterator[Record]:
    signals = Signals(series, labels, duration(rollout.monitor.window_s), BY)
    speculates = signals.held_to({POOL: "speculative"})
    if labels.get(POOL) != "standard":
        yield Record(recorded.ACCEPTANCE, speculates.acceptance())
        per_position = speculates.per_position()
        if per_position is not None:
            yield Record(recorded.PER_POSITION, per_position)
        yield Record(recorded.ACCEPTED_LENGTH, speculates.accepted_length())
        yield Record(recorded.DRAFTED, speculates.drafted())
        per_step = speculates.tokens_per_step()
        if per_step is not None:
            yield Record(recorded.TOKENS_PER_STEP, per_step)
    for latency in LATENCIES:
        yield Record(recorded.MEAN[latency], signals.mean(latency))
        quantile = signals.quantile(latency, 0.95)
        if quantile is not None:
            yield Record(recorded.P95[latency], quantile)
    yield Record(recorded.CONCURRENCY, signals.load())
    yield Record(recorded.WAITING, signals.waiting())
    yield Record(recorded.FINISHED, signals.finished())
    yield Record(recorded.ANSWER_TOKENS, signals.answer_tokens())
    yield Record(recorded.TOKENS_PER_S, signals.tokens_per_second())
    yield Record(recorded.KV_USAGE, signals.kv_usage())
    yield Record(recorded.PREEMPTIONS, signals.preemptions())
    if not rollout.addresses.routers:
        by_pool = Signals(series, labels, signals.window, (ROLLOUT, POOL))
        yield Record(recorded.REQUESTS, by_pool.finished())
        yield Record(recorded.ERROR_SHARE, by_pool.aborted_share())


def _errors(rollout: Rollout) -> Iterator[Record]:
    """By the pool that a request was sent to: what another pool saved is not counted against it."""
    if not rollout.addresses.routers:
        return
    ours = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
    window = duration(rollout.monitor.window_s)
    failed = _routed(ours | {"status": "5xx"}, window)
    yield Record(recorded.REQUESTS, _routed(ours, window))
    # The series of a status exists from its first answer on: where there is none, none failed.
    total = f"{recorded.REQUESTS}{selector({ROLLOUT: rollout.rollout})}"
    yield Record(recorded.ERROR_SHARE, f"({failed} or {total} * 0) / ({total} > 0)")


def _routed(labels: dict[str, str], window: str) -> str:
    """By pool, as the other series name it; without those that nobody serves, which go to none."""
    grown = f'increase({ROUTE_REQUESTS}{selector(labels)[:-1]},pool!="none"}}[{window}])'
    return f'sum by ({ROLLOUT}, {POOL}) (label_replace({grown}, "{POOL}", "$1", "pool", "(.+)"))'


def _gpu_memory(rollout: Rollout) -> Record:
    ours = selector({ROLLOUT: rollout.rollout} | rollout.monitor.labels)
    used, free = f"DCGM_FI_DEV_FB_USED{ours}", f"DCGM_FI_DEV_FB_FREE{ours}"
    return Record(recorded.GPU_MEMORY, f"{used} / ({used} + {free})")
