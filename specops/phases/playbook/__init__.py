"""`run`: walks the phases in the playbook's order, and runs those whose inputs have changed.

step.py        what a phase is given, and what becomes of it
keeping.py     earlier results: which still stand, and what is set aside
baseline.py … checklist.py   one file a phase: when it does not apply, what it depends on, how it runs
stage.py       a set-up of its own for the drill: both pools, NGINX before them, traffic through it
walk.py        the order, and the gates between phases
"""

from specops.phases.playbook.step import Skipped, Step
from specops.phases.playbook.walk import Walk, run

__all__ = ["Skipped", "Step", "Walk", "run"]
