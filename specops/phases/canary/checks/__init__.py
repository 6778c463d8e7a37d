"""The checks of a canary: one file for a family, in the order in which it runs and is reported.

What has ended servers comes last.
"""

from __future__ import annotations

from specops.phases.canary.checks import endings, sampling, structured_output
from specops.phases.canary.checks.distribution import DISTRIBUTION
from specops.phases.canary.checks.endings import CANCEL
from specops.phases.canary.checks.overlap import OVERLAP
from specops.phases.canary.checks.parity import MIXED, PARITY
from specops.phases.canary.checks.prompts import LONG, TOO_LONG
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
    *sampling.CHECKS,
)
