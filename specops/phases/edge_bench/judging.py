"""The judgement of an edge bench: figures of an arm at a number of clients, and the ratios between arms with
intervals; whether the arms said the same, and whether to draft at the edge. Pure.

A pair is one prompt at one number of clients, in both arms; for throughput and cost, one block of prompts.
A ratio above 1 favours the edge: its tokens come faster, it yields more of them, or they cost less.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from specops import stats
from specops.economics import Prices, TokenTime
from specops.experiment.findings import StoredInterval
from specops.phases.edge_bench.records import Answer, ClientEffort, VisitRecord
from specops.phases.edge_bench.settings import AUTOREGRESSIVE, SERVER_ONLY, Arm
from specops.results import Verdict
from specops.section import Frozen


class EdgeFigures(Frozen):
    """Means over the rounds that edges sent."""

    nodes: float
    hit_rate: float
    """Hit rate over all rounds."""

    taken: float = 0.0
    """Share of all rounds that had been sent ahead of the verdict before them."""

    passes: float
    wasted: float
    """Share of the nodes that the draft ran which were run ahead in vain."""

    draft_ms: float
    network_ms: float
    waited_ms: float
    step_ms: float
    up_bytes: float
    down_bytes: float


class Figures(Frozen):
    """Figures of one arm at one number of clients, in milliseconds where the name says so."""

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
    """Share of verifications that accepted so far down, by depth from 1."""

    tokens_per_s: float
    """Tokens a second of all clients, over the time that passed."""

    tokens_per_busy_s: float | None
    """Tokens a second over the time that the server was in steps: what it would carry if others filled the
    rest."""

    trees_a_step: float | None
    busy: float
    """Share of the time with sessions that the server was in steps."""

    idle: float
    """The rest: it had sessions, and none of them a round."""

    edge: EdgeFigures | None
    cost_per_million: float | None
    """Cost of a million tokens, where the server is paid for all the time that passed."""

    filled_cost_per_million: float | None
    """Cost of a million tokens, where the server is paid only for its busy time: others pay for the rest."""

    late_passes: float | None
    """Share of passes that computed longer than declared; None without stand-in costs."""

    late_s: float | None
    """How much longer, in all, over the seconds that were declared."""


def figures(visits: Sequence[VisitRecord], prices: Prices | None) -> Figures:
    """Return the figures of visits of one arm at one number of clients."""
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
    by_wall, by_busy = TokenTime(tokens, seconds, edge_s), TokenTime(tokens, busy, edge_s)
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
    """Return for d = 1, 2, … the share of the verifications after each answer's first that gave more than d
    tokens.

    They are counted where the tokens arrive, alike for all arms. The end of an answer may cut off what was
    accepted.
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
    """Return the sum over several clients, or visits."""
    return ClientEffort(
        **{name: sum(getattr(effort, name) for effort in efforts) for name in ClientEffort.model_fields}
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


Quality = Literal[
    "latency", "tokens a verification", "throughput", "filled throughput", "cost", "filled cost"
]


class Ratio(Frozen):
    """The ratio by which `arm` is better than `over`. Without an interval where there are too few pairs for
    one."""

    of: Quality
    arm: str
    over: str
    clients: int
    estimate: float
    interval: StoredInterval | None


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
    """Return what drafting on while the server verifies brings, or sending that ahead: over the same
    without."""
    found = [
        _by_prompt("latency", ours, bare, lambda answer: answer.itl_s, level),
        _by_prompt("tokens a verification", ours, bare, _verifications_a_token, level),
    ]
    return [ratio for ratio in found if ratio is not None]


def _verifications_a_token(answer: Answer) -> float | None:
    return answer.verifications / answer.after_first if answer.after_first else None


def _per_token(prices: Prices | None) -> Mapping[Quality, Callable[[VisitRecord], float | None]]:
    """Return what a token takes of time or money, by the quality that it is the reverse of."""

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
    """Return the ratio of the means over prompts of what each takes in both arms."""

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


class Parity(Frozen):
    """The number of greedy answers that are those of the autoregressive arm."""

    arm: str
    same: int
    of: int
    first_difference: str | None
    """Which prompt, and at which token."""


class Comparison(Frozen):
    """All that is stored of a bench."""

    arms: list[Arm]
    figures: list[Figures]
    ratios: list[Ratio]
    parity: list[Parity]
    """Empty where answers are sampled."""

    failed: dict[str, str]
    """Arm and reason of each answer that failed."""

    def at(self, arm: str, clients: int) -> Figures:
        return next(found for found in self.figures if found.arm == arm and found.clients == clients)

    def ratio(self, of: Quality, arm: str, over: str, clients: int) -> Ratio | None:
        return next(
            (r for r in self.ratios if (r.of, r.arm, r.over, r.clients) == (of, arm, over, clients)), None
        )


def compare(
    arms: Sequence[Arm],
    visits: Sequence[VisitRecord],
    prices: Prices | None,
    *,
    greedy: bool,
    confidence: float,
) -> Comparison:
    """confidence: of all intervals of latency over server-only together; each of the others by itself."""
    levels = sorted({visit.clients for visit in visits})
    by = {
        (arm.name, clients): [v for v in visits if v.arm == arm.name and v.clients == clients]
        for arm in arms
        for clients in levels
    }
    edges = [arm for arm in arms if arm.kind == "edge"]
    shared = 1 - (1 - confidence) / max(1, len(edges) * len(levels))
    bare = {arm.depth: arm.name for arm in edges if arm.heads == 0}
    waiting = {(arm.depth, arm.heads): arm.name for arm in edges if arm.ahead == 0}
    ratios = []
    for clients in levels:
        for arm in edges:
            theirs = by[arm.name, clients]
            for over in (SERVER_ONLY, AUTOREGRESSIVE):
                level = shared if over == SERVER_ONLY else confidence
                ratios += ratios_of(theirs, by[over, clients], prices, level, confidence)
            if arm.heads > 0 and arm.depth in bare:
                ratios += proactive(theirs, by[bare[arm.depth], clients], confidence)
            if arm.ahead > 0 and (arm.depth, arm.heads) in waiting:
                ratios += proactive(theirs, by[waiting[arm.depth, arm.heads], clients], confidence)
        ratios += ratios_of(
            by[SERVER_ONLY, clients], by[AUTOREGRESSIVE, clients], prices, confidence, confidence
        )
    return Comparison(
        arms=list(arms),
        figures=[figures(found, prices) for found in by.values() if found],
        ratios=ratios,
        parity=_parity(arms, visits) if greedy else [],
        failed={
            f"{visit.arm}, {answer.prompt}": str(answer.error) for visit in visits for answer in visit.failed
        },
    )


def verdict(found: Comparison) -> tuple[Verdict, str]:
    """Should one draft at the edge? Where it is surely faster than drafting on the server: there."""
    unlike = [parity for parity in found.parity if parity.same < parity.of]
    if unlike:
        message = "; ".join(f"{p.arm}: {p.of - p.same} of {p.of}, first {p.first_difference}" for p in unlike)
        return "no", f"greedy answers are not those of autoregressive decoding ({message})"
    if found.failed:
        who, why = next(iter(found.failed.items()))
        return "undecided", f"{len(found.failed)} answers failed; {who}: {why}"
    levels = sorted({figure.clients for figure in found.figures})
    edges = [arm.name for arm in found.arms if arm.kind == "edge"]
    yes, no, open_ = [], [], []
    for clients in levels:
        ratios = [r for arm in edges if (r := found.ratio("latency", arm, SERVER_ONLY, clients)) is not None]
        best = max(ratios, key=lambda ratio: ratio.estimate, default=None)
        if best is None:
            open_.append(f"{_clients(clients)}: nothing to compare")
        elif sure := [r for r in ratios if r.interval is not None and r.interval.low > 1]:
            best = max(sure, key=lambda ratio: ratio.estimate)
            yes.append(f"{_clients(clients)}, {best.arm}: {_times(best)}{_cheaper(found, best)}")
        elif all(r.interval is not None and r.interval.high < 1 for r in ratios):
            no.append(f"{_clients(clients)}: {_times(best)} at best{_cheaper(found, best)}")
        else:
            why = "" if best.interval is not None else f" (an interval needs {stats.MIN_PAIRS} prompts)"
            open_.append(f"{_clients(clients)}: {_times(best)}{why}")
    message = "; ".join(
        [
            *(f"faster than drafting on the server for {line}" for line in yes),
            *(f"slower for {line}" for line in no),
            *(f"undecided for {line}" for line in open_),
        ]
    )
    return ("yes" if yes else "undecided" if open_ else "no"), message


def _cheaper(found: Comparison, of: Ratio) -> str:
    cost = found.ratio("filled cost", of.arm, of.over, of.clients)
    return (
        "" if cost is None else f", tokens for {1 / cost.estimate:.2f}× the money on a server that is filled"
    )


def _clients(count: int) -> str:
    return f"{count} client{'' if count == 1 else 's'}"


def _times(ratio: Ratio) -> str:
    between = ratio.interval
    return f"{ratio.estimate:.2f}×" + (f" [{between.low:.2f}, {between.high:.2f}]" if between else "")


def _parity(arms: Sequence[Arm], visits: Sequence[VisitRecord]) -> list[Parity]:
    said: dict[str, dict[str, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
    for visit in visits:
        for answer in visit.answers:
            if answer.error is None:
                said[visit.arm][answer.prompt].append(answer.tokens)
    found = []
    for arm in arms:
        same, of, first = 0, 0, None
        for prompt, answers in said[arm.name].items():
            for tokens in answers:
                reference = next(iter(said[AUTOREGRESSIVE].get(prompt, [])), None)
                if reference is None:
                    continue
                of += 1
                same += tokens == reference
                if first is None and tokens != reference:
                    first = f"{prompt} at token {_parts(tokens, reference)}"
        found.append(Parity(arm=arm.name, same=same, of=of, first_difference=first))
    return found


def _parts(one: Sequence[int], other: Sequence[int]) -> int:
    """The first place where they part; the end of the shorter where it is the other's beginning."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
