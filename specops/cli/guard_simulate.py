"""`specops guard simulate`: what the guard would have done, beside the playbook's; registered by guard.py."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, FolderOption, JsonFlag, QuietFlag, print_json
from specops.errors import Exit


def simulate(
    rollout: Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")],
    trace: Annotated[Path | None, typer.Option(help="A trace that --save wrote.")] = None,
    last: Annotated[
        float | None,
        typer.Option(min=0.01, max=366, help="Days until now, as addresses.prometheus has them."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Keep what is replayed as a trace, lines of JSON.")
    ] = None,
    incident: Annotated[
        list[str] | None,
        typer.Option(help="FROM/UNTIL in UTC, as 2026-11-20T10:00/2026-11-20T12:00: then it did not pay."),
    ] = None,
    slower: Annotated[
        float | None,
        typer.Option(
            min=1.01, max=100, help="Made up: in mid-week it takes so many times the standard's latency."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the week that is made up.")] = 0,
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Replay a trace through the guard's rules.

    It shows when this guard and the playbook's guard would have fallen back.

    What is replayed is a trace, the last days of Prometheus, or a week made up from baseline.json. Exit 1
    where the guard would have fallen back falsely, or not where it should have, as far as the truth is known.
    """
    from specops.config import load, run_folder
    from specops.errors import UsageError

    if trace is not None and last is not None:
        raise UsageError("--trace and --last are two things to replay", hint="give one of them")
    file = load(rollout)
    import time

    from specops.cli.guard_simulate_page import page
    from specops.cli.progress import progress
    from specops.guard.policy import Rules
    from specops.guard.simulation import simulate as simulation
    from specops.guard.simulation import synthetic, traces
    from specops.phases.guard import deployment_criteria
    from specops.prometheus.api import Api

    (criteria, without), rules = (
        deployment_criteria(file, run_folder(rollout, file.rollout, out)),
        Rules.of(file.guard),
    )
    if trace is not None:
        replayed = traces.load(trace)
    elif last is None:
        replayed = synthetic.week(criteria, seed, slower)
    elif file.addresses.prometheus is None:
        raise UsageError("the rollout file names no Prometheus", hint="add addresses.prometheus")
    elif file.guard.interval_s < 2 * file.monitor.scrape_interval_s:
        raise UsageError(  # else all of it would be no data
            f"an interval of {file.guard.interval_s} s has not two scrapes,"
            f" {file.monitor.scrape_interval_s} s apart",
            hint=f"replay it with guard.interval_s: {2 * file.monitor.scrape_interval_s} or more",
        )
    else:
        now = time.time()
        api = Api(file.addresses.prometheus, timeout_s=60.0)
        replayed = traces.record(api, criteria, now - last * 86400, now, file.guard.interval_s)
    replayed = traces.marked(replayed, incident or [])
    if save is not None:
        traces.save(replayed, save)
    with progress(quiet) as shown:
        for line in without:
            shown.note(line)
        found = simulation.simulate(replayed, criteria, rules, shown)
    if as_json:
        print_json(asdict(found) | {"verdict": found.verdict})
    else:
        typer.echo("\n".join(page(file.rollout, found)))
    raise typer.Exit(Exit.NO if found.verdict == "no" else Exit.YES)
