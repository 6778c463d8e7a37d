"""What an arm took and gave at a number of clients: from its visits, pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.edge.cost import Prices, Spent
from specops.phases.edge_bench.records import ClientEffort, VisitRecord


class EdgeFigures(BaseModel):
    """Means over the rounds that edges sent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: float
    hit_rate: float
    """Of all rounds."""

    taken: float = 0.0
    """Of all rounds, the share that had been sent ahead of the verdict before it."""

    passes: float
    wasted: float
    """Of the nodes that the draft ran, the share that was run ahead in vain."""

    draft_ms: float
    network_ms: float
    waited_ms: float
    step_ms: float
    up_bytes: float
    down_bytes: float


class Figures(BaseModel):
    """Of one arm at one number of clients. Milliseconds where the name says so."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    clients: int
    answers: int
    tokens: int
    itl_ms: float | None
    """The mean, of all tokens after the first of each answer."""

    itl_p50_ms: float | None
    itl_p95_ms: float | None
    ttft_ms: float | None
    """The median."""

    tokens_a_verification: float | None
    accepted: list[float]
    """By depth, from 1: the share of verifications that accepted so far down."""

    tokens_per_s: float
    """Of all clients, over the time that passed."""

    tokens_per_busy_s: float | None
    """Over the time that the server was in steps: what it would carry if others filled the rest."""

    trees_a_step: float | None
    busy: float
    """Share of the time with sessions that the server was in steps."""

    idle: float
    """The rest: it had sessions, and none of them a round."""

    edge: EdgeFigures | None
    cost_per_million: float | None
    """Of tokens, where the server is paid for all the time that passed."""

    filled_cost_per_million: float | None
    """The same, where it is paid for the time that it was busy: others pay for the rest."""

    late_passes: float | None
    """Share of passes that computed longer than declared; None without stand-in costs."""

    late_s: float | None
    """How much longer, in all, over the seconds that were declared."""


def figures(visits: Sequence[VisitRecord], prices: Prices | None) -> Figures:
    """Of visits of one arm at one number of clients."""
    first = visits[0]
    answers = [answer for visit in visits for answer in visit.answers if answer.error is None]
    gaps = [gap for answer in answers for gap in answer.gaps()]
    starts = [at for answer in answers if (at := answer.ttft_s) is not None]
    verifications = sum(answer.verifications for answer in answers)
    tokens = sum(len(answer.tokens) for answer in answers)
    seconds = math.fsum(visit.seconds for visit in visits)
    busy = math.fsum(visit.server.busy_s for visit in visits)
    starved = math.fsum(visit.server.starved_s for visit in visits)
    steps = sum(visit.server.steps for visit in visits)
    rounds = sum(visit.server.rounds for visit in visits)
    used = math.fsum(answer.chunks[-1][0] for answer in answers if answer.chunks)
    edge_s = used if first.effort.drafts else 0.0
    by_wall, by_busy = Spent(tokens, seconds, edge_s), Spent(tokens, busy, edge_s)
    paces = [pace for visit in visits for pace in (visit.target_pace, visit.draft_pace) if pace is not None]
    passes = sum(pace.passes for pace in paces)
    return Figures(
        arm=first.arm,
        clients=first.clients,
        answers=len(answers),
        tokens=tokens,
        itl_ms=_ms(math.fsum(gaps) / len(gaps)) if gaps else None,
        itl_p50_ms=_ms(stats.percentile(gaps, 0.5)),
        itl_p95_ms=_ms(stats.percentile(gaps, 0.95)),
        ttft_ms=_ms(stats.percentile(starts, 0.5)),
        tokens_a_verification=len(gaps) / verifications if verifications else None,
        accepted=accepted(visits),
        tokens_per_s=tokens / seconds if seconds else 0.0,
        tokens_per_busy_s=tokens / busy if busy else None,
        trees_a_step=rounds / steps if steps else None,
        busy=busy / (busy + starved) if busy + starved else 0.0,
        idle=starved / (busy + starved) if busy + starved else 0.0,
        edge=_edge(visits),
        cost_per_million=None if prices is None else by_wall.per_million(prices),
        filled_cost_per_million=None if prices is None else by_busy.per_million(prices),
        late_passes=sum(pace.late for pace in paces) / passes if passes else None,
        late_s=math.fsum(pace.over_s for pace in paces) / math.fsum(pace.declared_s for pace in paces)
        if passes
        else None,
    )


def accepted(visits: Iterable[VisitRecord]) -> list[float]:
    """Of the verifications after each answer's first, the share that gave more than d tokens, d = 1, 2, …

    Counted where the tokens arrive, alike for all arms. The end of an answer may cut off what was accepted.
    """
    sizes = [count for visit in visits for answer in visit.answers for _, count in answer.chunks[1:]]
    return [sum(size > depth for size in sizes) / len(sizes) for depth in range(1, max(sizes, default=1))]


def _edge(visits: Sequence[VisitRecord]) -> EdgeFigures | None:
    effort = summed([visit.effort for visit in visits])
    if not effort.drafts:
        return None
    verdicts, judged = max(effort.verdicts, 1), max(effort.hits + effort.misses, 1)
    return EdgeFigures(
        nodes=effort.nodes / effort.rounds,
        hit_rate=effort.hits / judged,
        taken=effort.taken / judged,
        passes=effort.passes / effort.rounds,
        wasted=effort.wasted / max(effort.run, 1),
        draft_ms=1000 * effort.draft_s / effort.rounds,
        network_ms=1000 * effort.network_s / effort.rounds,
        waited_ms=1000 * effort.waited_s / verdicts,
        step_ms=1000 * effort.step_s / verdicts,
        up_bytes=effort.up_bytes / effort.rounds,
        down_bytes=effort.down_bytes / effort.rounds,
    )


def summed(efforts: Sequence[ClientEffort]) -> ClientEffort:
    """Of several clients, or visits."""
    return ClientEffort(
        **{name: sum(getattr(effort, name) for effort in efforts) for name in ClientEffort.model_fields}
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
