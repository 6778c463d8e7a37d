"""`specops bench …`: what a pair can do, measured in process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, JsonFlag, OutOption, QuietFlag, print_json, print_table

bench = typer.Typer(
    help="Measure a pair of models on the embedded engine, and its kernels.", no_args_is_help=True
)


TargetOption = Annotated[
    Path | None, typer.Option("--target", help="Folder of the target. [default: the shipped]")
]
DraftOption = Annotated[
    Path | None, typer.Option("--draft", help="Folder of the draft, or exit:LAYERS. [default: the shipped]")
]
PromptsOption = Annotated[Path | None, typer.Option("--prompts", help="Prompt set. [default: the shipped]")]


@bench.callback()
def _group() -> None: ...


@contextmanager
def _engine_extra() -> Iterator[None]:
    from specops.errors import EnvironmentFailure

    try:
        yield
    except ModuleNotFoundError as error:
        raise EnvironmentFailure(
            f"could not measure the pair: {error.name} is not installed",
            hint="install the engine extra: pip install 'specops[engine]'",
        ) from error


def _or_shipped(folder: Path | None, name: str) -> Path:
    from specops.assets import asset

    return folder or asset("playbooks", "embedded", name)


@bench.command()
def acceptance(
    target: TargetOption = None,
    draft: DraftOption = None,
    prompts: PromptsOption = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Prompts, spread over the set.")] = 32,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens after each prompt.")] = 64,
    widths: Annotated[int, typer.Option("--widths", min=1, help="Children of a node, up to.")] = 5,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """How often one of k drafted tokens is accepted, by verification rule and width."""
    from specops import results
    from specops.cli.progress import progress

    with _engine_extra():
        from specops.phases.acceptance import AcceptanceSettings, measure, table

    settings = AcceptanceSettings(
        target=_or_shipped(target, "target"),
        draft=_or_shipped(draft, "draft"),
        prompts=_or_shipped(prompts, "prompts.json"),
        count=count,
        tokens=tokens,
        widths=widths,
        seed=seed,
    )
    with progress(quiet) as shown:
        result = measure(settings, shown)
    if out is not None:
        results.write(out, result)
    if as_json:
        print_json(result)
        return
    print_table(*table(result))
    spread = result.summary["greedy_acceptance_by_prompt"]
    typer.echo(
        f"{result.reason}; greedy by prompt: "
        f"{spread['min']:.2f} / {spread['median']:.2f} / {spread['max']:.2f} (least, median, most)"
    )


@bench.command()
def verifiers(
    target: TargetOption = None,
    draft: DraftOption = None,
    prompts: PromptsOption = None,
    tree: Annotated[
        list[str] | None, typer.Option("--tree", help="May be given again. [default: four shapes]")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Prompts, spread over the set.")] = 16,
    tokens: Annotated[int, typer.Option("--tokens", min=8, help="Tokens after each prompt.")] = 32,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Times 8 continuations of a prompt, at most.")
    ] = 3,
    temperature: Annotated[float, typer.Option("--temperature", min=0.01)] = 1.0,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Tokens a step that each verifier yields of the very same trees, computed and counted, and its time."""
    from specops import results
    from specops.cli.progress import progress

    with _engine_extra():
        from specops.phases.verifiers import TREES, Ranking, VerifierSettings, measure, over_naive, table

    settings = VerifierSettings(
        target=_or_shipped(target, "target"),
        draft=_or_shipped(draft, "draft"),
        prompts=_or_shipped(prompts, "prompts.json"),
        trees=tuple(tree or TREES),
        count=count,
        tokens=tokens,
        rounds=rounds,
        temperature=temperature,
        seed=seed,
    )
    with progress(quiet) as shown:
        result = measure(settings, shown)
    if out is not None:
        results.write(out, result)
    if as_json:
        print_json(result)
        return
    ranking = Ranking.model_validate(result.data)
    print_table(*table(ranking))
    typer.echo("\n".join([*over_naive(ranking), result.reason]))


@bench.command()
def specinfer(
    target: TargetOption = None,
    draft: DraftOption = None,
    prompts: PromptsOption = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Prompts of each class.")] = 16,
    tokens: Annotated[int, typer.Option("--tokens", min=16, help="Tokens after each prompt.")] = 64,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Four prompts of each class.")] = False,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """SpecInfer's tables 1 to 3 of a pair, beside the paper's; the prompt set's classes are the datasets."""
    from specops import results
    from specops.cli.progress import progress

    with _engine_extra():
        from specops.phases.specinfer.measure import SpecInferSettings, measure
        from specops.phases.specinfer.tables import Tables, pages

    settings = SpecInferSettings(
        target=_or_shipped(target, "target"),
        draft=_or_shipped(draft, "draft"),
        prompts=_or_shipped(prompts, "prompts.json"),
        count=min(count, 4) if quick else count,
        tokens=tokens,
        seed=seed,
    )
    with progress(quiet) as shown:
        result = measure(settings, shown)
    if out is not None:
        results.write(out, result)
    if as_json:
        print_json(result)
        return
    for title, columns, rows in pages(Tables.model_validate(result.data)):
        print_table(columns, rows, title=title)
        typer.echo()
    typer.echo(result.reason)


@bench.command()
def kernels(
    dtype: Annotated[str, typer.Option("--dtype", help="bfloat16, float16 or float32.")] = "bfloat16",
    quick: Annotated[bool, typer.Option("--quick", help="One or two sizes of each kernel.")] = False,
    page: Annotated[
        Path | None, typer.Option("--page", help="Also add the answer to this Markdown file.")
    ] = None,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """The Triton kernels on this machine's GPU: first checked, then timed beside PyTorch's and others'."""
    from specops import results
    from specops.cli.progress import progress
    from specops.errors import EnvironmentFailure, FileError, UsageError

    try:
        from specops.phases import kernels as phase
    except ModuleNotFoundError as error:
        raise EnvironmentFailure(
            f"could not measure the kernels: {error.name} is not installed",
            hint="install the kernels extra: pip install 'specops[kernels]'",
        ) from error

    if dtype not in ("bfloat16", "float16", "float32"):
        raise UsageError(
            f"could not measure the kernels: {dtype!r} is not a type that they take",
            hint="--dtype bfloat16, float16 or float32",
        )
    settings = phase.KernelSettings.model_validate({"dtype": dtype, "quick": quick})
    machine = phase.this_machine()
    with progress(quiet) as shown:
        result = phase.measure(settings, machine, shown)
    if out is not None:
        results.write(out, result)
    if page is not None:
        try:
            with page.open("a", encoding="utf-8") as file:
                file.write("\n" + phase.page(result))
        except OSError as error:
            raise FileError(f"could not add to {page}: {error.strerror}", hint="make it writable") from error
    if as_json:
        print_json(result)
    else:
        measured = phase.Measured.model_validate(result.data)
        print_table(*phase.table(measured))
        for note in phase.notes(measured):
            typer.echo(note)
        typer.echo(result.reason)
    raise typer.Exit(result.exit_code)
