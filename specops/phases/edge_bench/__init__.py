"""`edge bench`: one pair, asked the same prompts over the same link, drafted for there and at the edge.

arms.py      who drafts, in each arm
settings.py  what is asked, and what stands in for what
records.py   what a visit left behind
site.py      servers, relay and clients, as processes of this machine; server.py and client.py, one each
measure.py   makes the visits, in the order of ab/visits.py
figures.py   what an arm took and gave at a number of clients: pure
ratios.py    by how much one arm is better than another, with intervals: pure
judging.py   whether they said the same, and the verdict: pure
"""
