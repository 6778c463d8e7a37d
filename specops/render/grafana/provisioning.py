"""Where Grafana finds the dashboard and the Prometheus: files for its provisioning folder."""

from __future__ import annotations

from specops.config import Rollout
from specops.render.server import header, to_yaml

PROMETHEUS = "http://127.0.0.1:9090"
DASHBOARDS = "/var/lib/grafana/dashboards/specops"


def datasource(rollout: Rollout) -> str:
    """No credentials: Grafana takes them from secureJsonData, which is the operator's to add."""
    return header(rollout.rollout, "For provisioning/datasources.") + to_yaml(
        {
            "apiVersion": 1,
            "datasources": [
                {
                    "name": "specops",
                    "type": "prometheus",
                    "access": "proxy",
                    "url": rollout.addresses.prometheus or PROMETHEUS,
                    # What $__rate_interval is made from.
                    "jsonData": {
                        "timeInterval": f"{rollout.monitor.scrape_interval_s}s",
                        "httpMethod": "POST",
                    },
                }
            ],
        }
    )


def dashboard_provider(rollout: Rollout) -> str:
    note = f"For provisioning/dashboards; dashboard.json goes to {DASHBOARDS}."
    return header(rollout.rollout, note) + to_yaml(
        {
            "apiVersion": 1,
            "providers": [
                {
                    "name": "specops",
                    "folder": "specops",
                    "type": "file",
                    "disableDeletion": True,
                    "options": {"path": DASHBOARDS},
                }
            ],
        }
    )
