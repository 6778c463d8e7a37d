"""What one look at Prometheus finds.

plan.py         what the deployment is held to: thresholds with their source; baseline.py, break_even.py
query.py        the whole query, as one expression, and the figures that come back
noise.py        when a figure is bad, given how noisy it is: the rule, for floats and for arrays
verdicts.py     from figures to a verdict on each signal, for one window or for arrays of them
look.py         one look, in words
"""
