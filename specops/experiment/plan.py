"""Which window is measured next. Pure.

A window is one arm at one load, uninterrupted, all its streams full. A cycle has a window of each arm
at each load, one in an open loop, with the same arrivals, and one in which greedy requests of the cycle
come again among sampled ones. Loads come in random order, so that each is measured over the whole
duration. So do arms within a pair: which one begins is drawn for two successive cycles, one each way, so
that a machine whose speed changes periodically cannot stay in step with the order. Once, each arm is
measured for several windows without a pause, since production does not pause either: what a server does only
for its first requests after one, such as using up a credit, would otherwise be all that is measured.

A trace or a ramp is replayed in its own order: each cycle has the next of its windows.

Both arms of a pair get the same requests. A prompt has another variant each time it is drawn, so that no
cache knows it; a variant follows from its place in the plan alone. What is drawn is a session: all turns of
it are in one window, in one variant. The end of a variant says what of its prompts a cache may know.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, count, zip_longest
from math import ceil, floor
from typing import Literal

from specops.config.rollout import Design
from specops.load.arrivals import Level
from specops.load.replay import Replay, ReplayRequest
from specops.load.workload import OWN_HISTORY

Kind = Literal["measured", "open", "mixed"]
"""measured: at a load of the comparison. open: arrivals at a rate that the standard can serve. mixed: greedy
requests among sampled ones, `MIXED_STREAMS` or more at a time."""

MIXED_TEMPERATURE = 0.7
"""Of sampled requests, where the measurement is greedy."""

MIXED_STREAMS = 2
"""Requests that come one after another share no batch."""

SMALLEST_WINDOW = 6
"""Requests that count, of a window. With several streams there are two for each stream."""

LONG_RUN_FROM = 2
"""The cycle with which the long run begins: the first ones make known how long a window takes."""

OPEN_REQUESTS = 6
SAMPLED_REQUESTS = 4

BEHIND_PREFIX = "prefix"
EACH_TURN_NEW = "cold"
"""At the end of a variant. prefix: the shared prefix stands in front of each of its prompts. cold: each turn
has a nonce of its own, so that no cache knows the turns before it."""

CACHE_STATES = ("cold", "shared prefix", "earlier turns")
"""What of a prompt a cache may know: nothing, the prefix that it shares with others, or the turns before."""


def cache_state(variant: str, turn: int) -> int:
    """The place of a request in `CACHE_STATES`."""
    mark = variant.partition(OWN_HISTORY)[0].rpartition(".")[2]
    if turn > 1 and mark != EACH_TURN_NEW:
        return 2
    return 1 if mark == BEHIND_PREFIX else 0


Key = tuple[int, Kind, Level, str]


@dataclass(frozen=True)
class Request:
    """A prompt in one of its variants; the nonce in front of it follows from both."""

    prompt: str
    variant: str
    temperature: float | None = None
    """None: the temperature of the measurement."""

    replayed: ReplayRequest | None = None
    """Its instant, length and shared beginning in a replay."""

    repeat: int = 0
    """How often the whole was replayed before."""


@dataclass(frozen=True)
class Window:
    cycle: int
    kind: Kind
    level: Level
    """The load; of an open window, the one whose throughput sets the rate."""

    order: int
    """The arm's place in its turn; 0 goes first."""

    period: int
    """Windows of one period are measured without a server starting or ending between them."""

    arm: str
    requests: tuple[Request, ...]
    fillers: tuple[Request, ...] = ()

    @property
    def key(self) -> Key:
        return self.cycle, self.kind, self.level, self.arm


@dataclass(frozen=True)
class Plan:
    arms: tuple[str, ...]
    levels: tuple[Level, ...]
    prompts: tuple[tuple[str, str], ...]
    """(id, traffic class) of each prompt: of a session, its first turn."""

    design: Design
    seed: int
    temperature: float
    mixed_prompts: int
    """Greedy requests that each cycle sends again among sampled ones; 0: none."""

    mixed_temperature: float
    same_prompts: bool
    rounds: int
    """How often abba-restart starts each arm."""

    long_run: int = 0
    """Cycles whose measured windows follow one another, arm by arm; abba-restart always does so."""

    later_turns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The ids of the further turns of a session, by the id of its first."""

    replay: Replay | None = None
    """Has the requests of measured windows, in place of `prompts` in turn."""

    prefix_share: float = 0.0
    """Share of the sessions that begin with the shared prefix."""

    cold_share: float = 0.0
    """Share of the sessions of which each turn has a nonce of its own."""

    live_answers: bool = False
    """Whether later turns follow on the answers of the arm itself."""

    def windows(self) -> Iterator[Window]:
        """Every window in the order of execution. Interleaved cycles never end; restarts end with their
        rounds."""
        if self.design == "interleaved":
            for cycle in count():
                if cycle in self.cycles_without_pause[:1]:
                    yield from self._without_pause()
                yield from self._turns(cycle, "measured" if cycle in self.cycles_without_pause else None)
            return
        periods = count()
        cycles = self.cycles_of_a_round
        for number in range(self.rounds):
            for order, arm in enumerate(_turn(self.arms, number)):
                period = next(periods)
                for cycle in range(number * cycles, (number + 1) * cycles):
                    for window in self._cycle(cycle, cycle - number * cycles):
                        yield self._of_arm(window, arm, order, period)

    @property
    def cycles_without_pause(self) -> range:
        return range(LONG_RUN_FROM, LONG_RUN_FROM + self.long_run)

    @property
    def cycles_of_a_round(self) -> int:
        """Cycles in which each load has had every prompt, or the whole replay once."""
        if self.replay is not None:
            return len(self.replay)
        return max(ceil(len(self.prompts) / self._window_sessions(level)) for level in self.levels)

    def requests_a_cycle(self) -> int:
        """Requests to each arm, without the fillers at the end of a window, whose number is not known."""
        windows = self._cycle(0, 0)
        return sum(
            len(window.requests) + min(len(window.fillers), window.level.concurrency or 0)
            for window in windows
        )

    def _without_pause(self) -> Iterator[Window]:
        """The measured windows of the long run, all of one arm before those of the next. The lightest load
        comes last, after most windows without a pause: it decides about the others."""
        cycles = [self._cycle(cycle, cycle) for cycle in self.cycles_without_pause]
        measured = [window for window in chain.from_iterable(cycles) if window.kind == "measured"]
        measured.sort(key=lambda window: -self.levels.index(window.level))
        first = random.Random(f"{self.seed}:long run").randrange(2)
        for order, arm in enumerate(_turn(self.arms, first)):
            for window in measured:
                yield self._of_arm(window, arm, order, 0)

    def _turns(self, cycle: int, without: Kind | None = None) -> Iterator[Window]:
        for window in self._cycle(cycle, cycle):
            if window.kind == without:
                continue
            first = random.Random(f"{self.seed}:{window.kind}:{window.level}:{cycle // 2}").randrange(2)
            for order, arm in enumerate(_turn(self.arms, first + cycle)):
                yield self._of_arm(window, arm, order, 0)

    def _of_arm(self, window: Window, arm: str, order: int, period: int) -> Window:
        return Window(
            window.cycle, window.kind, window.level, order, period, arm, window.requests, window.fillers
        )

    def _cycle(self, cycle: int, place: int) -> list[Window]:
        """The windows of a cycle without their arm. `place` draws the prompts: of two rounds of
        abba-restart, both have the same prompts."""
        dealer = random.Random(f"{self.seed}:{cycle}")
        levels = list(self.levels)
        dealer.shuffle(levels)
        measured = [self._measured(cycle, place, level) for level in levels]
        windows = list(measured)
        heaviest = max(self.levels, key=lambda level: level.concurrency or 0)
        if heaviest.concurrency is not None:
            drawn = self._drawn(place, self._sessions(OPEN_REQUESTS, least=2), "open", cycle)
            windows.append(Window(cycle, "open", heaviest, 0, 0, "", drawn))
        if self.mixed_prompts:
            windows.append(self._mixed(cycle, place, heaviest, measured))
        return windows

    def _measured(self, cycle: int, place: int, level: Level) -> Window:
        if self.replay is not None:
            return Window(cycle, "measured", level, 0, 0, "", self._replayed(self.replay, cycle))
        size, streams = self._window_sessions(level), level.concurrency
        fillers = (
            self._drawn(place, 3 * streams if streams > 1 else 1, f"fill {streams}", cycle) if streams else ()
        )
        drawn = self._drawn(place, size, str(streams or "open loop"), cycle)
        return Window(cycle, "measured", level, 0, 0, "", drawn, fillers)

    def _replayed(self, replay: Replay, cycle: int) -> tuple[Request, ...]:
        repeat, window = divmod(cycle, len(replay))
        return tuple(
            Request(request.prompt, f"replay.{cycle}.{number}", None, request, repeat)
            for number, request in enumerate(replay.window(window))
        )

    def request(self, prompt: str, variant: str) -> Request:
        """The greedy request that was sent with this variant of a prompt."""
        match variant.split("."):
            case ["replay", cycle, number] if self.replay is not None:
                return self._replayed(self.replay, int(cycle))[int(number)]
        return Request(prompt, variant)

    def _mixed(self, cycle: int, place: int, level: Level, measured: Sequence[Window]) -> Window:
        """At temperature 0, greedy requests of this cycle come again: then the standard is compared with
        itself, too. At a higher one, the same greedy requests come in two successive cycles."""
        if self.temperature == 0:
            requests = next(window.requests for window in measured if window.level == level)
            if self.live_answers:  # a later turn by itself has no own answers before it
                firsts = {prompt for prompt, _ in self.prompts}
                requests = tuple(request for request in requests if request.prompt in firsts)
            # Of conversations others in each cycle, so that late turns come, too.
            start = cycle * self.mixed_prompts if self.later_turns else 0
            places = sorted({(start + index) % len(requests) for index in range(self.mixed_prompts)})
            greedy = tuple(requests[place] for place in places)
        else:
            greedy = self._drawn(place // 2, self._sessions(self.mixed_prompts), "greedy", cycle // 2)
        fewest = self._sessions(SAMPLED_REQUESTS - len(greedy), least=0)
        sampled_alone = self._drawn(place, fewest, "sampled", cycle)
        sampled = [
            replace(request, temperature=self.temperature or self.mixed_temperature)
            for request in (*greedy, *sampled_alone)
        ]
        again = [replace(request, temperature=0.0) for request in greedy]
        # In turn, so that each greedy request has a sampled one beside it.
        in_turn = chain.from_iterable(zip_longest(again, sampled))
        return Window(
            cycle, "mixed", level, 0, 0, "", tuple(request for request in in_turn if request is not None)
        )

    def _drawn(self, place: int, size: int, purpose: str, cycle: int) -> tuple[Request, ...]:
        """`size` sessions, of all classes alike; each is drawn once before any is drawn again."""
        ids = _shuffled(self.prompts, f"{self.seed}:{purpose}")
        chosen = [ids[(place * size + index) % len(ids)] for index in range(size)]
        marks = self._marks(size, f"{self.seed}:{purpose}:{place}:cache")
        return tuple(
            Request(turn, "" if self.same_prompts else f"{purpose}.{cycle}.{index}{marks[index]}")
            for index, prompt in enumerate(chosen)
            for turn in (prompt, *self.later_turns.get(prompt, ()))
        )

    def _marks(self, size: int, seed: str) -> list[str]:
        """The ends of the variants of `size` sessions: each share as exactly as whole sessions allow, and
        exact on average, in random order."""
        dealer = random.Random(seed)
        marks: list[str] = []
        for share, mark in ((self.prefix_share, BEHIND_PREFIX), (self.cold_share, EACH_TURN_NEW)):
            marks += [f".{mark}"] * min(size - len(marks), floor(share * size + dealer.random()))
        marks += [""] * (size - len(marks))
        dealer.shuffle(marks)
        return marks

    def _sessions(self, requests: int, *, least: int = 1) -> int:
        """The number of sessions that have so many requests, on average; `least` or more."""
        turns = len(self.prompts) + sum(map(len, self.later_turns.values()))
        return max(least, ceil(requests * len(self.prompts) / turns))

    def _window_sessions(self, level: Level) -> int:
        """The number of sessions whose times a window compares: one for each stream, or more."""
        return self._sessions(window_size(level), least=level.concurrency or 1)


@cache
def _shuffled(prompts: tuple[tuple[str, str], ...], seed: str) -> tuple[str, ...]:
    """The ids in random order, in which every class has its share of each stretch."""
    of_class: dict[str, list[str]] = defaultdict(list)
    for prompt, traffic_class in prompts:
        of_class[traffic_class].append(prompt)
    dealer = random.Random(seed)
    placed: list[tuple[float, str]] = []
    for _, ids in sorted(of_class.items()):
        dealer.shuffle(ids)
        start = dealer.random()
        placed += [((index + start) / len(ids), prompt) for index, prompt in enumerate(ids)]
    return tuple(prompt for _, prompt in sorted(placed))


def window_size(level: Level) -> int:
    """Requests of a window whose times are compared."""
    return max(SMALLEST_WINDOW, 2 * (level.concurrency or 0))


def _turn(arms: Sequence[str], number: int) -> Sequence[str]:
    """Forwards and backwards in turn, so that an odd number of turns favours no arm."""
    return arms[::-1] if number % 2 else arms
