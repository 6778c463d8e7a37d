"""The guard's own rules over what was recorded, or of synthetic weeks.

traces.py     a trace: what Prometheus had, instant by instant; the playbook's guard, faults included
synthetic.py  synthetic weeks, as traces
simulate.py   a trace through our guard, and beside it through the playbook's
"""
