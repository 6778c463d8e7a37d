"""Phase 4, watch: what Prometheus, Alertmanager and Grafana load, and whether a running Prometheus has it.

thresholds.py  earlier measurements, and the thresholds of the alerts
render.py      `monitor render`: writes the files and monitor.json
check.py       `monitor check`: whether a Prometheus has the names that rules and panels need
"""
