"""`specops sweep`, and its page: settings by load, what a step costs, where a draft had better stop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.call import Answer, Call, OnRollout, shared_options
from specops.cli.options import names
from specops.errors import UsageError

if TYPE_CHECKING:
    from specops.config import Pool, Rollout
    from specops.phases.sweep.spec import Forecast, SweepSpec
    from specops.results import Result
import json
from collections.abc import Collection, Iterator, Mapping

from specops.load.workload import repeated_sentence
from specops.phases.sweep.advice import Line
from specops.phases.sweep.plan import Measurements, measurements_of
from specops.phases.sweep.report import (
    Cell,
    OfGroup,
    OfSetting,
    Recommendation,
    Report,
    read,
    recommendation,
)
from specops.render.figures import (
    NONE,
    aligned,
    bar,
    change_ms,
    count,
    milliseconds,
    percent,
    sentence,
    times,
)
from specops.results import Result
from specops.serving import ENGINES
from specops.stats import Interval

FILE = "sweep.json"
FORM = "write it as K=URL: --attach 0=http://HOST:8000/v1 --attach 3=http://HOST:8001/v1#MODEL"


SweepResult = Annotated[
    Path | None, typer.Option("--out", help="File of the result, or its folder; default: the run folder.")
]


@shared_options(out=SweepResult)
def sweep(
    call: OnRollout,
    k: Annotated[str, typer.Option("--k", help="Tokens drafted ahead, by commas; 0 is always tried.")] = "",
    trees: Annotated[str, typer.Option(help="Trees in their place, of the embedded engine.")] = "",
    concurrency: Annotated[str, typer.Option(help="Streams at a time, by commas.")] = "",
    temperature: Annotated[str, typer.Option(help="Sampling temperatures, by commas.")] = "",
    classes: Annotated[str, typer.Option(help="Traffic classes to ask, by commas.")] = "",
    repeats: Annotated[int | None, typer.Option(help="Requests for each prompt at each load.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Time budget in minutes. Without it, the full grid is measured.")
    ] = None,
    attach: Annotated[
        list[str] | None, typer.Option(help="K=URL[#MODEL], an endpoint that runs already; 0 is needed.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Address of Ray: ray://HOST:10001, HOST:6379, local; default: sweep.cluster."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be measured, and stop.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .svg or .png.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew what was measured before.")] = False,
) -> Answer:
    """An earlier result is resumed."""
    from specops.phases.sweep.spec import spec_of

    file = _overridden(
        call.file,
        {
            "k": _numbers("k", k, int),
            "trees": re.split(r",(?=[a-z])", trees) if trees else None,  # an expansion has commas of its own
            "concurrency": _numbers("concurrency", concurrency, int),
            "temperature": _numbers("temperature", temperature, float),
            "budget_min": budget,
        },
        {"classes": names(classes) or None, "repeats": repeats},
    )
    from specops.phases.plot import plot as draw
    from specops.render.plot import check_suffix

    if plot is not None:
        check_suffix(plot)
    path = _path(call.folder)
    spec = spec_of(file, call.path.parent, _endpoints(attach or [], file))
    if dry_run:
        from specops.phases.sweep.spec import forecast

        plan = forecast(spec, path)
        return Answer(plan, _plan(plan, path))
    result = _swept(call, spec, path, on or file.sweep.cluster, fresh=fresh)
    if plot is not None:
        draw(result, path, plot)
    return Answer(result, page(result, path))


def _path(out: Path) -> Path:
    return out if out.suffix == ".json" and not out.is_dir() else out / FILE


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[Any] | None:
    try:
        return [kind(part) for part in text.split(",")] if text else None
    except ValueError:
        wanted = "whole numbers" if kind is int else "numbers"
        raise UsageError(
            f"--{option} takes {wanted} by commas, not {text!r}", hint="specops sweep --help"
        ) from None


def _overridden(file: Rollout, of_sweep: dict[str, Any], of_measure: dict[str, Any]) -> Rollout:
    """The rollout with the options that were given; UsageError by the name of one that makes no sense."""
    from pydantic import ValidationError

    from specops.config import Measure, Sweep

    def given(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if value is not None}

    written = file.sweep.model_dump()
    if of_sweep["k"]:
        written["trees"] = None
    try:
        requested = Sweep.model_validate(written | given(of_sweep))
        measure = Measure.model_validate(file.measure.model_dump() | given(of_measure))
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).removesuffix("_min")
        raise UsageError(
            f"could not use the options: --{option}: {first['msg']}", hint="specops sweep --help"
        ) from None
    return file.model_copy(update={"sweep": requested, "measure": measure})


def _endpoints(attach: list[str], file: Rollout) -> dict[int, Pool]:
    """By K; those without a model's name are queried for it."""
    import asyncio

    from specops.load.client import Client
    from specops.load.settings import checked_base_url
    from specops.phases.inputs import settings_of
    from specops.serving import pool_at

    requested = settings_of(file, file.pools.standard)

    async def only_model(base_url: str) -> str:
        at = requested.at(base_url, "")
        async with Client(at.target(), at.decoding()) as client:
            return await client.only_model()

    found: dict[int, Pool] = {}
    for text in attach:
        number, _, place = text.partition("=")
        address, _, model = place.partition("#")
        if not number.isdecimal():
            raise UsageError(f"{text!r} does not begin with a K", hint=FORM)
        if int(number) in found:
            raise UsageError(f"K = {number} is attached twice", hint="give each K one endpoint")
        try:
            base_url = checked_base_url(address)
        except ValueError as error:
            raise UsageError(f"{address} is not a usable address: it {error}", hint=FORM) from None
        model = model or asyncio.run(only_model(base_url))
        pool = pool_at(base_url, model)
        same = next((k for k, one in found.items() if one == pool), None)
        if same is not None:
            raise UsageError(
                f"K = {same} and K = {number} are one server: {base_url} serving {model}",
                hint="attach a server of its own for each K",
            )
        found[int(number)] = pool
    return found


def _swept(call: Call, spec: SweepSpec, path: Path, on: str | None, *, fresh: bool) -> Result:
    from specops import results
    from specops.phases.measurement import partial_results
    from specops.phases.sweep.measure import machines
    from specops.phases.sweep.spec import samples_of
    from specops.phases.sweep.sweep import sweep

    earlier, _ = samples_of(path)
    previous = results.read(path) if path.exists() and not fresh else None
    if previous is not None:
        _refuse_unusable(previous, spec, path)
    with call.progress() as shown:

        def set_aside() -> None:
            if path.exists():
                shown.note(f"the earlier sweep is now {results.set_aside(path)}")

        with partial_results(path, shown, resumed=previous is not None, before_first=set_aside) as keep:
            with machines(spec, on, path.parent / "logs" / "sweep", shown) as executor:
                result = sweep(spec, executor, shown, previous=previous, earlier=earlier, on_partial=keep)
            keep(result)
    return result


def _refuse_unusable(previous: Result, spec: SweepSpec, path: Path) -> None:
    """An earlier result of other inputs cannot be resumed, and is not to be lost for a forgotten option."""
    from specops.phases.inputs import changed
    from specops.phases.sweep.plan import measurements_of

    unlike = changed(previous, spec.inputs())
    if unlike:
        raise UsageError(
            f"{path} holds another sweep: {unlike} changed",
            hint="give another --out, or measure anew with --fresh, which keeps the earlier one beside it",
        )
    measurements_of(previous, str(path))  # damage is reported before a server starts


def _plan(plan: Forecast, path: Path) -> list[str]:
    from specops.render.figures import aligned, count

    def seconds(value: float | None) -> str:
        return "" if value is None else f"about {value / 60:.1f} min"

    rows = [
        [
            f"  rung {rung.rung + 1}",
            count(rung.starts, "server start"),
            count(rung.cells, "cell"),
            count(rung.requests, "request"),
            seconds(rung.seconds),
        ]
        for rung in plan.rungs
    ]
    if plan.seconds is None:
        time = "how long it takes is not known: no earlier baseline.json or sweep.json is beside it"
    else:
        without = ", and the starts of its servers, which were not timed yet" if plan.without_starts else ""
        time = f"{seconds(plan.seconds)} by the earlier {plan.known_from}{without}"
    if plan.budget_min is not None:
        time += f"; then as the evidence says, {plan.budget_min:g} min in all"
    return [
        f"settings  {', '.join(plan.settings)}",
        f"loads     {'; '.join(plan.loads)}",
        f"prompts   {', '.join(f'{number} of {name}' for name, number in plan.prompts.items())}",
        *aligned(rows),
        f"time      {time}",
        f"result    {path}",
    ]


GATES = {"acceptance": 0.55, "E2E": 1.3, "GPU memory": 0.95}
"""The playbook's: more, more and less. Shown beside what is measured; no verdict depends on them."""


def page(result: Result, out: Path) -> list[str]:
    """The page's lines; every figure on it is in `out`, which holds the finished sweep `result`."""
    report, advice = read(result, str(out)), recommendation(result, str(out))
    stored = measurements_of(result, str(out))
    sections = [
        _table(report, {one.setting for one in stored.failed}),
        _groups(report),
        [f"  {line}" for line in [*_limits(report), *_answers(report)]],
        [f"  {line}" for line in _confirmed(report)],
        [f"  {line}" for line in _costs(report)],
        [f"  {line}" for line in _loads(report)],
        [f"  {line}" for line in _machine(report)],
        [f"  {line}" for line in _left_out(stored)],
    ]
    lines = [_headline(result, report, stored, out)]
    for section in sections:
        lines += ["", *section] if section else []
    return [*lines, "", sentence(result.reason), f"next: {_next(result, advice)}"]


def _headline(result: Result, report: Report, stored: Measurements, out: Path) -> str:
    prompts = result.data.get("prompts", {})
    loads = {(cell.concurrency, cell.temperature, cell.length) for cell in report.cells}
    rungs = {cell.rung for cell in stored.cells}
    settings = {cell.setting for cell in report.cells}
    return " · ".join(
        [
            "sweep",
            f"{count(len(settings), 'setting')} at {count(len(loads), 'load')}, {count(len(rungs), 'rung')}",
            count(prompts.get("count", 0), "prompt"),
            *filter(None, [repeated_sentence(prompts.get("repeated", 0), prompts.get("count", 0))]),
            f"{stored.spent_s / 60:.1f} min",
            str(out),
        ]
    )


def _table(report: Report, failed: Collection[str]) -> list[str]:
    """A row for each setting at each concurrency, all temperatures and lengths together."""
    rows = [
        [
            "  setting",
            "load",
            "n",
            "stage",
            "E2E",
            "TPOT",
            "TTFT",
            "tok/s",
            "a user",
            "accepted",
            "memory",
            "verdict",
        ],
    ]
    for found in report.together:
        cells = [
            cell
            for cell in report.cells
            if (cell.setting, cell.concurrency) == (found.setting, found.concurrency)
        ]
        speedups = found.speedups
        rows.append(
            [
                f"{'>' if _chosen(report, found) else ' '} {found.setting}",
                count(found.concurrency, "stream"),
                f"n={found.requests}",
                found.stage or "both",
                times(speedups.e2e) if speedups else milliseconds(found.e2e_p50_ms),
                times(speedups.tpot) if speedups else milliseconds(found.tpot_p50_ms),
                change_ms(speedups.ttft_change_ms) if speedups else milliseconds(found.ttft_p50_ms),
                _whole(found.tokens_per_sec),
                _whole(found.user_tokens_per_sec),
                _between([cell.accept_ratio for cell in cells]),
                _memory(cells),
                _WORDS[found.decision.verdict] if found.decision else "failed" * (found.setting in failed),
            ]
        )
    return aligned(rows)


_WORDS = {"yes": "pays", "no": "does not pay", "undecided": "undecided", "partial": "stopped"}


def _chosen(report: Report, found: OfSetting) -> bool:
    return (found.setting, found.concurrency) == (report.recommended, report.decided_at)


def _groups(report: Report) -> list[str]:
    rows = [
        [f"  {kind}", name, group.setting or NONE, _WORDS[group.verdict], group.reason, _alone(group)]
        for kind, groups in (
            ("class", report.by_class),
            ("length", report.by_length),
            ("temperature", report.by_temperature),
        )
        for name, group in groups.items()
    ]
    return aligned(rows)


def _alone(group: OfGroup) -> str:
    """What would be best for this group, where that is something else."""
    if group.best is None or group.best == group.setting:
        return ""
    return f"alone it would be served best by {group.best}"


def _limits(report: Report) -> Iterator[str]:
    """What was decided on besides the end-to-end speed, which is in the table."""
    for found in report.together:
        decision = found.decision
        if decision is None or (decision.verdict == "yes" and decision.basis == "e2e"):
            continue
        e2e = found.speedups.e2e if found.speedups else None
        figure = f"{e2e.estimate:.2f}×" if e2e is not None and decision.basis == "e2e" else None
        if figure is None or not decision.reason.startswith(figure):
            yield f"limit     {found.setting} at {count(found.concurrency, 'stream')}: {decision.reason}"


def _answers(report: Report) -> Iterator[str]:
    """The settings whose greedy answers are less often the standard's than the standard's own."""
    for found in report.answers:
        if found.equal * found.control_compared < found.control_equal * found.compared:
            yield f"answers   {found.setting} at {count(found.concurrency, 'stream')}: {found}"


def _confirmed(report: Report) -> Iterator[str]:
    """What was measured again, and by how much the figure that it was chosen by was higher."""
    found = report.confirmation
    if found is None:
        return
    only = f" for {', '.join(found.only)}" if found.only else ""
    for one in found.settings:
        again = _figure(one.speedup) if one.speedup else f"not measured again, n={one.prompts}"
        chosen = f"; {_figure(one.at_choice)} when it was chosen" if one.at_choice else ""
        yield f"confirmed {one.setting}{only} at {count(found.concurrency, 'stream')}: {again}{chosen}"
    if not found.fresh:
        yield "          with the prompts of the choice: there are too few for two parts"


def _figure(interval: Interval) -> str:
    return f"{times(interval)}, n={interval.n}"


def _costs(report: Report) -> Iterator[str]:
    for line in report.lines:
        of = " ".join(word for word in (line.draft, line.kind) if word)
        name = f"{of}: " if of else ""
        if line.target_ms is not None and line.draft_ms is not None:
            yield f"step      {name}{_step(line)}; n={line.requests}"
        if line.positions:
            curve = "".join(bar(at.accepted) for at in line.positions)
            yield f"accepted  {name}{curve} by position, of {line.curve_of}{_cut(line)}; n={line.requests}"
        if line.missing:
            yield f"accepted  {name}not known: {line.missing}"
    for step in report.steps:
        if step.setting == report.nearest:
            found = f"{step.acceptance:.2f}" if step.acceptance is not None else NONE
            if step.break_even_acceptance is not None:
                alpha = f" ({step.break_even_alpha:.2f} each)" if step.break_even_alpha is not None else ""
                yield (
                    f"even at   {step.break_even_acceptance:.2f} of drafted tokens accepted{alpha}, by "
                    f"decoding alone; {step.setting} has {found}, n={step.requests}"
                )
            else:
                yield f"even at   –: {step.missing} ({step.setting}, n={step.requests})"
    yield from _gates(report)


def _step(line: Line) -> str:
    missed = f"; the line misses by {line.residual:.0%}" if line.residual is not None else ""
    return (
        f"{milliseconds(line.target_ms)} + {milliseconds(line.draft_ms)} a drafted token, "
        f"by K = {', '.join(str(k) for k in line.measured)}{missed}"
    )


def _cut(line: Line) -> str:
    if line.cut is None:
        return ""
    if line.cut == len(line.positions):
        return "; every position earns its keep"
    return f"; the curve says to cut at K = {line.cut}" if line.cut else "; no position earns its keep"


def _gates(report: Report) -> Iterator[str]:
    """What the playbook asks of the recommended setting before it goes further."""
    ours = [c for c in report.cells if (c.setting, c.concurrency) == (report.recommended, report.decided_at)]
    if not ours:
        return
    row = next((found for found in report.together if _chosen(report, found)), None)
    e2e = row.speedups.e2e.estimate if row and row.speedups and row.speedups.e2e else None
    requested = [
        ("acceptance", "above", _mean([cell.accept_ratio for cell in ours]), "{:.2f}"),
        ("E2E", "above", e2e, "{:.2f}×"),
        ("GPU memory", "below", max((c.gpu_memory_share or 0 for c in ours), default=0) or None, "{:.0%}"),
    ]
    said = []
    for name, side, value, shape in requested:
        bound = shape.format(GATES[name])
        if value is None:
            said.append(f"{name} {side} {bound}: not known")
        else:
            met = value > GATES[name] if side == "above" else value < GATES[name]
            said.append(f"{name} {side} {bound}: {'yes' if met else 'no'}, {shape.format(value)}")
    yield f"playbook  {'; '.join(said)}" + (f"; n={row.requests}" if row else "")


def _loads(report: Report) -> Iterator[str]:
    if report.crossover:
        yield f"load      {report.crossover.message}"
    alike = [rival.setting for rival in report.rivals if not rival.apart]
    if alike:
        yield f"as fast   within the intervals: {', '.join(alike)}"
    if report.schedule:
        ranges, largest = json.dumps(report.schedule.ranges), report.schedule.largest
        yield f"schedule  K by requests in the batch: {ranges}; {report.schedule.message}"
        yield (
            f"          in vLLM: num_speculative_tokens_per_batch_size, and num_speculative_tokens: {largest}"
        )
    elif report.schedule_missing:
        yield f"schedule  none: {report.schedule_missing}"


def _machine(report: Report) -> Iterator[str]:
    """How much it drifted between the standards of a rung, and one start of a server from another."""
    changes = [
        f"{percent(found.change.estimate)} [{percent(found.change.low)}, {percent(found.change.high)}], "
        f"n={found.change.n}"
        for found in report.standards
        if found.change is not None
    ]
    if changes:
        yield f"drift     the standard's E2E over a rung: {'; '.join(changes)}; it is in the intervals"
    if report.start_sd is not None:
        yield (
            f"starts    one start of a server differs from another by {report.start_sd:.1%} of its latency; "
            f"n={count(report.starts, 'start')}"
        )
    if report.looks > 1:
        yield f"looks     {report.looks}: the intervals hold for each, so that they are wider than of one"


def _left_out(stored: Measurements) -> Iterator[str]:
    for failure in stored.failed:
        last = failure.log.strip().splitlines()[-1:]
        ended = f"; its log ends: {last[0]}" if last else ""
        yield f"failed    {failure.setting} in rung {failure.rung + 1}: {failure.why}{ended}"
    for one in stored.skipped:
        at = count(one.concurrency, "stream")
        after = f"after rung {one.after + 1}" if one.after >= 0 else "at all"
        yield f"skipped   {one.setting} at {at} {after}: {one.why}"


def _next(result: Result, advice: Recommendation) -> str:
    if advice.setting is not None:
        pools: Mapping[str, Any] = result.settings.get("settings", {})
        return _take(pools.get(advice.setting) or {})
    if result.verdict == "undecided":
        return (
            "the same command with more --repeats or a larger --budget; measurements are stored. "
            "New prompts add more evidence than repeats"
        )
    return "serve without speculation, or try another draft: sweep.drafts or sweep.trees in the rollout file"


def _take(pool: Mapping[str, Any]) -> str:
    """Into the rollout file, and then compare it paired and in turn."""
    speculation = pool.get("speculation") or {}
    engine = ENGINES.get(str(pool.get("engine")))
    key = engine.k_key if engine is not None else None
    if key:
        put = f"put {key}: {speculation.get(key)} into pools.speculative.speculation of the rollout file"
        return f"{put}, and compare it in turn with the standard: specops run ROLLOUT"
    if engine is not None and engine.serve is not None:
        return f"start the speculative pool with: {engine.serve(pool)}"
    return f"compare it in turn with the standard: specops ab --arm … --arm best={pool.get('base_url')}"


def _memory(cells: list[Cell]) -> str:
    gpu = [cell.gpu_memory_gb for cell in cells if cell.gpu_memory_gb is not None]
    resident = [cell.resident_gb for cell in cells if cell.resident_gb is not None]
    if gpu:
        return f"{max(gpu):.1f} GiB"
    return f"{max(resident):.1f} GiB host" if resident else NONE


def _between(shares: list[float | None]) -> str:
    known = [share for share in shares if share is not None]
    if not known:
        return NONE
    low, high = f"{min(known):.2f}", f"{max(known):.2f}"
    return low if low == high else f"{low}–{high}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _whole(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}"
