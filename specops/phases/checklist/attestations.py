"""What only a person can say: attestations.json in the run folder, by name and date.

An attestation holds for the rollout as it was when it was made, and for `VALID_DAYS`.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, computed_field

from specops.config import Rollout
from specops.errors import FileError
from specops.phases.inputs import identity
from specops.render import files

FILE = "attestations.json"
VALID_DAYS = 90


class Attestation(BaseModel):
    """`until` is computed, never read: what the file says of it does not count."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    item: str
    by: str = Field(min_length=1, max_length=200, pattern=r"\S")
    note: str | None = Field(default=None, max_length=2000)
    at: AwareDatetime
    rollout: str
    """The identity of what the rollout file says; comments, order and paths do not count."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def until(self) -> datetime:
        return self.at + timedelta(days=VALID_DAYS)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    attestations: list[Attestation]


def read(folder: Path) -> list[Attestation]:
    """All that were ever made, the oldest first. Raises FileError for a damaged file."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        return _File.model_validate_json(path.read_bytes()).attestations
    except (OSError, ValidationError) as error:
        why = (
            f"could not read {path}: {error.strerror}" if isinstance(error, OSError) else f"{path} is damaged"
        )
        raise FileError(why, hint="restore it from a copy, or move it aside and attest again") from error


def attest(
    rollout: Rollout, folder: Path, item: str, by: str, note: str | None, now: datetime
) -> Attestation:
    """Add one to the file, which keeps those before it. Raises FileError, pydantic's ValidationError."""
    made = Attestation(
        item=item,
        by=by,
        note=note,
        at=now,
        rollout=identity(rollout),
    )
    kept = _File(attestations=[*read(folder), made])
    text = json.dumps(kept.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
    files.write(folder, {FILE: text})
    return made


def latest(attestations: list[Attestation], item: str) -> Attestation | None:
    return next((one for one in reversed(attestations) if one.item == item), None)
