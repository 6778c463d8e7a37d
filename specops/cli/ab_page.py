"""The page of a comparison: speed-ups and verdicts by class and load beside what the playbook expects, tails,
lengths of answers, caches, parity, acceptance, drift, the verdict in words, and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from specops.cli.output import decimals
from specops.experiment.sentences import noted, table
from specops.hints import with_options
from specops.load.workload import repeated_sentence
from specops.phases.ab.earlier import BaselineDrift
from specops.phases.ab.report import (
    ArmFigures,
    Challenger,
    ClassLevel,
    DeployTarget,
    EqualCounts,
    ParityCounts,
    Report,
    read,
)
from specops.phases.ab.trust import Doubt, caution, doubts
from specops.render.figures import (
    NONE,
    aligned,
    bar,
    between,
    change_ms,
    count,
    milliseconds,
    sentence,
    times,
)
from specops.results import Result
from specops.serving import ENGINES


def page(result: Result, out: Path) -> list[str]:
    """The page's lines; every figure on it is in `out`, which holds the finished comparison `result`."""
    report = read(result, str(out))
    lines = [_headline(result, report, out)]
    prompts = result.data.get("prompts", {})
    if said := repeated_sentence(prompts.get("repeated", 0), prompts.get("count", 0)):
        lines.append(f"  prompts   {said}")
    lines += aligned([row for arm, levels in report.arms.items() for row in measured(arm, levels)])
    lines += [f"  tail      {line}" for line in tails(report)]
    for name, challenger in report.challengers.items():
        lines += ["", f"  {name} against {report.standard}", *_table(report, challenger)]
        lines += ["", *(f"  {line}" for line in items(challenger)), ""]
        lines.append(f"  parity    {parity(challenger)}")
        lines += [f"  accepted  {line}" for line in accepted(report, name)]
        if challenger.load:
            lines.append(f"  load      {challenger.load}")
        lines += trust(doubts(report, name))
        lines += [f"  note      {note}" for note in noted(challenger.findings)]
    if report.standard_note:
        lines.append(f"  standard  {report.standard_note}")
    lines += ["", f"  observed  {_duration(result)}"]
    if report.same_prompts:
        lines.append("  prompts   sent as they are: a cache may have answered")
    lines += [
        f"  differs   {found.of}: {found.what} is {found.other}, and {found.one} in {report.standard}"
        for found in report.differences
    ]
    if "against" in result.data:
        lines += [f"  {line}" for line in _against(BaselineDrift.model_validate(result.data["against"]))]
    limits = [said for name in report.challengers if (said := caution(doubts(report, name)))]
    return [*lines, *dict.fromkeys(limits), sentence(result.reason), *_next(result, report)]


def trust(found: Sequence[Doubt]) -> list[str]:
    """How far the measurement can be trusted: each kind of doubt that was observed, or is not known."""
    return [
        f"  limits    {doubt.name}: {line}"
        for doubt in found
        if doubt.observed or doubt.unknown
        for line in doubt.lines
    ]


def measured(arm: str, levels: list[ArmFigures]) -> Iterator[list[str]]:
    """A row for each load at which an arm was measured."""
    for found in levels:
        yield [
            "  measured",
            arm,
            str(found.level),
            f"TTFT {milliseconds(found.ttft_ms.p50)}",
            f"TPOT {milliseconds(found.tpot_ms.p50)}",
            f"p95 {milliseconds(found.tpot_ms.p95)}",
            f"E2E {milliseconds(found.e2e_ms.p50)}",
            f"{found.tokens_per_sec:.0f} tok/s" if found.tokens_per_sec else NONE,
            f"{found.failed} of {found.requests} failed" if found.failed else "",
        ]


def tails(report: Report) -> Iterator[str]:
    """The slowest requests of each arm at each load, and those that failed."""
    for arm, levels in report.arms.items():
        for found in levels:
            slowest = ", ".join(milliseconds(value) for value in found.slowest_ms) or NONE
            p99 = f"p99 {milliseconds(found.e2e_ms.p99)}, " if found.e2e_ms.p99 is not None else ""
            line = f"{arm} at {found.level}: {p99}slowest {slowest}"
            if found.late:
                line += f"; {found.late} of {found.requests} requests were late"
            if found.retried:
                line += f"; {found.retried} of {found.requests} were refused at first and sent again"
            if found.failed:
                kinds = ", ".join(f"{kind} {number}" for kind, number in found.failures.items())
                line += f"; {found.failed} of {found.requests} failed ({kinds})"
            yield line


def items(challenger: Challenger) -> list[str]:
    """The table on which the decision rests: item, observed, bound, margin, n, verdict."""
    lines = [finding for finding in challenger.findings if finding.decides]
    return aligned([("item", "observed", "bound", "margin", "n", "verdict"), *dict.fromkeys(table(lines))])


def _duration(result: Result) -> str:
    seconds = result.data.get("duration_s", 0.0)
    spoken = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
    return f"both arms for {spoken} together; what changes more slowly was not observed"


def parity(challenger: Challenger) -> str:
    return "; ".join(map(_equal, challenger.parity)) or NONE


def accepted(report: Report, arm: str) -> Iterator[str]:
    """A line for each load; loads that have the same to say share one."""
    lines = [(str(found.level), _acceptance(found)) for found in report.arms[arm]]
    for said, same in groupby(lines, key=lambda line: line[1]):
        levels = ", ".join(level for level, _ in same)
        yield f"{said}  at {levels} (expected {between(report.expected['acceptance'])})"


def following(pool: Mapping[str, Any] | None) -> str:
    """Return the line that deploys a pool; `pool` as the result stores it."""
    pool = pool or {}
    engine = ENGINES.get(str(pool.get("engine")))
    if engine is not None and engine.serve is not None:
        words = engine.serve(pool)
        return f"next: {words}" if words.startswith("specops ") else f"change: start the pool with: {words}"
    return f"change: send the classes of the decision above to {pool.get('base_url') or 'this arm'}"


def _headline(result: Result, report: Report, out: Path) -> str:
    prompts, looks = result.data.get("prompts", {}), result.data.get("looks", {})
    classes = {name for challenger in report.challengers.values() for name in challenger.classes}
    compared = f"{count(prompts.get('count', 0), 'prompt')} in {count(len(classes), 'class', 'classes')}"
    looked = f"look {looks.get('done')} of {looks.get('planned')}"
    design = str(result.settings.get("design", ""))
    arms = count(len(report.arms), "arm")
    return " · ".join(["ab", f"{arms}, {design}", compared, looked, str(out)])


def _table(report: Report, challenger: Challenger) -> list[str]:
    expected = {figure: f"{between(ends)}×" for figure, ends in report.expected.items()}
    rows = [
        ["  class", "load", "E2E", "TPOT", "throughput", "TTFT", "verdict"],
        ["  expected", "", expected["e2e"], expected["tpot"], expected["throughput"], "", ""],
    ]
    for name, of_class in challenger.classes.items():
        for found in of_class.levels:
            rows.append(
                [
                    f"  {name}",
                    str(found.level),
                    times(found.e2e),
                    times(found.tpot),
                    times(found.stream_throughput),
                    change_ms(found.ttft_change_ms),
                    _word(challenger, name, found),
                ]
            )
    for level in challenger.levels:
        together, served = level.speedups, level.throughput
        rows.append(
            [
                "  all",
                str(together.level),
                times(together.e2e),
                times(together.tpot),
                times(served.ratio, served.estimate) if served else NONE,
                change_ms(together.ttft_change_ms),
                {"yes": "pays", "no": "does not pay"}.get(level.decision.verdict, "undecided"),
            ]
        )
    return aligned(rows)


def _word(challenger: Challenger, traffic_class: str, found: ClassLevel) -> str:
    """Return what a row of the table says: a class that gains is deployed only where the challenger may
    be."""
    if DeployTarget(traffic_class=traffic_class, level=found.level) in challenger.deploy:
        return "deploy"
    return {"yes": "faster", "no": "do not deploy"}.get(found.decision.verdict, "undecided")


def _equal(counts: ParityCounts) -> str:
    where = "among sampled requests" if counts.mixed else f"at {counts.level}"
    near = f", {count(counts.near_ties, 'near tie')}" if counts.near_ties else ""
    equal = EqualCounts(equal=counts.equal, compared=counts.compared)
    return f"{equal} {where} (control {counts.control or 'none'}{near})"


def _acceptance(found: ArmFigures) -> str:
    counts = found.acceptance
    if counts is None:
        return f"not known: {found.acceptance_missing}"
    rate = decimals(counts.rate, 2)
    length = decimals(counts.length, 1)
    curve = "".join(bar(share) for share in counts.per_position)
    return f"{rate} of drafted tokens, {length} tokens a step" + (f"  {curve} by position" if curve else "")


def _against(found: BaselineDrift) -> Iterator[str]:
    yield f"against   a run of {found.recorded:%Y-%m-%d %H:%M} UTC, which was not interleaved with this one:"
    for change in found.changes:
        yield f"          {change.arm} at {change.level}: {times(change.e2e)} of its speed then"
    for unlike in found.differences:
        yield f"          {unlike.of}: {unlike.what} was {unlike.one}, and is {unlike.other}"


def _next(result: Result, report: Report) -> Iterator[str]:
    """Yield what to change, and the command that follows it."""
    if report.same_server is not None:
        base_url = result.settings.get("arms", {}).get(report.standard, {}).get("base_url", "URL")
        yield f"next: specops ab --arm standard={base_url} --arm speculative=http://HOST:8001/v1"
    elif report.best is not None:
        yield following(result.settings.get("arms", {}).get(report.best))
    elif result.verdict == "undecided":
        more = result.summary.get("more_prompts")
        if more:
            most = int(result.settings.get("requests", 0)) + more
            yield f"change: about {more} more requests to each arm would decide"
            yield f"next: {with_options({'--fresh': True, '--requests': str(most)})}"
        else:
            yield "change: fix what is not shown above; more requests alone would not decide it"
            yield f"next: {with_options({'--fresh': True})}"
    else:
        yield "change: serve without speculation, or compare another draft or tree as an arm"
        yield "next: specops ab --help  # lists the forms of --arm"
