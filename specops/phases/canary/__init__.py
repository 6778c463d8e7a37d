"""Conformance: whether the speculative pool answers as the standard one, whatever is asked of it.

reply.py          an answer, streamed or not, as checks look at it
asking.py         a pool, asked so many requests at a time
pair.py           both pools, and a check of one look at each
checks/           what is looked at, one file a family: requests, and the pure functions that judge them
two_samples.py    whether two sets of answers are of one distribution, and what would be seen
finding.py        what a check found, and what follows from how each pool did
paste.py          the request that shows it, for a shell
conformance.py    the whole: `canary` for a rollout, `conform` for two servers
"""

from specops.phases.canary.conformance import FILE, canary, conform, inputs, judged, resumable

__all__ = ["FILE", "canary", "conform", "inputs", "judged", "resumable"]
