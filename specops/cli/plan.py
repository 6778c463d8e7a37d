"""`specops plan explain`: which tree the planner takes at each batch size, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.assets import asset
from specops.cli.call import Answer, AnswerOption, Call, extra, shared_options
from specops.errors import UsageError
from specops.hints import with_options
from specops.quantities import MILLISECONDS
from specops.render.figures import NONE, aligned, count, decimals, milliseconds, sentence

if TYPE_CHECKING:
    from specops.phases.plan import BatchPlan, Candidate, PlanExplanation

plan = typer.Typer(no_args_is_help=True)


@plan.callback()
def _group() -> None: ...


@plan.command()
@shared_options(out=AnswerOption)
def explain(
    call: Call,
    rollout: Annotated[
        Path | None,
        typer.Argument(help="A rollout file whose speculative pool is embedded. [default: the shipped pair]"),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Folder of the target.")] = None,
    draft: Annotated[
        str | None,
        typer.Option(help="Draft folder, as for `specops serve --draft DIR`; default: copies only."),
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="Prompt set. [default: the shipped]")] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(min=1, max=256, help="Batch size; repeatable. [default: 1 2 4 8 16]"),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=32, help="Maximum number of nodes in a tree.")] = 16,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of each answer.")] = 64,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature.")] = 0.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; PyTorch's own by default.")] = None,
    gap_ms: Annotated[
        float | None, MILLISECONDS, typer.Option(help="Limit on the gap between two outputs, in ms.")
    ] = None,
    tpot_ms: Annotated[
        float | None, MILLISECONDS, typer.Option(help="Limit on the mean time per token, in ms.")
    ] = None,
) -> Answer:
    """Show which tree the planner picks at each batch size.

    With the costs, the acceptance and the next best trees.

    Runs the pair in this process. Exit 0 where it drafts at some batch size, 1 where at none.
    """
    with extra("engine", "plan"):
        from specops.phases.plan import PlanExplanation, PlanSettings, explain

    if rollout is not None and (target or draft or prompts):
        raise UsageError(
            "a rollout file names its own pair and prompts",
            hint=with_options({"--target": None, "--draft": None, "--prompts": None}),
        )
    fields: dict[str, object] = _of_rollout(rollout) if rollout else _of_options(target, draft, prompts)
    fields |= {
        "nodes": nodes,
        "tokens": tokens,
        "temperature": temperature,
        "gap_ms": gap_ms,
        "token_ms": tpot_ms,
    }
    if batch:
        fields["batches"] = tuple(dict.fromkeys(batch))
    if threads is not None:
        fields["threads"] = threads
    with call.progress() as progress:
        result = explain(call.settings(PlanSettings, fields), progress)
    return Answer(result, page(PlanExplanation.model_validate(result.data)))


def _of_options(target: Path | None, draft: str | None, prompts: Path | None) -> dict[str, object]:
    shipped = asset("playbooks", "embedded")
    if target is None and draft is None:
        draft = str(shipped / "draft")
    return {
        "target": target or shipped / "target",
        "draft": draft,
        "prompts": prompts or shipped / "prompts.json",
    }


def _of_rollout(path: Path) -> dict[str, object]:
    from specops.config import load

    rollout = load(path)
    own = rollout.pools.speculative.own
    if own is None or own.tree is None:
        raise UsageError(
            f"could not plan for {path}: its speculative pool is not of the embedded engine",
            hint=f"specops sweep {path}  # finds the best setting of other engines",
        )
    draft = own.draft or (str(own.draft_model) if own.draft_model else None)
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128) if size < own.max_batch]
    return {
        "target": own.target,
        "draft": draft,
        "prompts": rollout.prompts,
        "batches": (*sizes, own.max_batch),
        "threads": own.threads,
    }


RANKS = 3
"""Columns of acceptance by rank."""

MIN_OBSERVATIONS = 20.0
"""Observations below which a rate is mostly what was observed above it; such depths are left out of the
page."""


def page(explanation: PlanExplanation) -> list[str]:
    how = "greedy" if explanation.temperature == 0 else f"temperature {explanation.temperature:g}"
    draft = explanation.draft or "no draft, copies alone"
    nodes = count(explanation.nodes, "node")
    return [
        f"planner  {explanation.target} with {draft}, trees of up to {nodes}, {how}",
        "",
        *_chosen(explanation),
        "",
        *_accepted(explanation),
        *(line for batch_plan in explanation.by_batch for line in ("", *_batch(batch_plan))),
        "",
        "assumes  the embedded engine on this machine now, and these prompts; tree auto goes on measuring",
    ]


def _chosen(explanation: PlanExplanation) -> list[str]:
    rows = [["batch", "chosen", "tokens/s", "why"]]
    for batch_plan in explanation.by_batch:
        rows.append(
            [
                str(batch_plan.batch),
                batch_plan.chosen,
                f"{batch_plan.options[0].tokens_per_s:.0f}",
                sentence(batch_plan.why),
            ]
        )
    return aligned(rows)


def _accepted(explanation: PlanExplanation) -> Iterator[str]:
    if explanation.acceptance:
        rows = [["accepted", *(f"rank {rank + 1}" for rank in range(RANKS)), "of first children"]]
        for depth, level in enumerate(explanation.acceptance, start=1):
            if level.observations[0] >= MIN_OBSERVATIONS:
                rates = [
                    f"{rate:.2f}" if observations >= MIN_OBSERVATIONS else NONE
                    for rate, observations in zip(
                        level.by_rank[:RANKS], level.observations[:RANKS], strict=True
                    )
                ]
                rows.append([f"  depth {depth}", *rates, f"{level.observations[0]:.0f}"])
        yield from aligned(rows)
    copies = explanation.copies
    per_step = ", ".join(f"{tokens:.2f} with up to {most}" for most, tokens in copies.tokens_per_step.items())
    yield f"copies     tokens a step: {per_step} ({copies.looked_up:.0f} looked up)"


def _batch(batch_plan: BatchPlan) -> Iterator[str]:
    yield f"batch {batch_plan.batch}, {count(batch_plan.steps, 'step')} observed"
    passes = ", ".join(f"{nodes}: {milliseconds(ms)}" for nodes, ms in batch_plan.pass_ms.items())
    yield f"  the target's pass, by nodes of each tree   {passes}"
    if batch_plan.draft_first_ms is not None:
        further = ", ".join(f"{nodes}: {milliseconds(ms)}" for nodes, ms in batch_plan.draft_level_ms.items())
        first = milliseconds(batch_plan.draft_first_ms)
        yield f"  the draft's first pass {first}, further levels by nodes   {further}"
    plain, committing = milliseconds(batch_plan.plain_ms), milliseconds(batch_plan.rest_ms)
    yield f"  a plain step {plain}, of which committing {committing}"
    rows = [["  tree", "tokens a step", "a step", "tokens/s", "× none", "would win at", "any shape"]]
    rows += [_row(option, first=option.tree == batch_plan.chosen) for option in batch_plan.options]
    yield from aligned(rows)


def _row(option: Candidate, *, first: bool) -> list[str]:
    wins = "chosen" if first else f"{option.wins_at_tokens:.2f} tokens"
    if option.wins_at_rate is not None and not first:
        wins += f", {option.wins_at_rate:.2f} accepted"
    return [
        f"  {option.tree}" + ("" if option.within else " (beyond the limits)"),
        f"{option.tokens_per_step:.2f}",
        milliseconds(option.step_ms),
        f"{option.tokens_per_s:.0f}",
        f"{option.over_none:.2f}",
        wins,
        decimals(option.any_shape, 2),
    ]
