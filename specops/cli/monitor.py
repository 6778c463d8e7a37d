"""`specops monitor …`: what Prometheus, Alertmanager and Grafana load, and whether a Prometheus has it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, RolloutCall, shared_options
from specops.hints import with_options
from specops.quantities import SECONDS

monitor = typer.Typer(no_args_is_help=True)


@monitor.command()
@shared_options()
def render(call: RolloutCall) -> Answer:
    """Write scrape settings, rules, alerts and a dashboard.

    Thresholds come from measurements where they exist.
    """
    from specops import results
    from specops.phases.monitor.document import document
    from specops.phases.monitor.render import render

    with call.progress() as progress:
        result = render(call.file, call.folder, progress, call.path)
    path = call.folder / "monitor.json"
    results.write(path, result)
    return Answer(result, document(result, path, call.commands))


@monitor.command()
@shared_options(out=AnswerOption)
def check(
    call: Call,
    rollout: Annotated[
        Path | None,
        typer.Argument(
            help="Rollout file; without it, the default metric names of vLLM or SGLang are accepted."
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="Root URL of Prometheus; default: addresses.prometheus of the rollout file."),
    ] = None,
    timeout_s: Annotated[
        float, SECONDS, typer.Option(min=0.1, help="Timeout of one query, in seconds or as 30s.")
    ] = 5.0,
) -> Answer:
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
            hint=with_options({"--prometheus": "http://127.0.0.1:9090"}),
        )
    from specops.phases.monitor.check import check
    from specops.phases.monitor.document import monitor_check
    from specops.prometheus.api import Api

    api = Api(url, timeout_s=timeout_s)
    try:
        with call.progress() as progress:
            result = check(file, api, progress)
    finally:
        api.close()
    return Answer(result, monitor_check(result, Path("the check")))
