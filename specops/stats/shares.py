"""How often something may happen at most: exact one-sided bounds of shares, and of their difference.

That none of 320 requests failed does not prove that none ever will. But a share of 0.93% would have shown a
failure in 95 of 100 such samples: that is the bound. For one share it is Clopper and Pearson's (Biometrika
1934). For a difference, the limits of both shares are joined by the method of variance estimates recovery
(Zou and Donner, Statistics in Medicine 2008): it allows for limits that are not symmetric.
"""

from __future__ import annotations

import math

from specops.stats.interval import LEVEL, least_probability

_MOST_REQUESTS = 10**9  # more than anyone sends


def share_upper(events: int, n: int, level: float = LEVEL) -> float:
    """Return the largest share that `events` in `n` requests do not exclude; 1 where there are no requests.

    One-sided: a larger share would give so few events in at most 1 - `level` of such samples. Raises
    ValueError where `events` is not a part of `n`.
    """
    return 1 - share_lower(n - events, n, level)


def requests_to_bound(share: float, level: float = LEVEL) -> int:
    """Return the fewest requests, none of them an event, whose upper bound is at most `share`."""
    return math.ceil(math.log(1 - level) / math.log(1 - share))


def share_lower(events: int, n: int, level: float = LEVEL) -> float:
    """Return the smallest share that `events` in `n` requests do not exclude; 0 where there are no requests.

    One-sided: a smaller share would give so many events in at most 1 - `level` of such samples. Raises
    ValueError where `events` is not a part of `n`.
    """
    if not 0.5 < level < 1:
        raise ValueError(f"a one-sided confidence lies between 0.5 and 1, not at {level}")
    return least_probability(events, n, 1 - level) if n or events else 0.0


def difference_upper(
    standard_events: int,
    standard_n: int,
    challenger_events: int,
    challenger_n: int,
    level: float = LEVEL,
) -> float:
    """Return an upper bound of the challenger's share less the standard's; 1 without requests to it.

    Where the standard had no event, this is the bound of the challenger's own share: the standard then
    excuses nothing. Enumerated, it misses no more often than `level` allows where the two shares differ by
    at most 0.3, and by up to 1.5 points more where they are as far apart as 0.85.
    """
    if not challenger_n:
        return 1.0
    standard_low = share_lower(standard_events, standard_n, level)
    challenger_high = share_upper(challenger_events, challenger_n, level)
    standard, challenger = _share(standard_events, standard_n), _share(challenger_events, challenger_n)
    reach = math.hypot(challenger_high - challenger, standard - standard_low)
    return min(1.0, challenger - standard + reach)


def difference_lower(
    standard_events: int,
    standard_n: int,
    challenger_events: int,
    challenger_n: int,
    level: float = LEVEL,
) -> float:
    """Return a lower bound of the challenger's share less the standard's; as `difference_upper`."""
    return -difference_upper(challenger_events, challenger_n, standard_events, standard_n, level)


def needed_for(margin: float, level: float = LEVEL, events: int = 0) -> int:
    """Return the least number of requests of which `events` have a bound (`share_upper`) within `margin`.

    Without events about -ln(1 - level) / margin: 299 for 1% at 95%. Raises ValueError for a margin outside
    (0, 1), and for one that takes more than 10^9 requests.
    """
    if not 0 < margin < 1:
        raise ValueError(f"a margin lies between 0 and 1, not at {margin}")
    high = max(1, events)
    while share_upper(events, high, level) > margin:
        high *= 2
        if high > _MOST_REQUESTS:
            raise ValueError(f"a margin of {margin} takes more than {_MOST_REQUESTS} requests")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if middle < max(1, events) or share_upper(events, middle, level) > margin:
            low = middle
        else:
            high = middle
    return high


def _share(events: int, n: int) -> float:
    return events / n if n else 0.0
