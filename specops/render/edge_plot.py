"""Edge drafting over the round trip, as one picture: inter-token latency, and how long the server idles.

One line for each number of clients, told apart by its marker; dashed is a server that drafts for itself with
as many. The same plan gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.errors import FileError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "osD^vP*X"
_DARK, _LIGHT = "0.1", "0.6"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "specops",  # of the ids in an SVG
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class Line:
    """So many clients, at each RTT."""

    clients: int
    rtt_ms: tuple[float, ...]
    itl_ms: tuple[float, ...]
    idle: tuple[float, ...]
    """Shares."""

    server_only_ms: float
    """Inter-token latency, which no RTT changes."""


def draw(lines: Sequence[Line], path: Path) -> None:
    """As SVG or PNG, by the suffix of `path`. FileError where that cannot be written."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.0, 3.8), layout="constrained")
        latency, idle = figure.subplots(1, 2)
        for number, line in enumerate(lines):
            marker = _MARKERS[number % len(_MARKERS)]
            name = f"{line.clients} client{'' if line.clients == 1 else 's'}"
            _line(latency, line.rtt_ms, line.itl_ms, marker, name)
            latency.plot(
                line.rtt_ms, [line.server_only_ms] * len(line.rtt_ms), "--", color=_LIGHT, linewidth=1
            )
            latency.plot(line.rtt_ms[-1:], [line.server_only_ms], marker, color=_LIGHT, markersize=4)
            _line(idle, line.rtt_ms, [100 * share for share in line.idle], marker, name)
        _labels(latency, "inter-token latency, ms", "drafted at the edge, and on the server (dashed)")
        _labels(idle, "server idle, %", "how long the server waits for rounds")
        latency.set_ylim(bottom=0)
        idle.set_ylim(0, 100)
        idle.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(
                path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None}
            )
        except OSError as error:
            raise FileError(
                f"could not write the plot {path}: {error.strerror}", hint="give another path with --plot"
            ) from error


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], marker: str, name: str) -> None:
    axes.plot(x, y, marker=marker, color=_DARK, linewidth=1, markersize=4.5, label=name)


def _labels(axes: Axes, of: str, title: str) -> None:
    axes.set_xlabel("round trip, ms")
    axes.set_ylabel(of)
    axes.set_title(title, loc="left", fontsize=9)
    axes.margins(x=0.03)
