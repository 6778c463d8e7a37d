"""`specops verify-draft`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.call import Answer, AnswerOption, Call, shared_options
from specops.errors import UsageError
from specops.hints import with_options
from specops.phases.verify_draft.guide import Guide
from specops.phases.verify_draft.memory import Memory, ModelMemory, gib
from specops.phases.verify_draft.pair import Finding
from specops.render.figures import NONE, aligned, bar, count, milliseconds, percent, sentence, times
from specops.results import Result
from specops.serving import ENGINES, ServedPair
from specops.trees import exit_layers

if TYPE_CHECKING:
    from specops.phases.verify_draft.estimate_record import Estimate, MeasuredAcceptance, Prediction
    from specops.phases.verify_draft.pair import VerifySettings
    from specops.results import Result


@shared_options(out=AnswerOption)
def verify_draft(
    call: Call,
    target: Annotated[str, typer.Argument(help="Folder or hub id of the model that is served.")],
    draft: Annotated[
        str | None, typer.Argument(help="Folder or hub id of the draft; or ngram, or suffix.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Engine: vllm, sglang, llamacpp, trtllm or embedded.")] = "vllm",
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
    with call.progress() as shown:
        from specops.load.workload import load_prompts
        from specops.phases.verify_draft.verify import verify

        result = verify(settings, load_prompts(prompts) if prompts else None, shown)
        if measure and prompts is not None and result.summary["verdict"] != "incompatible":
            from specops.phases.verify_draft.estimate import estimate

            found = estimate(
                Path(target), Path(draft), prompts, shown, threads=threads, temperature=temperature
            )
            message = {"estimate": found.model_dump(mode="json")}
            result = result.model_copy(update={"data": result.data | message})
    return Answer(result, _with_estimate(result))


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
    from specops.phases.verify_draft.guide import advise
    from specops.phases.verify_draft.pair import VerifySettings

    if draft is not None:
        raise UsageError("--guide takes a TARGET alone", hint=with_options({"--guide": False}))
    settings = call.settings(VerifySettings, {"target": target, "draft": "ngram", "engine": engine})
    advice = advise(target, settings.engine, engine_version)
    return Answer(advice, guide_page(advice))


def _with_estimate(result: Result) -> list[str]:
    lines = page(result)
    if "estimate" in result.data:
        from specops.phases.verify_draft.estimate_record import Estimate

        lines[-2:-2] = estimate_lines(Estimate.model_validate(result.data["estimate"]))
    return lines


WORDS = {
    "compatible": "ok",
    "needs_setting": "setting",
    "degraded": "degraded",
    "unknown": "unknown",
    "incompatible": "NO",
}
START_K = 5
"""Tokens to draft at first, by the playbook; `specops sweep` finds the number."""


def page(result: Result) -> list[str]:
    """The page's lines; the last but one is the verdict, the last says what to do."""
    findings = [Finding.model_validate(found) for found in result.data["findings"]]
    target, draft = result.data["target"]["name"], result.data["draft"]["name"]
    lines = [f"{draft} drafts for {target}"]
    rows = aligned([[f"  {WORDS[found.verdict]}", found.check, found.detail] for found in findings])
    indent = " " * (2 + max(len(WORDS[found.verdict]) for found in findings) + 2)
    for row, found in zip(rows, findings, strict=True):
        lines.append(row)
        if found.witness:
            lines.append(f"{indent}first: {found.witness}")
        if found.find_out:
            lines.append(f"{indent}find out: {found.find_out}")
    lines += list(_memory(Memory.model_validate(result.data["memory"])))
    return [*lines, sentence(result.reason), _next(result)]


def _memory(memory: Memory) -> Iterator[str]:
    models = {"target": memory.target} | ({"draft": memory.draft} if memory.draft else {})
    shared = f" on each of {memory.tensor_parallel} GPUs" if memory.tensor_parallel > 1 else ""
    yield from aligned([[f"  memory    {name}", *_model(model, shared)] for name, model in models.items()])
    if memory.blocks is not None:
        blocks = memory.blocks
        lost = f", {blocks.lost / blocks.without_draft:.1%}" if blocks.without_draft else ""
        yield (
            f"  memory    {gib(blocks.gpu_bytes)} filled to {blocks.utilisation:.0%} hold "
            f"{blocks.without_draft:,} KV blocks of {blocks.tokens_a_block} tokens, {blocks.with_draft:,} "
            f"with the draft: {blocks.lost:,} lost{lost} (activations and graphs not counted)"
        )
    else:
        yield f"  memory    KV blocks lost to the draft: unknown, {memory.blocks_missing}"


def _model(model: ModelMemory, shared: str) -> list[str]:
    size = f"weights {gib(model.weights_bytes)}" if model.weights_bytes is not None else "weights unknown"
    if model.dtypes:
        size += f" ({', '.join(model.dtypes)})"
    per_token = model.kv_bytes_per_token
    cache = f"KV {per_token:,} bytes a token{shared}" if per_token is not None else "KV unknown"
    return [size, f"{cache}: {model.kv}"]


def _next(result: Result) -> str:
    from specops.phases.verify_draft.pair import VerifySettings

    target = shlex.quote(result.data["target"]["name"])
    engine = result.settings["engine"]
    options = {"--engine": engine, "--engine-version": result.settings["engine_version"]}
    defaults = (None, VerifySettings.model_fields["engine"].default)
    chosen = "".join(f" {flag} {option}" for flag, option in options.items() if option not in defaults)
    again = f"specops verify-draft {target} {shlex.quote(result.data['draft']['name'])}{chosen}"
    if result.verdict == "undecided":
        return f"change: find out what is unknown, as the lines above say\nnext: {again}"
    if result.summary["verdict"] == "incompatible":
        return f"change: take another draft\nnext: specops verify-draft {target}{chosen} --guide"
    if result.verdict == "no":
        measured = f"{again} --measure --prompts FILE"
        note = "measures what the degradation costs; --allow-degraded accepts the pair"
        return f"change: take another draft, or accept this one\nnext: {measured}  # {note}"
    if any(finding["check"] == "files" for finding in result.data["findings"]):
        again = f"specops verify-draft TARGET.gguf DRAFT.gguf{chosen}"
        return f"change: convert both models, as the lines above say\nnext: {again}"
    served = _served(result.data, result.summary)
    runs = served.startswith(("specops ", "llama-server "))  # else options, or keys of a file
    return f"next: {served}" if runs else f"change: serve the pair with {served}"


def _served(data: dict[str, Any], summary: dict[str, Any]) -> str:
    target, draft = data["target"]["name"], data["draft"]["name"]
    alone = summary["kind"] in ("ngram", "suffix") or draft == target
    support = ENGINES[data["engine"]["name"]].drafts
    assert support is not None
    return support.served(
        ServedPair(
            target=target,
            draft=None if alone else draft,
            method=summary["method"],
            tokens=data["kind"]["tokens"] or START_K,
            settings=summary["settings"],
            tree=data["estimate"]["chosen"] if "estimate" in data else None,
        )
    )


def guide_page(guide: Guide) -> list[str]:
    lines = [f"drafts for {guide.target}" + (f", of the family {guide.family}" if guide.family else "")]
    lines += aligned([[f"  {advice.draft}", advice.why, f"[{advice.source}]"] for advice in guide.drafts])
    rows = [["  kind", "such as", "accepted", "memory", "training", guide.engine, "figures from", "paper"]]
    for kind in guide.kinds:
        figures = [kind.accepted, kind.memory, kind.training, kind.served, kind.source, kind.paper]
        rows.append([f"  {kind.kind}", kind.technique, *(figure or NONE for figure in figures)])
    lines += ["", *aligned(rows), *(f"  note  {note}" for note in guide.notes)]
    return [*lines, f"next: specops verify-draft {guide.target} DRAFT"]


SHOWN = 5
"""Number of the alternatives that are shown; all are in the result."""

RANKS = 3
"""Columns of acceptance by rank; further ones are in the result too."""


def estimate_lines(estimate: Estimate) -> list[str]:
    """The page's lines, without the verdict on the pair."""
    found = ["", "  measured on the embedded engine", *_acceptance(estimate), "", *_predictions(estimate), ""]
    found += _costs(estimate)
    found += [f"  assumes   {assumption}" for assumption in estimate.assumptions]
    return [*found, sentence(_answer(estimate))]


def _acceptance(estimate: Estimate) -> list[str]:
    ranks = [f"rank {rank}" for rank in range(RANKS)]
    rows = [["  accepted at the root", *ranks, "by depth, first choices", ""]]
    for name, accepted in {"all": estimate.acceptance, **estimate.by_class}.items():
        root = accepted.depths[0].by_rank
        shares = [f"{root[rank]:.2f}" if rank < len(root) else NONE for rank in range(RANKS)]
        of = f"{count(accepted.prompts, 'prompt')}, {count(accepted.tokens, 'token')}"
        rows.append([f"  {name}", *shares, _by_depth(accepted), of])
    return aligned(rows)


def _by_depth(accepted: MeasuredAcceptance) -> str:
    """Return the acceptance of a first choice by depth, where the ones above it were accepted; blank where
    none ever was."""
    return "".join(bar(at.by_rank[0] if at.parents else None) for at in accepted.depths)


def _predictions(estimate: Estimate) -> list[str]:
    shown = list(estimate.alternatives[:SHOWN])
    shown += [found for found in (estimate.drafted, estimate.best) if found and found not in shown]
    classes = list(estimate.by_class)
    rows = [["  predicted", "E2E", *classes, "tokens a step", "a step"]]
    for found in shown:
        speedups = [times(found.by_class[name].interval, found.by_class[name].estimate) for name in classes]
        rows.append(
            [
                f"  {found.tree}",
                times(found.overall.interval, found.overall.estimate),
                *speedups,
                f"{found.tokens_per_step:.2f}",
                milliseconds(found.step_ms),
            ]
        )
    return aligned(rows)


def _costs(estimate: Estimate) -> Iterator[str]:
    for costs in estimate.costs:
        target = "  ".join(f"{tokens}: {milliseconds(ms)}" for tokens, ms in costs.target.items())
        yield f"  costs     at {count(costs.context, 'token')}: the target's pass, by tokens  {target}"
        level = milliseconds(costs.draft_level[1])
        first = milliseconds(costs.draft_first_pass)
        yield f"            the draft's first pass {first}, each further level of one node {level}"
    api = estimate.api
    yield f"            the API {milliseconds(api.chunk)} a chunk, {milliseconds(api.request)} a request"
    if estimate.any_shape > 1:
        yield f"            a tree of any shape: {percent(estimate.any_shape)} tokens a step at the same size"


def _answer(estimate: Estimate) -> str:
    best, drafted = estimate.best, estimate.drafted
    if best is None:
        return f"no tree is predicted to pay; the best of this draft is {drafted.tree}, {_said(drafted)}"
    if best.tree == drafted.tree:
        return f"take {best.tree}: it is predicted to be {_said(best)}"
    return (
        f"take {best.tree}, which needs no draft model: it is predicted to be {_said(best)}; the best of "
        f"this draft is {drafted.tree}, {_said(drafted)}"
    )


def _said(found: Prediction) -> str:
    overall = found.overall
    unsure = ""
    if overall.interval is not None and overall.interval.low <= 1 <= overall.interval.high:
        unsure = ", too close to 1 to decide"
    return f"{times(overall.interval, overall.estimate)} as fast end to end{unsure}"
