"""`ab`: two or more arms, asked the same, set against each other. The first arm is the standard.

settings.py     what is asked of whom
arms.py         arms as they are written on the command line
visits.py       in which order arms, blocks of prompts and levels of load are visited: pure
records.py      what a visit left behind
identity.py     whether the arms are different servers
evidence.py     what was found out so far, and what is to be found out next
measure.py      starts the arms, makes the visits, keeps what was measured
questions.py    what only a comparison asks of an arm
mixed.py        greedy and sampled requests in one batch
speedups.py     how much faster, by class and level, with intervals: pure
parity.py       whether the arms said the same: pure
drift.py        what changed on the way that speculation did not cause: pure
differences.py  what differs beside speculation, between arms and since an earlier run: pure
validity.py     a standard that speculates, and an A/A, decide nothing: pure
verdict.py      deploy, do not deploy, or undecided, and why: pure
judging.py      from the visits to the report: pure
answer.py       what it answers, in sentences: pure
report.py       all of it together, as it is kept in ab.json
picture.py      what of it is drawn: pure
"""
