"""Statistics of measurements. Pure functions.

Nothing here answers with a number that the samples cannot carry: a percentile or an interval from too few
samples is `None`, and `shortage` says how many it takes.

percentile.py   quantiles, and how many samples each takes
counts.py       how often something happens in one arm and not in the other, exactly
interval.py     Interval; Student's t interval of a mean
paired.py       the ratio of two means over pairs; how many more pairs would decide it
sequential.py   how wide intervals must be that are looked at several times
ranks.py        whether something changed on the way, or from one group to another, whatever the tails
"""

from specops.stats import sequential
from specops.stats.counts import binomial_interval, paired_difference
from specops.stats.interval import Interval, mean_interval, t_quantile
from specops.stats.paired import MIN_PAIRS, Starts, log_ratio, paired_ratio, pairs_needed, start_effect
from specops.stats.percentile import PERCENTILE_METHOD, needed, percentile, shortage
from specops.stats.ranks import trend, two_groups

__all__ = [
    "MIN_PAIRS",
    "PERCENTILE_METHOD",
    "Interval",
    "Starts",
    "binomial_interval",
    "log_ratio",
    "mean_interval",
    "needed",
    "paired_difference",
    "paired_ratio",
    "pairs_needed",
    "percentile",
    "sequential",
    "shortage",
    "start_effect",
    "t_quantile",
    "trend",
    "two_groups",
]
