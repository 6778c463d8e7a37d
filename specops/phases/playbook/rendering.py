"""What Prometheus, Alertmanager, Grafana and NGINX load, by what was measured. Written anew each time."""

from __future__ import annotations

from specops.errors import ConfigError
from specops.phases import Phase
from specops.phases.monitor.render import render as render_monitor
from specops.phases.playbook.keeping import written
from specops.phases.playbook.step import Given, Skipped, Step
from specops.phases.route.render import render as render_route
from specops.phases.route.thresholds import servers


def monitor(at: Given) -> Step | Skipped:
    return _unknown(at, "monitor") or written(
        at, "monitor", render_monitor(at.rollout, at.folder, at.progress, at.file)
    )


def route(at: Given) -> Step | Skipped:
    return _unknown(at, "route") or written(at, "route", render_route(at.rollout, at.folder))


def _unknown(at: Given, phase: Phase) -> Skipped | None:
    """Where a pool answers that specops starts to measure is known only once it is deployed."""
    try:
        servers(at.rollout, "standard")
        servers(at.rollout, "speculative")
    except ConfigError as error:
        return Skipped(phase, error.message, error.hint)
    return None
