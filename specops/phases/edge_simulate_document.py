"""A simulation of edge drafting as a document: the terminal and a notebook show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specops.render.figures import NONE, count, decimals, milliseconds
from specops.render.report.document import Document, Section, Table
from specops.results import Result

ALIKE = (
    "This is a simulation. Passes take the times above. Streams follow the measured texts; with given "
    "shares, rounds are independent draws. A reused tree counts as a new tree."
)
AHEAD = (
    "hits: rounds whose next tree was already begun; ahead: rounds whose next tree was already sent, so that "
    "the server continued at once. Every begun tree that pays is assumed to be sent."
)
NOT_AHEAD = "No round is sent ahead: each takes a full round trip."
CROSSINGS = {
    "behind at all": "at no RTT that was simulated",
    "ahead at all": "at every RTT that was simulated",
}


def document(result: Result, path: Path) -> Document:
    """The document of a simulation. Its sections have what was assumed, and what came of it."""
    data, settings = result.data, result.settings
    ahead = bool(settings["heads"] and settings["ahead"])
    guesses = {0: "no guess", 1: "one guess, as in the paper,"}.get(
        settings["heads"], f"{settings['heads']} guesses"
    )
    assumed = (
        f"Trees of up to {settings['nodes']} nodes, {guesses} drafted on from while they are away,"
        f"{' the trees below them sent ahead,' if ahead else ''} batching {settings['batching']}.",
        f"Costs: {data['costs_from']}.",
        f"Rounds: {data['rounds']['source']}.",
        f"Prices: {settings['server_per_hour']:g} an hour for the server, {settings['edge_per_hour']:g} for "
        "each edge.",
    )
    tables = (_cells(data, ahead=ahead), _servers(data), _carried(data), _break_even(data))
    sections = [Section("Assumptions", assumed), Section("Simulated", tables=tables, guide="docs/edge.md")]
    return Document.of_result(result, (), sections, summary=(ALIKE, AHEAD if ahead else NOT_AHEAD))


def _cells(data: Mapping[str, Any], *, ahead: bool) -> Table:
    columns = (
        *("RTT", "clients", "best depth", "ITL", "p95", "× server-only", "tokens/s", "× server-only"),
        *("idle", "batch", "hits", *(("ahead",) if ahead else ()), "× tokens for money"),
    )
    return Table("At the edge", columns, tuple(_cell(cell, ahead=ahead) for cell in data["cells"]))


def _cell(cell: Mapping[str, Any], *, ahead: bool) -> tuple[str, ...]:
    figures = cell["figures"]
    return (
        f"{cell['rtt_ms']:g} ms",
        str(cell["clients"]),
        cell["setting"]["depth"],
        _ms(figures["itl_ms"]),
        _ms(figures["itl_p95_ms"]),
        f"{cell['itl_ratio']:.2f}",
        f"{figures['tokens_per_s']['mean']:.0f}",
        f"{cell['throughput_ratio']:.2f}",
        _share(figures["idle"]),
        f"{figures['batch']['mean']:.1f}",
        _share(figures["hit_rate"]),
        *((_share(figures["taken"]),) if ahead else ()),
        decimals(cell["cost_ratio"], 2),
    )


def _servers(data: Mapping[str, Any]) -> Table:
    """The figures without an edge, by the number of clients."""

    def row(load: Mapping[str, Any]) -> Iterator[str]:
        yield from (count(load["clients"], "client"), load["server_only"]["setting"]["depth"])
        for figures in (load["server_only"]["figures"], load["autoregressive"]["figures"]):
            yield from (_ms(figures["itl_ms"]), f"{figures['tokens_per_s']['mean']:.0f}")

    columns = ("server-only", "best depth", "ITL", "tokens/s", "autoregressive", "tokens/s")
    return Table("", columns, tuple(tuple(row(load)) for load in data["by_clients"]))


def _carried(data: Mapping[str, Any]) -> Table:
    def row(rtt: Mapping[str, Any]) -> tuple[str, ...]:
        busy, carried = rtt["busy_from"], rtt["clients_carried"]
        return (
            f"{rtt['rtt_ms']:g} ms",
            "more clients than simulated" if busy is None else f"from {count(busy, 'client')} on",
            ("none" if carried is None else count(carried, "client"))
            + (" and maybe more" if rtt["may_carry_more"] else ""),
        )

    columns = ("RTT", "idle below 10%", f"carries within {data['itl_bound_ms']:.1f} ms a token")
    return Table("", columns, tuple(map(row, data["by_rtt"])))


def _break_even(data: Mapping[str, Any]) -> Table:
    rows = tuple(
        (str(even["clients"]), CROSSINGS.get(even["rtt_ms"]) or f"below {even['rtt_ms']:.0f} ms")
        for even in data["break_even"]
    )
    return Table("", ("clients", "ahead of server-only in inter-token latency"), rows)


def _ms(figure: Mapping[str, float] | None) -> str:
    return milliseconds(None if figure is None else figure["mean"])


def _share(figure: Mapping[str, float] | None) -> str:
    return NONE if figure is None else f"{100 * figure['mean']:.0f}%"
