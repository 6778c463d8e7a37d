"""The choice of the tree to draft, from measured acceptance and measured costs, at run time or offline.

tree_choice.py         the best tree for known acceptance and costs; pure
acceptance_counts.py   what was accepted lately: by depth and rank of grown trees, by depth of copies
cost_model.py          the time of a step: a first measurement, corrected by every step since
planner.py             the tree of the next step, with hysteresis and a budget for exploration
warm_up.py             the cost model's first measurement
step_costs.py          offline: the time of a step's parts, measured with a few trees
offline_acceptance.py  offline: acceptance along the target's own text, and replays of trees on it

Only the warm-up and the offline measurements need torch: the planner's time is what steps took, so that a
simulation decides as a server does.
"""
