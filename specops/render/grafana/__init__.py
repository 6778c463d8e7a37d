"""A dashboard and its provisioning, as Grafana loads them.

panels.py     the rows and panels, as data
dashboard.py  dashboard.json, by Grafana's own SDK; and the provisioning files
"""
