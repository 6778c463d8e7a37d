"""Comparing servers: what is sent, what is stored of it, and what may be concluded. Below the phases.

A yes is proven: superiority in the time that a user waits, and non-inferiority in a fixed list, each by an
interval inside its margin, over all requests that were sent. What was not shown is open, never a yes.

arms.py      the servers of an experiment, as they are named
findings.py  what is concluded: plain data
identity.py  that the arms are different servers; of an A/A, one
plan.py      which window is next: cycles over all loads, arms in random order
records.py   a window as it is stored, and the margins of differing answers
run.py       starts the arms, measures windows, stores each at once, resumes, looks, ends
samples.py   pairs: one request of each arm for the same prompt, with the factors that divide them
answers.py   equal greedy answers, the standard beside itself, answers that nobody can use
claims.py    what must hold, a list; from samples and requests to intervals
margins.py   how sure the standard was where answers differ
storing.py   when what was measured is stored
factors.py   what divides the samples, a list: time, order, place, connection, repeat
judge.py     claim × factor → Finding
decide.py    findings → a decision on each class and load; looks; the order of loads; the error budget
sentences.py the only place where findings become English
"""
