"""Planning for a server and links that do not exist yet: the best depth, the number of clients, the largest
round-trip time.

Every depth is tried, and the best has the least inter-token latency. With drafting ahead there may be two
good depths: one that sends the retained tree at once, and one that drafts on. Server-only speculation is
searched in the same way. The path to its server delays its first token only, so that it is the same at every
round-trip time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from specops.economics import Prices
from specops.edge.simulation.outcome import Summary, replicate
from specops.edge.simulation.rounds import Rounds
from specops.edge.simulation.setting import EdgeCosts, Setting
from specops.progress import Progress

ROUNDS, LEAST = 600, 30
"""Number of simulated rounds in a run: of all clients together, and at least of each."""

IDLE = 0.10
SEEDS = (0, 1, 2)


Crossing = float | Literal["behind at all", "ahead at all"]
"""Milliseconds, or in words where it would be infinite: JSON has no infinity."""


@dataclass(frozen=True)
class ServerFigures:
    """Figures of a server that drafts for itself, or does not draft, with a number of clients."""

    clients: int
    server_only: Summary
    autoregressive: Summary


@dataclass(frozen=True)
class PlannedCell:
    rtt_s: float
    clients: int
    edge: Summary
    """Figures of edge drafting at its best depth."""

    itl_ratio: float
    """Inter-token latency as a ratio of server-only's, each at its best depth."""

    throughput_ratio: float
    cost_ratio: float | None
    """Tokens for a unit of money, as a ratio of server-only's."""


@dataclass(frozen=True)
class RttCapacity:
    rtt_ms: float
    busy_from: int | None
    """Smallest number of clients with which the server idles less than IDLE; None: more than were
    simulated."""

    clients_carried: int | None
    """Largest number of clients with an inter-token latency within the bound; None: not even one."""

    may_carry_more: bool
    """Whether that is the largest simulated number, so that the server may carry more."""


@dataclass(frozen=True)
class BreakEven:
    clients: int
    rtt_ms: Crossing
    """Round-trip time from which server-only has the lower inter-token latency."""


@dataclass(frozen=True)
class EdgePlan:
    cells: tuple[PlannedCell, ...]
    by_clients: tuple[ServerFigures, ...]
    by_rtt: tuple[RttCapacity, ...]
    break_even: tuple[BreakEven, ...]
    itl_bound_ms: float


class EdgePlanner:
    def __init__(
        self, base: Setting, costs: EdgeCosts, rounds: Rounds, prices: Prices, *, fixed_depth: bool
    ) -> None:
        """base: the setting without arm, clients and round-trip time; its depth counts if fixed_depth is
        set."""
        self._base, self._costs, self._rounds, self._prices = base, costs, rounds, prices
        self._fixed = fixed_depth

    def plan(
        self,
        rtts_s: Sequence[float],
        clients: Sequence[int],
        itl_bound_ms: float | None,
        progress: Progress,
    ) -> EdgePlan:
        """The plan over round-trip times and numbers of clients, both ascending. itl_bound_ms: None for
        the inter-token latency of server-only with the fewest clients."""
        progress.start("settings", len(clients) * (1 + len(rtts_s)) + 2 * len(rtts_s))
        by_clients = []
        for count in clients:
            by_clients.append(self._measure_clients(count))
            progress.advance()
        bound = itl_bound_ms or by_clients[0].server_only.known_mean("itl_ms")
        cells, by_rtt = [], []
        for rtt_s in rtts_s:
            row = []
            for alone in by_clients:
                row.append(self._cell(rtt_s, alone))
                progress.advance()
            cells += row
            by_rtt.append(self._capacity(rtt_s, row, bound, progress))
        even = [
            BreakEven(count, _in_ms([(c.rtt_s, c.itl_ratio) for c in cells if c.clients == count]))
            for count in clients
        ]
        return EdgePlan(tuple(cells), tuple(by_clients), tuple(by_rtt), tuple(even), bound)

    def _measure_clients(self, clients: int) -> ServerFigures:
        own = replace(self._base, arm="server-only", clients=clients, depth="included:4")
        plain = replace(own, arm="autoregressive")
        return ServerFigures(clients, self._run(self._best(own)), self._run(plain))

    def _cell(self, rtt_s: float, alone: ServerFigures) -> PlannedCell:
        setting = replace(self._base, rtt_s=rtt_s, clients=alone.clients)
        edge = self._run(setting if self._fixed else self._best(setting))
        own = alone.server_only
        thousands = edge.mean("thousands_per_unit"), own.mean("thousands_per_unit")
        return PlannedCell(
            rtt_s,
            alone.clients,
            edge,
            itl_ratio=edge.known_mean("itl_ms") / own.known_mean("itl_ms"),
            throughput_ratio=edge.known_mean("tokens_per_s") / own.known_mean("tokens_per_s"),
            cost_ratio=None if None in thousands else thousands[0] / thousands[1],  # type: ignore[operator]
        )

    def _best(self, setting: Setting) -> Setting:
        """The setting at the depth of the least inter-token latency."""
        kind = setting.depth.partition(":")[0]
        tried = [replace(setting, depth=f"{kind}:{depth}") for depth in range(1, self._rounds.levels + 1)]
        return min(tried, key=lambda candidate: self._run(candidate, SEEDS[:1]).known_mean("itl_ms"))

    def _capacity(
        self, rtt_s: float, row: Sequence[PlannedCell], bound: float, progress: Progress
    ) -> RttCapacity:
        def busy(summary: Summary) -> bool:
            return summary.known_mean("idle") < IDLE

        def within(summary: Summary) -> bool:
            return summary.known_mean("itl_ms") <= bound

        busy_from = self._first(row, busy)
        progress.advance()
        slow_from = self._first(row, lambda summary: not within(summary))
        progress.advance()
        carried = row[-1].clients if slow_from is None else slow_from - 1
        return RttCapacity(1000 * rtt_s, busy_from, carried or None, slow_from is None)

    def _first(self, row: Sequence[PlannedCell], holds: Callable[[Summary], bool]) -> int | None:
        """Smallest number of clients for which `holds` is true, by bisection between those of `row`; None
        without any."""
        index = next((i for i, cell in enumerate(row) if holds(cell.edge)), None)
        if index is None:
            return None
        low, high = (row[index - 1].clients if index else 0), row[index].clients
        while high - low > 1:
            middle = (low + high) // 2
            setting = replace(row[index].edge.setting, clients=middle)
            low, high = (low, middle) if holds(self._run(setting, SEEDS[:1])) else (middle, high)
        return high

    def _run(self, setting: Setting, seeds: Sequence[int] = SEEDS) -> Summary:
        seconds = self._seconds(setting)
        return replicate(setting, self._costs, self._rounds, self._prices, seeds=seeds, seconds=seconds)

    def _seconds(self, setting: Setting) -> float:
        """Simulated seconds of a run: enough for its rounds if each takes as long as one alone, or as its
        share of a full server."""
        costs, full = self._costs, min(setting.clients, setting.max_batch)
        step_s = costs.step_s + costs.verify.seconds(full * (1 + setting.nodes))
        if setting.arm == "server-only":
            step_s += 4 * costs.server_draft.seconds(full * setting.beams)
        alone_s = setting.rtt_s + 4 * costs.draft.seconds(setting.beams) + step_s
        period = max(alone_s, step_s * setting.clients / full)
        return period * max(ROUNDS / setting.clients, LEAST)


def _in_ms(ratio_by_rtt: Sequence[tuple[float, float]]) -> Crossing:
    even_s = crossing(ratio_by_rtt, 1.0)
    if even_s is None:
        return "behind at all"
    return "ahead at all" if math.isinf(even_s) else round(1000 * even_s, 2)


def crossing(by_rtt: Sequence[tuple[float, float]], level: float) -> float | None:
    """Round-trip time in seconds at which a rising figure passes `level`, by linear interpolation.

    by_rtt: (seconds, figure), ascending. None: it is above from the first on; inf: it never is.
    """
    if by_rtt[0][1] >= level:
        return None
    for (near, below), (far, above) in pairwise(by_rtt):
        if above >= level:
            return near + (level - below) / (above - below) * (far - near)
    return float("inf")
