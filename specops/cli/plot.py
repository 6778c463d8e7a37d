"""`specops plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, Call, shared_options


class PlotOutput(TypedDict):
    plot: str
    """Path of the SVG or PNG."""


@shared_options()
def plot(
    call: Call,
    result: Annotated[
        Path, typer.Argument(help="Result of baseline, ab, sweep, report, edge bench or another tool.")
    ],
    file: Annotated[
        Path | None, typer.Option("--out", help="SVG or PNG; by default beside the result.")
    ] = None,
) -> Answer:
    """The plot has the verdict, model, date, sample size and units. What is undecided is hatched."""
    from specops.phases.plot import from_file

    written = from_file(result, file)
    return Answer(PlotOutput(plot=str(written)), [f"written: {written}"])
