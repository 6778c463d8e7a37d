"""A dashboard and its provisioning, as Grafana loads them. Grafana's own rendering of it is not verified.

panels.py        what it is made of, as data; speculation.py, operation.py: its rows
dashboard.py     dashboard.json, by Grafana's own SDK
provisioning.py  where Grafana finds the dashboard and the Prometheus
"""
