"""The plot of a result: which picture a phase's result has, and the heading. `specops plot` and `--plot`
use it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from specops import results
from specops.errors import UsageError
from specops.phases import PHASES, phase_named, tool_results
from specops.phases.tool_results import views
from specops.render.plot import Heading, Line, LinesPanel, LinesPicture, check_suffix
from specops.render.report.document import STATES
from specops.results import Result

UNKNOWN = "model not recorded"


def plot(result: Result, source: Path, out: Path) -> None:
    """Draw `result`, read from `source`, into `out` (.svg or .png). Raises UsageError if there is nothing to
    draw, and for a result of a phase without a plot."""
    check_suffix(out)
    draw = plotter(result.phase)
    if draw is None:
        raise UsageError(
            f"no plot for {source}, a result of {result.phase}: expected one of {', '.join(_plotted())}",
            hint=_beside(source.parent),
        )
    if not draw(result, source, out):
        raise UsageError(f"nothing to draw in {source}: {result.reason}")


def plotter(name: str) -> Callable[[Result, Path, Path], bool] | None:
    """The function that draws results of the phase called `name`, read from the first path, into the second.
    It returns False if there is nothing to draw. None: they have no plot."""
    if name in PLOTS or name not in PHASES:
        return PLOTS.get(name)
    phase = phase_named(name)
    return phase.plot if phase.plots else None


def _plotted() -> list[str]:
    return [*(phase.name for phase in map(phase_named, PHASES) if phase.plots), *PLOTS]


def _beside(folder: Path) -> str | None:
    """The command that plots a result of this folder; None where it has none with a plot."""
    path = next((path for phase in _plotted() if (path := folder / f"{phase}.json").is_file()), None)
    return None if path is None else f"specops plot {shlex.quote(str(path))}"


def heading(result: Result, title: str, samples: str) -> Heading:
    """Title and verdict; the reason; model, date and sample size."""
    about = (_model(result), f"{result.created:%Y-%m-%d %H:%M} UTC", samples, f"specops {result.specops}")
    return Heading(f"{title}: {STATES[result.verdict][1]}", (result.reason, " · ".join(about)))


def _model(result: Result) -> str:
    """The first model that settings or environment name; a folder by its name."""
    for place in (result.settings, result.environment):
        if model := _named(place):
            return f"model {model}"
    return UNKNOWN


def _named(place: Any) -> str | None:
    if not isinstance(place, Mapping):
        return None
    for key in ("target", "model", "model_path"):
        name = place.get(key)
        if isinstance(name, str):
            return "/".join(Path(name).parts[-2:]) if name.startswith("/") else name
    return next((model for inner in place.values() if (model := _named(inner))), None)


def count_of(number: int, unit: str) -> str:
    return f"n = {number} {unit}"


def _edge_bench(result: Result, source: Path, out: Path) -> bool:
    from specops.phases.edge_bench.judging import read
    from specops.render.ab_plot import Mark, Panel, Picture, Row, draw

    ratios = [ratio for ratio in read(result, str(source)).ratios if ratio.interval is not None]
    if not ratios:
        return False

    def row(figure: str, arm: str, over: str) -> Row:
        matching = [ratio for ratio in ratios if (ratio.of, ratio.arm, ratio.over) == (figure, arm, over)]
        marks = [
            Mark(
                f"{ratio.clients} client{'s' * (ratio.clients > 1)}",
                interval.estimate,
                interval.low,
                interval.high,
            )
            for ratio in matching
            if (interval := ratio.interval)
        ]
        return Row(f"{arm}\nover {over}", (), tuple(marks))

    panels = tuple(
        Panel(
            figure,
            tuple(
                row(figure, arm, over)
                for arm, over in dict.fromkeys(
                    (ratio.arm, ratio.over) for ratio in ratios if ratio.of == figure
                )
            ),
            (),
            None,
        )
        for figure in dict.fromkeys(ratio.of for ratio in ratios)
    )
    drawn = Picture(
        panels=panels,
        expected=None,
        confidence="Each interval holds by itself. Above 1, the first arm is better.",
        axis="ratio of the first arm over the second (×, logarithmic)",
    )
    answers = sum(len(window["cell"]["rows"]) for window in result.data["windows"])
    draw(drawn, heading(result, "Edge bench", count_of(answers, "answers")), out)
    return True


def _edge_simulation(result: Result, source: Path, out: Path) -> bool:
    from specops.render.plot import draw

    by_clients = result.data.get("by_clients")
    if not by_clients:
        return False
    cells = result.data["cells"]
    rtts = tuple(dict.fromkeys(cell["rtt_ms"] for cell in cells))

    def line(label: str, clients: int, figure: str, scale: float = 1.0) -> Line:
        by_rtt = {c["rtt_ms"]: c["figures"][figure]["mean"] * scale for c in cells if c["clients"] == clients}
        return Line(label, tuple(by_rtt.get(rtt) for rtt in rtts))

    names = {load["clients"]: f"{load['clients']} client{'s' * (load['clients'] > 1)}" for load in by_clients}
    at_edge = [line(name, clients, "itl_ms") for clients, name in names.items()]
    on_server = [
        Line(
            f"{names[load['clients']]}, drafted on the server",
            (load["server_only"]["figures"]["itl_ms"]["mean"],) * len(rtts),
        )
        for load in by_clients
    ]
    idle = [line(name, clients, "idle", 100.0) for clients, name in names.items()]
    panels = (
        LinesPanel("inter-token latency", "ms", (*at_edge, *on_server)),
        LinesPanel("server idle", "%", tuple(idle), highest=100.0),
    )
    drawn = LinesPicture("round trip, ms", rtts, panels, "Simulated: nothing was served.")
    draw(drawn, heading(result, "Edge simulation", count_of(len(cells), "cells")), out)
    return True


def _report(result: Result, source: Path, out: Path) -> bool:
    from specops.phases.report.delivery import read
    from specops.render.plot import draw

    report = read(result)
    speedups = tuple(
        Line(label, tuple(report.speedup.by[latency].by_hour))
        for latency, label in (("e2e", "E2E"), ("tpot", "TPOT"))
        if latency in report.speedup.by
    )
    accepted = result.data["pools"].get("speculative", {}).get("acceptance") or {}
    panels = [LinesPanel("speed-up over the baseline, by hour", "×", speedups, level=1.0)]
    if accepted.get("by_hour"):
        by_hour = (Line("acceptance", tuple(accepted["by_hour"])),)
        panels.append(LinesPanel("accepted over drafted tokens, by hour", "share", by_hour, highest=1.0))
    values = [value for panel in panels for line in panel.lines for value in line.values]
    if all(value is None for value in values):
        return False
    begins = [datetime.fromisoformat(begin) for begin in result.data["window"]["begins"]]
    drawn = LinesPicture(
        f"hour, {report.window.zone}",
        tuple(range(len(begins))),
        tuple(panels),
        "Above 1, speculation is faster than the baseline. Hours without traffic, or at loads that"
        " the baseline did not measure, have no value.",
        ticks=tuple(f"{begin:%d %b\n%H:%M}" for begin in begins),
    )
    requests = round(sum(pool["requests"] or 0 for pool in result.data["pools"].values()))
    draw(drawn, heading(result, f"Report of {report.rollout}", count_of(requests, "requests")), out)
    return True


PLOTS: Mapping[str, Callable[[Result, Path, Path], bool]] = {
    "edge-bench": _edge_bench,
    "edge_simulate": _edge_simulation,
    "report": _report,
}
"""The functions that draw results of no phase of the playbook."""


def from_file(source: Path, out: Path | None) -> Path:
    """Draw the result in `source`; the path of the plot, by default beside it."""
    if source.is_dir():
        raise UsageError(f"{source} is a folder: expected a result", hint=_beside(source))
    target = out or source.with_suffix(".svg")
    if (tool_result := tool_results.read_file(source)) is not None:
        views.plot(tool_result, source, target)
    else:
        plot(results.read(source), source, target)
    return target
