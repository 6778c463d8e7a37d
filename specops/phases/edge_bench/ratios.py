"""By how much one arm is better than another, with intervals. Pure.

A pair is one prompt at one number of clients, in both arms; of throughput and cost, one block of prompts.
Above 1 the edge is better: its tokens come faster, it yields more of them, or they cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.edge.cost import Prices
from specops.phases.ab.speedups import Shown
from specops.phases.edge_bench.figures import figures
from specops.phases.edge_bench.records import Answer, VisitRecord

Quality = Literal[
    "latency", "tokens a verification", "throughput", "filled throughput", "cost", "filled cost"
]


class Ratio(BaseModel):
    """By how much `arm` is better than `over`. Without an interval where there are too few pairs for one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: Quality
    arm: str
    over: str
    clients: int
    estimate: float
    interval: Shown | None


def ratios_of(
    ours: Sequence[VisitRecord],
    over: Sequence[VisitRecord],
    prices: Prices | None,
    latency_level: float,
    level: float,
) -> list[Ratio]:
    if not ours or not over:
        return []
    found = [
        _by_prompt("latency", ours, over, lambda answer: answer.itl_s, latency_level),
        *(_by_block(of, ours, over, taken, level) for of, taken in _per_token(prices).items()),
    ]
    return [ratio for ratio in found if ratio is not None]


def proactive(ours: Sequence[VisitRecord], bare: Sequence[VisitRecord], level: float) -> list[Ratio]:
    """What drafting on while the server verifies brings, or sending that ahead: over the same without."""
    found = [
        _by_prompt("latency", ours, bare, lambda answer: answer.itl_s, level),
        _by_prompt("tokens a verification", ours, bare, _verifications_a_token, level),
    ]
    return [ratio for ratio in found if ratio is not None]


def _verifications_a_token(answer: Answer) -> float | None:
    return answer.verifications / answer.after_first if answer.after_first else None


def _per_token(prices: Prices | None) -> Mapping[Quality, Callable[[VisitRecord], float | None]]:
    """What a token takes of time or money, by the quality that it is the reverse of."""

    def of(figure: str, each: bool) -> Callable[[VisitRecord], float | None]:
        def taken(visit: VisitRecord) -> float | None:
            value: float | None = getattr(figures([visit], prices), figure)
            return None if not value else 1 / value if each else value

        return taken

    found: dict[Quality, Callable[[VisitRecord], float | None]] = {
        "throughput": of("tokens_per_s", True),
        "filled throughput": of("tokens_per_busy_s", True),
    }
    if prices is not None:
        found |= {"cost": of("cost_per_million", False), "filled cost": of("filled_cost_per_million", False)}
    return found


def _by_prompt(
    of: Quality,
    ours: Iterable[VisitRecord],
    over: Iterable[VisitRecord],
    taken: Callable[[Answer], float | None],
    level: float,
) -> Ratio | None:
    """Of the means over prompts of what each takes in both arms."""

    def by_prompt(visits: Iterable[VisitRecord]) -> dict[str, float]:
        answers = [answer for visit in visits for answer in visit.answers if answer.error is None]
        return {answer.prompt: value for answer in answers if (value := taken(answer))}

    return _paired(of, ours, over, by_prompt(ours), by_prompt(over), level)


def _by_block(
    of: Quality,
    ours: Iterable[VisitRecord],
    over: Iterable[VisitRecord],
    taken: Callable[[VisitRecord], float | None],
    level: float,
) -> Ratio | None:
    def by_block(visits: Iterable[VisitRecord]) -> dict[str, float]:
        return {str(visit.block): value for visit in visits if (value := taken(visit))}

    return _paired(of, ours, over, by_block(ours), by_block(over), level)


def _paired(
    of: Quality,
    ours: Iterable[VisitRecord],
    over: Iterable[VisitRecord],
    new: Mapping[str, float],
    old: Mapping[str, float],
    level: float,
) -> Ratio | None:
    both = sorted(new.keys() & old.keys())
    if not both:
        return None
    before, after = [old[key] for key in both], [new[key] for key in both]
    one, other = next(iter(ours)), next(iter(over))
    return Ratio(
        of=of,
        arm=one.arm,
        over=other.arm,
        clients=one.clients,
        estimate=sum(before) / sum(after),
        interval=stats.paired_ratio(before, after, level=level),
    )
