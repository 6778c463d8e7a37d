"""Whether the arms said the same, and whether to draft at the edge. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.economics import Prices
from specops.phases.edge_bench.figures import Figures, Quality, Ratio, figures, proactive, ratios_of
from specops.phases.edge_bench.records import VisitRecord
from specops.phases.edge_bench.settings import AUTOREGRESSIVE, SERVER_ONLY, Arm
from specops.results import Verdict


class Parity(BaseModel):
    """Whether greedy answers are those of the autoregressive arm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    same: int
    of: int
    first_difference: str | None
    """Which prompt, and at which token."""


class Comparison(BaseModel):
    """All that is stored of a bench."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arms: list[Arm]
    figures: list[Figures]
    ratios: list[Ratio]
    parity: list[Parity]
    """Empty where answers are sampled."""

    failed: dict[str, str]
    """Of an answer that failed: whose, and why."""

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
