"""`specops monitor …`: what Prometheus, Alertmanager and Grafana load, and whether a Prometheus has it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, FolderOption, JsonFlag, OutOption, QuietFlag, print_json

monitor = typer.Typer(
    help="Render rules, alerts and a dashboard; check Prometheus.",
    no_args_is_help=True,
)


@monitor.command()
def render(
    rollout: Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")],
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write scrape settings, rules, alerts and a dashboard.

    Thresholds come from measurements where they exist.
    """
    from specops.config import load, run_folder

    file = load(rollout)  # before what follows is loaded: a wrong file is answered at once
    from specops import results
    from specops.cli.monitor_page import rendered
    from specops.cli.progress import progress
    from specops.phases.monitor.render import render

    folder = run_folder(rollout, file.rollout, out)
    with progress(quiet) as shown:
        result = render(file, folder, shown, rollout)
    results.write(folder / "monitor.json", result)
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join(rendered(result, rollout)))
    raise typer.Exit(result.exit_code)


@monitor.command()
def check(
    rollout: Annotated[
        Path | None, typer.Argument(help="The rollout file; left out: any vLLM's or SGLang's names.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="Its root; default: addresses.prometheus of the rollout file.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Longest time for one question.")] = 5.0,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Check that Prometheus has every series that is needed.

    Exit 1 if a series is missing.

    A token or headers for it come from SPECOPS_PROMETHEUS_TOKEN and SPECOPS_PROMETHEUS_HEADERS.
    """
    from specops.config import load
    from specops.errors import UsageError

    file = load(rollout) if rollout else None
    url = prometheus or (file.addresses.prometheus if file else None)
    if url is None:
        raise UsageError(
            "monitor check needs the address of a Prometheus",
            hint="--prometheus http://HOST:9090, or addresses.prometheus in the rollout file",
        )
    from specops import results
    from specops.cli.monitor_page import checked
    from specops.cli.progress import progress
    from specops.phases.monitor.check import check
    from specops.prometheus.api import Api

    api = Api(url, timeout_s=timeout_s)
    try:
        with progress(quiet) as shown:
            result = check(file, api, shown)
    finally:
        api.close()
    if out is not None:
        results.write(out, result)
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join(checked(result)))
    raise typer.Exit(result.exit_code)
