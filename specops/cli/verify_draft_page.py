"""The page of a verdict on a pair: a line for each check, memory, the verdict, and how to serve it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from specops.phases.verify_draft.findings import Finding
from specops.phases.verify_draft.guide import Guide
from specops.phases.verify_draft.memory import Memory, ModelMemory, gib
from specops.render.figures import NONE, aligned, sentence
from specops.results import Result
from specops.serving import ENGINES, ServedPair

WORDS = {
    "compatible": "ok",
    "needs_setting": "setting",
    "degraded": "degraded",
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
    target, draft = result.data["target"]["name"], result.data["draft"]["name"]
    if result.summary["verdict"] == "incompatible":
        return f"change: take another draft\nnext: specops verify-draft {shlex.quote(target)} --guide"
    if result.verdict == "no":
        measured = f"specops verify-draft {target} {draft} --measure --prompts FILE"
        return f"next: another draft, or see what it costs: {measured} (--allow-degraded takes it)"
    return f"next: serve it with {_served(result.data, result.summary)}"


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
