"""Capacity: the highest rate at which a pool meets the objective, with and without speculation; and the gate.

records.py    the objective, the probes that are stored, and the answer
judge.py      probes in, answer out: both rates and their ratio, with intervals. Pure
search.py     probes in, next probe out. Pure
measure.py    sends the probes to both pools
answer.py     all probes in, verdict, rates, ratio and costs out. Pure
phase.py      the phase of a walk; document.py its page
gate.py       whether the standard pool alone carries the peak
"""
