"""`run`: walks the phases in the playbook's order and measures only what has changed.

walk.py       the order, the gates between phases, what a walk would do, and what to run after it
preflight.py  what is checked before the first request; endpoints.py: whether running pools can be compared
rendered.py   a phase that renders files
"""

from specops.phases.phase import Skipped, Step
from specops.phases.playbook.walk import Walk, run

__all__ = ["Skipped", "Step", "Walk", "run"]
