"""The figures of other tools' results: as a picture, and two of them side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from specops.errors import UsageError
from specops.phases.tool_results.figures import Latency, ToolResult, ToolRun
from specops.render.plot import Heading, Line, LinesPanel, LinesPicture, check_suffix, draw
from specops.section import Frozen

NO_VERDICT = "Figures of another tool; specops did not measure them and gives no verdict."
FIGURES: Sequence[tuple[str, str, str]] = (
    ("ttft_ms", "p50", "TTFT p50, ms"),
    ("ttft_ms", "p99", "TTFT p99, ms"),
    ("tpot_ms", "p50", "TPOT p50, ms"),
    ("tpot_ms", "p99", "TPOT p99, ms"),
    ("e2e_ms", "p50", "E2E p50, ms"),
    ("tokens_per_sec", "", "output tokens/s"),
    ("requests_per_sec", "", "requests/s"),
    ("acceptance_rate", "", "acceptance rate"),
    ("acceptance_length", "", "tokens a step"),
)


class FigurePair(Frozen):
    figure: str
    load: str
    a: float | None
    b: float | None

    @property
    def ratio(self) -> float | None:
        return self.b / self.a if self.a and self.b is not None else None


class ToolComparison(Frozen):
    """Two files of other tools side by side, without a verdict."""

    a: ToolResult
    b: ToolResult
    figures: Sequence[FigurePair]
    unmatched: Sequence[str]
    """Loads that only one of them has."""


def value_of(run: ToolRun, name: str, part: str) -> float | None:
    value: float | Latency | None = getattr(run, name)
    figure: float | None = getattr(value, part) if isinstance(value, Latency) else value
    return figure


def side_by_side(a: ToolResult, b: ToolResult) -> ToolComparison:
    """Pure. Runs are matched by their load; of one load measured several times, the last."""
    first, second = ({run.load: run for run in result.runs} for result in (a, b))
    pairs = [
        FigurePair(figure=title, load=load, a=value_of(run, name, part), b=value_of(second[load], name, part))
        for load, run in first.items()
        if load in second
        for name, part, title in FIGURES
    ]
    return ToolComparison(
        a=a,
        b=b,
        figures=[pair for pair in pairs if (pair.a, pair.b) != (None, None)],
        unmatched=sorted(first.keys() ^ second.keys()),
    )


def comparison_lines(comparison: ToolComparison) -> Iterator[str]:
    yield f"A: {comparison.a.tool}, {comparison.a.model or 'model not recorded'}"
    yield f"B: {comparison.b.tool}, {comparison.b.model or 'model not recorded'}"
    for pair in comparison.figures:
        ratio = "" if pair.ratio is None else f"  ({pair.ratio:.2f}×)"
        yield f"{pair.load}: {pair.figure}  {_format(pair.a)} → {_format(pair.b)}{ratio}"
    if comparison.unmatched:
        yield f"not compared, in one file only: {', '.join(comparison.unmatched)}"
    if comparison.a.tool != comparison.b.tool:
        yield "the tools define latencies differently: see docs/measure.md"
    yield NO_VERDICT


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def plot(result: ToolResult, source: Path, out: Path) -> None:
    """Draw its latencies and throughput by load into `out`. Raises UsageError where it has none."""
    check_suffix(out)

    def line(name: str, part: str) -> Line:
        return Line(part or name, tuple(value_of(run, name, part) for run in result.runs))

    panels = tuple(
        LinesPanel(title, unit, lines)
        for title, unit, lines in (
            ("TTFT", "ms", (line("ttft_ms", "p50"), line("ttft_ms", "p99"))),
            ("TPOT", "ms", (line("tpot_ms", "p50"), line("tpot_ms", "p99"))),
            ("output", "tokens/s", (line("tokens_per_sec", ""),)),
        )
        if any(value is not None for line in lines for value in line.values)
    )
    if not panels:
        raise UsageError(f"nothing to draw in {source}: it has no latencies and no throughput")
    requests = sum(run.requests or 0 for run in result.runs)
    picture = LinesPicture(
        "load", tuple(range(len(result.runs))), panels, NO_VERDICT, tuple(run.load for run in result.runs)
    )
    about = (result.model or "model not recorded", f"n = {requests} requests", result.tool)
    draw(picture, Heading(f"{result.tool}: figures by load", (" · ".join(about),)), out)
