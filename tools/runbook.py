"""Writes alerts/runbook.md and alerts/examples/rendered, from alerts/. `make generate` runs it."""

from __future__ import annotations

from pathlib import Path

from specops.config import load
from specops.phases.monitor.render import FOLDER, texts
from specops.phases.monitor.thresholds import limits, measurements
from specops.render import write_files
from specops.render.prometheus.alerts import RUNBOOK, runbook

EXAMPLES = Path("alerts", "examples")

Path("alerts", RUNBOOK).write_text(runbook(), encoding="utf-8")
file = EXAMPLES / "rollout.yaml"
rollout = load(file)
before = measurements(rollout, EXAMPLES)
write_files(EXAMPLES / FOLDER, texts(rollout, before, limits(rollout, before), str(file)))
