"""Progress on stderr.

On a terminal: the phases with their state, and the current step with live figures and the time left.
Elsewhere: a line at least every 15 s.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specops.cli.output import dumb, named
from specops.progress import PhaseState, Progress, SilentProgress

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.text import Text

LINE_EVERY_S = 15.0
"""Where stderr is a log, work reports at least this often."""

RECENT = 64
"""Requests whose median latency is shown."""

MARKS: Mapping[PhaseState | None, tuple[str, str, str]] = {
    None: (" ", "", "dim"),
    "running": (">", "running", "bold"),
    "yes": ("+", "passed", "green"),
    "no": ("x", "failed", "bold red"),
    "undecided": ("?", "undecided", "bold yellow"),
    "skipped": ("-", "skipped", "dim"),
}
"""For each state: a mark that is clear without colour, the word of the final page, and a style."""


@contextmanager
def progress(quiet: bool = False, *, heartbeat: bool = True) -> Iterator[Progress]:
    """Return what a command hands to a phase. The display is gone when the block ends; notes stay."""
    if quiet:
        yield SilentProgress()
    elif sys.stderr.isatty() and not dumb():
        with _Terminal() as terminal:
            yield terminal
    else:
        with _Lines(heartbeat=heartbeat) as lines:
            yield lines


class _Display:
    """The current piece of work and the phases around it: what both displays say."""

    def __init__(self) -> None:
        self.began = self.started = time.monotonic()
        self.label, self.done, self.total = "", 0, 0
        self.latencies: deque[float] = deque(maxlen=RECENT)
        self.chunks = 0
        self.expected: dict[str, float | None] = {}
        self.states: dict[str, tuple[PhaseState, str]] = {}
        self.phase_began: dict[str, float] = {}
        self.phase_took: dict[str, float] = {}
        self.reused: set[str] = set()

    def advance(self, done: int = 1) -> None:
        self.done += done

    def start(self, label: str, total: int) -> None:
        self.label, self.done, self.total = label, 0, total
        self.latencies.clear()
        self.chunks, self.started = 0, time.monotonic()

    def request(self, seconds: float, chunks: int) -> None:
        self.latencies.append(seconds)
        self.chunks += chunks

    def elapsed_s(self) -> float:
        """Return the seconds since the current piece began."""
        return time.monotonic() - self.started

    def left_s(self) -> float | None:
        """Return the seconds left of the current piece; None before its first unit is done."""
        if not self.done or not self.total:
            return None
        return self.elapsed_s() / self.done * max(self.total - self.done, 0)

    def all_left_s(self) -> float | None:
        """Return the seconds left of the walk, by its plan: of the current phase, and of those to come. None:
        not known."""
        open_ = [name for name in self.expected if self.states.get(name, ("running", ""))[0] == "running"]
        left = 0.0
        for name in open_:
            seconds = self.expected[name]
            if seconds is None:
                return None
            began = self.phase_began.get(name)
            if began is not None:  # the current piece is a part of it, and is not left sooner
                seconds = max(seconds - (time.monotonic() - began), self.left_s() or 0.0)
            left += seconds
        return left if open_ else None

    def figures(self) -> str:
        """Return live figures of the last requests: p50 of the end-to-end latency, and tokens a second of
        this piece."""
        if not self.latencies:
            return ""
        elapsed = max(time.monotonic() - self.started, 1e-9)
        p50 = statistics.median(self.latencies)
        latency = f"p50 {p50 * 1000:.0f} ms" if p50 < 1 else f"p50 {p50:.2f} s"
        return f"{latency}, {self.chunks / elapsed:.0f} tokens/s"

    def next_phase(self) -> str | None:
        return next((name for name in self.expected if name not in self.states), None)

    def phases(self, seconds: Mapping[str, float | None]) -> None:
        self.expected = dict(seconds)

    def phase(self, name: str, state: PhaseState, detail: str = "", *, reused: bool = False) -> None:
        self.states[name] = state, detail
        if reused:
            self.reused.add(name)
        if state == "running":
            self.phase_began[name] = time.monotonic()
        elif name in self.phase_began:
            self.phase_took[name] = time.monotonic() - self.phase_began[name]

    def phase_time(self, name: str) -> str:
        """Return what a phase took, "reused", or with ~ what it will take. Empty while it runs, and if not
        known."""
        if name in self.reused:
            return "reused"
        if name in self.phase_took:
            return duration(self.phase_took[name])
        expected = self.expected.get(name)
        return "" if name in self.states or expected is None else f"~{duration(expected)}"


class _Terminal(_Display):
    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        self._live = Live(
            get_renderable=self._render, console=self._console, transient=True, refresh_per_second=4
        )

    def __enter__(self) -> _Terminal:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(named(text))

    def _render(self) -> Group:
        from rich.console import Group

        rows: list[RenderableType] = []
        if self.expected:
            rows += [self._heading(), *map(self._phase, self.expected)]
        if self.label:
            rows.append(self._piece())
        return Group(*rows)

    def _heading(self) -> Text:
        from rich.text import Text

        number = len(self.expected)
        ended = sum(state != "running" for state, _ in self.states.values())
        parts = [f"{ended} of {number} phases", f"{duration(time.monotonic() - self.began)} elapsed"]
        left = self.all_left_s()
        parts += [f"about {duration(left)} left"] if left is not None else []
        return Text(", ".join(parts), style="bold", no_wrap=True, overflow="ellipsis")

    def _phase(self, name: str) -> Text:
        from rich.text import Text

        state, detail = self.states.get(name, (None, ""))
        mark, word, style = MARKS[state]
        if state is None and name == self.next_phase():
            word = "next"
        line = f" {mark} {name:12} {word:9} {self.phase_time(name):>12}  {detail}"
        return Text(line.rstrip(), style=style, no_wrap=True, overflow="ellipsis")

    def _piece(self) -> Text:
        from rich.text import Text

        figures, left = self.figures(), self.left_s()
        parts = [f"{self.done}/{self.total}"] if self.total else []
        parts += [figures] if figures else []
        parts.append(f"{duration(left)} left" if left is not None else f"{duration(self.elapsed_s())} so far")
        rest = "   ".join(parts)
        # Figures and the time left matter more than the end of a long label.
        room = max(self._console.width - len(rest) - 4, 10)
        label = self.label if len(self.label) <= room else f"{self.label[: room - 1]}…"
        line = f"{label}   {rest}"
        width = self._console.width - len(line) - 4
        if self.total and width >= 10:
            full = round(min(width, 24) * min(self.done / self.total, 1.0))
            line = f"{'#' * full}{'.' * (min(width, 24) - full)}   {line}"
        return Text(line, no_wrap=True, overflow="ellipsis")


class _Lines(_Display):
    """Prints when something happens, and with `heartbeat` after `LINE_EVERY_S` without a line."""

    def __init__(self, *, heartbeat: bool = True) -> None:
        super().__init__()
        self._heartbeat = heartbeat
        self._last_line_s = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._watch = threading.Thread(target=self._speak_up, name="progress", daemon=True)

    def __enter__(self) -> _Lines:
        if self._heartbeat:
            self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._heartbeat:
            self._watch.join()

    def phase(self, name: str, state: PhaseState, detail: str = "", *, reused: bool = False) -> None:
        super().phase(name, state, detail, reused=reused)
        if state == "skipped":
            return  # a note says why
        number, names = len(self.expected), list(self.expected)
        place = f" ({names.index(name) + 1} of {number})" if name in names else ""
        elapsed = self.phase_time(name)
        took = "" if state == "running" else f", {elapsed}" if reused else f" after {elapsed}"
        self.note(f"{name}{place}: {MARKS[state][1]}{took}" + (f", {detail}" if detail else ""))

    def start(self, label: str, total: int) -> None:
        super().start(label, total)
        self.note(label)

    def advance(self, done: int = 1) -> None:
        super().advance(done)
        if time.monotonic() - self._last_line_s >= LINE_EVERY_S:
            self._report()

    def note(self, text: str) -> None:
        with self._lock:
            self._last_line_s = time.monotonic()
            print(named(text), file=sys.stderr, flush=True)

    def _speak_up(self) -> None:
        while not self._ended.wait(max(0.05, LINE_EVERY_S - (time.monotonic() - self._last_line_s))):
            if time.monotonic() - self._last_line_s >= LINE_EVERY_S:
                self._report()

    def _report(self) -> None:
        parts = [
            f"{self.label or 'working'}: {self.done}/{self.total}" if self.total else self.label or "working"
        ]
        figures, left = self.figures(), self.left_s()
        parts += [figures] if figures else []
        parts.append(
            f"{duration(self.elapsed_s())} so far" if left is None else f"about {duration(left)} left"
        )
        self.note(", ".join(parts))


def between(least_s: float, most_s: float) -> str:
    """Return a span of time, such as `3–25 min` or `40 s–2.5 h`; one time where the ends are alike."""
    ends = [_rounded(seconds) for seconds in (least_s, most_s)]
    if ends[0] == ends[1]:
        return duration(most_s)
    (least, unit), (most, unit_of_most) = ends
    return f"{least}–{most} {unit}" if unit == unit_of_most else f"{least} {unit}–{most} {unit_of_most}"


def _rounded(seconds: float) -> tuple[str, str]:
    """A time with its unit, in a few digits."""
    if round(seconds) < 120:
        return f"{seconds:.0f}", "s"
    return (f"{seconds / 60:.0f}", "min") if seconds < 7200 else (f"{seconds / 3600:.1f}", "h")


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
