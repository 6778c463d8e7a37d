"""The guard's own rules over what was recorded, or of synthetic weeks.

traces.py     a trace: what Prometheus had, instant by instant; the playbook's guard, faults included
synthetic.py  synthetic weeks, as traces
holdout.py    the holdout's counters of a trace, from which its live effect is read
simulate.py   a trace through our guard, and beside it through the playbook's
"""
