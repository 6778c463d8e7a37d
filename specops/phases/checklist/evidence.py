"""An item of the checklist; its evidence: results of this rollout as it is now, finished, unedited and fresh;
and what people attest."""

from __future__ import annotations

import getpass
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, computed_field

from specops import results
from specops.config import Pool, Rollout
from specops.errors import FileError
from specops.hints import renaming
from specops.owned_file import check_evidence, read_file
from specops.phases import PhaseName, phase_named
from specops.phases.checklist.signatures import signer
from specops.phases.commands import Commands
from specops.phases.inputs import changed_where_served, identity
from specops.phases.run_folder import RunFolder
from specops.phases.sweep.spec import SweepSpec, endpoints_in, spec_of
from specops.prometheus.api import Api
from specops.render import write_files
from specops.results import Result
from specops.section import Frozen

Status = Literal["passed", "failed", "open", "attested"]
Origin = Literal["playbook", "specops"]


@dataclass(frozen=True)
class ItemDecision:
    """The decision on an item: the status in words, and the evidence."""

    passed: bool
    reason: str
    evidence: tuple[Evidence, ...]
    decide: str | None = None
    """The command that would change a no, in place of the item's own."""

    change: str | None = None
    """What to change before that command."""

    gate: Gate | None = None


@dataclass(frozen=True)
class Spec:
    name: str
    asks: str
    command: Callable[[CheckInput], str]
    """The complete command that decides the item."""

    look: Callable[[CheckInput], ItemDecision]
    origin: Origin = "playbook"
    attestable: bool = False
    """A person may decide an item that has no evidence to check. An item with evidence is not overruled."""


class Gate(Frozen):
    """A figure and what it has to be, in words with units."""

    measured: str
    threshold: str


class Item(Frozen):
    """`data.items[]` of checklist.json."""

    name: str
    asks: str
    origin: Origin
    status: Status
    found: str
    evidence: list[Evidence]
    change: str | None
    """What to change before `decide` is run, in the rollout file or outside specops; null for nothing."""

    decide: str | None
    """The command that would decide it, or change the answer; null where nothing is left to do."""

    gate: Gate | None = None
    """Null for an item that is decided by no figure, and where the figure is not known."""


class ChecklistData(Frozen):
    """`data` of checklist.json."""

    rollout_file: str
    items: list[Item]


@dataclass(frozen=True)
class Todo:
    command: str
    changes: tuple[tuple[str, str], ...]
    """What to change before the command, and the item that it is for."""

    items: tuple[str, ...]
    """Items that the command decides."""


def todo(items: Sequence[Item]) -> list[Todo]:
    """The commands that decide what failed, then what is open; each once."""
    items_by_command: dict[str, list[Item]] = {}
    for status in ("failed", "open"):
        for item in items:
            if item.status == status and item.decide:
                items_by_command.setdefault(item.decide, []).append(item)
    return [
        Todo(
            command,
            tuple((item.change, item.name) for item in decided_items if item.change),
            tuple(item.name for item in decided_items),
        )
        for command, decided_items in items_by_command.items()
    ]


ATTESTATIONS = "attestations.json"
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


class _File(Frozen):
    attestations: list[Attestation]


def read(folder: Path) -> list[Attestation]:
    """All that were ever made, the oldest first. Raises FileError for a damaged file."""
    path = folder / ATTESTATIONS
    if not path.exists():
        return []
    check_evidence(path)
    try:
        return _File.model_validate_json(read_file(path)).attestations
    except ValidationError as error:
        again = renaming(path, "then attest again, or restore a copy")
        raise FileError(f"{path} is damaged", hint=again) from error


def attest(
    rollout: Rollout, folder: Path, item: str, by: str, note: str | None, now: datetime
) -> Attestation:
    """Add one to the file, which keeps those before it. Raises FileError, pydantic's ValidationError."""
    attestation = Attestation(
        item=item,
        by=by,
        note=note,
        at=now,
        rollout=identity(rollout),
    )
    stored = _File(attestations=[*read(folder), attestation])
    text = json.dumps(stored.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
    write_files(folder, {ATTESTATIONS: text})
    return attestation


def latest(attestations: list[Attestation], item: str) -> Attestation | None:
    return next((attestation for attestation in reversed(attestations) if attestation.item == item), None)


class Evidence(Frozen):
    source: str
    """A file of the run folder, or another by its whole path; of a live probe, what was queried."""

    sha256: str | None
    """Hash of the file; null of a live probe."""

    created: datetime
    age_s: float
    """When the checklist was made; 0 of a live probe."""

    figure: str
    """What it says, with its figures."""


class OpenItem(Exception):
    """The item cannot be decided: why, with the evidence that there is. `change` says what to change first,
    in the rollout file or outside specops; `decide` is the command after that, if not the item's own."""

    def __init__(
        self,
        why: str,
        *evidence: Evidence,
        decide: str | None = None,
        change: str | None = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(why)
        self.why, self.evidence, self.decide, self.change, self.gate = why, evidence, decide, change, gate


class RefusedFile(OpenItem):
    """A file that is damaged, was changed after it was written, or is dated in the future. No attestation
    takes its place."""


CLOCK_SKEW = timedelta(minutes=5)
FRESH_DAYS = 30
"""Older results do not count: engines come out every few weeks, and traffic changes."""


@dataclass(frozen=True)
class ResultEvidence:
    """A result that is evidence."""

    result: Result
    path: Path
    evidence: Evidence


@dataclass(frozen=True)
class CheckInput:
    rollout: Rollout
    path: Path
    """Path of the rollout file."""

    folder: Path
    now: datetime
    signers: Path | None = None
    """OpenSSH's file of allowed signers; None: signatures are not looked at."""

    @property
    def commands(self) -> Commands:
        return Commands(self.rollout, self.path, self.folder)

    def command(self, phase: str, *, fresh: bool = False) -> str:
        """The complete command that makes the result of `phase`, whatever result there is with `fresh`."""
        return phase_named(phase).command(self.commands, fresh=fresh)

    def attest(self, item: str) -> str:
        """The command by which the user of this process attests an item."""
        try:
            name = getpass.getuser()
        except (OSError, KeyError):
            name = "NAME"
        return self.commands.of(f"checklist attest {item} {{rollout}} --by {shlex.quote(name)}")

    @cached_property
    def api(self) -> Api | None:
        """Return the rollout's Prometheus; None where the rollout file names none."""
        url = self.rollout.addresses.prometheus
        return Api(url) if url else None

    @cached_property
    def run(self) -> RunFolder:
        return RunFolder(self.folder)

    def close(self) -> None:
        requested: Api | None = vars(self).get("api")
        if requested is not None:
            requested.close()

    def probed(self, source: str, figure: str) -> Evidence:
        return Evidence(source=source, sha256=None, created=self.now, age_s=0.0, figure=figure)

    def read(self, path: Path, phase: PhaseName | None = None) -> Result:
        """A result that may be evidence, of `phase` where it is one. Raises FileError where anybody may have
        written it, where it is of another phase, and where it has no signature of an allowed signer."""
        check_evidence(path)
        result = results.read(path) if phase is None else self.run.result(phase)
        if self.signers is not None:
            name = signer(path, self.signers)
            return result.model_copy(update={"reason": f"{result.reason} (signed by {name})"})
        return result

    def file(self, path: Path, created: datetime, figure: str) -> Evidence:
        inside = path.is_relative_to(self.folder)
        return Evidence(
            source=path.relative_to(self.folder).as_posix() if inside else str(path),
            sha256=results.sha256(path),
            created=created,
            age_s=round((self.now - created).total_seconds(), 1),
            figure=figure,
        )

    def measured(self, phase: PhaseName) -> ResultEvidence:
        """A result of `phase` that is still of the rollout as it is."""
        return self._unchanged(phase, lambda result: phase_named(phase).unlike(self.rollout, result))

    def sweep(self) -> ResultEvidence:
        """A sweep of what the rollout would sweep now, its grid included."""
        pools = [self.rollout.pools.standard, self.rollout.pools.speculative]
        return self._unchanged(
            "sweep", lambda result: changed_where_served(result, self.sweep_spec().inputs(), pools)
        )

    def sweep_spec(self) -> SweepSpec:
        """Return what a sweep of this rollout measures: of endpoints, those of sweep.json."""
        return spec_of(self.rollout, self.path.parent, self._attached())

    def _attached(self) -> dict[int, Pool] | None:
        """Endpoints by their K, as the sweep was given them; None where specops starts the pools itself."""
        if self.rollout.pools.speculative.endpoint is None:
            return None
        sweep = self.result("sweep")
        swept: Mapping[str, Any] = sweep.result.settings.get("settings") or {}
        try:
            return endpoints_in(swept)
        except ValueError:  # pydantic's ValidationError is one
            raise OpenItem(
                "sweep.json is of pools that specops started, not of endpoints", sweep.evidence
            ) from None

    def _unchanged(self, phase: PhaseName, unlike: Callable[[Result], str | None]) -> ResultEvidence:
        measured = self.result(phase)
        change = unlike(measured.result)
        if change:
            raise OpenItem(
                f"{measured.path.name} is not used: {change} changed since",
                measured.evidence,
                decide=self.command(phase),
            )
        return measured

    def set_up(
        self, phase: PhaseName, parts: Mapping[str, Any], reads: Sequence[PhaseName]
    ) -> ResultEvidence:
        """A result whose settings have the rollout's `parts` by these names, and that knows the results of
        the phases that it `reads` as they are now."""
        stored = self.result(phase)
        for name, part in parts.items():
            if stored.result.settings.get(name) != part:
                raise OpenItem(
                    f"{stored.path.name} is stale: the rollout file's {name} changed since",
                    stored.evidence,
                    decide=self.command(phase),
                )
        for name in reads:
            if self._unknown(stored.result, name):
                raise OpenItem(
                    f"{stored.path.name} is stale: {name}.json has changed since",
                    stored.evidence,
                    decide=self.command(phase),
                )
        return stored

    def _unknown(self, result: Result, phase: PhaseName) -> bool:
        """Return whether `result` was made without the result of `phase` as it is now. What it could not use
        it did not read."""
        path = self.folder / f"{phase}.json"
        if not path.exists():
            return phase in result.inputs
        if phase in result.inputs:
            return result.inputs[phase] != results.sha256(path)
        return self.run.result(phase).created > result.created

    def result(self, phase: PhaseName) -> ResultEvidence:
        """A finished one that is not too old, whatever it says; raises OpenItem or RefusedFile otherwise."""
        path = self.folder / f"{phase}.json"
        if not path.exists():
            raise OpenItem(f"there is no {path.name}", decide=self.command(phase))
        again = self.command(phase, fresh=True)
        try:
            result = self.read(path, phase)
        except FileError as error:
            raise RefusedFile(error.message, change=error.hint, decide=again) from error
        evidence = self.file(path, result.created, result.reason)
        self.refuse_future(evidence, again)
        if result.verdict == "partial":
            raise OpenItem(
                f"{path.name} was stopped before its end: {result.reason}",
                evidence,
                decide=self.command(phase),
            )
        if self.now - result.created > timedelta(days=FRESH_DAYS):
            old = (self.now - result.created).days
            raise OpenItem(f"{path.name} is {old} days old (limit {FRESH_DAYS} days)", evidence, decide=again)
        return ResultEvidence(result, path, evidence)

    def refuse_future(self, evidence: Evidence, decide: str) -> None:
        """Raise RefusedFile for evidence dated later than now. Clocks of two machines may differ by
        CLOCK_SKEW."""
        if evidence.created - self.now > CLOCK_SKEW:
            raise RefusedFile(
                f"{evidence.source} is dated {evidence.created:%Y-%m-%d}, in the future",
                evidence,
                decide=decide,
            )
