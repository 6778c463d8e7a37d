"""An answer to one question of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

Symptom = Literal["slower", "acceptance", "bursts", "vocabulary", "answers", "watching"]
Severity = Literal["symptom", "cause", "contributing", "ruled_out", "unknown"]
"""`symptom`: it is so, and the others of its symptom say why. `cause`: past its threshold. `contributing`:
likely a part of it. `ruled_out`: seen, and not it. `unknown`: it could not be looked at."""


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Evidence(_Kept):
    what: str
    value: float | str
    source: str
    threshold: float | None = None
    threshold_source: str | None = None


class Finding(_Kept):
    """`data.findings[]` of diagnose.json."""

    id: str
    symptom: Symptom
    severity: Severity
    message: str
    evidence: tuple[Evidence, ...] = ()
    cause: str | None = None
    fix: str | None = None
    """A command, or a setting; of what is not known, what would show it."""

    paste: str | None = None
    """YAML for the rollout file, or settings of a client."""


@dataclass(frozen=True)
class Asks:
    """A question: every answer to it has its id and its symptom."""

    id: str
    symptom: Symptom

    def so(self, told: str, *evidence: Evidence, fix: str | None = None, paste: str | None = None) -> Finding:
        return self._finding("symptom", told, evidence, None, fix, paste)

    def cause(
        self, told: str, *evidence: Evidence, cause: str, fix: str, paste: str | None = None
    ) -> Finding:
        return self._finding("cause", told, evidence, cause, fix, paste)

    def contributing(
        self, told: str, *evidence: Evidence, cause: str, fix: str, paste: str | None = None
    ) -> Finding:
        return self._finding("contributing", told, evidence, cause, fix, paste)

    def ruled_out(self, told: str, *evidence: Evidence) -> Finding:
        return self._finding("ruled_out", told, evidence, None, None, None)

    def unknown(self, why: str, *evidence: Evidence, show: str | None) -> Finding:
        """`show`: the command that would show it."""
        return self._finding("unknown", why, evidence, None, show, None)

    def _finding(
        self,
        severity: Severity,
        told: str,
        evidence: tuple[Evidence, ...],
        cause: str | None,
        fix: str | None,
        paste: str | None,
    ) -> Finding:
        return Finding(
            id=self.id,
            symptom=self.symptom,
            severity=severity,
            message=told,
            evidence=evidence,
            cause=cause,
            fix=fix,
            paste=paste,
        )
