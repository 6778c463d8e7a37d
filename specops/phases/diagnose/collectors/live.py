"""A pool as it is now: by a Prometheus, else by its servers' /metrics read twice."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from specops import stats
from specops.access import OPEN, Access, Credentials
from specops.config import Rollout
from specops.errors import EndpointError, SpecopsError
from specops.gpus import GIB, NvmlUnavailable, devices, open_nvml
from specops.load.client import Client
from specops.load.request_times import Observation
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.diagnose.finding import ENOUGH_ANSWERS, ENOUGH_DRAFTED, ENOUGH_MADE
from specops.phases.diagnose.observations import (
    EarlierAcceptance,
    GpuFigures,
    Live,
    RoutedErrors,
    RoutedShare,
    StreamFigures,
)
from specops.phases.inputs import settings_of
from specops.prometheus import exposition
from specops.prometheus.api import Api, Sample
from specops.prometheus.exposition import DraftCounts, NoData, Scrape
from specops.prometheus.promql import Signals, selector, stuck_window_s
from specops.prometheus.series import (
    GPU_FREE,
    GPU_USED,
    POOL,
    ROLLOUT,
    ROUTE_PERCENT,
    ROUTE_REQUESTS,
    PoolName,
    exposed,
)
from specops.render.prometheus.rules import duration
from specops.results import milliseconds
from specops.serving import Endpoint

NO_PROMETHEUS = "the rollout file has no addresses.prometheus"
HOUR = 3600.0


def servers(rollout: Rollout) -> list[str] | str:
    """Base URLs of the speculative pool's servers."""
    pool = rollout.pools.speculative
    if rollout.addresses.speculative:
        return [f"http://{address}/v1" for address in rollout.addresses.speculative]
    if pool.endpoint is not None:
        return [pool.endpoint.base_url]
    return "where the speculative pool's servers answer is not known: add addresses.speculative"


def access_at(rollout: Rollout, server: str) -> Access:
    """Return what the endpoint of the speculative pool requires. Its secrets are for its own address only."""
    endpoint = rollout.pools.speculative.endpoint
    return OPEN if endpoint is None or endpoint.base_url != server else endpoint.access


class PrometheusPool:
    """A Prometheus, of one pool of a rollout."""

    def __init__(self, api: Api, rollout: Rollout, pool: PoolName = "speculative") -> None:
        self.api = api
        self.series = exposed(rollout, pool)
        self.ours = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
        self.labels = self.ours | {POOL: pool}
        self.speculates = pool == "speculative"
        self.step = duration(max(60, 4 * rollout.monitor.scrape_interval_s))
        self.stuck_window = duration(stuck_window_s(self.series, rollout.monitor.window_s))
        self.windows = (duration(rollout.monitor.window_s), "1h", "1d")

    def live(self) -> Live | str:
        """Return the figures over the shortest window in which enough was drafted, or enough answered without
        any draft; else over the longest. Raises EndpointError."""
        for window in self.windows:
            signals = self._signals(window)
            drafted, finished = self._value(signals.drafted()), self._value(signals.finished())
            if (drafted or 0) >= ENOUGH_DRAFTED or (not drafted and (finished or 0) >= ENOUGH_ANSWERS):
                break
        if drafted is None and finished is None:
            return f"{self.api.url} has no series of this pool: specops monitor check ROLLOUT"
        # A server that does not draft shows where its series exist, or exist only while it speculates.
        shows = self.speculates and (drafted is not None or self.series.drafts_come_late)
        return Live(
            source=f"{self.api.url}, {self.labels[POOL]} pool, the last {window}",
            over=f"the last {window}",
            age_s=self._age_s(window),
            answers=finished,
            drafted=drafted,
            acceptance=self._value(signals.acceptance()),
            per_position=self._positions(signals),
            ttft_ms=milliseconds(self._value(signals.mean("ttft"))),
            tpot_ms=milliseconds(self._value(signals.mean("tpot"))),
            e2e_ms=milliseconds(self._value(signals.mean("e2e"))),
            answer_tokens=self._value(signals.answer_tokens()),
            load=self._value(signals.load()),
            kv_usage=self._value(usage) if (usage := signals.kv_usage()) else None,
            preemptions_per_s=self._value(preempted) if (preempted := signals.preemptions()) else None,
            aborted=self._value(signals.aborted_share()),
            not_drafting=self._servers(signals.not_drafting(ENOUGH_MADE)) if shows else (),
            stuck=self._servers(self._signals(self.stuck_window).stuck()),
        )

    def _age_s(self, window: str) -> float:
        """Seconds since a token was made within the window; without any, since the newest sample."""
        tokens, every = f"{self.series.generated}{selector(self.labels)}", f"[{window}:{self.step}]"
        # A step of the window counts with its time where a counter changed within it, else with 0.
        growing = f"sum(changes({tokens}[{self.step}])) > bool 0"
        last_made = self._value(f"max_over_time((time() * ({growing})){every})")
        newest = f"max(timestamp({tokens}))"  # a Prometheus younger than a step has no step to count
        last = (
            last_made or self._value(f"max(max_over_time(timestamp({tokens}){every}))") or self._value(newest)
        )
        now = self._value("time()")
        return math.inf if last is None or now is None else max(0.0, now - last)

    def routed_errors(self) -> RoutedErrors | str:
        """Return what the routers answered, over the shortest window with enough requests to the speculative
        pool. Raises EndpointError."""

        def grown(window: str, **labels: str) -> float:
            counted = f"increase({ROUTE_REQUESTS}{selector(self.ours | labels)}[{window}])"
            return self._value(f"sum({counted})") or 0.0

        window = self.windows[0]
        requests = grown(window, pool="speculative")
        if requests < ENOUGH_ANSWERS:
            few = f"the routers sent {requests:.0f} requests to the speculative pool within {window}"
            return f"{self.api.url}: {few}"
        standard = grown(window, pool="standard")
        broken = grown(window, pool="standard", status="5xx")
        return RoutedErrors(
            source=f"{self.api.url}, routers, the last {window}",
            over=f"the last {window}",
            requests=requests,
            failed=grown(window, pool="speculative", status="5xx") / requests,
            saved=grown(window, pool="speculative", served="standard") / requests,
            standard_failed=broken / standard if standard else None,
        )

    def switched(self) -> RoutedShare | str:
        """Return the share that the router which sends most sends to the speculative pool. Raises
        EndpointError."""
        percent = self._value(f"max({ROUTE_PERCENT}{selector(self.ours)})")
        if percent is None:
            return f"{self.api.url} has no {ROUTE_PERCENT}: no router is scraped"
        return RoutedShare(source=self.api.url, percent=percent)

    def gpu(self) -> GpuFigures | str:
        """Return the memory of the fullest device, by DCGM's exporter. Raises EndpointError."""
        mib = [f"{name}{selector(self.ours)}" for name in (GPU_USED, GPU_FREE)]
        used, free = ({_device(sample): sample.value for sample in self.api.instant(name)} for name in mib)
        devices = [(used[device], free[device]) for device in used.keys() & free.keys()]
        if not devices:
            return f"{self.api.url} has no {GPU_USED} of this rollout: addresses.gpus names DCGM's exporters"
        most, left = max(devices, key=lambda sample: sample[0] / (sample[0] + sample[1]))
        return GpuFigures(
            source=f"{self.api.url} (DCGM)", used_gib=most / 1024, total_gib=(most + left) / 1024
        )

    def earlier(self) -> EarlierAcceptance | str:
        """Raises EndpointError."""
        now = self._value("time()")
        if now is None:
            return f"{self.api.url} does not say what time it is"
        week = self._value(self._signals("7d").acceptance(), now - 24 * HOUR)
        started = self._value(f"max(process_start_time_seconds{selector(self.labels)})")
        first = up = None
        if started is not None:
            up = (now - started) / HOUR
            first = self._value(self._signals("1h").acceptance(), started + HOUR) if up > 2 else None
        if week is None and first is None:
            return f"{self.api.url} has nothing of a day ago and before"
        return EarlierAcceptance(source=self.api.url, week=week, after_start=first, up_hours=up)

    def _signals(self, window: str) -> Signals:
        return Signals(self.series, self.labels, window)

    def _positions(self, signals: Signals) -> tuple[float, ...]:
        expr = signals.per_position()
        samples = self.api.instant(expr) if expr else []
        by_position = {
            int(s.labels["position"]): s.value for s in samples if s.labels.get("position", "").isdigit()
        }
        return tuple(by_position[k] for k in sorted(by_position) if math.isfinite(by_position[k]))

    def _servers(self, expr: str) -> tuple[str, ...]:
        return tuple(sorted({sample.labels.get("instance", "?") for sample in self.api.instant(expr)}))

    def _value(self, expr: str, time_s: float | None = None) -> float | None:
        samples = self.api.instant(expr, time_s)
        return samples[0].value if samples and math.isfinite(samples[0].value) else None


def _device(sample: Sample) -> tuple[str, ...]:
    where = sample.labels.get("Hostname") or sample.labels.get("instance", "")
    return where, sample.labels.get("gpu", "")


class ScrapedPool:
    """The servers' own /metrics, read at the start and again at the end."""

    def __init__(self, servers: Mapping[str, Credentials]) -> None:
        """Raises EndpointError where one has none."""
        self.servers = servers
        self._before = [exposition.scrape(*server) for server in servers.items()]
        self._began = time.monotonic()

    def live(self) -> Live | str:
        """Raises EndpointError."""
        after = [exposition.scrape(*server) for server in self.servers.items()]
        took = time.monotonic() - self._began
        pairs = list(zip(self._before, after, strict=True))
        counts, why = _drafts(pairs)
        series = exposition.series_of(*after)
        generated_by_server = [_increase([pair], series.generated) for pair in pairs]
        silent = [
            url.removeprefix("http://").removesuffix("/v1")
            for url, pair, tokens in zip(self.servers, pairs, generated_by_server, strict=True)
            if (tokens or 0) >= ENOUGH_MADE and exposition.draft_counts(*pair).drafts == 0.0
        ]
        e2e = _increase(pairs, f"{series.e2e}_sum")
        answers = _increase(pairs, f"{series.e2e}_count")
        if counts is None and not answers:
            return f"{', '.join(self.servers)}: no requests within {took:.0f} s ({why})"
        generated = _increase(pairs, series.generated)
        usages = [value for scrape in after for (name, _), value in scrape.items() if name == series.kv_usage]
        preempted = _increase(pairs, series.preemptions) if series.preemptions else None
        return Live(
            source=f"/metrics of {', '.join(self.servers)}",
            over=f"{took:.0f} s",
            answers=answers,
            drafted=counts.draft_tokens if counts else None,
            acceptance=counts.rate if counts else None,
            per_position=tuple(rate for rate in counts.per_position if rate is not None) if counts else (),
            ttft_ms=_mean_ms(pairs, series.ttft),
            tpot_ms=_mean_ms(pairs, series.tpot),
            e2e_ms=1000 * e2e / answers if e2e is not None and answers else None,
            answer_tokens=generated / answers if generated is not None and answers else None,
            load=max(1.0, e2e / took / len(pairs)) if e2e is not None else None,  # Little's law
            kv_usage=max(usages, default=None),
            preemptions_per_s=None if preempted is None else preempted / took,
            not_drafting=tuple(silent),
        )


_Pairs = Sequence[tuple[Scrape, Scrape]]


def _drafts(pairs: _Pairs) -> tuple[DraftCounts | None, str]:
    total, why = DraftCounts(0, 0, 0), ""
    for before, after in pairs:
        counts = exposition.draft_counts(before, after)
        if isinstance(counts, NoData):
            why = counts.reason
        else:
            total += counts
    return (total, why) if total.drafts else (None, why)


def _increase(pairs: _Pairs, name: str) -> float | None:
    grown = [exposition.increase(before, after, name) for before, after in pairs]
    increases = [value for value in grown if not isinstance(value, NoData)]
    return sum(increases) if increases else None


def _mean_ms(pairs: _Pairs, histogram: str) -> float | None:
    total, count = _increase(pairs, f"{histogram}_sum"), _increase(pairs, f"{histogram}_count")
    return 1000 * total / count if total is not None and count else None


def gpu() -> GpuFigures | str:
    """Return the memory of the fullest device of this machine. Only of use where the pool serves from it."""
    try:
        nvml = open_nvml()
    except NvmlUnavailable as error:
        return str(error)
    try:
        memory = [nvml.nvmlDeviceGetMemoryInfo(handle) for handle in devices(nvml)]
    except nvml.NVMLError as error:
        return f"NVML does not report the devices' memory ({error})"
    finally:
        nvml.nvmlShutdown()
    fullest = max(memory, key=lambda sample: sample.used / sample.total, default=None)
    if fullest is None:
        return "this machine has no NVIDIA device"
    return GpuFigures(source="NVML", used_gib=fullest.used / GIB, total_gib=fullest.total / GIB)


REQUESTS = 12
"""One after the other: it looks at how text arrives, and must not be a load."""
BUDGET_S = 20.0
"""Seconds after which no other request is sent."""


def stream(rollout: Rollout, server: str) -> StreamFigures | str:
    """Return how a few streamed answers of the server at this base URL came."""
    requested = settings_of(rollout, rollout.pools.standard)
    try:
        prompts = requested.prompt_set().prompts
        prompts = prompts[:: max(1, len(prompts) // REQUESTS)][
            :REQUESTS
        ]  # of every class, where they are sorted
        answers = asyncio.run(_collect_from(rollout, requested, server, prompts))
    except SpecopsError as error:
        return error.message
    return summarized(answers, server)


async def _collect_from(
    rollout: Rollout, requested: BaselineSettings, server: str, prompts: Sequence[Prompt]
) -> list[Observation]:
    endpoint = rollout.pools.speculative.endpoint
    place = Endpoint(server, "" if endpoint is None else endpoint.model, access_at(rollout, server))
    pool_settings = requested.at(place, "speculative")
    if not pool_settings.model:
        async with Client(pool_settings.target(), pool_settings.decoding()) as client:
            pool_settings = pool_settings.model_copy(update={"model": await client.only_model()})
    async with Client(pool_settings.target(), pool_settings.decoding()) as client:
        await client.probe(prompts[0])
        answers: list[Observation] = []
        until = time.monotonic() + BUDGET_S
        for prompt in prompts:
            if not answers or time.monotonic() < until:
                answers.append((await client.send(prompt)).observe(None))
    failed = next((observation.answer.failure for observation in answers if observation.answer.failure), None)
    if failed is not None and not any(observation.ok for observation in answers):
        raise EndpointError(f"no stream of {server} came to its end: {failed.detail}")
    return answers


def summarized(answers: Sequence[Observation], server: str) -> StreamFigures | str:
    """Pure. A chunk's tokens are the server's own count, else an even share of the answer's."""
    marks = [mark for observation in answers if observation.ok and (mark := _marks(observation))]
    later = sum(tokens for mark in marks for _, tokens in mark[1:])
    took = sum(mark[-1][0] - mark[0][0] for mark in marks)
    if not later or took <= 0:
        return f"{server} does not say how many tokens its answers have, or they are one chunk each"
    pace = later / took
    counts = [tokens for mark in marks for _, tokens in mark]
    gaps = [1000 * (after[0] - before[0]) for mark in marks for before, after in pairwise(mark)]
    held = max(_held(mark, pace) for mark in marks)
    return StreamFigures(
        source=f"{len(marks)} streamed answers of {server}",
        requests=len(marks),
        chunks=len(counts),
        tokens_per_chunk=sum(counts) / len(counts),
        tokens_per_chunk_p95=stats.percentile(counts, 0.95),
        gap_p50_ms=stats.percentile(gaps, 0.5),
        gap_p95_ms=stats.percentile(gaps, 0.95),
        tokens_per_s=pace,
        buffer_ms=1000 * held,
    )


Mark = tuple[float, float]
"""When a chunk came, in seconds, and how many tokens it has."""


def _marks(observation: Observation) -> list[Mark]:
    chunks, tokens = observation.answer.chunks, observation.answer.tokens
    if not chunks:
        return []
    if all(chunk.tokens is not None for chunk in chunks):
        return [(chunk.time_s, float(chunk.tokens or 0)) for chunk in chunks]
    if tokens is None:
        return []
    return [(chunk.time_s, tokens / len(chunks)) for chunk in chunks]


def _held(marks: Sequence[Mark], pace: float) -> float:
    """Seconds that a reader of `pace` tokens a second waits after the first chunk so as never to run dry: the
    largest t_i - t_0 - N_i / pace, with N_i tokens before chunk i. A leaky bucket's bound."""
    before = accumulate((tokens for _, tokens in marks), initial=0.0)
    return max(time_s - marks[0][0] - drawn / pace for (time_s, _), drawn in zip(marks, before, strict=False))
