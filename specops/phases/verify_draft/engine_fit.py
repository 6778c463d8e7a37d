"""The fit of a head to its target, and what the serving engine makes of the pair: kind, path, vocabulary.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from specops.checkpoints.draft_kind import FUSE, HEAD_FORMS, WORDS, Draft, has_mtp_layers
from specops.checkpoints.model_config import Config
from specops.checkpoints.source import Tensor, Weights
from specops.errors import UsageError
from specops.hints import with_options
from specops.phases.verify_draft.pair import Finding, ServingEngine, Severity, Side
from specops.section import Frozen
from specops.serving import ENGINES, DraftSupport

Version = tuple[int, int, int]


class Treatment(Frozen):
    name: ServingEngine
    version: str
    does: Literal["works", "needs_setting", "refused"]
    method: str | None
    message: str
    settings: dict[str, bool | int | str] = Field(default={})
    """What must be set beside the method, by the engine's own names."""


@dataclass(frozen=True)
class Engine:
    name: ServingEngine
    version: str

    @classmethod
    def of(cls, name: ServingEngine, version: str | None) -> Engine:
        """Return the engine of a version. Raises UsageError for an invalid version, or one that specops does
        not know."""
        known = _support(name)
        title = ENGINES[name].title
        if version is not None and known.versions == "own":
            raise UsageError(
                f"{title} has the version of this specops, {known.newest}",
                hint=with_options({"--engine-version": None}),
            )
        chosen = cls(name, version or known.newest)
        number = chosen.number  # raises for an unknown version
        if number < known.oldest:
            message = f"could not judge for {title} {version}: {known.too_old}"
            raise UsageError(message, hint=with_options({"--engine-version": known.newest}))
        return chosen

    @property
    def support(self) -> DraftSupport:
        return _support(self.name)

    @property
    def number(self) -> Version:
        found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?|b(?P<build>\d+)$", self.version)
        if found is None:
            raise UsageError(
                f"invalid --engine-version {self.version!r}: expected one such as 0.33 or 0.32.0",
                hint=with_options({"--engine-version": self.support.newest}),
            )
        if found["build"]:
            return int(found["build"]), 0, 0
        major, minor, patch = found.group(1), found.group(2), found.group(3) or "0"
        return int(major), int(minor), int(patch)

    @property
    def words(self) -> str:
        return f"{ENGINES[self.name].title} {self.version}"

    def treats(self, draft: Draft) -> Treatment:
        known = self.support
        rule = next(rule for rule in known.rules if draft.kind in rule.kinds and self.number >= rule.since)
        does, message = rule.does, rule.why
        early = [one for one in known.formats if getattr(draft, one.of) and self.number < one.since]
        if does != "refused" and early:
            does, message = "refused", early[0].why
        masked = known.masked
        in_one_pass = draft.masked and masked is not None and self.number >= masked.since
        settings: dict[str, bool | int | str] = {}
        method = known.methods.get(draft.kind) if does != "refused" else None
        if does != "refused" and in_one_pass and masked is not None:
            does, message = "needs_setting" if masked.settings else does, masked.why
            method, settings = masked.method or method, dict(masked.settings)
        return Treatment(
            name=self.name,
            version=self.version,
            does=does,
            method=method,
            message=message,
            settings=settings,
        )


def finding(engine: Engine, treatment: Treatment, draft: Draft) -> Finding:
    kind = WORDS[draft.kind]
    if treatment.does == "refused":
        detail = f"{engine.words} refuses {kind}: {treatment.message}"
        return Finding(check="engine", verdict="incompatible", detail=detail)
    detail = f"{engine.words} serves it: {engine.support.method_key} {treatment.method}{_unknown(engine)}"
    if treatment.does == "needs_setting":
        return Finding(check="engine", verdict="needs_setting", detail=f"{detail}; {treatment.message}")
    return Finding(check="engine", verdict="compatible", detail=detail)


def path_finding(engine: Engine, draft: Draft, name: str) -> Finding | None:
    """Return what the engine would guess from the draft's path or id. None for one that does not look at
    it."""
    guesses, title = engine.support.guesses, ENGINES[engine.name].title
    if guesses is None:
        return None
    guess = next((one for one in guesses if one.text in name.lower() and engine.number >= one.since), None)
    if guess is None or guess.kind == draft.kind:
        return Finding(
            check="path", verdict="compatible", detail=f"{title} reads no other method out of its text"
        )
    message = f"{title} takes a path with {guess.text!r} in it for {WORDS[guess.kind]}"
    if draft.kind in engine.support.named_for_good:
        detail = f"{message}: always name the method"
        return Finding(check="path", verdict="needs_setting", detail=detail, witness=name)
    detail = f"{message}, whatever method is named: serve it from a path without that text"
    return Finding(check="path", verdict="needs_setting", detail=detail, witness=name)


def parallel_finding(engine: Engine, draft: Draft, heads: int | None, tensor_parallel: int) -> Finding | None:
    """Return whether the draft can be divided as the target is. None where the target is not divided."""
    if not engine.support.divides or draft.kind != "independent" or tensor_parallel == 1 or not heads:
        return None
    if heads % tensor_parallel:
        detail = (
            f"its {heads} attention heads cannot be divided among {tensor_parallel} GPUs, and "
            f"{ENGINES[engine.name].title} divides draft models as it does the target"
        )
        return Finding(check="tensor parallel", verdict="incompatible", detail=detail)
    detail = f"{heads} attention heads on {tensor_parallel} GPUs"
    return Finding(check="tensor parallel", verdict="compatible", detail=detail)


def vocabulary(
    engine: Engine, draft: Draft, sizes: tuple[int | None, int | None], *, ids_agree: bool, maps_equal: bool
) -> Finding:
    """Return what becomes of config.json's two vocabulary sizes, (target's, draft's).

    ids_agree: no id in use means two things. maps_equal: the maps are the same to the last placeholder.
    """
    check = "vocabulary size"
    ours, theirs = sizes
    if ours is None or theirs is None:
        return Finding(check=check, verdict="compatible", detail="config.json does not say it for both")
    if ours == theirs:
        same_tokens = engine.support.same_tokens
        if same_tokens is not None and draft.kind == "independent" and not maps_equal:
            return Finding(check=check, verdict="incompatible", detail=same_tokens)
        return Finding(check=check, verdict="compatible", detail=f"{ours:,} in both config.json")
    message = f"{ours:,} in the target's config.json, {theirs:,} in the draft's"
    if draft.kind != "independent" and not engine.support.heads_compared:
        detail = f"{message}; compared for draft models alone"
        return Finding(check=check, verdict="compatible", detail=detail)
    spare = engine.support.spare_tokens
    if abs(ours - theirs) <= spare and ids_agree:
        detail = f"{message}; {engine.words} takes up to {spare} more"
        return Finding(check=check, verdict="compatible", detail=detail)
    refusal = f"{message}: {engine.words} {engine.support.refuses}"
    other = engine.support.other_vocabulary
    if other is None or not ids_agree:
        return Finding(check=check, verdict="incompatible", detail=refusal)
    if engine.number < other.since:
        return Finding(check=check, verdict="incompatible", detail=f"{refusal}; {other.before}")
    detail = f"{refusal} unless {other.needed}"
    return Finding(check=check, verdict="needs_setting", detail=detail)


def heterogeneous(engine: Engine, draft: Draft, found: Finding) -> Finding:
    """Return the finding on ids that differ, with what the engine has for it. The pair is incompatible
    still."""
    other = engine.support.other_vocabulary
    has_it = other is not None and engine.number >= other.since and draft.kind == "independent"
    if found.verdict != "incompatible" or other is None or not has_it:
        return found
    return found.model_copy(update={"detail": f"{found.detail}; {other.way}"})


def _support(name: ServingEngine) -> DraftSupport:
    support = ENGINES[name].drafts
    assert support is not None  # ServingEngine has no other names
    return support


def _unknown(engine: Engine) -> str:
    """Return the finding where the rules are another version's."""
    known = Engine(engine.name, engine.support.newest)
    if engine.support.versions == "newest" and engine.number != known.number:
        return f" (as {known.version} does, the only one known)"
    return f" (as {known.version} does, the newest one known)" if engine.number > known.number else ""


def fits(engine: Engine, draft: Draft, target: Side, head: Side, used: int) -> Iterator[Finding]:
    """Yield findings on a head. `used`: one more than the highest id that the target's tokenizer uses."""
    if draft.speculators:
        yield _complete(draft)
    if draft.verifier_architectures:
        yield _trained_for(draft, target.config)
    yield _features(draft, target.config, head.config, head.weights)
    reduced = head.config.whole("draft_vocab_size")
    drafts_fewer = reduced is not None and reduced < (head.config.vocab_size or reduced)
    yield _ids(head.config, target.config, used, reduced=drafts_fewer)
    if draft.kind in ("eagle3", "dflash", "dspark") and reduced and drafts_fewer:
        yield _reduced(reduced, target.config.vocab_size, head)
    if engine.support.heads_compared and draft.kind in HEAD_FORMS:
        yield _embedded(draft, target.config, head.config, head.weights)


def _complete(draft: Draft) -> Finding:
    check = "format"
    if draft.lacks:
        detail = f"the speculators format requires {', '.join(draft.lacks)}"
        return Finding(check=check, verdict="incompatible", detail=detail)
    detail = f"speculators, {draft.tokens} tokens at a time, trained for {draft.verifier}"
    return Finding(check=check, verdict="compatible", detail=detail)


def _trained_for(draft: Draft, target: Config) -> Finding:
    """A head reads one model's features. A text model inside a multimodal one has another name."""
    check = "trained for"
    trained, served = draft.verifier_architectures, target.architectures
    if not served or set(trained) & set(served):
        return Finding(check=check, verdict="compatible", detail=f"{draft.verifier}, {', '.join(trained)}")
    detail = f"its config names {', '.join(trained)}; the target is {', '.join(served)}"
    multimodal = any("ConditionalGeneration" in name for name in (*trained, *served))
    return Finding(check=check, verdict="degraded" if multimodal else "incompatible", detail=detail)


def _features(draft: Draft, target: Config, config: Config, weights: Weights | None) -> Finding:
    check = "features"
    width = target.hidden_size
    said = config.whole("backbone_hidden_size" if draft.assistant else "target_hidden_size")
    own = config.hidden_size
    if said is None and (draft.kind == "mtp" or draft.kind in HEAD_FORMS):
        said = own  # these have no width of their own
    fuse = weights.ends_with(FUSE) if weights else None
    if width is None or (said is None and fuse is None):
        return Finding(check=check, verdict="compatible", detail="the files do not give its width")
    if said is not None and said != width:
        detail = f"it reads features of {said:,}, the target's are {width:,} wide: another target's head"
        return Finding(check=check, verdict="incompatible", detail=detail)
    if (deeper := _deeper(target, config)) is not None:
        return Finding(check=check, verdict="incompatible", detail=deeper)
    if fuse is not None and len(fuse.shape) == 2:
        # EAGLE joins an embedding and a feature, the later kinds several layers' features.
        embedding = (own or 0) if draft.kind == "eagle" else 0
        layers = _layers_read(draft, config)
        if not any(_reads(inputs - embedding, layers, width) for inputs in _inputs(fuse)):
            read = "a whole number" if layers is None else str(layers)
            detail = (
                f"{FUSE} takes {fuse.shape[1]:,} numbers, which are not the features of {read} "
                f"{'layer' if layers == 1 else 'layers'} of {width:,}"
            )
            return Finding(check=check, verdict="incompatible", detail=detail)
    return Finding(check=check, verdict="compatible", detail=f"{width:,} wide, as the target's are")


def _reads(features: int, layers: int | None, width: int) -> bool:
    return features > 0 and features % width == 0 and layers in (None, features // width)


def _inputs(fuse: Tensor) -> tuple[int, ...]:
    """Numbers that a row takes. In a byte there may be two of 4 bits."""
    stored = fuse.shape[1]
    return (stored, 2 * stored) if fuse.dtype == "U8" else (stored,)


def _deeper(target: Config, config: Config) -> str | None:
    """Return why the head reads a target with other layers, though as wide and with the same vocabulary."""
    layers, named = target.layers, config.whole("num_target_layers")
    if layers is None:
        return None
    if named is not None and named != layers:
        return f"it reads a target of {named} layers, this one has {layers}: another target's head"
    numbers = [number for number in _aux_layers(config) if isinstance(number, int)]
    if max(numbers, default=0) > layers:
        return f"it reads layer {max(numbers)}, the target has {layers} layers: another target's head"
    return None


def own_layers(target: Side) -> Iterator[Finding]:
    """Yield the finding on MTP, whose layers are the target's own: whether its weights have them. Exports
    often drop them."""
    weights = target.weights
    if weights is None or not weights.tensors:
        return
    beside = any("mtp" in name.lower() for name in target.checkpoint.names())
    if beside or has_mtp_layers(target.config, weights):
        yield Finding(check="MTP layers", verdict="compatible", detail="the target's weights have them")
        return
    detail = "its config.json counts MTP layers, and its weights have none: the export dropped them"
    yield Finding(check="MTP layers", verdict="incompatible", detail=detail)


def _layers_read(draft: Draft, config: Config) -> int | None:
    """Return how many layers' features the head joins (vLLM 0.33); None where its kind has no default."""
    if draft.kind == "eagle":
        return 1
    if listed := _aux_layers(config):
        return len(listed)
    return 3 if draft.kind == "eagle3" else None


def _aux_layers(config: Config) -> list[Any]:
    """The layers whose features the head joins, where its config names them."""
    for key in ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids"):
        for section in (config.raw, config.text, *map(config.raw.get, ("eagle_config", "dflash_config"))):
            listed = section.get(key) if isinstance(section, dict) else None
            if isinstance(listed, list) and listed:
                return listed
    return []


def _ids(config: Config, target: Config, used: int, *, reduced: bool) -> Finding:
    check = "rows"
    rows, most = config.vocab_size, target.vocab_size
    if rows is None:
        return Finding(check=check, verdict="compatible", detail="the target's; config.json gives no size")
    if rows < used:
        detail = f"its vocabulary has {rows:,} entries, the target uses ids up to {used - 1:,}"
        return Finding(check=check, verdict="incompatible", detail=detail)
    if most is not None and rows > most and not reduced:
        detail = f"its vocabulary has {rows:,} entries, the target's {most:,}: another target's head"
        return Finding(check=check, verdict="incompatible", detail=detail)
    return Finding(
        check=check, verdict="compatible", detail=f"the target's; room for {rows:,}, {used:,} used"
    )


def _reduced(size: int, target_rows: int | None, head: Side) -> Finding:
    """d2t[i] + i is the target's id of the head's token i, and t2d marks those ids (arXiv:2503.01840)."""
    check, weights = "reduced vocabulary", head.weights

    def found(verdict: Severity, detail: str) -> Finding:
        return Finding(check=check, verdict=verdict, detail=f"it drafts from {size:,} tokens, {detail}")

    if weights is None or not weights.tensors:
        return found("compatible", "and its files do not show whether its weights map them back (d2t)")
    offsets, marks = weights.ends_with("d2t"), weights.ends_with("t2d")
    if offsets is None:
        return found("incompatible", "and its weights have no d2t to map them back")
    if offsets.shape != (size,):
        return found("incompatible", f"and d2t maps {offsets.shape} of them back")
    if marks is not None and target_rows is not None and marks.shape != (target_rows,):
        detail = f"t2d covers {marks.shape[0]:,} ids, the target has {target_rows:,}: another target's head"
        return found("incompatible", detail)
    values = _values(head, offsets)
    if values is None:
        return found("compatible", "d2t maps them back (its values were not read)")
    ids = values.astype(np.int64) + np.arange(size)
    if target_rows is not None and (ids.min() < 0 or ids.max() >= target_rows):
        detail = (
            f"d2t maps them to ids up to {ids.max():,}, the target has {target_rows:,}: another target's head"
        )
        return found("incompatible", detail)
    if len(np.unique(ids)) != size:
        return found("incompatible", "and d2t maps several of them to one id")
    marked = None if marks is None else _values(head, marks)
    if marked is not None and not np.array_equal(np.flatnonzero(marked), np.sort(ids)):
        return found("incompatible", "and t2d marks other ids than d2t maps them to")
    return found("compatible", "d2t maps them back")


def _values(head: Side, tensor: Tensor) -> NDArray[Any] | None:
    """A vector's numbers; None where they cannot be read (the hub, an unusual type)."""
    types = {"I64": "<i8", "I32": "<i4", "BOOL": "?", "U8": "u1"}
    if tensor.dtype not in types:
        return None
    content = head.checkpoint.tensor(tensor.file, tensor.offsets)
    return None if content is None else np.frombuffer(content, types[tensor.dtype])


def _embedded(draft: Draft, target: Config, config: Config, weights: Weights | None) -> Finding:
    check = "form"
    tensors = weights.tensors if weights else {}
    form = HEAD_FORMS[draft.kind]
    marked = any(mark in tensors for mark in form.marks)
    lacking = [name for name in (*(() if marked else form.marks[:1]), *form.also) if name not in tensors]
    if lacking:
        words = WORDS[draft.kind]
        detail = f"the embedded engine takes {words} with {' and '.join(lacking)} in model.safetensors"
        return Finding(check=check, verdict="incompatible", detail=detail)
    if draft.kind != "eagle":
        detail = f"{WORDS[draft.kind]} as the embedded engine takes it"
        return Finding(check=check, verdict="compatible", detail=detail)
    rows = tensors["embed_tokens.weight"].shape[0]
    if rows != target.vocab_size:
        detail = f"its embedding has {rows:,} rows, the target's vocabulary {target.vocab_size} entries"
        return Finding(check=check, verdict="incompatible", detail=detail)
    detail = f"EAGLE's, {config.layers} layer, as the embedded engine takes it"
    return Finding(check=check, verdict="compatible", detail=detail)
