"""`edge simulate`: what edge drafting would do with other servers, links and numbers of clients."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from typing_extensions import TypedDict

from specops import results
from specops.economics import Prices
from specops.edge.settings import Drafting
from specops.edge.simulation.outcome import Outcome, round_bytes
from specops.edge.simulation.planning import BreakEven, EdgePlan, EdgePlanner, RttCapacity
from specops.edge.simulation.real_rounds import GreedyText, measure
from specops.edge.simulation.rounds import Rounds
from specops.edge.simulation.setting import EdgeCosts, Heads, Setting
from specops.engine.heads.draft_model import DraftModel
from specops.engine.load import Pair
from specops.engine.request import Sampling
from specops.errors import UsageError
from specops.hints import listing
from specops.load.workload import load_prompts
from specops.progress import Progress
from specops.section import Frozen

PHASE = "edge_simulate"

if TYPE_CHECKING:
    Figure = str
else:
    Figure = Literal[(*(field.name for field in fields(Outcome)), "idle")]


class SeedMean(TypedDict):
    """The mean of a figure over the seeds, with its interval; no interval of one seed."""

    mean: float
    low: NotRequired[float]
    high: NotRequired[float]


class SettingFigures(TypedDict):
    """A setting, and what came of it."""

    setting: Setting
    figures: dict[Figure, SeedMean | None]


class EdgeCell(SettingFigures):
    """Drafting at the edge, with one round trip and number of clients, at its best depth; ratios are over
    drafting on the server."""

    rtt_ms: float
    clients: int
    itl_ratio: float
    throughput_ratio: float
    cost_ratio: float | None


class ServerCell(TypedDict):
    clients: int
    server_only: SettingFigures
    autoregressive: SettingFigures


Points = list[tuple[int, float]]
"""Seconds of a pass, by its tokens."""


class Costs(TypedDict):
    schema: int
    draft_s: Points
    verify_s: Points
    server_draft_s: Points
    step_s: float
    round_s: float


class TextRounds(TypedDict):
    accepted: list[list[int]]
    run_by: dict[Heads, list[list[int]]]


class RoundCounts(TypedDict):
    """Text by text, or as shares of all."""

    schema: int
    source: str
    texts: NotRequired[list[TextRounds]]
    accepted: NotRequired[list[list[float]]]
    found: NotRequired[dict[Heads, list[list[list[float]]]]]


class EdgeSimulateData(TypedDict):
    """`data` of the result."""

    itl_bound_ms: float
    cells: list[EdgeCell]
    by_clients: list[ServerCell]
    by_rtt: list[RttCapacity]
    break_even: list[BreakEven]
    costs: Costs
    costs_from: str
    rounds: RoundCounts


class Summary(TypedDict):
    itl_ratio: float
    throughput_ratio: float
    round_bytes: int


Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Measuring(Frozen):
    """The pair whose rounds are counted."""

    target: Path
    draft: Path
    prompts: Path
    count: PositiveInt = 8
    """Prompts, spread over the set."""

    prompt_tokens: PositiveInt = 128
    """The last ones of each prompt."""

    tokens: PositiveInt = 72
    """Number of tokens of each answer."""

    nodes: PositiveInt = 32
    beams: PositiveInt = 8
    heads: PositiveInt = 8


class PlanSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rtt_ms: tuple[Annotated[float, Field(ge=0.0)], ...] = Field(min_length=1)
    clients: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(min_length=1)
    jitter_ms: float = Field(default=0.0, ge=0.0)
    depth: str | None = None
    """None: the best is looked for."""

    batching: str = "dynamic"
    heads: int = Field(default=8, ge=0)
    ahead: int = Field(default=16, ge=0)
    nodes: int = Field(default=32, ge=1, le=256)
    beams: int = Field(default=8, ge=1, le=256)
    max_batch: int = Field(default=32, ge=1)
    prompt_tokens: int = Field(default=0, ge=0)
    tokens: int = Field(default=256, ge=2)
    itl_ms: float | None = Field(default=None, gt=0.0)
    server_per_hour: float = Field(gt=0.0)
    edge_per_hour: float = Field(ge=0.0)

    @property
    def counted(self) -> Heads:
        return "none" if self.heads == 0 else "one" if self.heads == 1 else "many"

    def setting(self) -> Setting:
        return Setting(
            jitter_s=self.jitter_ms / 1000,
            depth=self.depth or "included:4",
            batching=self.batching,
            heads=self.counted,
            ahead=self.ahead,
            nodes=self.nodes,
            beams=self.beams,
            max_batch=self.max_batch,
            prompt_tokens=self.prompt_tokens,
            tokens=self.tokens,
        )


def rounds_of(settings: Measuring, progress: Progress) -> Rounds:
    """Counted over what the target writes, greedily. Raises ModelError, PromptsError, UsageError."""
    pair = Pair(settings.target, settings.draft)
    draft = pair.draft
    if not isinstance(draft, DraftModel):
        raise UsageError(
            f"{settings.draft} cannot draft at an edge: it is not a model of its own; a head reads the "
            "target's features, which the edge does not have",
            hint=listing(settings.draft),
        )
    chosen = load_prompts(settings.prompts).as_text(progress.note).spread(settings.count)
    engine = pair.engine("none", min(pair.positions, settings.prompt_tokens + settings.tokens))
    texts = []
    progress.start("answers", len(chosen))
    for prompt in chosen:
        content = prompt.completion_prompt()
        ids = pair.tokenizer.encode(content) if isinstance(content, str) else list(content)
        ids = ids[-min(settings.prompt_tokens, pair.positions - settings.tokens) :]
        sampling = Sampling(max_tokens=settings.tokens, ignore_eos=True)
        texts.append(GreedyText(ids, engine.generate(ids, sampling).tokens))
        progress.advance()
    source = f"{settings.target.name} with {settings.draft.name}, {len(texts)} prompts, greedy"
    drafting = Drafting(nodes=settings.nodes, beams=settings.beams, heads=settings.heads)
    return measure(draft.model, texts, drafting, source, progress)


def plan(
    settings: PlanSettings, costs: EdgeCosts, costs_from: str, rounds: Rounds, progress: Progress
) -> results.Result:
    """data: cells, served, by_rtt, break_even, costs, rounds.

    Verdict: whether the edge is ahead of server-only in inter-token latency at the lowest RTT, with any of
    the numbers of clients.
    """
    prices = Prices(settings.server_per_hour, settings.edge_per_hour)
    planner = EdgePlanner(settings.setting(), costs, rounds, prices, fixed_depth=settings.depth is not None)
    rtts = sorted({rtt_ms / 1000 for rtt_ms in settings.rtt_ms})
    edge_plan = planner.plan(rtts, sorted(set(settings.clients)), settings.itl_ms, progress)
    nearest = [cell for cell in edge_plan.cells if cell.rtt_s == rtts[0]]
    best = min(nearest, key=lambda cell: cell.itl_ratio)
    ahead = best.itl_ratio < 1
    return results.Result(
        phase=PHASE,
        inputs={"costs": results.sha256(costs.to_json()), "rounds": results.sha256(rounds.to_json())},
        settings=settings.model_dump(mode="json"),
        environment=results.environment(),
        verdict="yes" if ahead else "no",
        reason=(
            f"simulated: at {1000 * rtts[0]:g} ms, clients at a time: {best.clients}, inter-token"
            f" latency is {best.itl_ratio:.2f} times server-only's"
        ),
        summary={
            "itl_ratio": round(best.itl_ratio, 4),
            "throughput_ratio": round(max(cell.throughput_ratio for cell in edge_plan.cells), 4),
            "round_bytes": round_bytes(settings.nodes, 151936),
        },
        data={
            **_plan(edge_plan),
            "costs": costs.to_json(),
            "costs_from": costs_from,
            "rounds": rounds.to_json(),
        },
    )


def _plan(edge_plan: EdgePlan) -> dict[str, Any]:
    return {
        "itl_bound_ms": round(edge_plan.itl_bound_ms, 4),
        "cells": [
            {
                "rtt_ms": 1000 * cell.rtt_s,
                "clients": cell.clients,
                **cell.edge.to_json(),
                "itl_ratio": round(cell.itl_ratio, 4),
                "throughput_ratio": round(cell.throughput_ratio, 4),
                "cost_ratio": results.rounded(cell.cost_ratio),
            }
            for cell in edge_plan.cells
        ],
        "by_clients": [
            {
                "clients": load.clients,
                "server_only": load.server_only.to_json(),
                "autoregressive": load.autoregressive.to_json(),
            }
            for load in edge_plan.by_clients
        ],
        "by_rtt": list(map(asdict, edge_plan.by_rtt)),
        "break_even": list(map(asdict, edge_plan.break_even)),
    }
