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
from specops.phases.verify_draft.engine_fit import EngineRelease, Treatment
from specops.phases.verify_draft.memory import PairMemory, cost, memory, memory_of
from specops.phases.verify_draft.pair import (
    CheckpointRecord,
    ModelFiles,
    PairFinding,
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
    serving = EngineRelease.at_version(settings.engine, settings.engine_version)
    gpu_bytes = memory_of(settings.gpu) if settings.gpu else None
    progress.start("reading the target and the draft", 2)
    target = ModelFiles(find(settings.target))
    progress.advance()
    side, draft = _draft(settings, target)
    progress.advance()
    judged = judge(serving, target, side, draft, prompts, tensor_parallel=settings.tensor_parallel)
    used = memory(target, side, draft, gpu_bytes=gpu_bytes, tensor_parallel=settings.tensor_parallel)
    return _result(settings, serving, target, side, draft, judged, used, prompts)


def _draft(settings: VerifySettings, target: ModelFiles) -> tuple[ModelFiles | None, Draft]:
    without: dict[str, Kind] = {kind: kind for kind in WITHOUT_MODEL}
    if settings.draft in without:
        return None, Draft(without[settings.draft], "needs no model")
    layers = exit_layers(settings.draft)
    if layers is not None:
        return None, Draft("early_exit", f"the target's first {layers} layers", layers=layers)
    folders = Path(settings.target), Path(settings.draft)
    same_folder = all(folder.is_dir() for folder in folders) and folders[0].samefile(folders[1])
    own = settings.draft == settings.target or same_folder
    side = target if own else ModelFiles(find(settings.draft))
    return side, kind_of(
        side.config, side.weights, side.generation, is_target=own, unread=side.unread_weights
    )


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


class VerifySummary(Frozen):
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
    findings: list[PairFinding]
    encodings: Encodings | None
    """Null where the draft brings no tokenizer."""

    memory: PairMemory
    prompts: StoredProvenance | None


def _result(
    settings: VerifySettings,
    serving: EngineRelease,
    target: ModelFiles,
    side: ModelFiles | None,
    draft: Draft,
    judged: PairJudgement,
    used: PairMemory,
    prompts: PromptSet | None,
) -> Result:
    verdict, reason = decide(judged.findings, allow_degraded=settings.allow_degraded)
    treatment = serving.treats(draft)
    remedy = serving.support.other_vocabulary
    if remedy and any(f.check == "vocabulary size" and f.verdict == "needs_setting" for f in judged.findings):
        treatment = treatment.model_copy(update={"settings": treatment.settings | dict(remedy.settings)})
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
        summary=VerifySummary(
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
    findings: list[PairFinding]
    encodings: Encodings | None = None
    """None where the draft brings no tokenizer."""


def judge(
    serving: EngineRelease,
    target: ModelFiles,
    side: ModelFiles | None,
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
        draft_tokenizer, findings = side.tokenizer, [kind]
        if draft_tokenizer is not None:
            findings += _vocabulary(serving, target, side, draft, _tokenizer(target), draft_tokenizer)
        return PairJudgement(findings)
    path = engine_fit.path_finding(serving, draft, side.checkpoint.name)
    if side is not target and side.other_weights:
        findings.append(
            PairFinding(
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
        return PairJudgement(
            [*findings, *heads.own_layers(heads.JudgedPair(serving, draft, target, side, 0))]
        )
    if draft.kind in WHOLE_MODELS:
        cannot = not_generative(side.config, side.checkpoint.names())
        if cannot is not None:
            return PairJudgement(
                [*findings, PairFinding(check="text generation", verdict="incompatible", detail=cannot)]
            )
        findings += cost(target, side)
    target_tokenizer, draft_tokenizer = _tokenizer(target), side.tokenizer
    rows, tokens = target.rows, target_tokenizer.tokens
    highest = max((index for index in tokens if rows is None or index < rows), default=-1)
    pair = heads.JudgedPair(serving, draft, target, side, highest + 1)
    if draft.kind in WHOLE_MODELS:
        draft_tokenizer = _tokenizer(side)
        findings += heads.number_format(pair)
    else:
        findings += heads.fits(pair)
    if draft_tokenizer is None:
        return PairJudgement(findings)
    encoded = differences.encodings(
        target_tokenizer, draft_tokenizer, _texts(prompts), differences.chats(target_tokenizer)
    )
    findings += [
        *_vocabulary(serving, target, side, draft, target_tokenizer, draft_tokenizer),
        encoded.finding(),
    ]
    return PairJudgement(findings, encoded)


def _vocabulary(
    serving: EngineRelease,
    target: ModelFiles,
    side: ModelFiles,
    draft: Draft,
    target_tokenizer: Tokenizer,
    draft_tokenizer: Tokenizer,
) -> list[PairFinding]:
    ids, *rest = differences.compare(target_tokenizer, draft_tokenizer, side.rows, target.rows)
    sizes = engine_fit.vocabulary(
        serving,
        draft,
        (target.config.vocab_size, side.config.vocab_size),
        ids_agree=ids.verdict != "incompatible",
        maps_equal=target_tokenizer.tokens == draft_tokenizer.tokens,
    )
    read = " and ".join(sorted({target_tokenizer.read_from, draft_tokenizer.read_from}))
    findings = [
        compatible("tokenizers", f"read from {read}"),
        engine_fit.heterogeneous(serving, draft, ids),
        sizes,
        *rest,
        differences.special_tokens(target_tokenizer, draft_tokenizer),
        differences.ends((target.config, target.generation), (side.config, side.generation)),
        differences.template(target_tokenizer, draft_tokenizer),
    ]
    if draft.kind in WHOLE_MODELS:
        findings.append(differences.lengths(target.config, side.config))
    return findings


def _tokenizer(side: ModelFiles) -> Tokenizer:
    if side.tokenizer is None:
        raise ModelError(
            f"could not judge {side.checkpoint.name}: it has no tokenizer: expected a tokenizer.json "
            "beside its config.json",
            hint=access_check(side.checkpoint.name),
        )
    return side.tokenizer


def _kind_finding(draft: Draft, is_target: bool) -> PairFinding:
    detail = f"{WORDS[draft.kind]}: {draft.evidence}"
    if draft.doubt is not None:
        return PairFinding(
            check="kind", verdict="unknown", detail=f"{detail}; {draft.doubt}", find_out=draft.find_out
        )
    if is_target and draft.kind == "independent":
        detail += "; it is the target itself, which drafts as slowly as it decodes"
        return PairFinding(check="kind", verdict="degraded", detail=detail)
    return compatible("kind", detail)


def _texts(prompts: PromptSet | None) -> list[str]:
    """Every text of the user's prompts; prompts of token ids have none."""
    texts: list[str] = []
    for prompt in prompts.prompts if prompts else ():
        if isinstance(prompt.content, str):
            texts.append(prompt.content)
            continue
        for message in prompt.content:
            content = message.get("content") if isinstance(message, dict) else None
            for part in content if isinstance(content, list) else [{"text": content}]:
                text = part.get("text") if isinstance(part, dict) else None
                texts += [text] if isinstance(text, str) else []
    return texts
