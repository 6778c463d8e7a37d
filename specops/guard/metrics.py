"""/metrics of the guard, by the names of specops/prometheus/series.py."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from specops.guard.guard import Guard
from specops.prometheus import series

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MODES = ("on", "fallen", "canary", "held")
VERDICTS = ("healthy", "bad", "no_data", "no_traffic", "unknown")


class GuardMetrics(Collector):
    """Reads the guard whenever it is scraped. Counters are of this process.

    A dry run tells no state and no percentage: alerts take them for what is so.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        state, tally = self._guard.state, self._guard.tally
        evaluations, actions = dict(tally.evaluations), dict(tally.actions)  # another thread counts on
        if not self._guard.dry_run:
            modes = GaugeMetricFamily(series.GUARD_STATE, "1 of the state it is in.", labels=["state"])
            for mode in MODES:
                modes.add_metric([mode], state.mode == mode)
            yield modes
            told = "What it wants the targets to have."
            yield GaugeMetricFamily(series.GUARD_PERCENT, told, value=state.wanted)
        verdicts = CounterMetricFamily(series.GUARD_EVALUATIONS, "Evaluations.", labels=["verdict"])
        for verdict in VERDICTS:
            verdicts.add_metric([verdict], evaluations.get(verdict, 0))
        yield verdicts
        acted = CounterMetricFamily(series.GUARD_ACTIONS, "Targets switched.", labels=["action", "result"])
        for (name, result), count in actions.items():
            acted.add_metric([name, result], count)
        yield acted
        yield CounterMetricFamily(series.GUARD_FALLBACKS, "Fall-backs.", value=tally.fallbacks)
        for name, told, value in (
            (series.GUARD_BAD_IN_A_ROW, "Bad evaluations in a row.", state.bad_in_a_row),
            (series.GUARD_UNCONFIRMED, "1: what it decided is not so.", self._guard.unconfirmed is not None),
            (series.GUARD_BOTH_SLOW, "1: both pools are slow.", self._guard.both_slow),
            (series.GUARD_OVERRIDE, "1: a person's override holds.", state.override is not None),
        ):
            yield GaugeMetricFamily(name, told, value=value)
        if self._guard.evaluated_at is not None:
            yield GaugeMetricFamily(series.GUARD_LAST, "Its last one.", value=self._guard.evaluated_at)
        yield SummaryMetricFamily(
            series.GUARD_TOOK,
            "Of an evaluation, Prometheus' time included.",
            count_value=sum(evaluations.values()),
            sum_value=tally.seconds,
        )
