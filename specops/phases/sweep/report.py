"""The report in sweep.json, beside the measured cells: verdicts and figures; how it is read, and what is
drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from specops import stats
from specops.errors import FileError
from specops.experiment.findings import Decision, Finding, StoredInterval
from specops.load import record
from specops.load.record import CellRecord, Row
from specops.phases.ab.report import Speedups
from specops.phases.measurement import checked
from specops.phases.sweep.advice import Alternative, Crossover, FamilySteps, Range, Schedule, Step
from specops.phases.sweep.plan import ANY_LENGTH, Load, Memory, Stage, SweptCell
from specops.phases.sweep.recommend import MARGIN, Candidate, Contest, estimate, nothing_pays
from specops.phases.sweep.speedups import Pairs
from specops.render.sweep_plot import Panel, Picture, Point, Square
from specops.results import Result, Verdict, rounded
from specops.section import Frozen
from specops.serving import Setting


class Cell(Frozen):
    """A setting at one load, all rungs together, in the playbook's words. Null is not known."""

    setting: str
    num_speculative_tokens: int
    tree: str | None
    draft: str | None
    concurrency: int
    temperature: float
    length: str
    requests: int
    """All that were sent, warm-up too."""

    failed: int
    accept_ratio: float | None
    """Share of drafted tokens that were accepted."""

    accept_length: float | None
    """Tokens that the verification of a draft yields."""

    accept_missing: str | None
    ttft_p50_ms: float | None
    tpot_p50_ms: float | None
    e2e_p50_ms: float | None
    tokens_per_sec: float | None
    """Tokens a second of all streams."""

    e2e_speedup: float | None
    """Speed-up over the standard, paired by prompt; null of the standard itself."""

    e2e_interval: StoredInterval | None
    gpu_memory_gb: float | None
    """GPU memory at its most, in GiB, as nvidia-smi counts."""

    gpu_memory_share: float | None
    resident_gb: float | None
    """Memory of the server's processes on the host, at its most, in GiB."""


class SettingFigures(Frozen):
    """A setting at one concurrency, all temperatures and lengths together."""

    setting: str
    concurrency: int
    stage: Stage | None
    """What its figures are of: where the confirmation measured it, of that. None of the standard: of both."""

    requests: int
    """Answered, that the figures are of."""

    decision: Decision | None
    """None of the standard."""

    findings: list[Finding] = Field(default=[])
    """The table on which the decision rests."""

    speedups: Speedups | None
    ttft_p50_ms: float | None
    tpot_p50_ms: float | None
    e2e_p50_ms: float | None
    tokens_per_sec: float | None
    """Tokens a second of all streams."""

    user_tokens_per_sec: float | None
    """Tokens a second of one stream while it is being answered: 1000 / the median TPOT."""


class Confirmed(Frozen):
    """A setting that was measured again, at the load that decides."""

    setting: str
    prompts: int
    """Number of prompts that it and the standard both answered."""

    speedup: StoredInterval | None
    """Speed-up by the confirmation alone. Null with too few prompts, or none."""

    at_choice: StoredInterval | None
    """Speed-up by the evidence that it was chosen by, which is too high; null where there was but one
    setting."""


class Confirmation(Frozen):
    """The second stage: the chosen setting, then its runner-up."""

    concurrency: int
    only: list[str]
    """Traffic classes that it was measured for; empty for all."""

    fresh: bool
    """Whether its prompts had no part in the choice."""

    rungs: int
    """Measured; 0 where no time was left for it."""

    looks: int
    """Times that it was judged, this one included."""

    confidence_of_each: float
    settings: list[Confirmed]


class GroupFigures(Frozen):
    """A traffic class, a length of prompts or a temperature, at the load that decided."""

    verdict: Verdict
    """Verdict on the recommended setting; on the best for this group where none is recommended."""

    reason: str
    setting: str | None
    speedup: StoredInterval | None
    best: str | None
    """The best setting for this group alone; null where none is shown to pay."""

    k: int | None
    """Its K; 0 where nothing pays for this group, null where that is undecided."""


class Change(Frozen):
    """The change of the standard's E2E between its two turns, before the others of a rung and after them."""

    rung: int
    machine: str
    change: StoredInterval | None
    """How many times as long the second took."""


class Report(Frozen):
    standard: str
    confidence: float
    """Confidence of all intervals of a kind together."""

    confidence_of_each: float
    """Confidence of one interval of `together` and of `cells`."""

    looks: int
    """Rungs after which it was chosen what to measure next; 1 where everything was planned beforehand."""

    confirmation: Confirmation | None
    """Null where nothing was worth confirming. Figures of the settings that it measured, everywhere in this
    report, are its figures."""

    decided_at: int | None
    """Streams: the lightest load at which something pays, else the lightest that was measured at all."""

    recommended: str | None
    nearest: str | None
    """The setting whose costs come first: the recommended, else the one with the highest speed-up."""

    only_for: list[str]
    """Traffic classes that it is recommended for, where all together do not show that it pays; else empty."""

    cells: list[Cell]
    overall: list[SettingFigures]
    runners_up: list[Alternative]
    by_class: dict[str, GroupFigures]
    by_length: dict[str, GroupFigures]
    by_temperature: dict[str, GroupFigures]
    steps: list[Step]
    lines: list[FamilySteps]
    crossover: Crossover | None
    schedule: Schedule | None
    schedule_missing: str | None
    standards: list[Change]
    starts: int
    """Number of starts of servers that were measured at the load that decides."""

    start_sd: float | None
    """One start of a server differs from another by so much of its latency (standard deviation); null where
    there were neither two turns of a standard nor two rungs."""


class Cost(Frozen):
    draft_ms: float | None
    target_ms: float | None


class Streams(Frozen):
    on_max: int | None
    off_min: int | None
    per: Literal["replica"] = "replica"


class Recommendation(Frozen):
    """The recommendation of a sweep, as other phases and programs read it."""

    verdict: Verdict
    setting: str | None
    method: str | None
    """Method as the engine calls it; null where specops does not know the server's method."""

    k: int | None
    """0: do not speculate. Null: undecided."""

    tree: str | None
    draft: str | None
    only_for: list[str]
    """Traffic classes, where it is not recommended for all."""

    schedule: list[Range] | None
    break_even_acceptance: float | None
    """Share of accepted over drafted tokens, at `decided_at`; below it a token takes longer than without."""

    cost: Cost
    crossover: Streams
    by_class: dict[str, GroupFigures]


def read(result: Result, name: str) -> Report:
    """The report in a finished sweep that is called `name` in the message of the FileError."""
    if "overall" in result.data and "confirmation" not in result.data:
        raise FileError(
            f"{name} was written by an earlier version of specops, whose sweeps confirmed nothing",
            hint="specops sweep ROLLOUT --fresh",
        )
    fields = {key: value for key, value in result.data.items() if key in Report.model_fields}
    return checked(Report, fields, f"{name} is damaged: data")


def recommendation(result: Result, name: str) -> Recommendation:
    """Return what a sweep recommends; FileError where `result`, called `name`, recommends nothing
    readable."""
    return checked(Recommendation, result.recommendation or {}, f"{name} is damaged: recommendation")


def cell_of(
    setting: Setting, load: Load, cells: Sequence[SweptCell], pairs: Pairs, confidence: float
) -> Cell:
    """A setting at one load, over all rungs and both turns of the standard. `pairs` are the setting's with
    the standard, at this load."""
    records = [cell.cell for cell in cells]
    rows = [row for record in records for row in record.sent]
    good = [row for record in records for row in record.rows if row.error is None]
    counts, missing = record.acceptance(records)
    interval = pairs.ratio("e2e", confidence) if setting.k else None
    memories = [cell.memory for cell in cells]
    used = _most(memories, lambda memory: memory.gpu_gib)
    total = _most(memories, lambda memory: memory.gpu_total_gib)
    return Cell(
        setting=setting.name,
        num_speculative_tokens=setting.k,
        tree=setting.tree,
        draft=setting.draft,
        concurrency=load.concurrency,
        temperature=load.temperature,
        length=load.length,
        requests=len(rows),
        failed=sum(row.error is not None for row in rows),
        accept_ratio=rounded(counts.rate) if counts else None,
        accept_length=rounded(counts.length) if counts else None,
        accept_missing=missing,
        ttft_p50_ms=_median(good, "ttft_ms"),
        tpot_p50_ms=_median(good, "tpot_ms"),
        e2e_p50_ms=_median(good, "e2e_ms"),
        tokens_per_sec=_tokens_per_sec(records),
        e2e_speedup=rounded(interval.estimate) if interval else None,
        e2e_interval=interval,
        gpu_memory_gb=used,
        gpu_memory_share=rounded(used / total) if used is not None and total else None,
        resident_gb=_most(memories, lambda memory: memory.resident_gib),
    )


def of_setting(
    setting: Setting,
    streams: int,
    stage: Stage | None,
    cells: Sequence[CellRecord],
    candidate: Candidate | None,
    speedups: Speedups | None,
) -> SettingFigures:
    """A setting over all loads of one concurrency together."""
    good = [row for cell in cells for row in cell.rows if row.error is None]
    tpot = _median(good, "tpot_ms")
    return SettingFigures(
        setting=setting.name,
        concurrency=streams,
        stage=stage,
        requests=len(good),
        decision=candidate.decision if candidate else None,
        findings=list(candidate.findings) if candidate else [],
        speedups=speedups,
        ttft_p50_ms=_median(good, "ttft_ms"),
        tpot_p50_ms=tpot,
        e2e_p50_ms=_median(good, "e2e_ms"),
        tokens_per_sec=_tokens_per_sec(cells),
        user_tokens_per_sec=round(1000 / tpot, 4) if tpot else None,
    )


def _tokens_per_sec(cells: Sequence[CellRecord]) -> float | None:
    """Tokens a second of all streams; None where the tokens of no cell are known."""
    token_times = [
        (cell.tokens, cell.wall_s) for cell in cells if cell.tokens is not None and cell.wall_s > 0
    ]
    wall = sum(seconds for _, seconds in token_times)
    return round(sum(tokens for tokens, _ in token_times) / wall, 4) if wall else None


def _median(rows: Sequence[Row], name: str) -> float | None:
    return rounded(stats.percentile([v for row in rows if (v := getattr(row, name)) is not None], 0.5))


def _most(memories: Sequence[Memory], read: Callable[[Memory], float | None]) -> float | None:
    values = [value for memory in memories if (value := read(memory)) is not None]
    return rounded(max(values)) if values else None


def of_group(contest: Contest, recommended: str | None) -> GroupFigures:
    """The verdict for one group of prompts, by the contest among them alone."""
    nothing = _nothing(contest)
    candidate = contest.candidate_of(recommended) if recommended else contest.best
    best = candidate if candidate and _as_good(candidate, contest.best) else contest.best
    decision = candidate.decision if candidate else nothing
    return GroupFigures(
        verdict=decision.verdict,
        reason=decision.reason,
        setting=candidate.setting.name if candidate else None,
        speedup=candidate.speedup if candidate else decision.speedup,
        best=best.setting.name if best else None,
        k=best.setting.k if best else 0 if nothing.verdict == "no" else None,
    )


def _as_good(candidate: Candidate, best: Candidate | None) -> bool:
    """Return whether the recommended setting is as good as the best for this group."""
    if best is None or candidate.decision.verdict != "yes":
        return False
    return estimate(candidate) * (1 + MARGIN) >= estimate(best)


def _nothing(contest: Contest) -> Decision:
    if contest.candidates:
        return nothing_pays([contest])
    return Decision(verdict="undecided", reason="not measured")


def picture(report: Report) -> Picture:
    """The plot of a sweep (specops.render.sweep_plot): every setting at every load, and the tokens a second
    of one user against those of all."""
    loads = list(dict.fromkeys((cell.temperature, cell.length) for cell in report.cells))
    return Picture(
        panels=tuple(
            Panel(
                _title(*load, alone=len(loads) == 1),
                tuple(
                    _square(cell, report)
                    for cell in report.cells
                    if (cell.temperature, cell.length) == load and cell.setting != report.standard
                ),
            )
            for load in loads
        ),
        points=tuple(
            Point(
                figures.setting,
                figures.concurrency,
                figures.user_tokens_per_sec,
                figures.tokens_per_sec,
                _decided(figures.setting, figures.concurrency, report),
            )
            for figures in report.overall
            if figures.user_tokens_per_sec is not None and figures.tokens_per_sec is not None
        ),
        standard=report.standard,
        confidence=f"Intervals have {100 * report.confidence_of_each:.4g}% confidence each, so that all of "
        f"them hold together with {100 * report.confidence:.4g}%. Bold: surely faster. Hatched: undecided."
        " Framed: recommended.",
    )


def _square(cell: Cell, report: Report) -> Square:
    interval = cell.e2e_interval
    return Square(
        row=cell.setting,
        streams=cell.concurrency,
        estimate=interval.estimate if interval else None,
        ends=(interval.low, interval.high) if interval else None,
        chosen=(cell.setting, cell.concurrency) == (report.recommended, report.decided_at),
    )


def _decided(setting: str, streams: int, report: Report) -> bool:
    """Return whether every speed-up of the setting at this concurrency is surely above or below 1; of the
    standard, which the others are compared with, too."""
    intervals = [
        cell.e2e_interval for cell in report.cells if (cell.setting, cell.concurrency) == (setting, streams)
    ]
    return setting == report.standard or all(
        interval is not None and not interval.low <= 1 <= interval.high for interval in intervals
    )


def _title(temperature: float, length: str, *, alone: bool) -> str:
    parts: Sequence[str] = [f"temperature {temperature:g}"] + ([] if length == ANY_LENGTH else [length])
    return "" if alone and temperature == 0 and length == ANY_LENGTH else ", ".join(parts)
