"""`monitor render`: rendered/monitor/ in the run folder, and monitor.json with the thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specops import results
from specops.config import Rollout
from specops.config.monitor import AlertName
from specops.phases.commands import Commands
from specops.phases.inputs import left_out, version_of
from specops.phases.monitor import thresholds
from specops.phases.monitor.thresholds import Measurements, limits, measurements
from specops.progress import Progress
from specops.render import write_files
from specops.render.grafana.dashboard import dashboard, dashboard_provider, datasource
from specops.render.prometheus.alerts import RUNBOOK, Limit, Limits, alert_info, alerts, runbook_of
from specops.render.prometheus.rules import MeasuredSeries, rules
from specops.render.prometheus.scrape import alertmanager_config, prometheus_config, targets
from specops.results import Result
from specops.section import Frozen

PHASE = "monitor"
FOLDER = Path("rendered") / "monitor"


class MonitorData(Frozen):
    """`data` of monitor.json."""

    folder: str
    """The run folder, as given."""

    files: list[str]
    """Paths relative to the folder."""

    targets: dict[str, list[str]]
    """Addresses by job."""

    alerts: dict[AlertName, Limit]
    left_out: dict[AlertName, str]
    """Alerts that are left out, and why."""

    not_read: dict[str, str]
    """The reason why a result was not used, by phase."""


def render(rollout: Rollout, folder: Path, progress: Progress, path: Path | None = None) -> Result:
    """Write what Prometheus, Alertmanager and Grafana load into `folder`. `path` is the rollout file's: the
    runbook's commands name it so that they run from any directory.

    Raises ConfigError for a pool of which no address is known, FileError where nothing can be written.
    """
    unfit = left_out(rollout, folder, version_of(rollout))
    for phase, why in unfit.items():
        progress.note(f"{phase}.json is not used as a reference: {why}")
    measured = measurements(rollout, folder, unfit)
    decided = limits(rollout, measured)
    place = Commands(rollout, path, folder).anywhere.place if path else None
    files = texts(rollout, measured, decided, place)
    write_files(folder / FOLDER, files)
    progress.note(f"rendered into {folder / FOLDER}")
    data = MonitorData(
        folder=str(folder),
        files=[(FOLDER / name).as_posix() for name in files],
        targets={target.job: list(target.addresses) for target in targets(rollout)},
        alerts=dict(decided),
        left_out=thresholds.left_out(rollout, measured),
        not_read=dict(measured.missing),
    )
    return _result(rollout, measured, data)


def texts(
    rollout: Rollout, measured: Measurements, decided: Limits, place: str | None = None
) -> dict[str, str]:
    """All files, by their names in rendered/monitor. `place` is the rollout file in commands."""
    series = MeasuredSeries(measured.loads, measured.acceptance.value if measured.acceptance else None)
    return {
        "prometheus.yml": prometheus_config(rollout),
        "rules.yml": rules(rollout, series, alert_info(rollout, decided)),
        "alerts.yml": alerts(rollout, decided),
        "alertmanager.yml": alertmanager_config(rollout),
        RUNBOOK: runbook_of(rollout, place),
        "dashboard.json": dashboard(rollout, decided),
        "provisioning/datasources/specops.yml": datasource(rollout),
        "provisioning/dashboards/specops.yml": dashboard_provider(rollout),
    }


def _result(rollout: Rollout, measured: Measurements, data: MonitorData) -> Result:
    settings: Mapping[str, Any] = {
        "addresses": rollout.addresses.model_dump(mode="json"),
        "monitor": rollout.monitor.model_dump(mode="json"),
    }
    measured_count = sum("sha256" in alert.source for alert in data.alerts.values())
    return Result(
        phase=PHASE,
        inputs={"settings": results.sha256(dict(settings)), **measured.read},
        settings=dict(settings),
        environment=results.environment(),
        verdict="yes",
        reason=f"rendered {len(data.files)} files with {len(data.alerts)} alerts"
        f" ({measured_count} with measured thresholds)",
        summary={"files": len(data.files), "alerts": len(data.alerts), "measured": measured_count},
        data=data.model_dump(mode="json"),
    )
