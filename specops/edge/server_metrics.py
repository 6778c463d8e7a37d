"""Metrics of the service for Prometheus, under vLLM's names where it has such a series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from specops.edge.link import Reason
from specops.edge.messages import Idle, StepResults
from specops.edge.sessions import Sessions
from specops.engine.request import Counters
from specops.serve.metrics import Histogram

TREES = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0)
_REASONS: tuple[Reason, ...] = ("nonsense", "too large", "busy", "unknown", "draining", "failed")
_EDGE = "specops_edge_server"


class ServiceMetrics(Collector):
    """The metrics. They are written and read in the event loop's thread."""

    def __init__(self, model: str, sessions: Sessions) -> None:
        self.received = self.sent = 0  # bytes of messages
        self.rounds = 0
        self.refusals: dict[Reason, int] = dict.fromkeys(_REASONS, 0)
        self.unauthenticated = 0
        self._sessions = sessions
        self._labels = {"model_name": model, "engine": "0"}
        self._idle, self._counters = Idle(), Counters()
        self._running = self._parked = 0
        self._kv_usage = 0.0
        self._batch = Histogram(f"{_EDGE}_batch_trees", "Sessions that a step gave a verdict.", TREES)
        self._step = Histogram(f"{_EDGE}_step_seconds", "One step of the engine.")
        self._waited = Histogram(f"{_EDGE}_wait_seconds", "A round's arrival to the beginning of its step.")
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def stepped(self, stepped: StepResults) -> None:
        self._counters, self._idle, self._kv_usage = stepped.counters, stepped.idle, stepped.kv_usage
        self._running, self._parked = stepped.running, stepped.parked
        self._batch.observe(len(stepped.rulings))
        self._step.observe(stepped.ended - stepped.started)
        for ruling in stepped.rulings:
            self._waited.observe(ruling.waited_s)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        counters, sessions, idle = self._counters, self._sessions, self._idle
        yield self._gauge("vllm:num_requests_running", "Sessions with a place in the cache.", self._running)
        yield self._gauge("vllm:kv_cache_usage_perc", "KV cache in use; 1 is all of it.", self._kv_usage)
        for name, help_text, value in (
            ("vllm:prompt_tokens", "Prompt tokens read.", counters.prompt_tokens),
            ("vllm:generation_tokens", "Tokens generated.", counters.generated_tokens),
            ("vllm:num_preemptions", "Sessions that lost their place to others.", counters.evictions),
            ("vllm:spec_decode_num_drafts", "Verifications with a draft.", counters.drafts),
            ("vllm:spec_decode_num_draft_tokens", "Tokens proposed.", counters.draft_tokens),
            ("vllm:spec_decode_num_accepted_tokens", "Proposed tokens accepted.", counters.accepted_tokens),
            (f"{_EDGE}_rounds", "Rounds that clients sent, those ahead of a verdict as well.", self.rounds),
            (f"{_EDGE}_rounds_ahead", "Of these, those sent ahead of the verdict before.", sessions.taken),
            (f"{_EDGE}_received_bytes", "Bytes of clients' messages.", self.received),
            (f"{_EDGE}_sent_bytes", "Bytes of messages to clients.", self.sent),
            (f"{_EDGE}_resumed_sessions", "Sessions that were taken up again.", sessions.resumed),
            (f"{_EDGE}_unauthenticated", "Calls with a wrong token or none.", self.unauthenticated),
        ):
            yield self._family(CounterMetricFamily, name, help_text, {(): value})
        yield self._family(
            CounterMetricFamily,
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens by depth.",
            {(str(depth),): n for depth, n in enumerate(counters.accepted_per_position) if n or not depth},
            "position",
        )
        yield self._family(
            GaugeMetricFamily,
            f"{_EDGE}_sessions",
            "Sessions that go on, on a stream or parked until their client is back.",
            {("running",): sessions.running, ("parked",): sessions.parked},
            "state",
        )
        yield self._gauge(f"{_EDGE}_evicted_sessions", "Sessions without a place in the cache.", self._parked)
        yield self._family(
            CounterMetricFamily,
            f"{_EDGE}_refusals",
            "Refusals by reason.",
            {(reason.replace(" ", "_"),): n for reason, n in self.refusals.items()},
            "reason",
        )
        yield self._family(
            CounterMetricFamily,
            f"{_EDGE}_engine_seconds",
            "The engine's time: in steps (busy), with sessions but no round (starved), without any (empty).",
            {("busy",): idle.busy, ("starved",): idle.starved, ("empty",): idle.empty},
            "state",
        )
        for histogram in (self._batch, self._step, self._waited):
            yield histogram.family(self._labels)

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        return self._family(GaugeMetricFamily, name, help_text, {(): value})

    def _family(
        self,
        kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
        name: str,
        help_text: str,
        values: Mapping[tuple[str, ...], float],
        *labels: str,
    ) -> Metric:
        family = kind(name, help_text, labels=[*self._labels, *labels])
        for of, value in values.items():
            family.add_metric([*self._labels.values(), *of], value)
        return family
