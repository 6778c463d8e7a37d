"""Traces of real traffic: files of requests with their instants and lengths, read row by row.

Four formats are read, distinguished by the first line:

- Mooncake JSONL: `timestamp` in ms, `input_length`, `output_length`, and `hash_ids`, one id for each block of
  512 tokens of the prompt and all before it. Dynamo and AIPerf write the same with other names.
- BurstGPT CSV: `Timestamp` in seconds, `Request tokens`, `Response tokens`.
- Azure LLM inference CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`.
- The access log of our router, JSONL: `time` is when the answer ended, `seconds` how long it took. It has no
  lengths.

Rows need not be in order: a first pass finds out how late rows come, and a second holds back as many.
"""

from __future__ import annotations

import csv
import hashlib
import heapq
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from specops.errors import UsageError, reason_of
from specops.hints import beginning, listing, with_options

BLOCK_TOKENS = 512
"""Tokens of the prompt that an id of `hash_ids` stands for."""

_LONGEST_LINE = 4_000_000
"""Characters of the longest row, which has the ids of a hundred million tokens. A file without line ends must
not fill the memory."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace."""

    time_s: float
    """When it arrived; the trace's own clock."""

    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    """Ids of the prompt's blocks: equal ids at the beginning are an equal beginning."""

    traffic_class: str | None = None


Fields = Mapping[str, Any]
Read = Callable[[Fields], TraceRequest | None]
"""The request of a row; None for a row without one, such as a health check. Raises ValueError, KeyError or
TypeError for a row of another form."""


@dataclass(frozen=True)
class Format:
    name: str
    columns: tuple[tuple[str, ...], ...]
    """Names that the first row must have: of each group one."""

    read: Read
    is_csv: bool = False

    def fits(self, names: set[str]) -> bool:
        return all(names & set(group) for group in self.columns)


_TIME, _INPUT, _OUTPUT = (
    ("timestamp", "created_time"),
    ("input_length", "input_tokens"),
    ("output_length", "output_tokens"),
)


def _mooncake(row: Fields) -> TraceRequest:
    blocks = row.get("hash_ids") or ()
    if not all(type(block) is int for block in blocks):
        raise ValueError("hash_ids must be whole numbers")
    return TraceRequest(
        _seconds(_any_of(row, _TIME)) / 1000,
        _tokens(_any_of(row, _INPUT)),
        _tokens(_any_of(row, _OUTPUT)),
        tuple(blocks),
    )


def _burstgpt(row: Fields) -> TraceRequest:
    return TraceRequest(
        _seconds(row["Timestamp"]), _tokens(row["Request tokens"]), _tokens(row["Response tokens"])
    )


def _azure(row: Fields) -> TraceRequest:
    return TraceRequest(
        _instant(row["TIMESTAMP"]), _tokens(row["ContextTokens"]), _tokens(row["GeneratedTokens"])
    )


def _router_log(row: Fields) -> TraceRequest | None:
    if row.get("method") != "POST" or not str(row["path"]).endswith("/completions"):
        return None
    name = row.get("class")
    return TraceRequest(
        _instant(row["time"]) - _seconds(row["seconds"]),
        traffic_class=name if isinstance(name, str) and name else None,
    )


FORMATS = (
    Format("Mooncake", (_TIME, _INPUT), _mooncake),
    Format("router log", (("time",), ("path",), ("seconds",)), _router_log),
    Format("BurstGPT", (("Timestamp",), ("Request tokens",), ("Response tokens",)), _burstgpt, is_csv=True),
    Format("Azure", (("TIMESTAMP",), ("ContextTokens",), ("GeneratedTokens",)), _azure, is_csv=True),
)


def _any_of(row: Fields, names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if name in row), None)


def _seconds(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number) or abs(number) > 1e15:
        raise ValueError(f"{value!r} is not a time")
    return number


def _instant(text: Any) -> float:
    instant = datetime.fromisoformat(str(text).strip())
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


def _tokens(value: Any) -> int | None:
    """A number of tokens; None where the trace does not say. Failed requests have an answer of 0."""
    if value is None or value == "":
        return None
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number of tokens")
    number = int(value)
    if not 0 <= number <= 10**9:
        raise ValueError(f"{value!r} is not a number of tokens")
    return number


@dataclass(frozen=True)
class TraceFile:
    """A file whose format was recognised."""

    path: Path
    format: Format
    columns: tuple[str, ...]
    """Of a CSV file."""

    def _rows(self) -> Iterator[TraceRequest | None]:
        """Every row in the order of the file; None for one that is no request. Raises UsageError for a row
        that cannot be read."""
        lines = _lines(self.path)
        if self.format.is_csv:
            next(lines, None)  # the names of the columns
        for number, line in lines:
            try:
                request = self.format.read(self._fields(line))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError, csv.Error) as error:
                raise UsageError(
                    f"{self.path}, line {number} is not a request of a {self.format.name} trace: "
                    f"{_described(error)}: {line.strip()[:60]!r}",
                    hint=f"{beginning(self.path)}  # line {number} must have the same fields as the first",
                ) from None
            yield request

    def _fields(self, line: str) -> Fields:
        if not self.format.is_csv:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"expected an object, not {type(row).__name__}")
            return row
        return dict(zip(self.columns, next(csv.reader([line])), strict=False))

    def requests(self) -> Iterator[TraceRequest]:
        """Every request in the order of arrival. Memory: the requests that a late row may precede."""
        late_s = self.survey.late_s
        late_s += 0.001 * (late_s > 0)  # more than a difference of two times is rounded by
        waiting: list[tuple[float, int, TraceRequest]] = []
        newest = -math.inf
        for number, request in enumerate(self._rows()):
            if request is None:
                continue
            heapq.heappush(waiting, (request.time_s, number, request))
            newest = max(newest, request.time_s)
            while waiting and waiting[0][0] <= newest - late_s:
                yield heapq.heappop(waiting)[2]
        while waiting:
            yield heapq.heappop(waiting)[2]

    @property
    def sha256(self) -> str:
        """Hash of the file, which may be larger than memory."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @property
    def survey(self) -> Survey:
        described = self.path.stat()
        return _survey(self, described.st_size, described.st_mtime_ns)


@dataclass(frozen=True)
class Survey:
    """What one pass over a file shows."""

    first_s: float
    """When the first request arrived."""

    late_s: float
    """By how much a row comes at most after a row of a later request."""

    left_out: int
    """Rows that are no requests."""


@lru_cache(maxsize=8)
def _survey(file: TraceFile, size: int, changed_ns: int) -> Survey:
    first, newest, late_s, left_out = math.inf, -math.inf, 0.0, 0
    for request in file._rows():
        if request is None:
            left_out += 1
            continue
        first, newest = min(first, request.time_s), max(newest, request.time_s)
        late_s = max(late_s, newest - request.time_s)
    if first == math.inf:
        raise UsageError(
            f"{file.path} has no request: expected at least one row of a {file.format.name} trace",
            hint=beginning(file.path),
        )
    return Survey(first, late_s, left_out)


def open_trace(path: Path) -> TraceFile:
    """Return the trace at `path`, recognised by its first line. Raises UsageError for another file."""
    _, line = next(_lines(path), (1, ""))
    names: tuple[str, ...] = ()
    is_csv = False
    try:
        row = json.loads(line)
        names = tuple(row) if isinstance(row, dict) else ()
    except (ValueError, RecursionError):
        is_csv = True
        try:
            names = tuple(name.strip() for name in next(csv.reader([line]), []))
        except csv.Error:
            names = ()
    for format_ in FORMATS:
        if format_.is_csv == is_csv and format_.fits(set(names)):
            return TraceFile(path, format_, names if is_csv else ())
    first = f"its first line is {line.strip()[:60]!r}" if line else "it is empty"
    raise UsageError(
        f"{path} is not a trace: {first}; expected Mooncake JSONL (timestamp, input_length), BurstGPT CSV "
        "(Timestamp, Request tokens), Azure CSV (TIMESTAMP, ContextTokens) or the router's access log",
        hint=beginning(path),
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, without empty ones. Raises UsageError."""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    raise UsageError(
                        f"{path}, line {number} has more than {_LONGEST_LINE:,} characters: expected a trace "
                        "with one request a line",
                        hint=beginning(path),
                    )
                if line.strip():
                    yield number, line
    except FileNotFoundError:
        raise UsageError(f"there is no trace at {path}", hint=listing(path.parent)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"could not read the trace {path}: {reason_of(error)}: expected text in UTF-8", hint=listing(path)
        ) from None


def _described(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def empty_part(path: Path) -> UsageError:
    """The error for a part of a trace, as it was chosen, without a request."""
    return UsageError(
        f"the chosen part of {path} has no request: expected times within the trace",
        hint=with_options({"--trace-from": None, "--trace-for": None}),
    )
