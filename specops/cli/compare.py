"""`specops compare`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.call import Answer, Call, shared_options

PageOption = Annotated[Path | None, typer.Option("--out", help="HTML file that the page is written to.")]


@shared_options(out=PageOption)
def compare(
    call: Call,
    run_a: Annotated[Path, typer.Argument(help="Run folder, or a result file of another benchmark.")],
    run_b: Annotated[Path, typer.Argument(help="Run folder or file that is compared with it.")],
) -> Answer:
    """Exit code 0: nothing is surely worse in RUN_B. 1: something is. 4: nothing can be compared.

    A change is sure if its interval excludes 1. Other prompts, loads or models are not compared.
    Two result files of other benchmarks are shown side by side, without a verdict.
    """
    if run_a.is_file() and run_b.is_file():
        from specops.phases import tool_results
        from specops.phases.tool_results import views

        benchmarks = [(path, tool_results.read_file(path)) for path in (run_a, run_b)]
        if wrong := next((path for path, figures in benchmarks if figures is None), None):
            raise tool_results.expected(wrong)
        pair = views.side_by_side(*(figures for _, figures in benchmarks if figures is not None))
        return Answer(pair, views.comparison_lines(pair))
    from specops.phases.run_comparison.comparison import compare_folders
    from specops.phases.run_comparison.document import document
    from specops.render import write_files
    from specops.render.report.formats import html

    result = compare_folders(run_a, run_b)
    page = document(result)
    if call.out is not None:
        write_files(call.out.parent, {call.out.name: html(page)})
        page = replace(page, summary=(*page.summary, f"open {call.out}"))
    return Answer(result, page)
