"""`ab`: two or more arms are sent the same requests and compared. The first arm is the standard.

From settings to a verdict:

visits.py       arms and how they are compared; the order of visits; what a visit leaves behind (pure)
measure.py      starts the arms, makes the visits, stores what was measured
evidence.py     what was measured so far, what is needed next, and the extra requests of a comparison
speedups.py     how much faster, by class and load (pure)
confounders.py  failed and slow requests, answers of other lengths, repeats from a cache (pure)
parity.py       whether greedy answers are equal (pure)
drift.py        changes that speculation did not cause: during the run, between arms, since a run (pure)
verdict.py      the decision on one class at one load (pure)
challengers.py  the decision on a challenger over classes and loads, and on the comparison (pure)
judging.py      from the visits to the report (pure)
sentences.py    the answer of a comparison in sentences (pure)
report.py       the shape of ab.json, how it is read and what of it is drawn
"""
