"""Metrics: what servers expose, and what a Prometheus knows of them.

exposition.py   the text of a /metrics: scrapes, counter deltas, acceptance between two scrapes
series.py       names: exposed by specops, recorded by the rules, and which a pool's servers have
promql.py       expressions over them
api.py          queries a Prometheus
"""
