"""The fault zoo's table: fault, servers, command, the right verdict, and what the page must say.

A verdict here follows from what the servers do, never from what the tool says today.
"""

from __future__ import annotations

from ab_rows import AB
from bad_input_rows import BAD_INPUT
from baseline_rows import BASELINES
from compared_rows import COMPARED
from conversation_rows import CONVERSATIONS
from fault_runs import Row
from sweep_rows import SWEEPS

ROWS: list[Row] = [*COMPARED, *AB, *CONVERSATIONS, *SWEEPS, *BASELINES, *BAD_INPUT]
