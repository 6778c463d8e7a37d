"""`diagnose`: why is it slow, or odd? What can be seen is gathered once; then a tree of questions, pure.

observations.py  what can be seen, each part with its reason where it cannot
looking/         where it is seen: live.py, Prometheus, or /metrics read twice; stream.py, a few requests;
                 results.py, the run folder; started.py, commands, logs and names; device.py, NVML; gather.py
finding.py       an answer: cause, contributing, ruled out or not known, with evidence and what fixes it
asking/          the questions, one file a family; thresholds.py, what they are held against
diagnose.py      all questions, and the result
"""
