"""`specops verify-draft`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.load_options import wrong_option
from specops.cli.output import DebugFlag, JsonFlag, OutOption, QuietFlag, print_json
from specops.cli.progress import progress
from specops.errors import UsageError
from specops.trees import exit_layers

if TYPE_CHECKING:
    from specops.phases.verify_draft.pair import VerifySettings
    from specops.results import Result


def verify_draft(
    target: Annotated[str, typer.Argument(help="Folder or hub id of the model that is served.")],
    draft: Annotated[
        str | None, typer.Argument(help="Folder or hub id of the draft; or ngram, or suffix.")
    ] = None,
    engine: Annotated[str, typer.Option(help="vllm, sglang, llamacpp or embedded.")] = "vllm",
    engine_version: Annotated[
        str | None, typer.Option(help="Such as 0.32.0; the newest one known by default.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Your own prompts: encoded too, and what --measure asks.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="Such as h100-80, or GiB: how many KV blocks the draft costs.")
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(help="GPUs that share the models.")] = 1,
    allow_degraded: Annotated[
        bool, typer.Option("--allow-degraded", help="Exit 0 for a pair that only loses acceptance.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the pair on the embedded engine: acceptance and speed-up.")
    ] = False,
    temperature: Annotated[float, typer.Option(help="Of --measure.")] = 0.0,
    threads: Annotated[int | None, typer.Option(help="Of --measure; PyTorch's own by default.")] = None,
    guide: Annotated[
        bool, typer.Option("--guide", help="Which drafts suit TARGET, and how kinds of drafts compare.")
    ] = False,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Judge from their files whether a draft fits a target."""
    from specops import results

    if guide:
        _guide(target, draft, engine, engine_version, as_json)
        return
    if draft is None:
        raise UsageError(
            "there is no DRAFT to verify", hint="name one, or ask --guide which drafts suit the target"
        )
    settings = _settings(
        {
            "target": target,
            "draft": draft,
            "engine": engine,
            "engine_version": engine_version,
            "gpu": gpu,
            "tensor_parallel": tensor_parallel,
            "allow_degraded": allow_degraded,
        }
    )
    if measure:
        _refuse_unmeasurable(settings, prompts)
    with progress(quiet) as shown:
        from specops.load.workload import load_prompts
        from specops.phases.verify_draft.verify import verify

        result = verify(settings, load_prompts(prompts) if prompts else None, shown)
        if measure and prompts is not None and result.summary["verdict"] != "incompatible":
            from specops.phases.verify_draft.estimate import estimate

            found = estimate(
                Path(target), Path(draft), prompts, shown, threads=threads, temperature=temperature
            )
            told = {"estimate": found.model_dump(mode="json")}
            result = result.model_copy(update={"data": result.data | told})
        if out is not None:
            results.write(out, result)
    if as_json:
        print_json(result)
    else:
        _print(result)
    raise typer.Exit(result.exit_code)


def _settings(fields: dict[str, Any]) -> VerifySettings:
    from pydantic import ValidationError

    from specops.phases.verify_draft.pair import VerifySettings

    try:
        return VerifySettings(**fields)
    except ValidationError as error:
        raise wrong_option(error, "verify-draft") from error


def _refuse_unmeasurable(settings: VerifySettings, prompts: Path | None) -> None:
    if prompts is None:
        raise UsageError("--measure asks your own prompts, and there are none", hint="give --prompts FILE")
    for name in (settings.target, settings.draft):
        if not Path(name).is_dir() and exit_layers(name) is None:
            raise UsageError(
                f"--measure runs the pair, and {name} is no local folder",
                hint="download both models, or leave --measure out",
            )


def _guide(target: str, draft: str | None, engine: str, engine_version: str | None, as_json: bool) -> None:
    from specops.cli.verify_draft_page import guide_page
    from specops.phases.verify_draft.guide import advise

    if draft is not None:
        raise UsageError("--guide takes a TARGET alone", hint="leave the draft out, or --guide")
    settings = _settings({"target": target, "draft": "ngram", "engine": engine})
    advice = advise(target, settings.engine, engine_version)
    if as_json:
        print_json(advice)
    else:
        typer.echo("\n".join(guide_page(advice)))


def _print(result: Result) -> None:
    from specops.cli.verify_draft_page import page

    lines = page(result)
    if "estimate" in result.data:
        from specops.cli.estimate_page import lines as estimate_lines
        from specops.phases.verify_draft.estimate import Estimate

        lines[-2:-2] = estimate_lines(Estimate.model_validate(result.data["estimate"]))
    typer.echo("\n".join(lines))
