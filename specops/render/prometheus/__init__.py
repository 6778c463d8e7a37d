"""Files that Prometheus and Alertmanager load, as text.

scrape.py  targets, prometheus.yml and alertmanager.yml
rules.py   rules.yml: recorded series, those of the baseline among them
alerts.py  alerts.yml and runbook.md, from the records of alerts/
"""
