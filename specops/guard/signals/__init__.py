"""Signals of the guard: from Prometheus to an evaluation.

query.py        the whole query, as one expression, and the figures that come back
replicas.py     the servers of a pool one by one, and what the pool has of those that are scraped
criteria.py     what figures are compared with: the baseline by load, break-even, thresholds with their source
noise.py        when a figure is bad, given how noisy it is: the rule, for floats and for arrays
verdicts.py     from figures to a verdict on each signal, for one window or for arrays of them
parts.py        verdicts on parts that a mean hides: a replica, a class, the slowest requests
observation.py  one evaluation: queries, judges, and puts the result into words
"""
