"""Writes alerts/runbook.md from the records of alerts/. `make generate` runs it."""

from __future__ import annotations

from pathlib import Path

from specops.render.prometheus.alerts import RUNBOOK, runbook

Path("alerts", RUNBOOK).write_text(runbook(), encoding="utf-8")
