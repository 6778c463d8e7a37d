"""The simulated server, and the path to it.

It takes the waiting rounds, as many as a step holds, for the time of its passes. The classes of the real
server decide the batching.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from specops.edge.batching import Batching, FairQueue, WaitingRound
from specops.edge.settings import Excluded, Included, parse_depth
from specops.edge.simulation.rounds import Rounds
from specops.edge.simulation.setting import EdgeCosts, Log, Setting, SimulatedStep

Steps = Generator[simpy.Event, Any, None]


@dataclass
class ServerWork:
    """A piece of work for a step of the server."""

    client: int
    tokens: int
    own: bool
    """Whether the server drafts for it."""

    arrived: float
    stepped: simpy.Event
    """Event at the end of its step."""

    began: float = 0.0
    ended: float = 0.0
    """Time of the end of its step."""


class SimulatedServer:
    def __init__(
        self, env: simpy.Environment, setting: Setting, costs: EdgeCosts, rounds: Rounds, log: Log
    ) -> None:
        self.env, self.setting, self.costs, self.rounds, self.log = env, setting, costs, rounds, log
        self.rows = simpy.Resource(env, setting.max_batch)
        """Places for streams for which the server drafts."""

        self._batching = Batching.parse(setting.batching)
        self._turns = FairQueue()
        self._awaited: dict[int, ServerWork] = {}  # by client, of whom it waits
        self._arrival = env.event()

    def way(self, chance: random.Random) -> float:
        """Seconds from a client to the engine, or back."""
        setting = self.setting
        way = setting.rtt_s / 2 + self.costs.round_s / 2
        if setting.jitter_s:
            way += chance.random() * setting.jitter_s
        return way

    def ask(self, client: int, tokens: int, *, own: bool, after_s: float = 0.0) -> ServerWork:
        """Send work to the server. after_s: seconds until it arrives."""
        work = ServerWork(client, tokens, own, self.env.now + after_s, self.env.event())
        if after_s:
            self.env.process(self._arrives(work, after_s))
        else:
            self._arrived(work)
        return work

    def _arrives(self, work: ServerWork, after_s: float) -> Steps:
        yield self.env.timeout(after_s)
        self._arrived(work)

    def _arrived(self, work: ServerWork) -> None:
        self._awaited[work.client] = work
        self._turns.add(WaitingRound(work.client, work.client, self.env.now))
        if not self._arrival.triggered:
            self._arrival.succeed()

    @property
    def own_levels(self) -> int:
        """Number of levels of the server's own trees."""
        depth = parse_depth(self.setting.depth)
        if self.setting.arm == "autoregressive" or not isinstance(depth, Included | Excluded):
            return 0
        return min(depth.depth, self.rounds.levels)

    def run(self) -> Steps:
        while True:
            # Messages of this instant count as arrived: streams that it drafts for ask as their step ends.
            yield self.env.timeout(0)
            pause = self._pause()
            if pause > 0:
                self._arrival = self.env.event()
                yield self._arrival | self.env.timeout(pause) if math.isfinite(pause) else self._arrival
                continue
            count = min(len(self._turns), self.setting.max_batch)
            batch = [self._awaited.pop(self._turns.take().key) for _ in range(count)]
            began = self.env.now
            tokens = sum(work.tokens for work in batch)
            yield self.env.timeout(self._seconds(batch, tokens))
            self.log.steps.append(SimulatedStep(began, self.env.now, len(batch), tokens))
            for work in batch:
                work.began, work.ended = began, self.env.now
                work.stepped.succeed()

    def _pause(self) -> float:
        if not len(self._turns):
            return math.inf
        possible = min(self.setting.clients, self.setting.max_batch)
        return self._batching.pause(len(self._turns), possible, self._turns.oldest, self.env.now)

    def _seconds(self, batch: list[ServerWork], tokens: int) -> float:
        costs, drafting, drafted = self.costs, sum(work.own for work in batch), 0.0
        if drafting:
            for level in range(self.own_levels):
                drafted += costs.server_draft.seconds(drafting * (self.setting.beams if level else 1))
        return costs.step_s + drafted + costs.verify.seconds(tokens)
