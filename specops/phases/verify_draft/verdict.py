"""From findings to a verdict and its reason. Pure.

no difference that matters                        compatible
a difference that a setting of this version takes compatible with that setting
the same ids, another way of cutting text up      degraded: lossless, fewer drafts accepted
ids in use that mean different tokens, or an
engine that will not start                        incompatible
"""

from __future__ import annotations

from collections.abc import Sequence

from specops.phases.verify_draft.findings import Finding, worst
from specops.results import Verdict


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
        told = f"degraded: what is said stays the target's, but fewer drafts are accepted ({checks})"
        return ("yes", f"{told}; allowed") if allow_degraded else ("no", told)
    return "no", f"incompatible: {'; '.join(_short(finding) for finding in telling)}"


def _short(finding: Finding) -> str:
    return f"{finding.check}: {finding.detail}"
