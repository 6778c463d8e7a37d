"""Metrics: what servers expose, and what a Prometheus knows of them.

exposition.py   the text of a /metrics: scrapes, counter deltas, acceptance between two scrapes
series.py       names, by engine, and those of the router and the guard; exposed.py: which a pool has
promql.py       expressions over them
recorded.py     names of what the rules record of them
api.py          asks a Prometheus
"""
