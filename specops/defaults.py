"""Defaults that the rollout file, options of commands and functions share. Each value stands only here."""

CONFIDENCE = 0.95
"""Confidence level of an interval, and of all intervals of one comparison together."""

REQUEST_TIMEOUT_S = 60.0
"""Timeout of one request, in seconds."""

CONCURRENCY = (1, 4)
"""Concurrency levels of a rollout, in streams. A bare `baseline` or `ab` measures one stream, as a first
look; the help of their --concurrency names both."""

LEVELS_HELP = f"Levels in streams, comma-separated; a rollout has {','.join(map(str, CONCURRENCY))}."

ACCEPTANCE_GATE = 0.55
"""The playbook's: share of drafted tokens accepted, below which another draft is looked for."""

SPEEDUP_GATE = 1.3
"""The playbook's: speed-up end to end that speculation must exceed to go live."""

LEAST_ACCEPTANCE = 0.4
"""The playbook's: acceptance below which the guard falls back, where no sweep measured the break-even."""

MEMORY_FULL = 0.95
"""The playbook's, of GPU memory; here of the KV cache too. Above it requests are preempted, and speculation
has no room."""
