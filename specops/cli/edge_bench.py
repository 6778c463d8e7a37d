"""`specops edge bench`: whether to draft at the edge, measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, extra, numbers, shared_options
from specops.cli.output import Table, decimals

if TYPE_CHECKING:
    from specops.phases.edge_bench.judging import BenchFigures, BenchRatio, EdgeComparison, Quality


@shared_options(out=AnswerOption)
def bench(
    call: Call,
    rollout: Annotated[
        Path | None, typer.Argument(help="The rollout file. [default: the shipped playbooks/edge.yaml]")
    ] = None,
    rtt: Annotated[
        float | None,
        typer.Option("--rtt", min=0.0, max=60_000.0, help="Round-trip time in ms. [default: the file's]"),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(
            "--clients",
            help="Numbers of concurrent clients, comma-separated, such as 1,4,8. [default: the file's]",
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            "--heads",
            help="Numbers of guessed outcomes, such as 0,1,8; one edge arm each. [default: the file's]",
        ),
    ] = None,
    ahead: Annotated[
        str | None,
        typer.Option(
            "--ahead",
            help="Numbers of next trees to send before the verdict, such as 0,16; one edge arm each, at the "
            "largest --heads. [default: the file's]",
        ),
    ] = None,
    depth: Annotated[
        str | None,
        typer.Option(
            "--depth",
            help="Depth: adaptive, included:D, excluded:D; one edge arm each. [default: the file's]",
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--count", min=1, help="Number of prompts at each load, spread over the set; few are repeated."
        ),
    ] = 64,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", min=2, help="Tokens of an answer. [default: the file's, or 64]"),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0.0, help="Sampling temperature. [default: the file's]"),
    ] = None,
) -> Answer:
    """Compare drafting on the server, at the edge, and none.

    One pair and the same prompts, over a link with delay.

    Ctrl-C or SIGTERM ends it. Finished measurements are printed, and stored in --out where it is given.
    """
    from pydantic import ValidationError

    from specops.assets import asset
    from specops.config import load
    from specops.errors import SpecopsError, Stopped
    from specops.results import Result

    with extra("edge", "bench edge drafting"):
        from specops.phases.edge_bench.judging import read
        from specops.phases.edge_bench.measure import measure
        from specops.phases.edge_bench.settings import settings_of
    try:
        settings = settings_of(
            load(rollout or asset("playbooks", "edge.yaml")),
            rtt_ms=rtt,
            clients=None if clients is None else numbers("--clients", clients, int, least=1),
            heads=None if heads is None else numbers("--heads", heads, int, least=0),
            ahead=None if ahead is None else numbers("--ahead", ahead, int, least=0),
            depth=None if depth is None else _depths(depth),
            count=count,
            tokens=tokens,
            temperature=temperature,
        )
    except ValidationError as error:
        raise call.wrong_option(error) from error

    def page(result: Result) -> Iterator[str | Table]:
        comparison = read(result, "the result")
        for table in tables(comparison, settings.currency):
            yield from (table, "")
        yield from (*lines(comparison), f"{result.verdict}: {result.reason}")

    partial: list[Result] = []
    try:
        with call.progress() as shown:
            result = measure(settings, shown, partial.append)
    except (KeyboardInterrupt, SpecopsError) as ended:
        for measured in partial:
            call.give(Answer(measured, page(measured)))
        if isinstance(ended, KeyboardInterrupt) and partial:
            raise Stopped(call.out, printed=True) from None
        raise
    return Answer(result, page(result))


def _depths(text: str) -> list[str]:
    """Return the depths. Raises UsageError for an invalid depth."""
    from specops.edge.settings import parse_depth

    return [str(parse_depth(part)) for part in text.split(",")]


DEEPEST = 8
"""Positions whose acceptance is shown; the result has all."""


def tables(comparison: EdgeComparison, currency: str) -> list[Table]:
    from specops.experiment.sentences import table
    from specops.phases.edge_bench.sentences import decisive

    pages: list[Table] = []
    ahead = any(arm.ahead > 0 for arm in comparison.arms)
    for clients in comparison.clients:
        figures = [figure for figure in comparison.figures if figure.clients == clients]
        pages.append(Table(*_speeds(figures, currency), f"{_clients(clients)} at a time"))
        if any(figure.effort.nodes for figure in figures):
            pages.append(Table(*_rounds(figures, ahead=ahead), "a round, on average"))
        if any(figure.accepted for figure in figures):
            pages.append(Table(*_accepted(figures), "drafts of which so many tokens were accepted"))
        if any(ratio.clients == clients for ratio in comparison.ratios):
            pages.append(Table(*_ratios(comparison, clients), "times as good"))
        if (best := decisive(comparison, clients)) is not None:
            columns = ("item", "observed", "bound", "margin", "n", "verdict")
            rows = list(dict.fromkeys(table(best.findings)))
            pages.append(Table(columns, rows, f"{best.arm} at {_clients(clients)}: what must hold"))
    return pages


def _speeds(figures: Sequence[BenchFigures], currency: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    priced = any(figure.cost_per_million is not None for figure in figures)
    columns = [
        "arm", "TPOT ms", "p50", "p95", "TTFT ms", "tokens a verification", "tokens/s",
        "per busy s", "trees a step", "server idle",
    ]  # fmt: skip
    if priced:
        columns += [f"{currency} a million", "server filled"]
    rows = []
    for figure in figures:
        server = figure.server
        row = [
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
        ]
        if priced:
            row += [decimals(figure.cost_per_million, 2), decimals(figure.filled_cost_per_million, 2)]
        rows.append(row)
    return columns, rows


def _rounds(figures: Sequence[BenchFigures], *, ahead: bool) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    columns = [
        "arm", "nodes", "passes", "hits", *(["ahead"] if ahead else []), "wasted", "drafting ms",
        "network ms", "waiting ms", "step ms", "bytes up", "bytes down",
    ]  # fmt: skip
    rows = []
    for figure in figures:
        if (effort := figure.effort).nodes:
            rounds, verdicts = max(effort.rounds, 1), max(effort.verdicts, 1)
            rows.append(
                [
                    figure.arm,
                    f"{effort.nodes / rounds:.1f}",
                    f"{effort.passes / rounds:.1f}",
                    f"{100 * effort.hits / rounds:.0f}%",
                    *([f"{100 * effort.taken / rounds:.0f}%"] if ahead else []),
                    f"{100 * effort.wasted / max(effort.run, 1):.0f}%",
                    f"{1000 * effort.draft_s / rounds:.1f}",
                    f"{1000 * effort.network_s / rounds:.1f}",
                    f"{1000 * effort.waited_s / verdicts:.1f}",
                    f"{1000 * effort.step_s / verdicts:.1f}",
                    f"{effort.up_bytes / rounds:.0f}",
                    f"{effort.down_bytes / rounds:.0f}",
                ]
            )
    return columns, rows


def _accepted(figures: Sequence[BenchFigures]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    depth = min(max((len(figure.accepted) for figure in figures), default=0), DEEPEST)
    columns = ["arm", *(f"≥ {d}" for d in range(1, depth + 1))]
    rows = []
    for figure in figures:
        shares = [*figure.accepted[:depth], *[0.0] * (depth - len(figure.accepted))]
        rows.append([figure.arm, *(f"{100 * share:.0f}%" for share in shares)])
    return columns, rows


def _ratios(comparison: EdgeComparison, clients: int) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    from specops.render.figures import times

    pairs: dict[tuple[str, str], dict[Quality, BenchRatio]] = {}
    for ratio in comparison.ratios:
        if ratio.clients == clients:
            pairs.setdefault((ratio.arm, ratio.over), {})[ratio.of] = ratio
    qualities = list(dict.fromkeys(quality for of_pair in pairs.values() for quality in of_pair))
    rows = [
        [
            f"{arm} over {over}",
            *(times(r.interval, r.estimate) if (r := of_pair.get(of)) else "" for of in qualities),
        ]
        for (arm, over), of_pair in pairs.items()
    ]
    return ["", *qualities], rows


def lines(comparison: EdgeComparison) -> list[str]:
    """Return what is said below the tables."""
    from specops.phases.edge_bench.sentences import same_answers

    ahead = any(arm.ahead > 0 for arm in comparison.arms)
    page = [
        "server idle: share of session time without a round to verify; "
        "filled: cost if other clients use the idle time; "
        "hits: rounds whose next root was already drafted"
        + ("; ahead: rounds sent before the previous verdict" if ahead else ""),
    ]
    if (same := same_answers(comparison)) is not None:
        page.append(same)
    late = [figure for figure in comparison.figures if figure.late.late]
    if late:
        worst = max(late, key=lambda figure: figure.late.over_share)
        page.append(
            f"this machine was too slow for some of the declared times: of {worst.arm} at "
            f"{_clients(worst.clients)}, {100 * worst.late.late / worst.late.passes:.1f}% of the passes, "
            f"which took {100 * worst.late.over_share:.1f}% longer in all"
        )
    return page


def _clients(count: int) -> str:
    return f"{count} client{'' if count == 1 else 's'}"
