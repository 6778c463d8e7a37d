"""The judgement on a pair as a document, and what the embedded engine measured of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from specops.phases.verify_draft.estimate_record import Estimate, MeasuredAcceptance, Prediction
from specops.phases.verify_draft.guide import Guide
from specops.phases.verify_draft.memory import ModelMemory, PairMemory, gib
from specops.phases.verify_draft.pair import PairFinding, VerifySettings
from specops.render.figures import NONE, bar, count, milliseconds, percent, sentence, times
from specops.render.report.document import Cell, Document, Section, State, Step, Table
from specops.results import Result
from specops.serving import ENGINES, ServedPair

SEVERITIES: Mapping[str, tuple[str, State]] = {
    "compatible": ("ok", "good"),
    "needs_setting": ("setting", "good"),
    "degraded": ("degraded", "open"),
    "unknown": ("unknown", "open"),
    "incompatible": ("NO", "bad"),
}
START_K = 5
"""Tokens to draft at first, by the playbook; `specops sweep` finds the number."""
ALTERNATIVES = 5
"""Number of the alternatives that are shown; all are in the result."""
RANKS = 3
"""Columns of acceptance by rank; further ones are in the result too."""


def document(result: Result, path: Path | None = None) -> Document:
    target, draft = result.data["target"]["name"], result.data["draft"]["name"]
    estimate = Estimate.model_validate(result.data["estimate"]) if "estimate" in result.data else None
    return Document.of_result(
        result,
        (f"{draft} drafts for {target}", path),
        _sections(result, estimate),
        _steps(result),
        [sentence(answer(estimate))] if estimate is not None else (),
    )


def guide_document(guide: Guide) -> Document:
    drafts = tuple(tuple(dict(advice).values()) for advice in guide.drafts)
    kinds = tuple(tuple(text or NONE for text in dict(kind).values()) for kind in guide.kinds)
    columns = ("kind", "such as", "accepted", "memory", "training", guide.engine, "figures from", "paper")
    sections = (
        Section("Drafts", tables=(Table("", ("draft", "why", "source"), drafts, prose=(1, 2)),)),
        Section("Kinds of drafts", tuple(guide.notes), tables=(Table("", columns, kinds),)),
    )
    headline = f"{count(len(drafts), 'draft')} to try. This is advice: `verify-draft TARGET DRAFT` decides."
    steps = (Step("", "", f"specops verify-draft {shlex.quote(guide.target)} DRAFT"),)
    title, family = f"drafts for {guide.target}", f"family {guide.family}" if guide.family else ""
    return Document(title, family, "none", "", headline, steps=steps, sections=sections)


def _sections(result: Result, estimate: Estimate | None) -> Iterator[Section]:
    findings = [PairFinding.model_validate(stored) for stored in result.data["findings"]]
    rows = tuple(
        (
            finding.check,
            Cell(*SEVERITIES[finding.verdict]),
            finding.detail,
            finding.witness or "",
            finding.find_out or "",
        )
        for finding in findings
    )
    columns = ("check", "verdict", "details", "first", "find out")
    table = Table("", columns, rows, prose=(2, 3, 4)).without_empty_prose()
    yield Section("Findings", tables=(table,), guide="docs/draft.md")
    yield _memory(PairMemory.model_validate(result.data["memory"]))
    if estimate is not None:
        yield estimate_section(estimate)


def _memory(memory: PairMemory) -> Section:
    models = {"target": memory.target} | ({"draft": memory.draft} if memory.draft else {})
    shared = f" on each of {memory.tensor_parallel} GPUs" if memory.tensor_parallel > 1 else ""
    text = f"KV blocks lost to the draft: unknown, {memory.blocks_missing}."
    if (blocks := memory.blocks) is not None:
        lost = f", {blocks.lost / blocks.without_draft:.1%}" if blocks.without_draft else ""
        text = (
            f"{gib(blocks.gpu_bytes)} filled to {blocks.utilisation:.0%} hold {blocks.without_draft:,} KV"
            f" blocks of {blocks.tokens_a_block} tokens, {blocks.with_draft:,} with the draft:"
            f" {blocks.lost:,} lost{lost} (activations and graphs not counted)."
        )
    rows = tuple((name, *_model(model, shared)) for name, model in models.items())
    return Section("Memory", (), (), (Table("", ("model", "weights", "KV cache"), rows, text, prose=(2,)),))


def _model(model: ModelMemory, shared: str) -> tuple[str, str]:
    size = gib(model.weights_bytes) if model.weights_bytes is not None else "unknown"
    if model.dtypes:
        size += f" ({', '.join(model.dtypes)})"
    per_token = model.kv_bytes_per_token
    cache = f"{per_token:,} bytes a token{shared}" if per_token is not None else "unknown"
    return size, f"{cache}: {model.kv}"


def _steps(result: Result) -> Iterator[Step]:
    target = shlex.quote(result.data["target"]["name"])
    engine = result.settings["engine"]
    options = {"--engine": engine, "--engine-version": result.settings["engine_version"]}
    defaults = (None, VerifySettings.model_fields["engine"].default)
    chosen = "".join(f" {flag} {option}" for flag, option in options.items() if option not in defaults)
    again = f"specops verify-draft {target} {shlex.quote(result.data['draft']['name'])}{chosen}"
    if result.verdict == "undecided":
        yield Step("find out what is unknown, as the lines above say", "", again)
    elif result.summary["verdict"] == "incompatible":
        yield Step("take another draft", "", f"specops verify-draft {target}{chosen} --guide")
    elif result.verdict == "no":
        note = "measures what the degradation costs; --allow-degraded accepts the pair"
        action = "take another draft, or accept this one"
        yield Step(action, note, f"{again} --measure --prompts FILE")
    elif any(finding["check"] == "files" for finding in result.data["findings"]):
        again = f"specops verify-draft TARGET.gguf DRAFT.gguf{chosen}"
        yield Step("convert both models, as the lines above say", "", again)
    else:
        served = _served(result)
        runs = served.startswith(("specops ", "llama-server "))  # else options, or keys of a file
        yield Step("", "", served) if runs else Step(f"serve the pair with {served}", "", "")


def _served(result: Result) -> str:
    data, summary = result.data, result.summary
    target, draft = data["target"]["name"], data["draft"]["name"]
    alone = summary["kind"] in ("ngram", "suffix") or draft == target
    support = ENGINES[data["engine"]["name"]].drafts
    assert support is not None
    return support.describe_serving(
        ServedPair(
            target=target,
            draft=None if alone else draft,
            method=summary["method"],
            tokens=data["kind"]["tokens"] or START_K,
            settings=summary["settings"],
            tree=data["estimate"]["chosen"] if "estimate" in data else None,
        )
    )


def estimate_section(estimate: Estimate) -> Section:
    return Section(
        "Measured on the embedded engine",
        tuple(f"It assumes: {assumption}." for assumption in estimate.assumptions),
        (),
        (_acceptance(estimate), _predictions(estimate), _costs(estimate)),
    )


def _acceptance(estimate: Estimate) -> Table:
    ranks = tuple(f"rank {rank}" for rank in range(RANKS))
    rows = []
    for name, accepted in {"all": estimate.acceptance, **estimate.by_class}.items():
        root = accepted.depths[0].by_rank
        shares = (f"{root[rank]:.2f}" if rank < len(root) else NONE for rank in range(RANKS))
        sample = f"{count(accepted.prompts, 'prompt')}, {count(accepted.tokens, 'token')}"
        rows.append((name, *shares, _by_depth(accepted), sample))
    columns = ("accepted at the root", *ranks, "by depth, first choices", "sample")
    return Table("Acceptance", columns, tuple(rows))


def _by_depth(accepted: MeasuredAcceptance) -> str:
    """Return the acceptance of a first choice by depth, where the ones above it were accepted; blank where
    none ever was."""
    return "".join(bar(depth.by_rank[0] if depth.parents else None) for depth in accepted.depths)


def _predictions(estimate: Estimate) -> Table:
    trees = list(estimate.alternatives[:ALTERNATIVES])
    trees += [tree for tree in (estimate.drafted, estimate.best) if tree and tree not in trees]
    rows = tuple(
        (
            tree.tree,
            times(tree.overall.interval, tree.overall.estimate),
            *(
                times(tree.by_class[name].interval, tree.by_class[name].estimate)
                for name in estimate.by_class
            ),
            f"{tree.tokens_per_step:.2f}",
            milliseconds(tree.step_ms),
        )
        for tree in trees
    )
    columns = ("predicted", "E2E", *estimate.by_class, "tokens a step", "a step")
    return Table("Predictions", columns, rows)


def _costs(estimate: Estimate) -> Table:
    rows = tuple(
        (
            count(costs.context, "token"),
            milliseconds(costs.draft_first_pass),
            milliseconds(costs.draft_level[1]),
            ", ".join(f"{tokens}: {milliseconds(ms)}" for tokens, ms in costs.target.items()),
        )
        for costs in estimate.costs
    )
    api = estimate.api
    note = f"The API takes {milliseconds(api.chunk)} a chunk, {milliseconds(api.request)} a request."
    if estimate.any_shape > 1:
        note += f" A tree of any shape: {percent(estimate.any_shape)} tokens a step at the same size."
    columns = (
        "context", "the draft's first pass", "each further level of one node",
        "the target's pass, by tokens",
    )  # fmt: skip
    return Table("Costs", columns, rows, note, prose=(3,))


def answer(estimate: Estimate) -> str:
    best, drafted = estimate.best, estimate.drafted
    if best is None:
        return f"no tree is predicted to pay; the best of this draft is {drafted.tree}, {_speed(drafted)}"
    if best.tree == drafted.tree:
        return f"take {best.tree}: it is predicted to be {_speed(best)}"
    return (
        f"take {best.tree}, which needs no draft model: it is predicted to be {_speed(best)}; the best of "
        f"this draft is {drafted.tree}, {_speed(drafted)}"
    )


def _speed(prediction: Prediction) -> str:
    overall = prediction.overall
    unsure = ""
    if overall.interval is not None and overall.interval.low <= 1 <= overall.interval.high:
        unsure = ", too close to 1 to decide"
    return f"{times(overall.interval, overall.estimate)} as fast end to end{unsure}"
