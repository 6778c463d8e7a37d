"""The page of a search for capacity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specops.phases.capacity.answer import change
from specops.phases.capacity.records import CapacityAnswer, Estimate
from specops.render.figures import capital, count, decimals, sentence
from specops.render.report.document import Cell, Document, Section, Table
from specops.results import Result

GUIDE = "docs/capacity.md"
NONE = "–"


def document(result: Result, path: Path | None = None) -> Document:
    if result.verdict == "partial":
        return Document.of_result(result, (path,))
    answer = CapacityAnswer.model_validate(result.data)
    return Document.of_result(result, (answer.objective, path), sections(result), summary=_summary(answer))


def sections(result: Result) -> Iterator[Section]:
    """The sections of a finished search; none of one that was stopped."""
    if result.verdict == "partial":
        return
    answer = CapacityAnswer.model_validate(result.data)
    currency = f"{answer.currency} for a million tokens" if answer.currency else ""
    columns: tuple[str, ...] = (
        "pool",
        "requests/s",
        "inside",
        "requests",
        "failed",
        "tokens a request",
        currency,
    )
    rows: tuple[tuple[str, ...], ...] = tuple(
        (
            arm,
            _ends(figures["rate"], 2),
            decimals(figures["attained"], 3),
            f"{figures['requests']:,}",
            str(figures["failed"]),
            decimals(figures["tokens_a_request"], 1),
            _ends(figures["cost_per_million"], 3),
        )
        for arm, figures in answer.arms.items()
    )
    if not currency:
        columns, rows = columns[:-1], tuple(row[:-1] for row in rows)
    note = (
        f"The objective: {answer.objective}. Open loop; latencies begin when a request was due. `inside` is"
        " the share inside the objective in all blocks, a little below and above the rate."
    )
    yield Section(
        "Capacity at the objective",
        tuple(_costs(answer)),
        tables=(Table("", columns, rows, note=note),),
        sources=("capacity.json",),
        guide=GUIDE,
    )


def _summary(answer: CapacityAnswer) -> list[str | Cell]:
    lines: list[str | Cell] = []
    if answer.left_out:
        blocks = count(answer.left_out, "block")
        lines.append(f"Left out, too far from the rate at the objective or bound by this client: {blocks}.")
    saturated = sum(figures["saturated"] for figures in answer.arms.values())
    if saturated:
        lines.append(f"Ended early, since the server was over-saturated: {count(saturated, 'probe')}.")
    if answer.unsteady is not None:
        lines.append(Cell(capital(sentence(answer.unsteady)), "open"))
    return lines


def _costs(answer: CapacityAnswer) -> Iterator[str]:
    standard, speculative = (answer.arms[arm]["cost_per_million"] for arm in ("standard", "speculative"))
    if standard is None or speculative is None or answer.cost_ratio is None:
        return
    yield (
        f"A million output tokens at the objective cost {standard['estimate']:.3g} {answer.currency}, and"
        f" {speculative['estimate']:.3g} with speculation: {change(answer.cost_ratio)}."
    )


def _ends(estimate: Estimate | None, digits: int) -> str:
    if estimate is None:
        return NONE
    return f"{estimate['estimate']:.{digits}f} [{estimate['low']:.{digits}f}, {estimate['high']:.{digits}f}]"
