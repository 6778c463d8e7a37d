"""Results: what a phase leaves behind, written whole or not at all.

Every result is one JSON file in the run folder: {schema, specops, created, phase, inputs, settings,
environment, verdict, reason, summary, data, sha256}. `inputs` maps a name to the SHA-256 of what was read,
so that results link to each other and a phase whose inputs have not changed need not run again. `sha256` is
the hash of all other fields: a result that was edited by hand is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from specops import __version__
from specops.errors import Exit, FileError
from specops.hints import beginning, folder_state, listing, renaming
from specops.owned_file import read_file
from specops.validation import problem

SCHEMA = 4

RENAMED: Mapping[int, Mapping[str, Mapping[str, str]]] = {
    1: {
        "ab": {"told": "message"},
        "canary": {
            "told": "message",
            "total_variation_seen": "detectable_total_variation",
            "nats_seen": "detectable_nats",
        },
        "diagnose": {
            "told": "message",
            "mend": "fix",
            "mends": "fixes",
            "asked": "requested",
            "seen": "observations",
        },
        "monitor-check": {"mend": "fix"},
        "plan": {"seen": "observations"},
        "report": {"told": "message", "mend": "fix"},
        "sweep": {"told": "message", "kept": "stored"},
        "verify-draft": {"told": "message"},
    },
    2: {
        "compare": {"alone": "unmatched"},
        "diagnose": {
            "fall_backs": "fallbacks",
            "swept": "sweep",
            "switched": "routed_share",
            "logged": "vocabulary_log",
        },
        "edge_simulate": {
            "even": "break_even",
            "at_rtt": "by_rtt",
            "carried": "clients_carried",
            "carried_all": "may_carry_more",
        },
        "guard-drill": {"fall_back": "fallback"},
        "kernels": {"timed": "contests"},
    },
    3: {
        "edge_simulate": {"served": "by_clients"},
        "launch": {"hint": "change"},
        "sweep": {
            "apart": "differs",
            "picked": "finalists",
            "rivals": "runners_up",
            "together": "overall",
        },
    },
}
"""Renamed keys inside `data` and `recommendation`, with their names in the next schema, by schema and
phase."""

HASH = "sha256"
"""The key of a result's file that holds the hash of the others."""

Verdict = Literal["yes", "no", "undecided", "partial"]
"""`partial`: the phase was stopped before its end; what it had measured is in `data`."""


Types = Any
"""A type, or the reference "module:Name" of one in specops; or a tuple of several, whose keys lie side by
side in one object."""


@dataclass(frozen=True)
class Content:
    """What a result's `data` holds."""

    always: Types
    finished: Types = ()
    """Absent from a result that was stopped before its end (verdict `partial`)."""

    recommendation: Types = ()
    summary: Types = ()
    """The type of `summary`; (): it is empty."""


Listener = Callable[[Path, "Result"], None]
listeners: list[Listener] = []
"""Called with the path and the result after each `write`."""

draw: Callable[[Result], str] | None = None
"""Returns a result as HTML for a notebook. The Python API sets it: what draws is in a layer above."""


class Result(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_: int = Field(default=SCHEMA, alias="schema")
    specops: str = __version__
    created: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    phase: str
    inputs: dict[str, str] = Field(default_factory=dict, repr=False)
    settings: dict[str, Any] = Field(default_factory=dict, repr=False)
    environment: dict[str, Any] = Field(default_factory=dict, repr=False)
    verdict: Verdict
    reason: str
    summary: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict, repr=False)
    recommendation: dict[str, Any] | None = Field(default=None, repr=False)
    """Recommendation of a sweep: what other phases and programs read by this name. Other results do not have
    the key."""

    @model_serializer(mode="wrap")
    def _without_absent_recommendation(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialise(self)
        if self.recommendation is None:
            del fields["recommendation"]
        return fields

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows; None: it shows the fields."""
        return draw(self) if draw is not None else None

    @property
    def exit_code(self) -> Exit:
        return {"yes": Exit.YES, "no": Exit.NO, "undecided": Exit.UNDECIDED, "partial": Exit.UNDECIDED}[
            self.verdict
        ]


def write(path: Path, result: Result) -> None:
    """Write `result` and its hash: to a temporary file beside `path`, flushed to the disk, then renamed.

    When the disk is full the previous file stays as it was, and the new result is kept in the system's
    temporary folder if there is room; the error says where.
    """
    text = written(result)
    try:
        _replace(path, text)
    except OSError as error:
        saved = _rescue(path.name, text)
        where = f"it was saved as {saved}" if saved else "no other place had room for it"
        raise FileError(
            f"could not write {path} ({os.strerror(error.errno or 0)}); {where}",
            hint=f"{folder_state(path.parent)}  # then move the file there, and resume with the same command",
        ) from error
    for listener in listeners:
        listener(path, result)


def written(result: Result) -> str:
    """The text of the file of `result`: one JSON object, with the hash of its other fields as the last."""
    text = result.model_dump_json(by_alias=True, indent=1)
    # Python's encoder takes ten times as long with an indent, and a comparison is written after every visit.
    seal = f'"{HASH}": "{sha256(json.loads(text))}"'
    return text.removesuffix("\n}") + f",\n {seal}\n}}"


def sealed(fields: dict[str, Any]) -> str:
    """The text of the file of a result with these `fields`, which may be from a file; its hash is new."""
    content = {name: value for name, value in fields.items() if name != HASH}
    return json.dumps(content | {HASH: sha256(content)}, indent=1, ensure_ascii=False)


_OWN = re.compile(r'^\s*\{\s*"schema":\s*\d+,\s*"specops":')
"""How each file that `write` wrote begins. Nothing is proposed that renames any other file."""


def is_result(text: str) -> bool:
    """Return whether `text` begins as each file that `write` wrote."""
    return _OWN.match(text) is not None


AGAIN = "then run its phase again"
"""What follows the renaming of a result that cannot be used."""


def set_aside(path: Path) -> Path:
    """Make room for another result at `path`: the one that is there becomes NAME.previous.json."""
    earlier = path.with_suffix(f".previous{path.suffix}")
    try:
        return path.replace(earlier)
    except OSError as error:
        raise FileError(
            f"could not rename {path} to {earlier}: {error.strerror}",
            hint=f"ls -ld {shlex.quote(str(path.parent))}",
        ) from error


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _rescue(name: str, text: str) -> Path | None:
    try:
        folder = Path(tempfile.mkdtemp(prefix="specops-rescued-"))
        _replace(folder / name, text)
    except OSError:
        return None
    return folder / name


def read(path: Path) -> Result:
    """The result at `path`. Raises FileError, which names the file, for one that is damaged, foreign or
    newer, and for one whose content does not match its hash."""
    try:
        raw = read_file(path).decode()
    except FileNotFoundError:
        raise FileError(f"there is no result {path}", hint=listing(path.parent)) from None
    except UnicodeDecodeError as error:
        raise FileError(
            f"could not read {path}: {error}: expected a result of specops", hint=listing(path)
        ) from error
    try:
        fields = json.loads(raw)
        version = fields["schema"]
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise FileError(
            f"{path} is damaged, or not a result of specops ({error}): expected one such as "
            "runs/NAME/ab.json",
            hint=renaming(path, AGAIN) if _OWN.search(raw) else beginning(path),
        ) from error
    if "specops" not in fields:
        raise FileError(
            f"{path} is not a result of specops: expected one such as runs/NAME/ab.json", hint=beginning(path)
        )
    if version not in (*RENAMED, SCHEMA):
        raise FileError(
            f"{path} has schema {version}; this specops reads schemas 1 to {SCHEMA}",
            hint=renaming(path, AGAIN),
        )
    recorded = fields.pop(HASH, None)
    try:
        result = Result.model_validate(_renamed(fields))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise FileError(
            f"{path} is damaged: {where} {problem(first)}",
            hint=renaming(path, f"{AGAIN}, or restore a copy"),
        ) from error
    if recorded is None:
        raise FileError(
            f"{path} has no hash of its content: an earlier version of specops wrote it",
            hint=renaming(path, AGAIN),
        )
    if recorded != sha256(fields):
        raise FileError(
            f"{path} was changed after it was written: its content does not match its hash {recorded!s:.12}",
            hint=renaming(path, f"{AGAIN}, or restore a copy"),
        )
    return result


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a file of any schema under the names of today's. Its hash was made of the old
    ones."""
    names: dict[str, str] = {}
    for version in range(fields["schema"], SCHEMA):
        later = RENAMED[version].get(fields.get("phase", ""), {})
        names = {old: later.get(new, new) for old, new in names.items()} | dict(later)

    def rename(value: Any) -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        if isinstance(value, dict):
            return {names.get(key, key): rename(item) for key, item in value.items()}
        return value

    inner = {name: rename(fields[name]) for name in ("data", "recommendation") if name in fields}
    return fields | inner | {"schema": SCHEMA}


Number = TypeVar("Number", float, float | None)


def rounded(value: Number) -> Number:
    """Return a figure as results store it: four digits after the point."""
    return None if value is None else round(value, 4)


def milliseconds(seconds: Number) -> Number:
    """Return a time in ms, as results store it."""
    return None if seconds is None else rounded(1000 * seconds)


def sha256(value: Path | bytes | str | dict[str, Any] | list[Any]) -> str:
    """SHA-256 of a file's bytes, of bytes or text, or of a JSON value in canonical form."""
    if isinstance(value, Path):
        payload = read_file(value)
    elif isinstance(value, bytes):
        payload = value
    elif isinstance(value, str):
        payload = value.encode()
    else:
        payload = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return hashlib.sha256(payload).hexdigest()


def environment() -> dict[str, Any]:
    """Return where a measurement was made, as far as it may change the figures. No names of people or
    hosts."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open() as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
