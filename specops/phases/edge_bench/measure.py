"""Makes the visits of an edge bench, and the Result of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

from specops import results
from specops.engine.text import load_tokenizer
from specops.errors import SpecopsError, UsageError
from specops.load.arrivals import Level
from specops.load.workload import Prompt, load_prompts
from specops.phases.ab.visits import Visit, schedule
from specops.phases.edge_bench.judging import Comparison, compare, verdict
from specops.phases.edge_bench.records import VisitRecord, Visits
from specops.phases.edge_bench.settings import SERVER_ONLY, Arm, EdgeBenchSettings, arms_of, stands_in
from specops.phases.edge_bench.site import site
from specops.progress import Progress


def measure(
    settings: EdgeBenchSettings,
    progress: Progress,
    on_partial: Callable[[results.Result], None] | None = None,
) -> results.Result:
    """Every arm, at every number of clients, on the same prompts in turn. Raises SpecopsError.

    on_partial: called with what was measured where an interruption or an error ends it early, before that
    goes on; not where nothing was.
    """
    edge = settings.edge
    arms = arms_of(edge.heads, edge.depth, edge.ahead)
    by_name = {arm.name: arm for arm in arms}
    loaded = load_prompts(settings.prompts)
    chosen = loaded.spread(settings.count)
    tokenizer = load_tokenizer(settings.target)
    prompts = {prompt.id: _tokens(prompt, tokenizer, settings.prompt_tokens) for prompt in chosen}
    plan = _plan(list(by_name), edge.clients, chosen, settings.seed)
    for line in stands_in(edge.stand_in) if edge.stand_in else []:
        progress.note(f"stand-in costs: {line}")
    visits: list[VisitRecord] = []
    progress.start("starting two servers and their clients", 1)
    try:
        with site(settings, arms, tokenizer) as placed:
            for arm in arms:  # caches are touched, and the first path of an adaptive depth is found
                placed.visit(arm, 1, -1, 0, _of(prompts, [chosen[0].id]))
            progress.start("asking all arms in turn", len(plan))
            for visit in plan:
                clients = visit.level.concurrency or 1
                given = _of(prompts, visit.prompts)
                visits.append(placed.visit(by_name[visit.arm], clients, visit.block, visit.order, given))
                progress.advance()
    except (KeyboardInterrupt, SpecopsError):
        if visits and on_partial is not None:
            on_partial(_result(settings, arms, visits, len(plan), loaded.sha256))
        raise
    return _result(settings, arms, visits, len(plan), loaded.sha256)


def _result(
    settings: EdgeBenchSettings,
    arms: Sequence[Arm],
    visits: Sequence[VisitRecord],
    planned: int,
    prompts_sha256: str,
) -> results.Result:
    found = compare(
        arms,
        visits,
        settings.prices,
        greedy=settings.temperature == 0,
        confidence=settings.confidence,
    )
    said, why = verdict(found)
    if len(visits) < planned:
        said, why = "partial", f"ended after {len(visits)} of {planned} visits; so far {why}"
    return results.Result(
        phase="edge-bench",
        inputs={"prompts": prompts_sha256},
        settings=settings.recorded() | {"stand_in_costs": settings.edge.stand_in is not None},
        environment=results.environment()
        | {"torch": version("torch"), "grpcio": version("grpcio"), "threads": 1},
        verdict=said,
        reason=why,
        summary=_summary(found),
        data=found.model_dump(mode="json") | Visits(visits=tuple(visits)).model_dump(mode="json"),
    )


def comparison_of(result: results.Result) -> Comparison:
    """What a result of this phase holds, without its visits."""
    return Comparison.model_validate({key: result.data[key] for key in Comparison.model_fields})


def _plan(arms: Sequence[str], clients: Sequence[int], prompts: Sequence[Prompt], seed: int) -> list[Visit]:
    if max(clients) > len(prompts):
        raise UsageError(
            f"could not bench {max(clients)} clients on {len(prompts)} prompts: some would have none",
            hint="give more prompts with --count, or fewer --clients",
        )
    levels = [Level(concurrency=count) for count in sorted(set(clients))]
    named = [(prompt.id, prompt.traffic_class) for prompt in prompts]
    return schedule("interleaved", arms, levels, named, rounds=1, looks=1, seed=seed)


def _tokens(prompt: Prompt, tokenizer: object, most: int) -> list[int]:
    text = prompt.completion_prompt()
    tokens: list[int] = text if isinstance(text, list) else tokenizer.encode(text)  # type: ignore[attr-defined]
    return tokens[-most:]


def _of(prompts: dict[str, list[int]], ids: Sequence[str]) -> list[tuple[str, list[int]]]:
    return [(name, prompts[name]) for name in ids]


def _summary(found: Comparison) -> dict[str, object]:
    """By the number of clients: each arm's milliseconds a token, and the edge's best over server-only."""
    summary: dict[str, object] = {}
    for clients in sorted({figure.clients for figure in found.figures}):
        of_level = [figure for figure in found.figures if figure.clients == clients]
        ratios = [
            ratio
            for arm in found.arms
            if arm.kind == "edge"
            and (ratio := found.ratio("latency", arm.name, SERVER_ONLY, clients)) is not None
        ]
        best = max(ratios, key=lambda ratio: ratio.estimate, default=None)
        summary[f"clients_{clients}"] = {
            "itl_ms": {figure.arm: _rounded(figure.itl_ms) for figure in of_level},
            "tokens_per_s": {figure.arm: _rounded(figure.tokens_per_s) for figure in of_level},
            "server_idle": {figure.arm: _rounded(figure.idle) for figure in of_level},
            "best_edge_arm": None if best is None else best.arm,
            "latency_over_server_only": None if best is None else _rounded(best.estimate),
        }
    return summary


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
