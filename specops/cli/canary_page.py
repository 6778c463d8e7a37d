"""The page of a canary: each check in a line, the request that shows what is wrong, and the next command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specops.cli.figures import aligned, count, sentence
from specops.phases.canary.finding import Conformance, Finding
from specops.phases.measurement import checked
from specops.results import Result

WORDS = {
    "pass": "pass",
    "fail": "FAIL",
    "unsupported": "unsupported",
    "differs": "differs",
    "undecided": "undecided",
}
WIDEST = 150


def page(result: Result, path: Path, rollout: Path | None) -> list[str]:
    """The page's lines; requests that show what differs or cannot be told are in `path`, the result."""
    data = checked(Conformance, result.data, f"{path} is damaged: data")
    asked = ", ".join(f"{number} to {pool}" for pool, number in data.requests.items())
    lines = [f"canary · {count(len(data.checks), 'check')} · requests: {asked} · {path}"]
    lines += aligned([[f"  {one.name}", WORDS[one.status], _short(one.told)] for one in data.checks])
    for one in data.checks:
        if one.status == "fail" and one.request:
            lines += ["", f"{one.name}, as the speculative pool was asked:", one.request]
    if any(one.status == "fail" for one in data.checks):
        lines.append("")
    for entry in data.unsupported:
        if entry.pool == "speculative":
            lines.append(f"  rule: requests with {entry.parameter} go to the standard pool")
    return [*lines, sentence(result.reason), f"next: {_next(data, result, rollout)}"]


def _short(told: str) -> str:
    return told if len(told) <= WIDEST else told[: WIDEST - 1] + "…"


def _next(data: Conformance, result: Result, rollout: Path | None) -> str:
    file = str(rollout) if rollout else "rollout.yaml"
    failed = {one.name for one in data.checks if one.status == "fail"}
    if failed == {"mixed"}:
        return (
            f"set route.max_temperature: 0 in {file}, which keeps sampled requests off;"
            f" then specops route render {file}"
        )
    if failed:
        return "; ".join(_advice(data.checks, file))
    if result.verdict == "undecided":
        undecided = ",".join(one.name for one in data.checks if one.status == "undecided")
        return f"specops canary {file} --only {undecided}, while no other traffic is there"
    return f"specops monitor render {file}"


def _advice(checks: list[Finding], file: str) -> Iterator[str]:
    yield "paste the request at both servers (BASE_URL=…), and report it to the engine's maintainers"
    if any(one.status == "fail" and one.parameter for one in checks):
        yield f"`specops route render {file}` keeps those parameters off the speculative pool meanwhile"
