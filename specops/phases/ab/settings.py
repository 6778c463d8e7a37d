"""Settings of a comparison: the section `ab` of the rollout file, and what only this program sets."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from specops.config import Ab

LOOKS: Mapping[str, int] = {"interleaved": 4, "abba-restart": 1}
"""Default number of looks by design. Every look costs abba-restart another start of every arm in every
round."""


class AbSettings(Ab):
    """Settings of a comparison; the requests themselves are in `BaselineSettings`, the same for every arm.

    Designs: `interleaved`, where every arm is up and they take turns, window by window; `abba-restart`, where
    arms that share a device are started in turn, A B B A, and only one is ever up.
    """

    mixed_temperature: float = Field(default=0.7, gt=0)
    """Temperature of the sampled requests that share batches with greedy ones."""

    same_server: bool = False
    """An A/A: all arms are one server, so every difference is noise. The verdict is never deploy."""
