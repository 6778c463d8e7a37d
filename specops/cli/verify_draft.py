"""`specops verify-draft`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, complete_engine, shared_options
from specops.errors import UsageError
from specops.hints import with_options
from specops.trees import exit_layers

if TYPE_CHECKING:
    from specops.phases.verify_draft.pair import VerifySettings


@shared_options(out=AnswerOption)
def verify_draft(
    call: Call,
    target: Annotated[str, typer.Argument(help="Folder or hub id of the model that is served.")],
    draft: Annotated[
        str | None, typer.Argument(help="Folder or hub id of the draft; or ngram, or suffix.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="Engine: vllm, sglang, llamacpp, trtllm or embedded.", autocompletion=complete_engine
        ),
    ] = "vllm",
    engine_version: Annotated[
        str | None, typer.Option(help="Engine version, such as 0.32.0; default: the newest known.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompt set of yours: encoded too, and sent by --measure.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="GPU such as h100-80, or its GiB; prints the KV blocks that the draft costs."),
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(help="GPUs that share the models.")] = 1,
    allow_degraded: Annotated[
        bool, typer.Option("--allow-degraded", help="Exit 0 for a pair that only loses acceptance.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the pair on the embedded engine: acceptance and speed-up.")
    ] = False,
    temperature: Annotated[float, typer.Option(help="Temperature of --measure.")] = 0.0,
    threads: Annotated[int | None, typer.Option(help="Threads of --measure; PyTorch's by default.")] = None,
    guide: Annotated[
        bool, typer.Option("--guide", help="List drafts that suit TARGET, and compare kinds of drafts.")
    ] = False,
) -> Answer:
    """Compares tokenizers, vocabularies and settings.

    Exit 0 where the pair fits, if need be with a setting; 1 where it is incompatible, or degraded without
    --allow-degraded; 4 where the verdict rests on what the files do not show.
    """
    from specops.phases.verify_draft.document import document
    from specops.phases.verify_draft.pair import VerifySettings

    if guide:
        return _guide(call, target, draft, engine, engine_version)
    if draft is None:
        raise UsageError("DRAFT is missing", hint=f"specops verify-draft {target} --guide")
    fields = {
        "target": target,
        "draft": draft,
        "engine": engine,
        "engine_version": engine_version,
        "gpu": gpu,
        "tensor_parallel": tensor_parallel,
        "allow_degraded": allow_degraded,
    }
    settings = call.settings(VerifySettings, fields)
    if measure:
        _refuse_unmeasurable(settings, prompts)
    with call.progress() as progress:
        from specops.load.workload import load_prompts
        from specops.phases.verify_draft.verify import verify

        result = verify(settings, load_prompts(prompts) if prompts else None, progress)
        if measure and prompts is not None and result.summary["verdict"] != "incompatible":
            from specops.phases.verify_draft.estimate import estimate

            estimated = estimate(
                Path(target), Path(draft), prompts, progress, threads=threads, temperature=temperature
            )
            message = {"estimate": estimated.model_dump(mode="json")}
            result = result.model_copy(update={"data": result.data | message})
    return Answer(result, document(result, call.out))


def _refuse_unmeasurable(settings: VerifySettings, prompts: Path | None) -> None:
    if prompts is None:
        raise UsageError("--measure needs prompts", hint=with_options({"--prompts": "prompts.json"}))
    for name in (settings.target, settings.draft):
        if not Path(name).is_dir() and exit_layers(name) is None:
            raise UsageError(
                f"--measure needs local folders, and {name} is not one",
                hint=with_options({"--measure": False}),
            )


def _guide(call: Call, target: str, draft: str | None, engine: str, engine_version: str | None) -> Answer:
    from specops.phases.verify_draft.document import guide_document
    from specops.phases.verify_draft.guide import advise
    from specops.phases.verify_draft.pair import VerifySettings

    if draft is not None:
        raise UsageError("--guide takes a TARGET alone", hint=with_options({"--guide": False}))
    settings = call.settings(VerifySettings, {"target": target, "draft": "ngram", "engine": engine})
    advice = advise(target, settings.engine, engine_version)
    return Answer(advice, guide_document(advice))
