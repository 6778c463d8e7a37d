"""Conformance: whether the speculative pool answers as the standard one, whatever is requested.

client.py         sends requests to a pool, so many at a time; the answers as checks use them; curl commands
pair.py           both pools, a check of them, and a finding with its status
checks/           one file a family: requests, and the pure functions that judge their answers
two_samples.py    whether two sets of answers have the same distribution, and the power of that test
conformance.py    the whole: `canary` for a rollout, `conform` for two servers
"""

from specops.phases.canary.conformance import FILE, canary, conform, inputs, judged, resumable

__all__ = ["FILE", "canary", "conform", "inputs", "judged", "resumable"]
