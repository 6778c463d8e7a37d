"""`specops guard simulate`: what the guard would have done, beside the playbook's; registered by guard.py."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, OnRollout, shared_options
from specops.errors import Exit
from specops.guard.simulation.simulate import Fallback, Simulated
from specops.render.figures import aligned, count, sentence


class Judged(TypedDict):
    """What --json prints beside the fields of `Simulated`."""

    verdict: Literal["yes", "no"]


@shared_options()
def simulate(
    call: OnRollout,
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
    seed: Annotated[int, typer.Option(min=0, help="Seed of the synthetic week.")] = 0,
) -> Answer:
    """Replay a trace through the guard's rules.

    It shows when this guard and the playbook's guard would have fallen back.

    What is replayed is a trace, the last days of Prometheus, or a week made up from baseline.json. Exit 1
    where the guard would have fallen back falsely, or not where it should have, as far as the truth is known.
    """
    from specops.errors import UsageError

    if trace is not None and last is not None:
        raise UsageError("--trace and --last are two things to replay", hint="give one of them")
    file = call.file
    import time

    from specops.guard.policy import Rules
    from specops.guard.simulation import simulate as simulation
    from specops.guard.simulation import synthetic, traces
    from specops.phases.guard import deployment_criteria
    from specops.prometheus.api import Api

    criteria, without = deployment_criteria(file, call.folder)
    rules = Rules.of(file.guard)
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
    with call.progress() as shown:
        for line in without:
            shown.note(line)
        found = simulation.simulate(replayed, criteria, rules, shown)
    code = Exit.NO if found.verdict == "no" else Exit.YES
    return Answer(asdict(found) | Judged(verdict=found.verdict), page(file.rollout, found), code)


RIGHTLY = {"yes": "rightly", "no": "falsely", "unknown": "whether rightly is not known"}
MOST = 20
"""Steps that are shown; --json has them all."""


def page(rollout: str, found: Simulated) -> list[str]:
    """The page's lines."""
    observed = ", ".join(
        f"{number} {verdict.replace('_', ' ')}" for verdict, number in found.verdicts.items()
    )
    rightly = {one.ts: RIGHTLY[one.rightly] for one in found.fallbacks}
    rows = []
    for step in found.steps[:MOST]:
        message = f" {rightly[step.ts]}" if step.event == "fell_back" else ""
        rows.append(["  guard", _at(step.ts), f"{step.event.replace('_', ' ')}{message}: {step.why}"])
    if len(found.steps) > MOST:
        rows.append(["  guard", "", f"and {len(found.steps) - MOST} steps more"])
    rows += [
        ["  missed", _at(ts), "from here on it did not pay, and the guard left it on"] for ts in found.missed
    ]
    if found.playbook is not None:
        message = f"fell back {RIGHTLY[found.playbook.rightly]}: {found.playbook.why}"
        rows.append(["  playbook", _at(found.playbook.ts), message])
        rows.append(["  playbook", "", f"{found.playbook_triggers} triggers in all"])
    span = f"{_at(found.began)} to {_at(found.ended)} UTC"
    return [
        f"simulated · {rollout} · {span} · {found.evaluations} evaluations: {observed}",
        *aligned(rows),
        sentence(_summary(found)),
    ]


def _summary(found: Simulated) -> str:
    ours = count(len(found.fallbacks), "fall-back")
    theirs = "falls back too" if found.playbook is not None else "does not fall back"
    if found.playbook is not None and not found.fallbacks:
        theirs = "falls back"
    missed = f", {count(len(found.missed), 'incident')} missed" if found.missed else ""
    return f"the guard: {ours}{_false(found.fallbacks)}{missed}; the playbook's {theirs}"


def _false(fallbacks: list[Fallback]) -> str:
    false = sum(one.rightly == "no" for one in fallbacks)
    return f", {false} of them false" if false else ""


def _at(ts: float) -> str:
    return f"{datetime.fromtimestamp(ts, UTC):%Y-%m-%d %H:%M}"
