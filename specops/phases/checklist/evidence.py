"""What an answer rests on; and Open, raised where there is nothing that it could rest on."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class Evidence(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    """A file of the run folder, or another by its whole path; of a live probe, who was asked."""

    sha256: str | None
    """Of the file; null of a live probe."""

    created: datetime
    age_s: float
    """When the checklist was made; 0 of a live probe."""

    figure: str
    """What it says, with its figures."""


class Open(Exception):
    """The item cannot be decided: why, with the evidence that there is. `change` says what to change first,
    in the rollout file or outside specops; `decide` is the command after that, if not the item's own."""

    def __init__(
        self, why: str, *evidence: Evidence, decide: str | None = None, change: str | None = None
    ) -> None:
        super().__init__(why)
        self.why, self.evidence, self.decide, self.change = why, evidence, decide, change


class Refused(Open):
    """A file that is damaged, was changed after it was written, or is dated in the future. No attestation
    takes its place."""
