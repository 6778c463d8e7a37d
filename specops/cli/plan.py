"""`specops plan explain`: which tree the planner takes at each batch size, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.assets import asset
from specops.cli.extras import extra
from specops.cli.load_options import wrong_option
from specops.cli.output import DebugFlag, JsonFlag, OutOption, QuietFlag, print_json
from specops.errors import UsageError

if TYPE_CHECKING:
    from specops.phases.plan import PlanSettings

plan = typer.Typer(help="Explain the planner behind `tree: auto`.", no_args_is_help=True)


@plan.callback()
def _group() -> None: ...


@plan.command()
def explain(
    rollout: Annotated[
        Path | None,
        typer.Argument(help="A rollout file whose speculative pool is embedded. [default: the shipped pair]"),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Folder of the target.")] = None,
    draft: Annotated[
        str | None, typer.Option(help="Its draft, as `specops serve --draft DIR` takes it; without: copies.")
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="Prompt set. [default: the shipped]")] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, max=256, help="May be given again. [default: 1 2 4 8 16]")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=32, help="Of a tree, at most.")] = 16,
    tokens: Annotated[int, typer.Option(min=1, help="Of each answer.")] = 64,
    temperature: Annotated[float, typer.Option(min=0)] = 0.0,
    threads: Annotated[int | None, typer.Option(min=1, help="PyTorch's own by default.")] = None,
    gap_ms: Annotated[
        float | None, typer.Option(help="Longest step that counts: the gap between two outputs.")
    ] = None,
    tpot_ms: Annotated[float | None, typer.Option(help="Longest mean time of a token that counts.")] = None,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Show which tree the planner picks at each batch size.

    With the costs, the acceptance and the next best trees.

    Runs the pair in this process. Exit 0 where it drafts at some batch size, 1 where at none.
    """
    from specops import results
    from specops.cli.progress import progress

    with extra("engine", "plan"):
        from specops.phases.plan import Explained, explain
    from specops.cli.plan_page import page

    if rollout is not None and (target or draft or prompts):
        raise UsageError(
            "a rollout file names its own pair and prompts",
            hint="leave --target, --draft and --prompts out, or the file",
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
    with progress(quiet) as shown:
        result = explain(_settings(fields), shown)
    if out is not None:
        results.write(out, result)
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join(page(Explained.model_validate(result.data))))
    raise typer.Exit(result.exit_code)


def _settings(fields: dict[str, object]) -> PlanSettings:
    from pydantic import ValidationError

    from specops.phases.plan import PlanSettings

    try:
        return PlanSettings.model_validate(fields)
    except ValidationError as error:
        raise wrong_option(error, "plan explain") from error


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
            f"{path}: the speculative pool is no embedded one, and the planner is the embedded engine's",
            hint="`specops sweep ROLLOUT` finds the best setting of other engines",
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
