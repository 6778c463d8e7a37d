"""The checks of a canary: one file for a family, in the order in which it runs and is reported.

What has ended servers comes last.
"""

from __future__ import annotations

from specops.phases.canary.checks import (
    acceptance,
    conversations,
    endings,
    sampling,
    structured_output,
    structured_overlap,
)
from specops.phases.canary.checks.distribution import DISTRIBUTION
from specops.phases.canary.checks.endings import CANCEL
from specops.phases.canary.checks.grammar import GRAMMAR
from specops.phases.canary.checks.overlap import OVERLAP
from specops.phases.canary.checks.parity import MIXED, PARITY
from specops.phases.canary.checks.prompts import LONG, NEAR_LIMIT, TOO_LONG
from specops.phases.canary.checks.sampling import LOGPROBS, TEMPERATURE
from specops.phases.canary.pool_pair import ConformanceCheck

CHECKS: tuple[ConformanceCheck, ...] = (
    PARITY,
    MIXED,
    OVERLAP,
    DISTRIBUTION,
    TEMPERATURE,
    *endings.CHECKS,
    LOGPROBS,
    CANCEL,
    LONG,
    TOO_LONG,
    *sampling.PENALTY_CHECKS,
    *structured_output.CHECKS,
    *structured_overlap.CHECKS,
    GRAMMAR,
    *conversations.CHECKS,
    NEAR_LIMIT,
    *acceptance.CHECKS,
    *sampling.CHECKS,
)
