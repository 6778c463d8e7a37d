"""Every check that a pair is put to, in the order in which a person would ask. Pure but for the files."""

from __future__ import annotations

from dataclasses import dataclass

from specops.checkpoints.kind import WORDS, Draft
from specops.checkpoints.tokenizer import Tokenizer
from specops.errors import ModelError
from specops.load.workload import PromptSet
from specops.phases.verify_draft import differences, engine, heads, speech, witness
from specops.phases.verify_draft.engine import Engine
from specops.phases.verify_draft.findings import Finding
from specops.phases.verify_draft.side import Side
from specops.phases.verify_draft.witness import Encodings


@dataclass(frozen=True)
class Judged:
    findings: list[Finding]
    encodings: Encodings | None = None
    """None where the draft brings no tokenizer."""


def judge(
    serving: Engine,
    target: Side,
    side: Side | None,
    draft: Draft,
    prompts: PromptSet | None,
    *,
    tensor_parallel: int,
) -> Judged:
    """`side`: the draft's checkpoint, which may be the target's own; None for a draft without a model."""
    findings = [_kind(draft, side is target), engine.finding(serving, serving.treats(draft), draft)]
    if side is None:
        return Judged(findings)
    path = engine.path_finding(serving, draft, side.checkpoint.name)
    divided = side.config.whole("num_attention_heads")
    parallel = engine.parallel_finding(serving, draft, divided, tensor_parallel)
    findings += [found for found in (path, parallel) if found is not None]
    if side is target and draft.kind == "mtp":
        return Judged(findings)  # its ids are the target's, and so are its weights
    ours, theirs = _tokenizer(target), side.tokenizer
    if draft.kind == "independent":
        theirs = _tokenizer(side)
    else:
        used = max(ours.tokens) + 1
        findings += heads.fits(serving, draft, target.config, side.config, side.weights, used)
    if theirs is None:
        return Judged(findings)
    encoded = witness.encodings(ours, theirs, _texts(prompts), speech.chats(ours))
    findings += [*_vocabulary(serving, target, side, draft, ours, theirs), encoded.finding()]
    return Judged(findings, encoded)


def _vocabulary(
    serving: Engine, target: Side, side: Side, draft: Draft, ours: Tokenizer, theirs: Tokenizer
) -> list[Finding]:
    ids, *rest = differences.compare(ours, theirs, side.config.vocab_size)
    sizes = engine.vocabulary(
        serving,
        draft,
        (target.config.vocab_size, side.config.vocab_size),
        ids_agree=ids.verdict != "incompatible",
        maps_equal=ours.tokens == theirs.tokens,
    )
    read = " and ".join(sorted({ours.read_from, theirs.read_from}))
    found = [
        Finding(check="tokenizers", verdict="compatible", detail=f"read from {read}"),
        engine.heterogeneous(serving, draft, ids),
        sizes,
        *rest,
        speech.special_tokens(ours, theirs),
        speech.ends((target.config, target.generation), (side.config, side.generation)),
        speech.lengths(target.config, side.config),
    ]
    if draft.kind == "independent" or theirs.template is not None:
        found.append(speech.template(ours, theirs))
    return found


def _tokenizer(side: Side) -> Tokenizer:
    if side.tokenizer is None:
        raise ModelError(
            f"could not judge {side.checkpoint.name}: it has no tokenizer",
            hint="give a folder with the model's tokenizer.json beside its config.json",
        )
    return side.tokenizer


def _kind(draft: Draft, is_target: bool) -> Finding:
    detail = f"{WORDS[draft.kind]}: {draft.evidence}"
    if draft.ambiguous:
        detail += (
            "; EAGLE's first heads look the same, and there is no safetensors header to tell: name the method"
        )
        return Finding(check="kind", verdict="needs_setting", detail=detail)
    if is_target and draft.kind == "independent":
        detail += "; it is the target itself, which drafts as slowly as it decodes"
    return Finding(check="kind", verdict="compatible", detail=detail)


def _texts(prompts: PromptSet | None) -> list[str]:
    """Every text of the user's prompts; prompts of token ids have none."""
    found: list[str] = []
    for prompt in prompts.prompts if prompts else ():
        if isinstance(prompt.content, str):
            found.append(prompt.content)
            continue
        for message in prompt.content:
            said = message.get("content") if isinstance(message, dict) else None
            for part in said if isinstance(said, list) else [{"text": said}]:
                text = part.get("text") if isinstance(part, dict) else None
                found += [text] if isinstance(text, str) else []
    return found
