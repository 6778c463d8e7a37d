"""What a check answers: a finding, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

Symptom = Literal["slower", "acceptance", "bursts", "vocabulary", "answers", "watching"]
Severity = Literal["symptom", "cause", "contributing", "ruled_out", "unknown"]
"""`symptom`: confirmed; other checks of the same symptom find why. `cause`: past its threshold.
`contributing`: possibly a part of the cause. `ruled_out`: observed, and not the cause. `unknown`: not
observed."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Evidence(Record):
    what: str
    value: float | str
    source: str
    threshold: float | None = None
    threshold_source: str | None = None


class Finding(Record):
    """`data.findings[]` of diagnose.json."""

    id: str
    symptom: Symptom
    severity: Severity
    message: str
    evidence: tuple[Evidence, ...] = ()
    cause: str | None = None
    fix: str | None = None
    """A command or a setting; of `unknown`, the command that would answer it."""

    paste: str | None = None
    """YAML for the rollout file, or settings of a client."""


@dataclass(frozen=True)
class Check:
    """A check: each of its findings has this id and symptom."""

    id: str
    symptom: Symptom

    def symptom_holds(
        self, message: str, *evidence: Evidence, fix: str | None = None, paste: str | None = None
    ) -> Finding:
        return self._finding("symptom", message, evidence, None, fix, paste)

    def cause(
        self, message: str, *evidence: Evidence, cause: str, fix: str, paste: str | None = None
    ) -> Finding:
        return self._finding("cause", message, evidence, cause, fix, paste)

    def contributing(
        self, message: str, *evidence: Evidence, cause: str, fix: str, paste: str | None = None
    ) -> Finding:
        return self._finding("contributing", message, evidence, cause, fix, paste)

    def ruled_out(self, message: str, *evidence: Evidence) -> Finding:
        return self._finding("ruled_out", message, evidence, None, None, None)

    def unknown(self, why: str, *evidence: Evidence, show: str | None) -> Finding:
        """`show`: the command that would answer it."""
        return self._finding("unknown", why, evidence, None, show, None)

    def _finding(
        self,
        severity: Severity,
        message: str,
        evidence: tuple[Evidence, ...],
        cause: str | None,
        fix: str | None,
        paste: str | None,
    ) -> Finding:
        return Finding(
            id=self.id,
            symptom=self.symptom,
            severity=severity,
            message=message,
            evidence=evidence,
            cause=cause,
            fix=fix,
            paste=paste,
        )
