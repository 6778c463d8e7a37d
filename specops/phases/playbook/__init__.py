"""`run`: walks the phases in the playbook's order and measures only what has changed.

phases.py     the table of phases: how each runs, or why it does not apply
walk_step.py  the input and the outcome of a phase; the rules for earlier results
stage.py      the drill's stage: both pools, the router before them, traffic through it
walk.py       the order, the gates between phases, what a walk would do, and what to run after it
"""

from specops.phases.playbook.walk import Walk, run
from specops.phases.playbook.walk_step import Skipped, Step

__all__ = ["Skipped", "Step", "Walk", "run"]
