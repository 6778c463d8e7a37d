"""What `specops edge bench` prints: a few tables a number of clients, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence

from specops.phases.ab.speedups import Shown
from specops.phases.edge_bench.arms import AUTOREGRESSIVE
from specops.phases.edge_bench.figures import Figures
from specops.phases.edge_bench.judging import Comparison
from specops.phases.edge_bench.ratios import Quality

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, columns, rows."""

DEEPEST = 8
"""Positions whose acceptance is shown; the result has all."""


def tables(found: Comparison, currency: str) -> list[Table]:
    levels = sorted({figure.clients for figure in found.figures})
    pages: list[Table] = []
    for clients in levels:
        of_level = [figure for figure in found.figures if figure.clients == clients]
        pages.append((f"{_clients(clients)} at a time", *_speeds(of_level, currency)))
        if any(figure.edge is not None for figure in of_level):
            pages.append(("a round, on average", *_rounds(of_level, ahead=_sends_ahead(found))))
        if any(figure.accepted for figure in of_level):
            pages.append(("verifications that accepted so many tokens", *_accepted(of_level)))
        if any(ratio.clients == clients for ratio in found.ratios):
            pages.append(("times as good", *_ratios(found, clients)))
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
    over: dict[tuple[str, str], dict[Quality, tuple[float, Shown | None]]] = {}
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
    """What is said below the tables."""
    said = [
        "server idle: of the time with sessions, that without a round to verify; "
        "filled: as if others used the server then; "
        "hits: rounds after which the next root had been drafted already"
        + (
            "; ahead: rounds that had been sent before the verdict before them" if _sends_ahead(found) else ""
        ),
    ]
    if found.parity:
        same = all(parity.same == parity.of for parity in found.parity)
        words = "the same in all arms" if same else "NOT the same in all arms"
        count = sum(parity.of for parity in found.parity if parity.arm != AUTOREGRESSIVE)
        if count:
            said.append(f"greedy answers are {words} ({count} compared with {AUTOREGRESSIVE})")
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


def _times(ratio: tuple[float, Shown | None] | None) -> str:
    if ratio is None:
        return ""
    estimate, between = ratio
    return f"{estimate:.2f}×" + (f" [{between.low:.2f}, {between.high:.2f}]" if between else "")
