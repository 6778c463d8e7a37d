"""Metrics of the service for Prometheus, under vLLM's names where it has such a series."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from specops.edge.link import Reason
from specops.edge.messages import Idle, StepResults
from specops.edge.sessions import Sessions
from specops.engine.request import Counters
from specops.serve.metrics import Families, Histogram

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
        engine, own = Families("vllm:", self._labels), Families(f"{_EDGE}_", self._labels)
        yield engine.gauge("num_requests_running", "Sessions with a place in the cache.", self._running)
        yield engine.gauge("kv_cache_usage_perc", "KV cache in use; 1 is all of it.", self._kv_usage)
        yield engine.counter("prompt_tokens", "Prompt tokens read.", counters.prompt_tokens)
        yield engine.counter("generation_tokens", "Tokens generated.", counters.generated_tokens)
        yield engine.counter("num_preemptions", "Sessions whose KV cache was evicted.", counters.evictions)
        yield engine.counter("spec_decode_num_drafts", "Verifications with a draft.", counters.drafts)
        yield engine.counter("spec_decode_num_draft_tokens", "Tokens proposed.", counters.draft_tokens)
        yield engine.counter(
            "spec_decode_num_accepted_tokens", "Proposed tokens accepted.", counters.accepted_tokens
        )
        yield own.counter("rounds", "All rounds that clients sent.", self.rounds)
        yield own.counter("rounds_ahead", "Rounds sent before the previous verdict.", sessions.used_ahead)
        yield own.counter("received_bytes", "Bytes of clients' messages.", self.received)
        yield own.counter("sent_bytes", "Bytes of messages to clients.", self.sent)
        yield own.counter("resumed_sessions", "Sessions that were resumed.", sessions.resumed)
        yield own.counter("unauthenticated", "Calls with a wrong token or none.", self.unauthenticated)
        yield engine.counters(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens by depth.",
            "position",
            {depth: n for depth, n in enumerate(counters.accepted_per_position) if n or not depth},
        )
        yield own.gauges(
            "sessions",
            "Sessions: running on a stream, or parked until the client returns.",
            "state",
            {"running": sessions.running, "parked": sessions.parked},
        )
        yield own.gauge("evicted_sessions", "Sessions without a place in the cache.", self._parked)
        refusals = {reason.replace(" ", "_"): n for reason, n in self.refusals.items()}
        yield own.counters("refusals", "Refusals by reason.", "reason", refusals)
        yield own.counters(
            "engine_seconds",
            "The engine's time: in steps (busy), with sessions but no round (starved), without any (empty).",
            "state",
            {"busy": idle.busy, "starved": idle.starved, "empty": idle.empty},
        )
        for histogram in (self._batch, self._step, self._waited):
            yield histogram.family(self._labels)
