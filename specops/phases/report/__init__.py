"""Phase 7, review: what speculation did over a window, from the metrics that Prometheus stored.

prometheus_data.py   all queries to Prometheus, with exact hourly increases of counters; the rest is pure
pools.py             a pool: acceptance, latencies, load, KV cache; traffic classes; GPUs
events.py            gaps in the scrapes, alerts that fired, fallbacks of the guard
comparison.py        speed-up against the baseline at equal load, savings, drift
recommend.py         recommendations, each with its threshold and a command
report.py            the report's data, as its JSON file holds it, and its time span
assembly.py          from Prometheus and the run folder to a Result
document.py          the page: sentences and charts; tables.py has tables and number formats
delivery.py          the files, the webhook, the schedule
"""
