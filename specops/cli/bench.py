"""`specops bench …`: what a pair can do, measured in process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.assets import asset
from specops.cli.call import Answer, AnswerOption, Call, extra, shared_options
from specops.cli.output import Table
from specops.errors import FileError, UsageError
from specops.hints import with_options

if TYPE_CHECKING:
    from specops.progress import Progress
    from specops.results import Result

bench = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True)
class PairOptions:
    """The options of a measurement of one pair."""

    target: Annotated[Path | None, typer.Option(help="Folder of the target. [default: the shipped]")] = None
    draft: Annotated[
        Path | None, typer.Option(help="Folder of the draft, or exit:LAYERS. [default: the shipped]")
    ] = None
    prompts: Annotated[Path | None, typer.Option(help="Prompt set. [default: the shipped]")] = None
    seed: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0

    def settings(self) -> dict[str, Any]:
        """Return them as the settings of the phase have them."""
        shipped = asset("playbooks", "embedded")
        pair = {"target": shipped / "target", "draft": shipped / "draft", "prompts": shipped / "prompts.json"}
        return pair | {name: value for name, value in vars(self).items() if value is not None}


CountOption = Annotated[int, typer.Option("--count", min=1, help="Number of prompts, spread over the set.")]


@bench.callback()
def _group() -> None: ...


def _measured(call: Call, measure: Callable[[Progress], Result]) -> Result:
    with call.progress() as shown:
        return measure(shown)


@bench.command()
@shared_options(out=AnswerOption)
def acceptance(
    call: Call,
    pair: PairOptions,
    count: CountOption = 32,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens after each prompt.")] = 64,
    widths: Annotated[int, typer.Option("--widths", min=1, help="Maximum number of children per node.")] = 5,
) -> Answer:
    """Measure acceptance by verification rule and tree width."""
    with extra("engine", "measure the pair"):
        from specops.phases.acceptance import AcceptanceSettings, measure, table

    settings = AcceptanceSettings(
        **pair.settings(),
        count=count,
        tokens=tokens,
        widths=widths,
    )
    result = _measured(call, partial(measure, settings))
    spread = result.summary["greedy_acceptance_by_prompt"]
    by_prompt = f"{spread['min']:.2f} / {spread['median']:.2f} / {spread['max']:.2f} (least, median, most)"
    return Answer(result, [Table(*table(result)), f"{result.reason}; greedy by prompt: {by_prompt}"])


@bench.command()
@shared_options(out=AnswerOption)
def verifiers(
    call: Call,
    pair: PairOptions,
    tree: Annotated[
        list[str] | None, typer.Option("--tree", help="Tree to compare; repeatable. [default: four shapes]")
    ] = None,
    count: CountOption = 16,
    tokens: Annotated[int, typer.Option("--tokens", min=8, help="Tokens after each prompt.")] = 32,
    rounds: Annotated[
        int,
        typer.Option("--rounds", min=1, help="Maximum number of rounds of 8 continuations for each prompt."),
    ] = 3,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0.01, help="Sampling temperature.")
    ] = 1.0,
) -> Answer:
    """Compare verifiers on the same trees: tokens a step, time."""
    with extra("engine", "measure the pair"):
        from specops.phases.verifiers import TREES, Ranking, VerifierSettings, measure, over_naive, table

    settings = VerifierSettings(
        **pair.settings(),
        trees=tuple(tree or TREES),
        count=count,
        tokens=tokens,
        rounds=rounds,
        temperature=temperature,
    )
    result = _measured(call, partial(measure, settings))
    ranking = Ranking.model_validate(result.data)
    return Answer(result, [Table(*table(ranking)), *over_naive(ranking), result.reason])


@bench.command()
@shared_options(out=AnswerOption)
def specinfer(
    call: Call,
    pair: PairOptions,
    count: Annotated[int, typer.Option("--count", min=1, help="Prompts of each class.")] = 16,
    tokens: Annotated[int, typer.Option("--tokens", min=16, help="Tokens after each prompt.")] = 64,
    quick: Annotated[bool, typer.Option("--quick", help="Four prompts of each class.")] = False,
) -> Answer:
    """Measure SpecInfer's tables 1 to 3, beside the paper's.

    The classes of the prompt set are the datasets.
    """
    with extra("engine", "measure the pair"):
        from specops.phases.specinfer import SpecInferSettings, Tables, measure, pages

    settings = SpecInferSettings(
        **pair.settings(),
        count=min(count, 4) if quick else count,
        tokens=tokens,
    )
    result = _measured(call, partial(measure, settings))
    text: list[str | Table] = []
    for title, columns, rows in pages(Tables.model_validate(result.data)):
        text += [Table(columns, rows, title), ""]
    return Answer(result, [*text, result.reason])


@bench.command()
@shared_options(out=AnswerOption)
def kernels(
    call: Call,
    dtype: Annotated[str, typer.Option("--dtype", help="bfloat16, float16 or float32.")] = "bfloat16",
    quick: Annotated[bool, typer.Option("--quick", help="One or two sizes of each kernel.")] = False,
    page: Annotated[
        Path | None, typer.Option("--page", help="Markdown file to which the answer is added.")
    ] = None,
) -> Answer:
    """Check and time the Triton kernels on this machine's GPU.

    They are timed beside PyTorch's and FlashInfer's.
    """
    with extra("kernels", "measure the kernels"):
        from specops.phases import kernels as phase
    if dtype not in ("bfloat16", "float16", "float32"):
        raise UsageError(
            f"could not measure the kernels: {dtype!r} is not a type that they take",
            hint=with_options({"--dtype": "float32"}),
        )
    settings = phase.KernelSettings.model_validate({"dtype": dtype, "quick": quick})
    result = _measured(call, partial(phase.measure, settings, phase.this_machine()))
    if page is not None:
        try:
            with page.open("a", encoding="utf-8") as file:
                file.write("\n" + phase.page(result))
        except OSError as error:
            raise FileError(f"could not add to {page}: {error.strerror}", hint=f"chmod u+w {page}") from error
    measured = phase.KernelsData.model_validate(result.data)
    return Answer(result, [Table(*phase.table(measured)), *phase.notes(measured), result.reason])
