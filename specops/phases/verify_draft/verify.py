"""`verify-draft`: a target and a draft, judged from their files before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specops import results
from specops.checkpoints.draft_kind import (
    WHOLE_MODELS,
    WITHOUT_MODEL,
    WORDS,
    Draft,
    Kind,
    kind_of,
    not_generative,
)
from specops.checkpoints.source import access_check, find
from specops.checkpoints.tokenizer import Tokenizer
from specops.errors import ModelError
from specops.load.workload import PromptSet, StoredProvenance
from specops.phases.verify_draft import differences, engine_fit, heads
from specops.phases.verify_draft.differences import Encodings
from specops.phases.verify_draft.engine_fit import Engine, Treatment
from specops.phases.verify_draft.memory import Memory, cost, memory, memory_of
from specops.phases.verify_draft.pair import (
    CheckpointRecord,
    Finding,
    Side,
    VerifySettings,
    compatible,
    decide,
    worst,
)
from specops.progress import Progress
from specops.results import Result
from specops.section import Frozen
from specops.trees import exit_layers

PHASE = "verify-draft"


def verify(settings: VerifySettings, prompts: PromptSet | None, progress: Progress) -> Result:
    """Verify the pair, and return one result. `prompts`: the user's own, encoded beside the built-in texts.

    Raises UsageError for settings that mean nothing, ModelError for files that are damaged or out of reach.
    """
    serving = Engine.of(settings.engine, settings.engine_version)
    gpu_bytes = memory_of(settings.gpu) if settings.gpu else None
    progress.start("reading the target and the draft", 2)
    target = Side(find(settings.target))
    progress.advance()
    side, draft = _draft(settings, target)
    progress.advance()
    judged = judge(serving, target, side, draft, prompts, tensor_parallel=settings.tensor_parallel)
    used = memory(target, side, draft, gpu_bytes=gpu_bytes, tensor_parallel=settings.tensor_parallel)
    return _result(settings, serving, target, side, draft, judged, used, prompts)


def _draft(settings: VerifySettings, target: Side) -> tuple[Side | None, Draft]:
    without: dict[str, Kind] = {kind: kind for kind in WITHOUT_MODEL}
    if settings.draft in without:
        return None, Draft(without[settings.draft], "needs no model")
    layers = exit_layers(settings.draft)
    if layers is not None:
        return None, Draft("early_exit", f"the target's first {layers} layers", layers=layers)
    own = settings.draft == settings.target or _same_folder(settings.target, settings.draft)
    side = target if own else Side(find(settings.draft))
    return side, kind_of(
        side.config, side.weights, side.generation, is_target=own, unread=side.unread_weights
    )


def _same_folder(one: str, other: str) -> bool:
    return Path(one).is_dir() and Path(other).is_dir() and Path(one).samefile(other)


class KindRecord(Frozen):
    kind: Kind
    words: str
    evidence: str
    doubt: str | None
    """Why the kind is not proven."""

    speculators_format: bool
    tokens: int | None
    trained_for: str | None


class NoCheckpoint(Frozen):
    """A draft that needs no files of its own."""

    name: str


class Summary(Frozen):
    verdict: str
    kind: Kind
    method: str | None
    settings: dict[str, bool | int | str]
    kv_blocks_lost: int | None
    unknown: dict[str, str]
    """What is not known, by check, and how it would be found out."""


class VerifyDraftData(Frozen):
    """`data` of the result. With --measure it also has `estimate`."""

    target: CheckpointRecord
    draft: CheckpointRecord | NoCheckpoint
    kind: KindRecord
    engine: Treatment
    findings: list[Finding]
    encodings: Encodings | None
    """Null where the draft brings no tokenizer."""

    memory: Memory
    prompts: StoredProvenance | None


def _result(
    settings: VerifySettings,
    serving: Engine,
    target: Side,
    side: Side | None,
    draft: Draft,
    judged: PairJudgement,
    used: Memory,
    prompts: PromptSet | None,
) -> Result:
    verdict, reason = decide(judged.findings, allow_degraded=settings.allow_degraded)
    treatment = serving.treats(draft)
    other = serving.support.other_vocabulary
    if other and any(f.check == "vocabulary size" and f.verdict == "needs_setting" for f in judged.findings):
        treatment = treatment.model_copy(update={"settings": treatment.settings | dict(other.settings)})
    inputs = {"target": target.sha256()}
    inputs |= {"draft": side.sha256()} if side else {}
    inputs |= {"prompts": prompts.sha256} if prompts else {}
    return Result(
        phase=PHASE,
        inputs=inputs,
        settings=settings.model_dump(mode="json"),
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary=Summary(
            verdict=worst(judged.findings),
            kind=draft.kind,
            method=treatment.method,
            settings=treatment.settings,
            kv_blocks_lost=used.blocks.lost if used.blocks else None,
            unknown={f.check: f.find_out for f in judged.findings if f.find_out is not None},
        ).model_dump(mode="json"),
        data=VerifyDraftData(
            target=target.described(),
            draft=side.described() if side else NoCheckpoint(name=settings.draft),
            kind=_kind(draft),
            engine=treatment,
            findings=judged.findings,
            encodings=judged.encodings,
            memory=used,
            prompts=prompts.provenance() if prompts else None,
        ).model_dump(mode="json"),
    )


def _kind(draft: Draft) -> KindRecord:
    return KindRecord(
        kind=draft.kind,
        words=WORDS[draft.kind],
        evidence=draft.evidence,
        doubt=draft.doubt,
        speculators_format=draft.speculators,
        tokens=draft.tokens,
        trained_for=draft.verifier,
    )


@dataclass(frozen=True)
class PairJudgement:
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
) -> PairJudgement:
    """Judge a pair. `side`: the draft's checkpoint, which may be the target's own; None for a draft without a
    model."""
    kind = _kind_finding(draft, side is target)
    findings = [kind, engine_fit.finding(serving, serving.treats(draft), draft)]
    if side is None:
        return PairJudgement(findings)
    if draft.kind == "unknown":  # its tokens can differ all the same
        theirs, findings = side.tokenizer, [kind]
        if theirs is not None:
            findings += _vocabulary(serving, target, side, draft, _tokenizer(target), theirs)
        return PairJudgement(findings)
    path = engine_fit.path_finding(serving, draft, side.checkpoint.name)
    if side is not target and side.other_weights:
        findings.append(
            Finding(
                check="other weights",
                verdict="unknown",
                detail=f"{', '.join(side.other_weights)} may hold tensors of the draft, and is not read",
                find_out="read in its model card what the file is for, and whether the engine loads it",
            )
        )
    files = engine_fit.files_finding(serving, draft, {target.file_format, side.file_format})
    divided = side.config.whole("num_attention_heads")
    parallel = engine_fit.parallel_finding(serving, draft, divided, tensor_parallel)
    findings += [extra for extra in (files, path, parallel) if extra is not None]
    if side is target and draft.kind in ("mtp", "dspark"):  # its ids are the target's
        return PairJudgement([*findings, *heads.own_layers(heads.Pair(serving, draft, target, side, 0))])
    if draft.kind in WHOLE_MODELS:
        cannot = not_generative(side.config, side.checkpoint.names())
        if cannot is not None:
            return PairJudgement(
                [*findings, Finding(check="text generation", verdict="incompatible", detail=cannot)]
            )
        findings += cost(target, side)
    ours, theirs = _tokenizer(target), side.tokenizer
    pair = heads.Pair(serving, draft, target, side, _ids_in_use(target, ours))
    if draft.kind in WHOLE_MODELS:
        theirs = _tokenizer(side)
        findings += heads.number_format(pair)
    else:
        findings += heads.fits(pair)
    if theirs is None:
        return PairJudgement(findings)
    encoded = differences.encodings(ours, theirs, _texts(prompts), differences.chats(ours))
    findings += [*_vocabulary(serving, target, side, draft, ours, theirs), encoded.finding()]
    return PairJudgement(findings, encoded)


def _vocabulary(
    serving: Engine, target: Side, side: Side, draft: Draft, ours: Tokenizer, theirs: Tokenizer
) -> list[Finding]:
    ids, *rest = differences.compare(ours, theirs, side.rows, target.rows)
    sizes = engine_fit.vocabulary(
        serving,
        draft,
        (target.config.vocab_size, side.config.vocab_size),
        ids_agree=ids.verdict != "incompatible",
        maps_equal=ours.tokens == theirs.tokens,
    )
    read = " and ".join(sorted({ours.read_from, theirs.read_from}))
    found = [
        compatible("tokenizers", f"read from {read}"),
        engine_fit.heterogeneous(serving, draft, ids),
        sizes,
        *rest,
        differences.special_tokens(ours, theirs),
        differences.ends((target.config, target.generation), (side.config, side.generation)),
        differences.template(ours, theirs),
    ]
    if draft.kind in WHOLE_MODELS:
        found.append(differences.lengths(target.config, side.config))
    return found


def _ids_in_use(target: Side, tokenizer: Tokenizer) -> int:
    """One more than the highest id of a token for which the target has a row."""
    rows = target.rows
    return max((index for index in tokenizer.tokens if rows is None or index < rows), default=-1) + 1


def _tokenizer(side: Side) -> Tokenizer:
    if side.tokenizer is None:
        raise ModelError(
            f"could not judge {side.checkpoint.name}: it has no tokenizer: expected a tokenizer.json "
            "beside its config.json",
            hint=access_check(side.checkpoint.name),
        )
    return side.tokenizer


def _kind_finding(draft: Draft, is_target: bool) -> Finding:
    detail = f"{WORDS[draft.kind]}: {draft.evidence}"
    if draft.doubt is not None:
        return Finding(
            check="kind", verdict="unknown", detail=f"{detail}; {draft.doubt}", find_out=draft.find_out
        )
    if is_target and draft.kind == "independent":
        detail += "; it is the target itself, which drafts as slowly as it decodes"
        return Finding(check="kind", verdict="degraded", detail=detail)
    return compatible("kind", detail)


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
