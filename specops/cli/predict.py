"""`specops predict ROLLOUT --log FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.call import Answer, AnswerOption, RolloutCall, extra, numbers, shared_options


@shared_options(out=AnswerOption)
def predict(
    call: RolloutCall,
    log: Annotated[
        Path, typer.Option(help="Logged answers: chat logs, ShareGPT, OpenAI batch, ab.json, baseline.json.")
    ],
    prompts: Annotated[
        Path | None, typer.Option(help="Prompts of answers logged without them. [default: the rollout's]")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Temperature of entries without theirs. [default: unknown]")
    ] = None,
    k: Annotated[
        str | None, typer.Option(help="Draft lengths in tokens, comma-separated. [default: sweep.k]")
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Run folder with the costs of steps. [default: the rollout's]")
    ] = None,
) -> Answer:
    """From what copies of earlier text would have accepted.

    A greedy answer is accepted exactly where a copy agrees with it, so its text says how n-gram and suffix
    drafts would fare. The embedded engine's draft model is run along the answers. The speed-up needs costs
    of steps, from a comparison or a sweep in the run folder; without them the result is acceptance only.

    Exit 0 where a setting is predicted, 4 where none can be.
    """
    from specops.config import run_folder
    from specops.errors import UsageError
    from specops.hints import with_options
    from specops.load.workload import load_prompts
    from specops.phases.commands import Commands
    from specops.phases.inputs import settings_of

    if call.file.pools.speculative.own is not None:
        with extra("engine", "predict"):
            from specops.engine import load_engine  # noqa: F401  # its drafters need torch
    from specops.phases.predict.document import document
    from specops.phases.predict.predict import PredictSettings
    from specops.phases.predict.predict import predict as predict_log

    folder = costs or run_folder(call.path, call.file.rollout, None)
    chosen = (
        numbers("--k", k, int, least=1)
        if k is not None
        else [number for number in call.file.sweep.k if number]
    )
    if not chosen:
        raise UsageError("sweep.k has no number of drafted tokens above 0", hint=with_options({"--k": "3,5"}))
    fields = {"log": log, "prompts": prompts, "temperature": temperature, "ks": sorted(set(chosen))}
    settings = call.settings(PredictSettings, fields)
    requests = settings_of(call.file, call.file.pools.standard)
    prompt_set = load_prompts(prompts) if prompts is not None else requests.prompt_set()
    commands = Commands(call.file, call.path, folder)
    with call.progress() as progress:
        result = predict_log(call.file, settings, prompt_set, commands, folder, progress)
    return Answer(result, document(result, call.out))
