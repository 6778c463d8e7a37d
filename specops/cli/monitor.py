"""`specops monitor …`: what Prometheus, Alertmanager and Grafana load, and whether a Prometheus has it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, RolloutCall, shared_options
from specops.hints import with_options
from specops.phases.measurement import checked
from specops.phases.monitor.render import FOLDER, AlertThreshold, MonitorData
from specops.quantities import SECONDS
from specops.render.figures import NONE, aligned, sentence
from specops.results import Result

monitor = typer.Typer(no_args_is_help=True)


@monitor.command()
@shared_options()
def render(call: RolloutCall) -> Answer:
    """Write scrape settings, rules, alerts and a dashboard.

    Thresholds come from measurements where they exist.
    """
    from specops import results
    from specops.phases.monitor.render import render

    with call.progress() as progress:
        result = render(call.file, call.folder, progress, call.path)
    results.write(call.folder / "monitor.json", result)
    return Answer(result, rendered(result, call.path, call.file.addresses.prometheus))


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
    from specops.phases.monitor.document import document
    from specops.prometheus.api import Api

    api = Api(url, timeout_s=timeout_s)
    try:
        with call.progress() as progress:
            result = check(file, api, progress)
    finally:
        api.close()
    return Answer(result, document(result, Path("the check")))


def rendered(result: Result, rollout: Path, prometheus: str | None) -> list[str]:
    """The page's lines. Every figure on it is in monitor.json. `prometheus`: the address of the server that
    loads the files; None: the rollout file has none."""
    data = checked(MonitorData, result.data, "monitor.json is damaged: data")
    lines = [f"monitor · {Path(data.folder) / FOLDER}"]
    lines += aligned([["  scraped", job, "  ".join(where)] for job, where in data.targets.items()])
    lines += aligned([["  alert", name, *_limit(threshold)] for name, threshold in data.alerts.items()])
    lines += aligned([["  left out", name, why] for name, why in data.left_out.items()])
    lines += [f"  not read  {why}" for why in data.not_read.values()]
    lines.append(sentence(result.reason))
    files = Path(data.folder) / FOLDER
    if prometheus is not None:
        lines.append(f"change: let the Prometheus at {prometheus} load {files}")
    else:
        named = f"name its root as addresses.prometheus in {rollout}"
        lines.append(f"change: let a Prometheus load {files}, and {named}")
    lines.append(f"next: specops monitor check {shlex.quote(str(rollout))}")
    return lines


def _limit(threshold: AlertThreshold) -> tuple[str, str, str]:
    minutes = f"{threshold.for_s // 60} min" if threshold.for_s % 60 == 0 else f"{threshold.for_s} s"
    return (
        NONE if threshold.value is None else f"{threshold.value:g}",
        minutes if threshold.for_s else "at once",
        threshold.source,
    )
