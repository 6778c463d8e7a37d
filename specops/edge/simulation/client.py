"""Simulated clients, each with one stream.

A client at the edge drafts, sends, drafts ahead if it may, and continues from the verdict. A real client's
rules decide when it sends (settings.py, and client_sessions.py for what is sent ahead). Where the server
drafts, a stream is ready again as soon as its step is over.

A tree sent ahead is examined only for the outcome that will occur. If the draft has run that guess and the
tree below it is worth sending, it counts as sent, whatever the number of trees. If it has arrived when the
step ends, the server continues with it, and only the round trip is saved.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from specops.edge.client_sessions import SLACK, VERSIONS
from specops.edge.settings import DraftedTree, Pacing, RoundPace, parse_depth
from specops.edge.simulation.rounds import RoundOutcome
from specops.edge.simulation.server import ServerWork, SimulatedServer, Steps
from specops.edge.simulation.setting import SimulatedVerdict

TICK = 1e-9
"""Tolerance in seconds or passes: events within it count as simultaneous, whatever the rounding."""


@dataclass(frozen=True)
class Passes:
    """Draft passes one after another. None is started that would be running when the verdict is due, since
    the verdict would wait for it. If the verdict is late, the passes continue."""

    since: float
    pass_s: float
    most: int
    due: float = math.inf

    @property
    def _in_time(self) -> int:
        """Number of passes that end before the verdict is due."""
        if not self.since < self.due < math.inf:
            return self.most
        return math.floor((self.due - self.since) / self.pass_s + TICK)

    def begun(self, before: float) -> int:
        count = min(self._whole(before - self.since), self.most)
        if count > self._in_time:
            count = min(self._in_time + self._whole(before - self.due), self.most)
        return count

    def _whole(self, seconds: float) -> int:
        """Number of passes that fill `seconds`; the last one may take longer."""
        return max(math.ceil(seconds / self.pass_s - TICK), 0)

    def ended(self, count: int) -> float:
        """Time at which `count` passes have ended."""
        if count <= self._in_time:
            return self.since + count * self.pass_s
        return self.due + (count - self._in_time) * self.pass_s


def sent_after(passes: Passes, late: float) -> list[int]:
    """Numbers of passes after which trees are sent ahead: as late as possible in time, or when no pass is
    left; and again after each further pass, until `late`."""
    counts: list[int] = []
    for count in range(passes.most + 1):
        now = passes.ended(count)
        if count < passes.most and now + SLACK * passes.pass_s < late - TICK:
            continue
        if len(counts) == VERSIONS or (counts and now > late + TICK):
            break
        counts.append(count)
    return counts


@dataclass(frozen=True)
class _Version:
    """A version of the tree that is sent ahead for the outcome that will occur."""

    arrived: float
    """Time at which the server has it."""

    passes: int
    """Number of passes drafted ahead by then."""

    levels: int


@dataclass
class _Out:
    """A round that is out."""

    levels: int
    fate: RoundOutcome
    work: ServerWork
    home_s: float = 0.0
    """Seconds of drafting that the stream waited for."""

    sent_at: float = 0.0
    """Time at which it was sent. For a tree sent ahead, the time at which the client learned that it is
    the next round."""

    since: float = 0.0
    """Time from which the client could draft ahead of it."""

    already: int = 0
    """Number of passes ahead of it by then."""

    version: _Version | None = None
    """Version in which it was sent ahead; None if it was not."""


class _Client:
    def __init__(self, server: SimulatedServer, number: int, chance: random.Random) -> None:
        self._server, self._number, self._chance = server, number, chance
        self._env, self._setting = server.env, server.setting
        self._rounds = server.rounds
        self._stream = server.rounds.stream(chance)

    def _across(self) -> Steps:
        yield self._env.timeout(self._server.way(self._chance))

    def _ask(self, levels: int | None, *, own: bool, after_s: float = 0.0) -> ServerWork:
        """Send a tree with `levels` levels; None: the prompt."""
        setting = self._setting
        tokens = max(setting.prompt_tokens, 1) if levels is None else 1 + setting.nodes_of(levels)
        return self._server.ask(self._number, tokens, own=own, after_s=after_s)

    def _heard(
        self,
        since: float,
        tokens: int,
        work: ServerWork,
        *,
        first: bool = False,
        ahead: int = 0,
        retained: int = 0,
        used_ahead: bool = False,
    ) -> float:
        """Record a verdict. Returns its time. retained: number of levels drafted ahead below the next
        root."""
        now, waited, wasted = self._env.now, work.began - work.arrived, max(ahead - retained, 0)
        self._server.log.verdicts.append(
            SimulatedVerdict(
                self._number, now, since, tokens, first, ahead, retained > 0, wasted, waited, used_ahead
            )
        )
        return now


class ServedStream(_Client):
    """A stream for which the server drafts, or nobody. All its tokens arrive later by the one-way time."""

    def run(self) -> Steps:
        env, levels = self._env, self._server.own_levels
        while True:
            since = env.now
            yield from self._across()
            with self._server.rows.request() as row:
                yield row
                work = self._ask(None, own=True)
                yield work.stepped
                since = self._heard(since, 1, work, first=True)
                self._stream.begin()
                left = self._setting.tokens - 1
                while left > 0:
                    work = self._ask(levels, own=True)
                    yield work.stepped
                    tokens = min(self._stream.fate(levels, "none").accepted + 1, left)
                    self._stream.go_on(tokens)
                    left -= tokens
                    since = self._heard(since, tokens, work)
            yield from self._across()


class Edge(_Client):
    """A stream whose client drafts at the edge."""

    def __init__(self, server: SimulatedServer, number: int, chance: random.Random) -> None:
        super().__init__(server, number, chance)
        self._depth, self._pacing = parse_depth(self._setting.depth), Pacing()
        self._ahead_s = server.costs.draft.seconds(self._setting.beams)
        self._left = 0  # tokens of the request that are to come
        self._retained = 0  # levels below the root, drafted ahead
        self._since = self._received = 0.0  # when it went on last, and when what it went on by had come

    def run(self) -> Steps:
        while True:
            yield from self._begin()
            out = None
            while self._left > 0:
                if out is None:
                    out = yield from self._send()
                out = yield from self._follow(out)

    def _begin(self) -> Steps:
        began = self._env.now
        yield from self._across()
        work = self._ask(None, own=False)
        yield work.stepped
        yield from self._across()
        self._since = self._received = self._heard(began, 1, work, first=True)
        self._stream.begin()
        self._left, self._retained = self._setting.tokens - 1, 0

    def _follow(self, out: _Out) -> Generator[simpy.Event, Any, _Out | None]:
        """Wait for the verdict of a round. Returns the next round if it is already out, else None."""
        pace = self._pacing.pace(self._ahead_s)
        passes = self._passes(out, pace)
        versions = self._send_ahead(out, passes, pace)
        yield out.work.stepped
        following = self._go_on(out, versions)
        yield from self._verdict(out.work)
        ahead = passes.begun(self._received)
        if self._setting.heads != "none":
            yield self._env.timeout(max(passes.ended(ahead) - self._env.now, 0.0))
        tokens = min(out.fate.accepted + 1, self._left)
        self._learn(out, tokens)
        retained = out.fate.retained(out.already + ahead)
        self._retained, self._left = min(retained, self._rounds.levels), self._left - tokens
        if following is None:
            self._stream.go_on(out.fate.accepted + 1)
        else:
            assert following.version is not None
            following.sent_at, following.since = self._received, self._env.now
            following.already = out.already + ahead - following.version.passes
        self._since = self._heard(
            self._since, tokens, out.work, ahead=ahead, retained=retained, used_ahead=following is not None
        )
        return following

    # --- rounds -------------------------------------------------------------------------------

    def _send(self) -> Generator[simpy.Event, Any, _Out]:
        """Draft on from the retained nodes, and send the tree."""
        pace, retained = self._pacing.pace(self._ahead_s), self._retained
        levels = retained
        while levels < self._rounds.levels:
            if not self._depth.more(
                DraftedTree(levels - retained, retained, self._rounds.reached(levels)), pace
            ):
                break
            levels += 1
        yield self._env.timeout(
            sum(
                self._server.costs.draft.seconds(self._setting.beams if level else 1)  # first the bonus alone
                for level in range(retained, levels)
            )
        )
        sent_at = self._env.now
        fate = self._stream.fate(levels, self._setting.heads)
        yield from self._across()
        work = self._ask(levels, own=False)
        return _Out(levels, fate, work, home_s=sent_at - self._received, sent_at=sent_at, since=sent_at)

    def _verdict(self, work: ServerWork) -> Steps:
        """Wait for the verdict of `work`, which may have been sent for some time and comes after the one
        before."""
        way = self._server.way(self._chance)
        yield self._env.timeout(max(way - (self._env.now - work.ended), 0.0))
        self._received = max(work.ended + way, self._received)

    def _learn(self, out: _Out, tokens: int) -> None:
        away_s, served_s = self._received - out.sent_at, out.work.ended - out.work.arrived
        self._pacing.learn(
            tokens=tokens,
            promised=self._rounds.promised(out.levels),
            home_s=out.home_s,
            away_s=away_s,
            served_s=served_s,
            way_s=max(away_s - served_s, 0.0) if out.version is None else None,
        )

    # --- trees sent ahead ---------------------------------------------------------------------

    def _passes(self, out: _Out, pace: RoundPace | None) -> Passes:
        due = math.inf
        if pace is not None:
            due = out.sent_at + pace.served_s + (pace.way_s if out.version is None else 0.0)
        most = 0 if self._setting.heads == "none" else max(self._setting.most_ahead - out.already, 0)
        return Passes(out.since, self._ahead_s, most, due)

    def _send_ahead(self, out: _Out, passes: Passes, pace: RoundPace | None) -> list[_Version]:
        if self._setting.ahead == 0 or self._setting.heads == "none" or pace is None:
            return []
        late = out.sent_at + pace.served_s - (0.0 if out.version is None else pace.way_s)
        versions, arrived = [], 0.0
        for count in sent_after(passes, late):
            drafted = out.already + count
            levels = min(out.fate.retained(drafted), self._rounds.levels)
            if levels and self._depth.ahead(levels, self._rounds.promised(levels), pace):
                # A message that was sent later does not arrive earlier.
                arrived = max(arrived, passes.ended(count) + self._server.way(self._chance))
                versions.append(_Version(arrived, drafted, levels))
        return versions

    def _go_on(self, out: _Out, versions: list[_Version]) -> _Out | None:
        """The round that the server verifies next, at the end of the step, if its tree has arrived; else
        None."""
        accepted = out.fate.accepted + 1
        arrived = [version for version in versions if version.arrived <= out.work.ended + TICK]
        if not arrived or accepted >= self._left:
            return None
        version = arrived[-1]
        self._stream.go_on(accepted)
        fate = self._stream.fate(version.levels, self._setting.heads)
        work = self._ask(version.levels, own=False, after_s=self._server.costs.round_s)
        return _Out(version.levels, fate, work, version=version)
