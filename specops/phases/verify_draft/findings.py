"""What a check found, how bad it is, and the verdict of all findings. Pure.

no difference that matters                        compatible
a difference that a setting of this version takes compatible with that setting
the same ids, another way of cutting text up      degraded: lossless, fewer drafts accepted
ids in use that mean different tokens, or an
engine that will not start                        incompatible
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops.results import Verdict

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


def decide(findings: Sequence[Finding], *, allow_degraded: bool) -> tuple[Verdict, str]:
    """The verdict and its reason, in words."""
    found = worst(findings)
    telling = [finding for finding in findings if finding.verdict == found]
    checks = ", ".join(finding.check for finding in telling)
    if found == "compatible":
        return "yes", "compatible"
    if found == "needs_setting":
        return "yes", f"compatible, with a setting: {'; '.join(finding.detail for finding in telling)}"
    if found == "degraded":
        message = f"degraded: what is said stays the target's, but fewer drafts are accepted ({checks})"
        return ("yes", f"{message}; allowed") if allow_degraded else ("no", message)
    return "no", f"incompatible: {'; '.join(_short(finding) for finding in telling)}"


def _short(finding: Finding) -> str:
    return f"{finding.check}: {finding.detail}"
