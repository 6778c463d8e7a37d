"""The page of a canary: each check in a line, the request that shows what is wrong, and the next command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specops.phases.canary.finding import Conformance
from specops.phases.commands import Commands
from specops.phases.measurement import checked
from specops.render.figures import aligned, count, sentence
from specops.results import Result

WORDS = {
    "pass": "pass",
    "fail": "FAIL",
    "unsupported": "unsupported",
    "differs": "differs",
    "undecided": "undecided",
}
WIDEST = 150


def page(result: Result, path: Path, commands: Commands | None, again: str) -> list[str]:
    """The page's lines; requests that show what differs or cannot be told are in `path`, the result. `again`
    is the command that made it, `commands` those of its rollout; None for a canary of two addresses."""
    data = checked(Conformance, result.data, f"{path} is damaged: data")
    asked = ", ".join(f"{number} to {pool}" for pool, number in data.requests.items())
    lines = [f"canary · {count(len(data.checks), 'check')} · requests: {asked} · {path}"]
    lines += aligned([[f"  {one.name}", WORDS[one.status], _short(one.message)] for one in data.checks])
    for one in data.checks:
        if one.status == "fail" and one.request:
            lines += ["", f"{one.name}, as sent to the speculative pool:", one.request]
    if any(one.status == "fail" for one in data.checks):
        lines.append("")
    for entry in data.unsupported:
        if entry.pool == "speculative":
            lines.append(f"  rule: requests with {entry.parameter} go to the standard pool")
    return [*lines, sentence(result.reason), *_next(data, result, commands, again)]


def _short(told: str) -> str:
    return told if len(told) <= WIDEST else told[: WIDEST - 1] + "…"


def _next(data: Conformance, result: Result, commands: Commands | None, again: str) -> Iterator[str]:
    failed = {one.name for one in data.checks if one.status == "fail"}
    routed = any(one.status == "fail" and one.parameter for one in data.checks)
    if failed == {"mixed"} and commands is not None:
        yield f"change: keep sampled requests standard: route.max_temperature: 0 in {commands.file}"
        yield f"next: {commands.of('route render {rollout}')}"
    elif failed:
        yield "change: send the request above to both servers, and report it to the engine's maintainers"
        if routed and commands is not None:  # meanwhile such requests stay standard
            yield f"next: {commands.of('route render {rollout}')}"
        else:
            yield f"next: {again}"
    elif result.verdict == "undecided":
        yield "change: nothing else may send requests to the servers meanwhile"
        yield f"next: {again}"
    elif commands is not None:
        yield f"next: {commands.of('monitor render {rollout}')}"
    else:
        yield "next: specops init"
