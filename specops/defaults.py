"""Defaults that the rollout file, options of commands and functions share. Each value stands only here."""

CONFIDENCE = 0.95
"""Of an interval, and of all intervals of one comparison together."""

REQUEST_TIMEOUT_S = 60.0
"""Longest time for one request."""

CONCURRENCY = (1, 4)
"""Streams at a time that a rollout measures, one level after the other."""
