"""What a Prometheus and an Alertmanager load, as text.

targets.py       who answers where, by the rollout file
scrape.py        prometheus.yml
rules.py         rules.yml: recorded series; baseline.py, those of what was measured before
alerts.py        alerts.yml
alertmanager.py  alertmanager.yml
rule_file.py     what a rule file is made of
"""
