"""Defaults that the rollout file, options of commands and functions share. Each value stands only here."""

CONFIDENCE = 0.95
"""Confidence level of an interval, and of all intervals of one comparison together."""

REQUEST_TIMEOUT_S = 60.0
"""Timeout of one request, in seconds."""

CONCURRENCY = (1, 4)
"""Concurrency levels of a rollout, in streams. A bare `baseline` or `ab` measures one stream, as a first
look; the help of their --concurrency names both."""

LEVELS_HELP = f"Levels in streams, by commas; a rollout has {','.join(map(str, CONCURRENCY))}."
