"""Server-sent events from the bytes of a stream, each with the instant at which it was complete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    """Arrival of the bytes that completed the event, in seconds of the client's monotonic clock."""

    data: str
    kind: str = ""
    """What the server names the event; most have no name."""

    complete: bool = True
    """False for what the end of the stream left without the blank line that ends an event."""


def events(reads: Iterable[tuple[float, bytes]]) -> list[Event]:
    """The data events of a stream read in pieces, each piece stamped on its arrival.

    Pieces may end anywhere, inside a character too; lines end in LF, CRLF or CR; comments and fields other
    than `data` and `event` are passed over; data lines of one event are joined by LF (the WHATWG's HTML
    standard, 9.2). llama.cpp sends a field `error`: it is read as the data of an event of that name. The
    standard discards an event that the end cuts off; here it comes out marked as incomplete, because
    some servers leave the last blank line out.
    """
    found: list[Event] = []
    data: list[bytes] = []
    kind = rest = b""
    last = 0.0
    after_cr = False

    def line_ends(line: bytes, at: float) -> None:
        nonlocal kind
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            kind = line[6:].strip()
        elif line.startswith(b"error:"):
            data.append(line[6:].removeprefix(b" "))
            kind = b"error"
        elif not line:
            event_ends(at)

    def event_ends(at: float, complete: bool = True) -> None:
        nonlocal kind
        if data:
            text = b"\n".join(data).decode("utf-8", errors="replace")
            found.append(Event(at, text, kind.decode("utf-8", errors="replace"), complete))
            data.clear()
        kind = b""

    for at, read in reads:
        if not read:
            continue
        # after a CR, an LF that begins the next piece is the same line's end
        piece = read.removeprefix(b"\n") if after_cr else read
        after_cr = piece.endswith(b"\r")
        rest += piece
        if b"\r" in rest:
            rest = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = rest.split(b"\n")
        for line in lines:
            line_ends(line, at)
        last = at
    if rest:
        line_ends(rest, last)
    event_ends(last, complete=False)
    return found
