"""The planner at run time: which tree a batch is drafted, learned from the engine's own steps.

evidence.py   what was accepted: by depth and rank of a grower's trees, by depth of copies
paid.py       what steps took: a first measurement, corrected by every step since
planner.py    the tree of the next step: the best by both, hysteresis, and what is spent on finding out
warm_up.py    the first measurement

Nothing here is torch's but the warm-up: time is what steps took, so that a simulation decides as a server
does.
"""
