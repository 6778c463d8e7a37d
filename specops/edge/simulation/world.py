"""Clients, a network and a server, event by event (simpy). Time is simulated; nothing is computed or sent.

A client has one stream: it drafts, sends, drafts ahead if it may, and goes on by the verdict. A pass that was
begun is ended, verdict or not. The server takes what waits, as much as a step holds, for as long as its
passes take. Where it drafts for itself, a stream is ready again as soon as its step is over. When to send and
what to batch are decided by the very objects that decide it in a client and in a server.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from specops.edge.batching import Arrived, Batching, Turns
from specops.edge.depth import Depth, Draft, Excluded, Included, Pace, Pacing, parse_depth
from specops.edge.simulation.model import EdgeCosts, Setting
from specops.edge.simulation.rounds import Fate, Rounds

Steps = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Verdict:
    """A stream went on."""

    client: int
    at: float
    since: float
    """The verdict before, or the beginning of the request."""

    tokens: int
    first: bool
    """Of its request: the prompt's, and no round's."""

    ahead: int
    """Passes drafted while it was away."""

    hit: bool
    """The next root had been run by then."""

    wasted: int
    """Of `ahead`, those that left nothing."""

    waited_s: float
    """From the round's arrival to the beginning of its step."""


@dataclass(frozen=True)
class Step:
    began: float
    ended: float
    trees: int
    tokens: int
    """That went through the target."""


@dataclass
class Log:
    verdicts: list[Verdict] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ended: float = 0.0


@dataclass
class _Asked:
    """Something that the server has to step."""

    client: int
    tokens: int
    own: bool
    """The server drafts for it."""

    arrived: float
    stepped: simpy.Event
    """At the end of its step."""

    began: float = 0.0
    """Of its step."""


def simulate(setting: Setting, costs: EdgeCosts, rounds: Rounds, *, seed: int, seconds: float) -> Log:
    """What happens in so many simulated seconds, which begin with every client's first request."""
    world = _World(setting, costs, rounds, seed)
    for client in range(setting.clients):
        drafts = world.edge if setting.arm == "edge" else world.served
        world.env.process(drafts(client))
    world.env.process(world.server())
    world.env.run(until=seconds)
    world.log.ended = seconds
    return world.log


class _World:
    def __init__(self, setting: Setting, costs: EdgeCosts, rounds: Rounds, seed: int) -> None:
        self.env = simpy.Environment()
        self.log = Log()
        self._setting = setting
        self._costs = costs
        self._rounds = rounds
        self._batching = Batching.parse(setting.batching)
        self._turns = Turns()
        self._asked: dict[int, _Asked] = {}  # by client, of whom it waits
        self._arrival = self.env.event()
        self._rows = simpy.Resource(self.env, setting.max_batch)
        # Each client has its own, so that what one meets with does not depend on how many others there are.
        self._chances = [random.Random(f"{seed}/{client}") for client in range(setting.clients)]

    # Clients

    def edge(self, client: int) -> Steps:
        setting, chance = self._setting, self._chances[client]
        depth, pacing, stream = parse_depth(setting.depth), Pacing(), self._rounds.stream(chance)
        ahead_s = self._costs.draft.at(setting.beams)
        while True:
            since = self.env.now
            yield from self._across(chance)
            asked = self._ask(client, max(setting.prompt_tokens, 1), own=False)
            yield asked.stepped
            yield from self._across(chance)
            since = self._heard(client, since, 1, asked, first=True)
            stream.begin()
            left, kept = setting.tokens - 1, 0
            while left > 0:
                passes = self._passes(depth, pacing.pace(ahead_s), kept)
                levels = kept + passes
                yield self.env.timeout(sum(self._pass(level) for level in range(kept, levels)))
                away, ahead = self.env.now, 0
                fate = stream.fate(levels, setting.heads)
                asked = yield from self._verified(client, chance, 1 + self._nodes(levels))
                if setting.heads != "none":
                    ahead = min(math.ceil((self.env.now - away) / ahead_s - 1e-9), setting.most_ahead)
                    yield self.env.timeout(max(away + ahead * ahead_s - self.env.now, 0.0))
                tokens = min(fate.accepted + 1, left)
                promised = self._rounds.tokens(levels) - 1
                away_s = self.env.now - away  # all of it served: here nothing is sent ahead
                pacing.learn(
                    tokens=tokens,
                    promised=promised,
                    home_s=away - since,
                    away_s=away_s,
                    served_s=away_s,
                    way_s=None,
                )
                kept, left = min(fate.kept(ahead), self._rounds.levels), left - tokens
                stream.go_on(fate.accepted + 1)
                since = self._heard(client, since, tokens, asked, ahead=ahead, fate=fate)

    def _passes(self, depth: Depth, pace: Pace | None, kept: int) -> int:
        passes = 0
        while kept + passes < self._rounds.levels:
            if not depth.more(Draft(passes, kept, self._rounds.reached(kept + passes)), pace):
                break
            passes += 1
        return passes

    def _verified(
        self, client: int, chance: random.Random, tokens: int
    ) -> Generator[simpy.Event, Any, _Asked]:
        yield from self._across(chance)
        asked = self._ask(client, tokens, own=False)
        yield asked.stepped
        yield from self._across(chance)
        return asked

    def served(self, client: int) -> Steps:
        """A client for which the server drafts, or nobody. All that comes, comes later by the way there."""
        setting, chance = self._setting, self._chances[client]
        levels, stream = self._own_levels, self._rounds.stream(chance)
        while True:
            since = self.env.now
            yield from self._across(chance)
            with self._rows.request() as row:
                yield row
                asked = self._ask(client, max(setting.prompt_tokens, 1), own=True)
                yield asked.stepped
                since = self._heard(client, since, 1, asked, first=True)
                stream.begin()
                left = setting.tokens - 1
                while left > 0:
                    asked = self._ask(client, 1 + self._nodes(levels), own=True)
                    yield asked.stepped
                    tokens = min(stream.fate(levels, "none").accepted + 1, left)
                    stream.go_on(tokens)
                    left -= tokens
                    since = self._heard(client, since, tokens, asked)
            yield from self._across(chance)

    @property
    def _own_levels(self) -> int:
        depth = parse_depth(self._setting.depth)
        if self._setting.arm == "autoregressive" or not isinstance(depth, Included | Excluded):
            return 0
        return min(depth.depth, self._rounds.levels)

    def _nodes(self, levels: int) -> int:
        setting = self._setting
        return (0, min(setting.children, setting.nodes), setting.nodes)[min(levels, 2)]

    def _pass(self, levels: int) -> float:
        """The first reads the bonus and nothing else."""
        return self._costs.draft.at(self._setting.beams if levels else 1)

    def _across(self, chance: random.Random) -> Steps:
        setting = self._setting
        way = setting.rtt_s / 2 + self._costs.round_s / 2
        if setting.jitter_s:
            way += chance.random() * setting.jitter_s
        yield self.env.timeout(way)

    def _heard(
        self,
        client: int,
        since: float,
        tokens: int,
        asked: _Asked,
        *,
        first: bool = False,
        ahead: int = 0,
        fate: Fate | None = None,
    ) -> float:
        kept = fate.kept(ahead) if fate else 0
        waited = asked.began - asked.arrived
        self.log.verdicts.append(
            Verdict(client, self.env.now, since, tokens, first, ahead, kept > 0, ahead - kept, waited)
        )
        return self.env.now

    # The server

    def _ask(self, client: int, tokens: int, *, own: bool) -> _Asked:
        asked = self._asked[client] = _Asked(client, tokens, own, self.env.now, self.env.event())
        self._turns.add(Arrived(client, client, self.env.now))
        if not self._arrival.triggered:
            self._arrival.succeed()
        return asked

    def server(self) -> Steps:
        while True:
            # What comes in this very instant is there: streams that it drafts for ask as their step ends.
            yield self.env.timeout(0)
            pause = self._pause()
            if pause > 0:
                self._arrival = self.env.event()
                yield self._arrival | self.env.timeout(pause) if math.isfinite(pause) else self._arrival
                continue
            count = min(len(self._turns), self._setting.max_batch)
            batch = [self._asked.pop(self._turns.take().key) for _ in range(count)]
            began = self.env.now
            tokens = sum(asked.tokens for asked in batch)
            yield self.env.timeout(self._seconds(batch, tokens))
            self.log.steps.append(Step(began, self.env.now, len(batch), tokens))
            for asked in batch:
                asked.began = began
                asked.stepped.succeed()

    def _pause(self) -> float:
        if not len(self._turns):
            return math.inf
        possible = min(self._setting.clients, self._setting.max_batch)
        return self._batching.pause(len(self._turns), possible, self._turns.oldest, self.env.now)

    def _seconds(self, batch: list[_Asked], tokens: int) -> float:
        costs, drafting, drafted = self._costs, sum(asked.own for asked in batch), 0.0
        if drafting:
            for level in range(self._own_levels):
                drafted += costs.server_draft.at(drafting * (self._setting.beams if level else 1))
        return costs.step_s + drafted + costs.verify.at(tokens)
