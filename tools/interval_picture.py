"""Draws docs/intervals.svg: how the windows of a real comparison become the interval of a speed-up.

    python tools/interval_picture.py                       # from benchmarks/results/intervals.json
    python tools/interval_picture.py RUN/ab.json           # first takes the windows out of a comparison

The steps are computed by `specops.stats`, as `specops ab` does: pairs of windows, the jackknife's interval,
noise that lasts, and the error budget of looks and classes.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from specops import stats
from specops.stats import Interval

ROOT = Path(__file__).parents[1]
WINDOWS = ROOT / "benchmarks" / "results" / "intervals.json"
PICTURE = ROOT / "docs" / "intervals.svg"
CLASS = "edit"
"""The class that is drawn, at each load."""

WIDTH, ROW, LEFT, RIGHT = 760, 34, 250, 740
TICKS = (0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)
STYLE = """
  .paper { fill: #ffffff } text { fill: #1f2328 } .faint { fill: #57606a } .grid { stroke: #d8dee4 }
  .one { stroke: #57606a; stroke-dasharray: 4 3 } .dot { fill: #0969da; fill-opacity: .45 }
  .bar { stroke: #0969da; stroke-width: 4 } .point { fill: #0969da }
  .last { stroke: #8250df } circle.last { fill: #8250df; stroke: none }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #161b22 } text { fill: #e6edf3 } .faint { fill: #9da7b3 } .grid { stroke: #30363d }
    .one { stroke: #9da7b3 } .dot { fill: #58a6ff; fill-opacity: .5 } .bar { stroke: #58a6ff }
    .point { fill: #58a6ff } .last { stroke: #bc8cff } circle.last { fill: #bc8cff }
  }
"""


def windows_of(path: Path) -> dict[str, Any]:
    """Read a comparison: the time that users waited in each pair of windows, in ms, summed by class and load.

    Only requests that both arms answered count, as in `specops ab`.
    """
    stored = json.loads(path.read_text(encoding="utf-8"))
    data = stored["data"]
    times: dict[tuple[str, int], dict[int, dict[tuple[str, str], dict[bool, float]]]] = {}
    for window in sorted(data["windows"], key=lambda window: window["began"]):
        if window["kind"] != "measured":
            continue
        for row in window["cell"]["rows"]:
            if row["part"] == "counted" and row["error"] is None:
                cell = times.setdefault((row["class"], window["level"]["concurrency"]), {})
                request = cell.setdefault(window["cycle"], {}).setdefault((row["prompt"], row["variant"]), {})
                request[window["arm"] == data["standard"]] = (
                    max(row["e2e_ms"], row["e2e_with_retries_ms"])
                    + max(0.0, row["sent_s"] - row["due_s"]) * 1000
                )
    cells = []
    for (name, streams), cycles in sorted(times.items()):
        pairs = [[both for both in requests.values() if len(both) == 2] for requests in cycles.values()]
        sums = [[sum(both[arm] for both in pair) for arm in (True, False)] for pair in pairs if pair]
        rounded = [[round(value, 1) for value in pair] for pair in sums]
        cells.append({"class": name, "streams": streams, "windows": rounded})
    return {
        "date": stored["created"][:10],
        "machine": f"{stored['environment']['processor']}, {stored['environment']['cores']} cores",
        "confidence": confidence_of(data),
        "cells": cells,
    }


def confidence_of(data: dict[str, Any]) -> float:
    """Read the confidence of one class's interval, such that all classes and looks hold together."""
    (challenger,) = data["challengers"].values()
    return float(challenger["classes"][CLASS]["decision"]["speedup"]["level"])


def steps(windows: np.ndarray, confidence: float) -> list[tuple[str, Interval]]:
    """Return the intervals of a cell `[windows, 2]`, from the plainest to the one that decides."""
    standard, challenger = windows.T
    instants = {number: float(number) for number in range(len(windows))}
    intervals = [
        ("windows are independent, 95%", stats.paired_ratio(standard, challenger)),
        ("noise may last, 95%", stats.paired_ratio(standard, challenger, instants=instants)),
        (
            f"all classes and looks, {confidence:.1%}",
            stats.paired_ratio(standard, challenger, instants=instants, level=confidence),
        ),
    ]
    return [(name, interval) for name, interval in intervals if interval is not None]


def place(ratio: float) -> float:
    """Return x in the picture of a ratio, on a logarithmic axis."""
    low, high = math.log(TICKS[0]), math.log(TICKS[-1])
    return LEFT + (math.log(ratio) - low) / (high - low) * (RIGHT - LEFT)


def picture(measured: dict[str, Any]) -> str:
    """Draw two cells: the windows of each, and its intervals."""
    shown = [cell for cell in measured["cells"] if cell["class"] == CLASS]
    height = 60 + len(shown) * (5 * ROW + 14) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="sans-serif" font-size="13">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
    ]
    for tick in TICKS:
        x = place(tick)
        lines.append(f'<path class="{"one" if tick == 1 else "grid"}" d="M{x:.1f} 20V{height - 40}"/>')
        lines.append(
            f'<text class="faint" x="{x:.1f}" y="{height - 20}" text-anchor="middle">{tick:g}×</text>'
        )
    y = 40
    for cell in shown:
        windows = np.array(cell["windows"])
        streams = f"{cell['streams']} stream{'s' if cell['streams'] > 1 else ''}"
        lines.append(f'<text x="16" y="{y + 5}" font-weight="bold">{cell["class"]}, {streams}</text>')
        y += ROW
        lines.append(f'<text x="16" y="{y + 5}">{len(windows)} pairs of windows</text>')
        lines += [
            f'<circle class="dot" cx="{place(before / after):.1f}" cy="{y}"'
            f' r="{3 + 60 * before / windows[:, 0].sum() / 2:.1f}"/>'
            for before, after in windows
        ]
        intervals = steps(windows, measured["confidence"])
        for number, (name, interval) in enumerate(intervals):
            y += ROW
            last = " last" if number == len(intervals) - 1 else ""
            low, middle, high = (place(value) for value in (interval.low, interval.estimate, interval.high))
            lines += [
                f'<text x="16" y="{y}">{name}</text>',
                f'<text class="faint" x="16" y="{y + 14}" font-size="11">{interval.estimate:.3f}×'
                f" [{interval.low:.3f}, {interval.high:.3f}]</text>",
                f'<path class="bar{last}" d="M{low:.1f} {y}H{high:.1f}"/>',
                f'<circle class="point{last}" cx="{middle:.1f}" cy="{y}" r="4.5"/>',
            ]
        y += ROW + 14
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    if sys.argv[1:]:
        WINDOWS.write_text(json.dumps(windows_of(Path(sys.argv[1])), indent=1) + "\n", encoding="utf-8")
    PICTURE.write_text(picture(json.loads(WINDOWS.read_text(encoding="utf-8"))), encoding="utf-8")
