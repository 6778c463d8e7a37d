"""The guard's own rules over what was recorded, or made up.

traces.py       a trace: what Prometheus had, instant by instant; made.py, made-up weeks
playbook.py     the playbook's guard, faults included, to run beside it
simulate.py     a trace through both
"""
