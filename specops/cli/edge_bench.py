"""`specops edge bench`: whether to draft at the edge, measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, extra, numbers, shared_options
from specops.cli.output import Table

if TYPE_CHECKING:
    from specops.experiment.findings import StoredInterval
    from specops.phases.edge_bench.judging import Comparison, Figures, Quality


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
        int, typer.Option("--count", min=1, help="Number of prompts, spread over the set.")
    ] = 16,
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
        from specops.phases.edge_bench.measure import comparison_of, measure
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
        found = comparison_of(result)
        for table in tables(found, settings.currency):
            yield from (table, "")
        yield from (*lines(found), f"{result.verdict}: {result.reason}")

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


def tables(found: Comparison, currency: str) -> list[Table]:
    levels = sorted({figure.clients for figure in found.figures})
    pages: list[Table] = []
    for clients in levels:
        of_level = [figure for figure in found.figures if figure.clients == clients]
        pages.append(Table(*_speeds(of_level, currency), f"{_clients(clients)} at a time"))
        if any(figure.edge is not None for figure in of_level):
            pages.append(Table(*_rounds(of_level, ahead=_sends_ahead(found)), "a round, on average"))
        if any(figure.accepted for figure in of_level):
            pages.append(Table(*_accepted(of_level), "verifications that accepted so many tokens"))
        if any(ratio.clients == clients for ratio in found.ratios):
            pages.append(Table(*_ratios(found, clients), "times as good"))
    return pages


def _speeds(figures: Sequence[Figures], currency: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    priced = any(figure.cost_per_million is not None for figure in figures)
    columns = [
        "arm", "ms a token", "p50", "p95", "TTFT ms", "tokens a verification", "tokens/s",
        "per busy s", "trees a step", "server idle",
    ]  # fmt: skip
    if priced:
        columns += [f"{currency} a million", "server filled"]
    rows = []
    for figure in figures:
        row = [
            figure.arm,
            _ms(figure.itl_ms),
            _ms(figure.itl_p50_ms),
            _ms(figure.itl_p95_ms),
            _ms(figure.ttft_ms),
            _number(figure.tokens_a_verification),
            f"{figure.tokens_per_s:.0f}",
            _number(figure.tokens_per_busy_s, 0),
            _number(figure.trees_a_step),
            f"{100 * figure.idle:.0f}%",
        ]
        if priced:
            row += [_number(figure.cost_per_million), _number(figure.filled_cost_per_million)]
        rows.append(row)
    return columns, rows


def _sends_ahead(found: Comparison) -> bool:
    return any(arm.ahead > 0 for arm in found.arms)


def _rounds(figures: Sequence[Figures], *, ahead: bool) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    columns = [
        "arm", "nodes", "passes", "hits", *(["ahead"] if ahead else []), "wasted", "drafting ms",
        "network ms", "waiting ms", "step ms", "bytes up", "bytes down",
    ]  # fmt: skip
    rows = []
    for figure in figures:
        if (edge := figure.edge) is not None:
            rows.append(
                [
                    figure.arm,
                    f"{edge.nodes:.1f}",
                    f"{edge.passes:.1f}",
                    f"{100 * edge.hit_rate:.0f}%",
                    *([f"{100 * edge.taken:.0f}%"] if ahead else []),
                    f"{100 * edge.wasted:.0f}%",
                    _ms(edge.draft_ms),
                    _ms(edge.network_ms),
                    _ms(edge.waited_ms),
                    _ms(edge.step_ms),
                    f"{edge.up_bytes:.0f}",
                    f"{edge.down_bytes:.0f}",
                ]
            )
    return columns, rows


def _accepted(figures: Sequence[Figures]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    depth = min(max((len(figure.accepted) for figure in figures), default=0), DEEPEST)
    columns = ["arm", *(f"≥ {d}" for d in range(1, depth + 1))]
    rows = []
    for figure in figures:
        shares = [*figure.accepted[:depth], *[0.0] * (depth - len(figure.accepted))]
        rows.append([figure.arm, *(f"{100 * share:.0f}%" for share in shares)])
    return columns, rows


def _ratios(found: Comparison, clients: int) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = []
    over: dict[tuple[str, str], dict[Quality, tuple[float, StoredInterval | None]]] = {}
    for ratio in found.ratios:
        if ratio.clients == clients:
            over.setdefault((ratio.arm, ratio.over), {})[ratio.of] = ratio.estimate, ratio.interval
    shown: list[Quality] = [
        of
        for of in (
            "latency", "tokens a verification", "throughput", "filled throughput", "cost", "filled cost"
        )
        if any(of in of_pair for of_pair in over.values())
    ]  # fmt: skip
    for (arm, other), of_pair in over.items():
        rows.append([f"{arm} over {other}", *(_times(of_pair.get(of)) for of in shown)])
    return ["", *shown], rows


def lines(found: Comparison) -> list[str]:
    """Return what is said below the tables."""
    from specops.phases.edge_bench.settings import AUTOREGRESSIVE

    said = [
        "server idle: share of session time without a round to verify; "
        "filled: cost if other clients use the idle time; "
        "hits: rounds whose next root was already drafted"
        + ("; ahead: rounds sent before the previous verdict" if _sends_ahead(found) else ""),
    ]
    if found.parity:
        same = all(parity.same == parity.of for parity in found.parity)
        words = "are the same in all arms" if same else "differ between arms"
        count = sum(parity.of for parity in found.parity if parity.arm != AUTOREGRESSIVE)
        if count:
            said.append(f"greedy answers {words} ({count} compared with {AUTOREGRESSIVE})")
    said += [f"{who} failed: {why}" for who, why in found.failed.items()]
    late = [figure for figure in found.figures if figure.late_passes is not None and figure.late_passes > 0]
    if late:
        worst = max(late, key=lambda figure: figure.late_s or 0)
        said.append(
            f"this machine was too slow for some of the declared times: of {worst.arm} at "
            f"{_clients(worst.clients)}, {100 * (worst.late_passes or 0):.1f}% of the passes, which took "
            f"{100 * (worst.late_s or 0):.1f}% longer in all"
        )
    return said


def _clients(count: int) -> str:
    return f"{count} client{'' if count == 1 else 's'}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _times(ratio: tuple[float, StoredInterval | None] | None) -> str:
    if ratio is None:
        return ""
    estimate, between = ratio
    return f"{estimate:.2f}×" + (f" [{between.low:.2f}, {between.high:.2f}]" if between else "")
