"""Phase 4, watch: what Prometheus, Alertmanager and Grafana load, and whether a running Prometheus has it.

before.py      what earlier phases measured: the baseline's loads, acceptance, break-even
thresholds.py  from which value on there is an alert, and why
render.py      writes the files and monitor.json
names.py       the names that rules and panels need; check.py asks for them
"""
