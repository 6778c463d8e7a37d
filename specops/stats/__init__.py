"""Statistics of measurements. Pure functions.

A percentile or an interval from too few samples is `None`; `shortage` says how many samples it takes.

samples.py          percentiles, rates and their intervals; changes: a trend and two groups, by ranks;
                    a start that differs
interval.py         Interval; Student's t interval of a mean; exact intervals of counts
shares.py           how often something may happen at most: exact bounds of a share, and of a difference
paired.py           the ratio of two means over pairs; what restarts add to it; pairs that would decide it
autocorrelation.py  how much wider an interval is where noise lasts longer than a cluster
steps.py            one change in time, which noise that lasts cannot fake
texts.py            whether two arms' sampled answers have one distribution
sequential.py       how wide intervals must be at several looks
"""

from specops.stats import sequential
from specops.stats.interval import (
    LEVEL,
    Interval,
    binomial_interval,
    mean_interval,
    paired_difference,
    t_quantile,
)
from specops.stats.paired import (
    MIN_PAIRS,
    RungBlock,
    SingleStart,
    Starts,
    Times,
    log_ratio,
    one_start,
    paired_ratio,
    pairs_needed,
    start_effect,
)
from specops.stats.samples import (
    PERCENTILE_METHOD,
    changed_start,
    needed,
    percentile,
    quantile_interval,
    rate_interval,
    shortage,
    trend,
    two_groups,
)
from specops.stats.shares import difference_lower, difference_upper, needed_for, share_lower, share_upper
from specops.stats.steps import largest_step
from specops.stats.texts import compare_samples

__all__ = [
    "LEVEL",
    "MIN_PAIRS",
    "PERCENTILE_METHOD",
    "Interval",
    "RungBlock",
    "SingleStart",
    "Starts",
    "Times",
    "binomial_interval",
    "changed_start",
    "compare_samples",
    "difference_lower",
    "difference_upper",
    "largest_step",
    "log_ratio",
    "mean_interval",
    "needed",
    "needed_for",
    "one_start",
    "paired_difference",
    "paired_ratio",
    "pairs_needed",
    "percentile",
    "quantile_interval",
    "rate_interval",
    "sequential",
    "share_lower",
    "share_upper",
    "shortage",
    "start_effect",
    "t_quantile",
    "trend",
    "two_groups",
]
