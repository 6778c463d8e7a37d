"""The journal: what the guard evaluated, decided and did, as JSON lines, written before it acts. So a guard
that is killed at any moment continues where it was.

An evaluation, or a person's override, is one line. Where something is to be switched, that line is the
intent. A line with the same id and the result follows, and one more with the notifications. An intent without
a result is carried out again, after reading the targets. Lines reach the disk before anything else happens.
An incomplete last line was never acted on, and is removed. A damaged line before the last is history, and is
skipped.

At `ROTATE_BYTES` the journal becomes journal.1.jsonl. The new one begins with the lines that give the state.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ValidationError

from specops.errors import FileError
from specops.guard.state import FULL, Evaluation, Event, Record, State, Verdict
from specops.hints import ROLLOUT, renaming
from specops.owned_file import MODE, check_owned, created

FILE = "journal.jsonl"
ROTATE_BYTES = 16 * 2**20
OLD_FILES = 8
"""Older journals that are stored: some weeks at one evaluation per minute."""


class TargetReading(Record):
    """The percentage of a target; None where it could not be read, with the error."""

    name: str
    percent: int | None
    error: str | None = None


class SwitchRecord(Record):
    """The change of one target, and its result."""

    name: str
    before: int | None
    after: int | None
    tries: int
    """0: it already had the percentage."""

    error: str | None = None
    took_ms: float


class SwitchResult(Record):
    outcome: Literal["done", "failed", "dry_run"]
    targets: tuple[SwitchRecord, ...] = ()
    traffic: str | None = None
    """Requests after the switch by the routers' counters, where there are any."""


class NotificationRecord(Record):
    """A notification that was sent, or why it was not."""

    name: str
    error: str | None = None


class Intent(Record):
    """The percentage that every target is to have."""

    percent: int


class EntryEvidence(Record):
    OLDER: ClassVar = {"found": "readings"}

    why: str
    events: tuple[Event, ...] = ()
    evaluation: Evaluation | None = None
    """None: a person's override."""

    capacity: str | None = None
    """The capacity gate's answer, where the decision needed one."""

    alerts: tuple[str, ...] = ()
    """Names of firing alerts, received from Alertmanager since the previous line."""

    readings: tuple[TargetReading, ...] = ()
    """The targets at the time of the decision."""


class Entry(Record):
    ts: float
    id: int
    verdict: Verdict | None
    evidence: EntryEvidence
    state: State
    """State after the decision."""

    action: Intent | None = None
    result: SwitchResult | None = None
    notified: tuple[NotificationRecord, ...] = ()


@dataclass(frozen=True)
class JournalState:
    """The state that follows from a journal."""

    state: State = field(default_factory=State)
    confirmed: int | None = FULL
    """The percentage that all targets last confirmed; None where unknown. Without a journal it is 100, as the
    router is rendered, so a new guard switches nothing."""

    last: Entry | None = None
    last_action: Entry | None = None
    evaluation: Evaluation | None = None
    """The latest."""

    began: float | None = None
    """Time of the first stored line."""


def replay(entries: Iterable[Entry], standing: JournalState | None = None) -> JournalState:
    """The standing after `entries`, in their order, from `standing` on."""
    standing = standing or JournalState()
    state, confirmed = standing.state, standing.confirmed
    last, last_action, evaluation = standing.last, standing.last_action, standing.evaluation
    began = standing.began
    for entry in entries:
        began = entry.ts if began is None else began
        state, last = entry.state, entry
        evaluation = entry.evidence.evaluation or evaluation
        if entry.action is not None:
            last_action = entry
            reached = entry.result is not None and entry.result.outcome != "failed"
            confirmed = entry.action.percent if reached else None
    return JournalState(state, confirmed, last, last_action, evaluation, began)


class Journal:
    """Opened by the one guard that holds the lock of its folder."""

    def __init__(self, path: Path, rotate_bytes: int = ROTATE_BYTES) -> None:
        """Reads the file. Raises FileError where its last complete line is damaged."""
        self.path = path
        self._rotate_bytes = rotate_bytes
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = _own(path) if path.exists() else b""
            sound = _sound(text)
            self.standing = replay(_entries(text[:sound], path))
            if sound < len(text):
                os.truncate(path, sound)
        except OSError as error:
            raise _unwritable(path, error) from error
        self._size = sound

    def append(self, entry: Entry) -> None:
        """`entry` is on the disk when it returns. Raises FileError; then the line is not in the journal."""
        line = entry.model_dump_json().encode() + b"\n"
        try:
            if self._size and self._size + len(line) > self._rotate_bytes:
                self._rotate()
            with os.fdopen(self._appending(), "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if not self._size:
                _flush_folder(self.path.parent)
        except OSError as error:
            with suppress(OSError):  # an incomplete line is removed when the journal is next opened
                os.truncate(self.path, self._size)
            raise _unwritable(self.path, error) from error
        self._size += len(line)
        self.standing = replay([entry], self.standing)

    def _appending(self) -> int:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, MODE)
        if not self._size:
            os.fchmod(descriptor, MODE)
        return descriptor

    def _rotate(self) -> None:
        """`path` holds a whole journal at every moment."""
        begin = [self.standing.last_action, self.standing.last]
        lines = dict.fromkeys(
            entry.model_dump_json().encode() + b"\n" for entry in begin if entry is not None
        )
        new = self.path.with_suffix(".new")
        with os.fdopen(created(new), "wb") as out:
            out.write(b"".join(lines))
            out.flush()
            os.fsync(out.fileno())
        for number in range(OLD_FILES - 1, 0, -1):
            older = _older(self.path, number)
            if older.exists():
                older.replace(_older(self.path, number + 1))
        first = _older(self.path, 1)
        first.unlink(missing_ok=True)
        os.link(self.path, first)
        new.replace(self.path)
        _flush_folder(self.path.parent)
        self._size = self.path.stat().st_size


def _own(path: Path) -> bytes:
    """The bytes of a journal that a guard continues: nobody else may have written it."""
    with path.open("rb") as file:
        check_owned(path, file.fileno())
        os.fchmod(file.fileno(), MODE)
        return file.read()


def read(path: Path) -> JournalState:
    """The standing of the journal at `path`, while its guard may be writing. Raises FileError."""
    try:
        text = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise FileError(f"could not read {path}: {error.strerror}", hint=f"ls -l {path.parent}") from error
    return replay(_entries(text[: _sound(text)], path))


def history(path: Path) -> Iterator[Entry]:
    """All stored entries, older journals first."""
    for older in (*(_older(path, number) for number in range(OLD_FILES, 0, -1)), path):
        if older.exists():
            text = older.read_bytes()
            yield from _entries(text[: _sound(text)], older)


def _older(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def _sound(text: bytes) -> int:
    """The number of bytes up to the end of the last complete line. A line with zero bytes is incomplete: a
    file system leaves them where the power failed before the line was on the disk."""
    end = text.rfind(b"\n") + 1
    start = text.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return start if b"\0" in text[start:end] else end


def _entries(text: bytes, path: Path) -> Iterator[Entry]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            yield Entry.model_validate_json(line)
        except ValidationError as error:
            if number < len(lines):
                continue
            pin = f"specops guard override {ROLLOUT} standard --why damaged"
            raise FileError(
                f"the last line of {path} ({number}) is damaged: the guard's state is not known. A new guard"
                " assumes that speculation is on: read the routers first, and pin their pool",
                hint=renaming(path, f"then {pin}"),
            ) from error


def _flush_folder(folder: Path) -> None:
    """A new name survives a power failure once its folder is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(
        f"could not write the guard's journal {path}: {error.strerror}; nothing is switched without it",
        hint=f"df -h {path.parent}; ls -ld {path.parent}",
    )
