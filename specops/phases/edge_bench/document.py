"""An edge bench as a document: what each arm measured at each number of clients, and on what the answer
rests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specops.phases.claims_table import claims_table
from specops.phases.edge_bench.judging import BenchFigures, BenchRatio, EdgeComparison, Quality, read
from specops.phases.edge_bench.sentences import decisive, same_answers
from specops.render.figures import count, decimals, times
from specops.render.report.document import Document, Section, Table
from specops.results import Result

DEEPEST = 8
"""Positions whose acceptance is shown; the result has all."""


def document(result: Result, currency: str) -> Document:
    comparison = read(result, "the result")
    return Document.of_result(result, (), sections(comparison, currency), (), tuple(notes(comparison)))


def sections(comparison: EdgeComparison, currency: str) -> Iterator[Section]:
    """Yield a section for each number of clients."""
    ahead = any(arm.ahead > 0 for arm in comparison.arms)
    for clients in comparison.clients:
        figures = [figure for figure in comparison.figures if figure.clients == clients]
        tables = [_speeds(figures, currency)]
        if any(figure.effort.nodes for figure in figures):
            tables.append(_rounds(figures, ahead=ahead))
        if any(figure.accepted for figure in figures):
            tables.append(_accepted(figures))
        if any(ratio.clients == clients for ratio in comparison.ratios):
            tables.append(_ratios(comparison, clients))
        if (best := decisive(comparison, clients)) is not None:
            tables.append(claims_table(f"{best.arm}: what must hold", best.findings))
        yield Section(f"{count(clients, 'client')} at a time", tables=tuple(tables))


def notes(comparison: EdgeComparison) -> Iterator[str]:
    """Yield what the columns mean, whether answers are the same, and whether this machine was fast enough."""
    ahead = any(arm.ahead > 0 for arm in comparison.arms)
    yield (
        "server idle: share of session time without a round to verify; "
        "filled: cost if other clients use the idle time; "
        "hits: rounds whose next root was already drafted"
        + ("; ahead: rounds sent before the previous verdict" if ahead else "")
    )
    if (same := same_answers(comparison)) is not None:
        yield same
    late = [figure for figure in comparison.figures if figure.late.late]
    if late:
        worst = max(late, key=lambda figure: figure.late.over_share)
        share = worst.late.late / worst.late.passes
        yield (
            f"this machine was too slow for some of the declared times: of {worst.arm} at "
            f"{count(worst.clients, 'client')}, {100 * share:.1f}% of the passes, "
            f"which took {100 * worst.late.over_share:.1f}% longer in all"
        )


def _speeds(figures: Sequence[BenchFigures], currency: str) -> Table:
    priced = any(figure.cost_per_million is not None for figure in figures)
    columns = (
        "arm", "TPOT ms", "p50", "p95", "TTFT ms", "tokens a verification", "tokens/s",
        "per busy s", "trees a step", "server idle",
        *((f"{currency} a million", "server filled") if priced else ()),
    )  # fmt: skip
    rows = []
    for figure in figures:
        server = figure.server
        costs = (figure.cost_per_million, figure.filled_cost_per_million) if priced else ()
        rows.append(
            (
                figure.arm,
                decimals(figure.tpot_ms.mean, 1),
                decimals(figure.tpot_ms.p50, 1),
                decimals(figure.tpot_ms.p95, 1),
                decimals(figure.ttft_ms.p50, 1),
                decimals(figure.tokens_a_verification, 2),
                f"{figure.tokens_per_s:.0f}",
                decimals(figure.tokens_per_busy_s, 0),
                decimals(server.rounds / server.steps if server.steps else None, 2),
                f"{100 * server.idle:.0f}%",
                *(decimals(cost, 2) for cost in costs),
            )
        )
    return Table("Speed", columns, tuple(rows))


def _rounds(figures: Sequence[BenchFigures], *, ahead: bool) -> Table:
    columns = (
        "arm", "nodes", "passes", "hits", *(("ahead",) if ahead else ()), "wasted", "drafting ms",
        "network ms", "waiting ms", "step ms", "bytes up", "bytes down",
    )  # fmt: skip
    rows = []
    for figure in figures:
        if (effort := figure.effort).nodes:
            rounds, verdicts = max(effort.rounds, 1), max(effort.verdicts, 1)
            rows.append(
                (
                    figure.arm,
                    f"{effort.nodes / rounds:.1f}",
                    f"{effort.passes / rounds:.1f}",
                    f"{100 * effort.hits / rounds:.0f}%",
                    *((f"{100 * effort.taken / rounds:.0f}%",) if ahead else ()),
                    f"{100 * effort.wasted / max(effort.run, 1):.0f}%",
                    f"{1000 * effort.draft_s / rounds:.1f}",
                    f"{1000 * effort.network_s / rounds:.1f}",
                    f"{1000 * effort.waited_s / verdicts:.1f}",
                    f"{1000 * effort.step_s / verdicts:.1f}",
                    f"{effort.up_bytes / rounds:.0f}",
                    f"{effort.down_bytes / rounds:.0f}",
                )
            )
    return Table("A round, on average", columns, tuple(rows))


def _accepted(figures: Sequence[BenchFigures]) -> Table:
    depth = min(max(len(figure.accepted) for figure in figures), DEEPEST)
    rows = []
    for figure in figures:
        shares = [*figure.accepted[:depth], *[0.0] * (depth - len(figure.accepted))]
        rows.append((figure.arm, *(f"{100 * share:.0f}%" for share in shares)))
    columns = ("arm", *(f"≥ {tokens}" for tokens in range(1, depth + 1)))
    return Table("Drafts of which so many tokens were accepted", columns, tuple(rows))


def _ratios(comparison: EdgeComparison, clients: int) -> Table:
    pairs: dict[tuple[str, str], dict[Quality, BenchRatio]] = {}
    for ratio in comparison.ratios:
        if ratio.clients == clients:
            pairs.setdefault((ratio.arm, ratio.over), {})[ratio.of] = ratio
    qualities = list(dict.fromkeys(quality for ratios in pairs.values() for quality in ratios))
    rows = tuple(
        (
            f"{arm} over {over}",
            *(
                times(cell.interval, cell.estimate) if (cell := ratios.get(quality)) else ""
                for quality in qualities
            ),
        )
        for (arm, over), ratios in pairs.items()
    )
    return Table("Times as good", ("arms", *qualities), rows)
