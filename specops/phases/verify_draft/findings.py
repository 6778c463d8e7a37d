"""What a check found, and how bad it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

Severity = Literal["compatible", "needs_setting", "degraded", "incompatible"]
ORDER: tuple[Severity, ...] = ("compatible", "needs_setting", "degraded", "incompatible")
"""compatible: no effect. needs_setting: none, once the setting that it names is made. degraded: what is said
stays the target's, but fewer drafts are accepted. incompatible: it does not start, or next to none are."""


class Finding(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    check: str
    verdict: Severity
    detail: str
    witness: str | None = None
    """The first place where target and draft part."""


def worst(findings: Iterable[Finding]) -> Severity:
    return max((finding.verdict for finding in findings), key=ORDER.index, default="compatible")
