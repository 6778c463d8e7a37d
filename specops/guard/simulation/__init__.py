"""The guard's own rules over what was recorded, or of synthetic weeks.

traces.py          a trace: what Prometheus had, instant by instant
synthetic.py       synthetic weeks, as traces
playbook_guard.py  the playbook's guard, faults included, to run beside it
simulate.py        a trace through both
"""
