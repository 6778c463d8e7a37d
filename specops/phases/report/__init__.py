"""Phase 7, review: what speculation did over a window, by what a Prometheus remembers.

window.py     the time that it is of, in a zone
grown.py      what counters grew by, hour for hour, exactly
seen.py       all that is asked of Prometheus; what follows is pure
pools.py      a pool: acceptance, latencies, load, KV; gaps.py, buckets.py, ratios.py
speedup.py    against the baseline at the same load, and what it saved; daily.py
classes.py    by the routers; incidents.py; fallbacks.py, by the guard's journal; gpus.py
earlier.py    what the comparison and the sweep measured; drift.py, against it and the window before
recommend.py  what follows; lacking.py, what is not known
make.py       puts it together; report.py, what is kept
document.py   in words; tables.py, pictures.py, words.py
write.py      the files
post.py       to a webhook; schedule.py, when
"""
