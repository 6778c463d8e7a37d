"""A simulated run (simpy; no model runs and nothing is sent), its figures, and their means over
replications."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import simpy

from specops.economics import Prices, TokenTime
from specops.edge.link import Proposal
from specops.edge.simulation.client import Edge, ServedStream
from specops.edge.simulation.rounds import Rounds
from specops.edge.simulation.server import SimulatedServer
from specops.edge.simulation.setting import EdgeCosts, Log, Setting
from specops.edge.wire import round_request
from specops.stats import Interval, mean_interval
from specops.stats.samples import percentile

SETTLING = 0.1
"""Share of a run that is ignored at its beginning, since all clients begin at once."""


def simulate(setting: Setting, costs: EdgeCosts, rounds: Rounds, *, seed: int, seconds: float) -> Log:
    """The log of `seconds` simulated seconds, which begin with the first request of every client."""
    env, log = simpy.Environment(), Log()
    server = SimulatedServer(env, setting, costs, rounds, log)
    kind = Edge if setting.arm == "edge" else ServedStream
    for number in range(setting.clients):
        # Each client has its own, so that what one meets with does not depend on how many others there are.
        env.process(kind(server, number, random.Random(f"{seed}/{number}")).run())
    env.process(server.run())
    env.run(until=seconds)
    log.ended = seconds
    return log


@dataclass(frozen=True)
class Outcome:
    """Figures of a run. A figure is None without data for it."""

    tokens_per_s: float
    """Tokens a second of all clients."""

    itl_ms: float | None
    """Inter-token latency in milliseconds: the time of streams after their first token, divided by the
    tokens that came."""

    itl_p50_ms: float | None
    itl_p95_ms: float | None
    """95th percentile over tokens, in milliseconds; tokens that came together share the time since those
    before equally."""

    ttft_ms: float | None
    tokens_per_verification: float | None
    client_tokens_per_s: float | None
    busy: float
    """Share of the time in which the server was in a step."""

    batch: float | None
    """Mean number of trees in a step."""

    waited_ms: float | None
    """Mean time from a round's arrival to its step, in milliseconds."""

    hit_rate: float | None
    """Share of rounds whose next root had been drafted on from by the time of the verdict."""

    taken: float | None
    """Share of rounds after which the server continued with a tree sent ahead."""

    wasted: float | None
    """Share of the passes drafted ahead that were of no use."""

    thousands_per_unit: float | None
    """Thousands of tokens for one unit of money."""

    @property
    def idle(self) -> float:
        return 1.0 - self.busy


def outcome(log: Log, setting: Setting, prices: Prices) -> Outcome:
    began = SETTLING * log.ended
    span = log.ended - began
    verdicts = [verdict for verdict in log.verdicts if verdict.time_s >= began]
    rounds = [verdict for verdict in verdicts if not verdict.first]
    prompts = [verdict for verdict in verdicts if verdict.first]
    steps = [step for step in log.steps if step.ended >= began]
    tokens = sum(verdict.tokens for verdict in verdicts)
    brought = sum(verdict.tokens for verdict in rounds)
    streamed = sum(verdict.time_s - verdict.since for verdict in rounds)
    itl = _share(1000 * streamed, brought)
    itls_ms = [
        1000 * (verdict.time_s - verdict.since) / verdict.tokens
        for verdict in rounds
        for _ in range(verdict.tokens)
    ]
    ahead = sum(verdict.ahead for verdict in rounds)
    edge_s = setting.clients * span if setting.arm == "edge" else 0.0
    spent = TokenTime(tokens, span, edge_s)
    return Outcome(
        tokens_per_s=tokens / span,
        itl_ms=itl,
        itl_p50_ms=percentile(itls_ms, 0.5),
        itl_p95_ms=percentile(itls_ms, 0.95),
        ttft_ms=_share(1000 * sum(prompt.time_s - prompt.since for prompt in prompts), len(prompts)),
        tokens_per_verification=_share(brought, len(rounds)),
        client_tokens_per_s=None if itl is None else 1000 / itl,
        busy=sum(step.ended - max(step.began, began) for step in steps) / span,
        batch=_share(sum(step.trees for step in steps), len(steps)),
        waited_ms=_share(1000 * sum(verdict.waited_s for verdict in rounds), len(rounds)),
        hit_rate=_share(sum(verdict.hit for verdict in rounds), len(rounds)),
        taken=_share(sum(verdict.used_ahead for verdict in rounds), len(rounds)),
        wasted=_share(sum(verdict.wasted for verdict in rounds), ahead),
        thousands_per_unit=spent.thousands_per_unit(prices),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True)
class Summary:
    """Figures of a setting, over replications."""

    setting: Setting
    runs: tuple[Outcome, ...]

    def mean(self, name: str) -> float | None:
        measured = self._values(name)
        return sum(measured) / len(measured) if measured else None

    def known_mean(self, name: str) -> float:
        """Return the mean of a figure that every run has."""
        mean = self.mean(name)
        assert mean is not None
        return mean

    def interval(self, name: str) -> Interval | None:
        """95% interval of a figure, by Student's t over the replications; None without data."""
        return mean_interval(self._values(name))

    def _values(self, name: str) -> list[float]:
        values = (getattr(run, name) for run in self.runs)
        return [value for value in values if value is not None]

    def to_json(self) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        for name in (*(field.name for field in fields(Outcome)), "idle"):
            interval = self.interval(name)
            mean = self.mean(name)
            figures[name] = None if mean is None else {"mean": round(mean, 5)}
            if interval is not None:
                figures[name] |= {"low": round(interval.low, 5), "high": round(interval.high, 5)}
        return {"setting": asdict(self.setting), "figures": figures}


def replicate(
    setting: Setting,
    costs: EdgeCosts,
    rounds: Rounds,
    prices: Prices,
    *,
    seeds: Sequence[int],
    seconds: float,
) -> Summary:
    """Run a setting once for each seed, `seconds` simulated seconds each."""
    runs = (simulate(setting, costs, rounds, seed=seed, seconds=seconds) for seed in seeds)
    return Summary(setting, tuple(outcome(log, setting, prices) for log in runs))


def round_bytes(nodes: int, vocabulary: int, seed: int = 0) -> int:
    """Bytes of a deterministic round with `nodes` nodes, as the protocol encodes it, without the
    transport's."""
    chance = random.Random(seed)
    tokens = tuple(chance.randrange(vocabulary) for _ in range(nodes))
    parents = tuple(chance.randrange(node) for node in range(1, nodes + 1))
    request = round_request(session=1, number=100, proposal=Proposal(tokens, parents))
    return int(request.ByteSize())
