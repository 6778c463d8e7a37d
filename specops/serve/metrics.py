"""/metrics with vLLM's names, types and labels, so that one dashboard and one set of alerts serve both.

The counters are the engine's own totals. Latencies are observed in the event loop, at one sample per
output event as vLLM does it, from instants that the worker took. Everything is written and read
in the event loop's thread, so nothing is locked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from specops.engine.request import Counters, Emission
from specops.serve.engine_worker import EngineLoad, StepResult

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Every edge that vLLM has for any of its latencies, and finer ones below 10 ms, where a small model lives.
# fmt: off
SECONDS = (
    0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05,
    0.06, 0.075, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0,
    15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 120.0, 160.0, 240.0, 480.0, 640.0, 960.0, 1920.0, 2560.0,
    7680.0,
)
TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
# fmt: on


ExtraSeries: TypeAlias = Callable[[Any, dict[str, str]], Iterable[Metric]]
"""Makes series from `Load.extra` and the labels that every series has."""


class Histogram:
    """Counts of values by bucket.

    prometheus_client's own takes locks and adds `_created` series, which vLLM lacks.
    """

    def __init__(self, name: str, help_text: str, edges: tuple[float, ...] = SECONDS) -> None:
        self.name = name
        self._help = help_text
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)  # the last one: above every edge
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self._sum += value

    def family(self, labels: dict[str, str]) -> Metric:
        family = HistogramMetricFamily(self.name, self._help, labels=list(labels))
        edges = [str(edge) for edge in self._edges] + ["+Inf"]
        counts = [float(count) for count in accumulate(self._counts)]
        family.add_metric(list(labels.values()), list(zip(edges, counts, strict=True)), self._sum)
        return family


@dataclass(frozen=True)
class Families:
    """Makes metric families. Names begin with `prefix`, and each series has `labels`."""

    prefix: str
    labels: Mapping[str, str]

    def gauge(self, name: str, help_text: str, value: float) -> Metric:
        return self.gauges(name, help_text, None, {"": value})

    def counter(self, name: str, help_text: str, value: float) -> Metric:
        return self.counters(name, help_text, None, {"": value})

    def gauges(self, name: str, help_text: str, label: str | None, values: Mapping[Any, float]) -> Metric:
        """A series for each value of one more label."""
        return self._family(GaugeMetricFamily, name, help_text, label, values)

    def counters(self, name: str, help_text: str, label: str | None, values: Mapping[Any, float]) -> Metric:
        return self._family(CounterMetricFamily, name, help_text, label, values)

    def _family(
        self,
        kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
        name: str,
        help_text: str,
        label: str | None,
        values: Mapping[Any, float],
    ) -> Metric:
        more = [label] if label is not None else []
        family = kind(self.prefix + name, help_text, labels=[*self.labels, *more])
        for key, value in values.items():
            family.add_metric([*self.labels.values(), *(str(key) for _ in more)], value)
        return family


@dataclass
class Timeline:
    """The instants of one sequence, in seconds of time.perf_counter."""

    arrived: float
    scheduled: float | None = None  # began to run
    first_output: float | None = None
    last_output: float | None = None
    tokens: int = 0  # generated so far


class ServerMetrics(Collector):
    """The server's measurements of itself, as Prometheus scrapes them."""

    def __init__(self, model_name: str, *, speculative: bool, extra: ExtraSeries | None = None) -> None:
        """`speculative`: the spec_decode series exist only where speculation is configured, as in vLLM.
        `extra` makes the series that only this kind of engine has."""
        self._extra = extra
        self._loads: dict[int, EngineLoad] = {}  # by worker
        self._ended = Counters()  # of workers that have ended
        self.restarts: int | None = None  # of workers; None where none is started again
        self.finished = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self._labels = {"model_name": model_name, "engine": "0"}
        self.speculative = speculative
        self._e2e = Histogram(
            "vllm:e2e_request_latency_seconds", "Time from the arrival to the last token, in seconds."
        )
        self._ttft = Histogram(
            "vllm:time_to_first_token_seconds", "Time from the arrival to the first output, in seconds."
        )
        self._gap = Histogram(
            "vllm:inter_token_latency_seconds",
            "Time between two outputs of a request, in seconds; an output may hold several tokens.",
        )
        self._tpot = Histogram(
            "vllm:request_time_per_output_token_seconds", "Mean time per token after the first, in seconds."
        )
        self._queue = Histogram(
            "vllm:request_queue_time_seconds", "Time from the arrival to the first step, in seconds."
        )
        self._prefill = Histogram(
            "vllm:request_prefill_time_seconds", "Time from the first step to the first output, in seconds."
        )
        self._decode = Histogram(
            "vllm:request_decode_time_seconds", "Time from the first output to the last, in seconds."
        )
        self._step_tokens = Histogram(
            "vllm:iteration_tokens_total", "Tokens read and generated by a step.", TOKENS
        )
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def begin(self, worker: int, load: EngineLoad) -> None:
        """Record that a worker has started."""
        self._loads[worker] = load

    def end(self, worker: int) -> None:
        """Record that a worker has ended. Its counters stay in the totals."""
        self._ended += self._loads.pop(worker, EngineLoad()).counters

    @property
    def load(self) -> EngineLoad:
        """The load of all workers, and their counters since the server started."""
        loads = list(self._loads.values())
        if len(loads) == 1 and not self._ended.steps:
            return loads[0]
        reasons = [load.unavailable for load in loads]
        return EngineLoad(
            sum(load.running for load in loads),
            sum(load.waiting for load in loads),
            sum(load.kv_usage for load in loads) / max(len(loads), 1),
            sum((load.counters for load in loads), self._ended),
            next(iter(reasons), None) if all(reasons) else None,
            next((load.extra for load in loads), None),
        )

    def turn(self, worker: int, turn: StepResult) -> None:
        """Record a step of a worker."""
        self._loads[worker] = turn.load
        if turn.tokens:
            self._step_tokens.observe(turn.tokens)

    def output(self, timeline: Timeline, emission: Emission, now: float) -> None:
        """Record that a sequence got `emission` at `now` (seconds of time.perf_counter), here and in its
        timeline."""
        if timeline.first_output is None:
            timeline.first_output = now
            self._ttft.observe(now - timeline.arrived)
        elif timeline.last_output is not None:
            self._gap.observe(now - timeline.last_output)
        timeline.last_output = now
        timeline.tokens += len(emission.tokens)
        if emission.finish_reason is not None:
            self._finish(timeline, timeline.first_output, now)
            self.finished[emission.finish_reason] += 1

    def _finish(self, timeline: Timeline, first_output: float, now: float) -> None:
        scheduled = first_output if timeline.scheduled is None else timeline.scheduled
        self._e2e.observe(now - timeline.arrived)
        self._queue.observe(scheduled - timeline.arrived)
        self._prefill.observe(first_output - scheduled)
        self._decode.observe(now - first_output)
        if timeline.tokens > 1:
            self._tpot.observe((now - first_output) / (timeline.tokens - 1))

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        load, counters = self.load, self.load.counters
        families = Families("vllm:", self._labels)
        yield families.gauge("num_requests_running", "Requests in the engine's batch.", load.running)
        yield families.gauge("num_requests_waiting", "Requests waiting for a place in it.", load.waiting)
        yield families.gauge("kv_cache_usage_perc", "KV cache in use; 1 is all of it.", load.kv_usage)
        yield families.counter(
            "prompt_tokens", "Prompt tokens, those from the prefix cache included.", counters.prompt_tokens
        )
        yield families.counter(
            "prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", counters.queried_tokens
        )
        yield families.counter(
            "prefix_cache_hits", "Prompt tokens that the prefix cache had.", counters.restored_tokens
        )
        yield families.counter("generation_tokens", "Tokens generated.", counters.generated_tokens)
        yield families.counter(
            "corrupted_requests", "Requests that failed since logits were not finite.", counters.not_finite
        )
        yield families.counter("num_preemptions", "Preemptions; the embedded engine makes none.", 0)
        if self.speculative:
            yield families.counter("spec_decode_num_drafts", "Verifications with a draft.", counters.drafts)
            yield families.counter(
                "spec_decode_num_draft_tokens", "Tokens proposed by the draft.", counters.draft_tokens
            )
            yield families.counter(
                "spec_decode_num_accepted_tokens", "Proposed tokens accepted.", counters.accepted_tokens
            )
            positions = dict(enumerate(counters.accepted_per_position))
            yield families.counters(
                "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens by depth.", "position", positions
            )
        if self.restarts is not None:
            own = Families("specops:", self._labels)
            yield own.gauge("serve_workers", "Engine processes that serve.", len(self._loads))
            yield own.counter("serve_worker_restarts", "Engine processes started again.", self.restarts)
        if counters.steps_by_tree:  # vLLM has no such series: its draft is as long as it was started with
            yield Families("specops:", self._labels).counters(
                "planned_steps",
                "Steps by the tree that the planner chose; none: no draft.",
                "tree",
                counters.steps_by_tree,
            )
        yield families.counters("request_success", "Finished requests.", "finished_reason", self.finished)
        if self._extra is not None and load.extra is not None:
            yield from self._extra(load.extra, self._labels)
        for histogram in (
            self._e2e, self._ttft, self._gap, self._tpot,
            self._queue, self._prefill, self._decode, self._step_tokens,
        ):  # fmt: skip
            yield histogram.family(self._labels)
