"""The canary as a document. Requests that show what differs or is undecided are in canary.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from specops.hints import with_options
from specops.phases.canary.checks import CHECKS
from specops.phases.canary.pool_pair import Conformance, ConformanceFinding
from specops.phases.commands import Commands
from specops.phases.measurement import checked
from specops.render.figures import count
from specops.render.report.document import Cell, Document, Section, State, Step, Table
from specops.results import Result
from specops.serving import Pool, of_check

FILE = "canary.json"
CHECK_STATES: Mapping[str, State] = {
    "pass": "good",
    "fail": "bad",
    "differs": "bad",
    "undecided": "open",
    "unsupported": "none",
}
GROUPS = {
    "": ("fail", "differs", "undecided"),
    "unsupported by both pools": ("unsupported",),
    "passed": ("pass",),
}
"""What needs attention is shown; what no pool has, and what passed, is folded."""


def document(result: Result, path: Path, commands: Commands | None = None) -> Document:
    """The document of a canary, which `path` holds. `commands` are those of its rollout; None for a canary
    of two addresses."""
    data = checked(Conformance, result.data, f"{path} is damaged: data")
    requests = ", ".join(f"{number} to {pool}" for pool, number in data.requests.items())
    details = (count(len(data.checks), "check"), f"requests: {requests}", path)
    pool = commands.rollout.pools.speculative if commands is not None else None
    steps = _steps(data, result, commands)
    return Document.of_result(result, details, sections(data, pool), steps)


def sections(data: Conformance, pool: Pool | None = None) -> Iterator[Section]:
    """`pool`: the speculative one, whose known issues a failed check may be."""
    failed = [finding for finding in data.checks if finding.status == "fail"]
    text = [
        f"Rule: requests with {entry.parameter} go to the standard pool."
        for entry in data.unsupported
        if entry.pool == "speculative"
    ]
    if pool is not None:
        text += [issue for finding in failed for issue in _known_issues(pool, finding)]
    yield Section(
        "Conformance",
        tuple(text),
        (),
        tuple(_tables(data)),
        tuple(
            Step(f"compare both pools by this request of {finding.name}", "", f"{finding.request}\n")
            for finding in failed
            if finding.request
        ),
        sources=(FILE,),
        guide="docs/canary.md",
    )


def _tables(data: Conformance) -> Iterator[Table]:
    about = {check.name: check.about for check in CHECKS}
    for name, statuses in GROUPS.items():
        rows = tuple(
            (
                Cell(finding.name, about=about.get(finding.name, "")),
                Cell(_word(finding), CHECK_STATES[finding.status]),
                "" if finding.message == about.get(finding.name) else finding.message,
            )
            for status in statuses
            for finding in data.checks
            if finding.status == status
        )
        if rows:
            folded = f"{count(len(rows), 'check')} {name}" if name else ""
            yield Table("", ("check", "result", "details"), rows, prose=(2,), folded=folded)


def _word(finding: ConformanceFinding) -> str:
    return "FAIL" if finding.status == "fail" else finding.status


def _known_issues(pool: Pool, finding: ConformanceFinding) -> Iterator[str]:
    """Known issues of the pool's engine that a failure may be."""
    version = pool.pair.version if pool.pair else None
    for issue in of_check(pool.engine, version, finding.name):
        yield (
            f"{finding.name}: possibly {issue.id} ({issue.status}): {issue.symptom}. "
            f"Workaround: {issue.workaround}; {issue.source}"
        )


def _steps(data: Conformance, result: Result, commands: Commands | None) -> Iterator[Step]:
    failed = {finding.name for finding in data.checks if finding.status == "fail"}
    routed = any(finding.status == "fail" and finding.parameter for finding in data.checks)
    repeat = with_options({})
    if failed == {"mixed"} and commands is not None:
        action = f"keep sampled requests standard: route.max_temperature: 0 in {commands.file}"
        yield Step(action, "", commands.of("route render {rollout}"))
    elif failed:
        action = "send the request above to both servers, and report it to the engine's maintainers"
        # Meanwhile requests that a rule recognises stay standard.
        routing = routed and commands is not None
        yield Step(action, "", commands.of("route render {rollout}") if routing and commands else repeat)
    elif result.verdict == "undecided":
        yield Step("nothing else may send requests to the servers meanwhile", "", repeat)
    else:
        yield Step("", "", commands.of("monitor render {rollout}") if commands else "specops init")
