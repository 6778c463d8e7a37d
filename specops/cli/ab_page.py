"""The page of a comparison: speed-ups and verdicts by class and load beside what the playbook expects, tails,
lengths of answers, caches, parity, acceptance, drift, the verdict in words, and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from specops.hints import with_options
from specops.load.record import SLOW
from specops.load.workload import repeated_sentence
from specops.phases.ab.drift import BaselineDrift, Drift
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
from specops.render.figures import (
    NONE,
    aligned,
    bar,
    between,
    change_ms,
    count,
    milliseconds,
    percent,
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
        lines += [f"  lengths   {line}" for line in lengths(challenger)]
        lines += [f"  decided   {line}" for line in per_token(challenger)]
        lines += [f"  cache     {line}" for line in caches(challenger)]
        lines.append(f"  parity    {parity(report, challenger)}")
        lines += [f"  accepted  {line}" for line in accepted(report, name)]
        if challenger.load:
            lines.append(f"  load      {challenger.load}")
    if report.standard_note:
        lines.append(f"  standard  {report.standard_note}")
    lines += ["", *(f"  {line}" for line in _drift(report.drift))]
    lines += [
        f"  differs   {found.of}: {found.what} is {found.other}, and {found.one} in {report.standard}"
        for found in report.differences
    ]
    if "against" in result.data:
        lines += [f"  {line}" for line in _against(BaselineDrift.model_validate(result.data["against"]))]
    return [*lines, sentence(result.reason), *_next(result, report)]


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
            if found.slow:
                line += f"; {found.slow} of {found.requests} requests took over {SLOW}× the median"
            if found.retried:
                line += f"; {found.retried} of {found.requests} were refused at first and sent again"
            if found.failed:
                kinds = ", ".join(f"{kind} {number}" for kind, number in found.failures.items())
                line += f"; {found.failed} of {found.requests} failed ({kinds})"
            yield line


def lengths(challenger: Challenger) -> Iterator[str]:
    """Yield where answers are not shown to be as long as the standard's: the loads, and what decided
    instead."""
    for level in challenger.levels:
        found = level.lengths
        if found is None or found.finding == "equal":
            continue
        decided = "" if level.decision.basis == "e2e" else f"; decided on {_BASES[level.decision.basis]}"
        yield f"{found} at {level.speedups.level}{decided}"


def per_token(challenger: Challenger) -> Iterator[str]:
    """Yield the levels at which answers are equally long, and the gain is not in the time per token alone."""
    for level in challenger.levels:
        equal = level.lengths is None or level.lengths.finding == "equal"
        if equal and level.decision.basis == "tpot":
            yield f"at {level.speedups.level} by {level.decision.reason}"


_BASES = {"tpot": "time per output token", "per_character": "time per character"}


def caches(challenger: Challenger) -> Iterator[str]:
    """The arms that answer repeats faster than first requests, and what of them counts."""
    for found in challenger.repeats:
        if found.cached and found.ratio is not None:
            yield (
                f"{found.arm} answers repeats {times(found.ratio)} as fast as first requests, from a cache "
                f"({found.figure.upper()}): only first requests count"
            )


def parity(report: Report, challenger: Challenger) -> str:
    if report.parity_missing:
        return f"not compared: {report.parity_missing}"
    # That nothing changes where prompts come again is what the control says of the standard already.
    shown = [found for found in challenger.parity if not found.repeated or found.equal < found.compared]
    message = "; ".join(map(_equal, shown)) or NONE
    if report.greedy_requests:
        message += f"; from {count(report.greedy_requests, 'separate request')} at temperature 0"
    return message


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


def _equal(found: ParityCounts) -> str:
    where = "among sampled requests" if found.mixed else f"at {found.level}"
    where = f"for repeated prompts {where}" if found.repeated else where
    where = f"with an equal beginning {where}" if found.opening else where
    near = f", {count(found.near_ties, 'near tie')}" if found.near_ties else ""
    recounted = sum(not witness.standard and not witness.other for witness in found.witnesses)
    near += f", {recounted} with equal text and another token count" if recounted else ""
    broke = f", {count(found.failures, 'failure')}" if found.failures else ""
    counts = EqualCounts(equal=found.equal, compared=found.compared)
    return f"{counts} {where} (control {_control(found)}{near}{broke})"


def _control(found: ParityCounts) -> str:
    if found.control is not None:
        return str(found.control)
    return "none" if found.mixed else "needs two repeats"


def _acceptance(found: ArmFigures) -> str:
    counts = found.acceptance
    if counts is None:
        return f"not known: {found.acceptance_missing}"
    rate = NONE if counts.rate is None else f"{counts.rate:.2f}"
    length = NONE if counts.length is None else f"{counts.length:.1f}"
    curve = "".join(bar(share) for share in counts.per_position)
    return f"{rate} of drafted tokens, {length} tokens a step" + (f"  {curve} by position" if curve else "")


def _drift(drifts: list[Drift]) -> Iterator[str]:
    for drift in drifts:
        if drift.flagged:
            yield f"drift     {drift.message}"
    compared = [drift for drift in drifts if drift.change is not None]
    steady = [
        f"{drift.arm} {percent(drift.change.estimate)} "
        f"[{percent(drift.change.low)}, {percent(drift.change.high)}]"
        for drift in compared
        if drift.change is not None and drift.kind == "slow-down" and not drift.flagged
    ]
    if steady:
        yield f"steady    latency from the beginning to the end: {', '.join(steady)}"
    yield f"checks    {sum(drift.flagged for drift in compared)} of {len(compared)} found drift"


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
        yield (
            f"change: add about {more} prompts to each undecided class"
            if more
            else "change: fix the fault that the sentence above names, if any; more prompts alone may not "
            "decide it"
        )
        yield f"next: {with_options({'--fresh': True})}"
    else:
        yield "change: serve without speculation, or compare another draft or tree as an arm"
        yield "next: specops ab --help  # lists the forms of --arm"
