"""What the serving engine makes of a pair: kind, path, division among GPUs, vocabulary sizes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from specops.checkpoints.draft_kind import WHOLE_MODELS, WORDS, Draft
from specops.errors import UsageError
from specops.hints import with_options
from specops.phases.verify_draft.pair import PairFinding, ServingEngine
from specops.section import Frozen
from specops.serving import ENGINES, DraftSupport, FileFormat

Version = tuple[int, int, int]


class Treatment(Frozen):
    name: ServingEngine
    version: str
    does: Literal["works", "needs_setting", "refused", "unknown"]
    method: str | None
    message: str
    settings: dict[str, bool | int | str] = Field(default={})
    """What must be set beside the method, by the engine's own names."""


@dataclass(frozen=True)
class EngineRelease:
    name: ServingEngine
    version: str

    @classmethod
    def at_version(cls, name: ServingEngine, version: str | None) -> EngineRelease:
        """Return the engine of a version. Raises UsageError for an invalid version, or one that specops does
        not know."""
        support = _support(name)
        title = ENGINES[name].title
        if version is not None and support.versions == "own":
            raise UsageError(
                f"{title} has the version of this specops, {support.newest}",
                hint=with_options({"--engine-version": None}),
            )
        chosen = cls(name, version or support.newest)
        number = chosen.number  # raises for an unknown version
        if number < support.oldest:
            message = f"could not judge for {title} {version}: {support.too_old}"
            raise UsageError(message, hint=with_options({"--engine-version": support.newest}))
        return chosen

    @property
    def support(self) -> DraftSupport:
        return _support(self.name)

    @property
    def number(self) -> Version:
        match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?|b(?P<build>\d+)$", self.version)
        if match is None:
            raise UsageError(
                f"invalid --engine-version {self.version!r}: expected one such as 0.33 or 0.32.0",
                hint=with_options({"--engine-version": self.support.newest}),
            )
        if match["build"]:
            return int(match["build"]), 0, 0
        major, minor, patch = match.group(1), match.group(2), match.group(3) or "0"
        return int(major), int(minor), int(patch)

    @property
    def title(self) -> str:
        return ENGINES[self.name].title

    @property
    def words(self) -> str:
        return f"{self.title} {self.version}"

    @property
    def is_newer(self) -> bool:
        """Return whether it is newer than the newest release that specops knows."""
        return self.number > EngineRelease(self.name, self.support.newest).number

    def treats(self, draft: Draft) -> Treatment:
        """Return what this release does with a kind of draft: `unknown` where no rule covers it."""
        support = self.support
        rules = (rule for rule in support.rules if draft.kind in rule.kinds and self.number >= rule.since)
        rule = next(rules, None)
        if rule is None:
            why = "its kind is unknown" if draft.kind == "unknown" else "no rule covers this kind"
            return Treatment(name=self.name, version=self.version, does="unknown", method=None, message=why)
        does, message, settings = rule.does, rule.why, dict(rule.settings)
        method = rule.method or support.methods.get(draft.kind)
        usable = does in ("works", "needs_setting") and method is not None
        has_method = support.has_method(self.version, str(method)) if usable and support.has_method else True
        if has_method is None:
            does, message = "unknown", f"whether this release has {support.method_key} {method} was not read"
        elif not has_method:
            does, message = "refused", f"this release has no {support.method_key} {method}"
        if does in ("refused", "unknown"):
            method, settings = None, {}
        return Treatment(
            name=self.name,
            version=self.version,
            does=does,
            method=method,
            message=message,
            settings=settings,
        )


def finding(engine: EngineRelease, treatment: Treatment, draft: Draft) -> PairFinding:
    kind = WORDS[draft.kind]
    if engine.is_newer and treatment.does != "unknown":
        newest = engine.support.newest
        does = "refuses it" if treatment.does == "refused" else f"serves it with {treatment.method}"
        return PairFinding(
            check="engine",
            verdict="unknown",
            detail=f"{engine.words} is newer than {newest}, the newest one known, which {does}",
            find_out=f"judge for --engine-version {newest}, and start the server of {engine.version} once",
        )
    if treatment.does == "refused":
        detail = f"{engine.words} refuses {kind}: {treatment.message}"
        return PairFinding(check="engine", verdict="incompatible", detail=detail)
    if treatment.does == "unknown":
        return PairFinding(
            check="engine",
            verdict="unknown",
            detail=f"what {engine.words} does with {kind} is not known: {treatment.message}",
            find_out="look for its loader in the engine's source, or start the server once",
        )
    detail = f"{engine.words} serves it: {engine.support.method_key} {treatment.method}"
    if treatment.does == "needs_setting":
        return PairFinding(check="engine", verdict="needs_setting", detail=f"{detail}; {treatment.message}")
    return PairFinding(check="engine", verdict="compatible", detail=detail)


def files_finding(engine: EngineRelease, draft: Draft, formats: set[FileFormat]) -> PairFinding | None:
    """Return whether the engine reads the files of a pair. None where it reads their formats."""
    unread = formats.difference(engine.support.reads)
    if not unread:
        return None
    if "gguf" in unread:
        return PairFinding(
            check="files",
            verdict="unknown",
            detail=f"whether {engine.words} reads GGUF files of such a pair is not known",
            find_out="run the command on the checkpoint that the file was made of, or start the server once",
        )
    convert = "convert both with convert_hf_to_gguf.py"
    if draft.kind in WHOLE_MODELS:
        return PairFinding(
            check="files", verdict="needs_setting", detail=f"{engine.title} reads GGUF files: {convert} first"
        )
    return PairFinding(
        check="files",
        verdict="unknown",
        detail=f"{engine.words} reads GGUF files, and whether its converter takes such a head is not known",
        find_out=f"{convert}, the head with --target-model-dir, and run the command on these files",
    )


def path_finding(engine: EngineRelease, draft: Draft, name: str) -> PairFinding | None:
    """Return what the engine would guess from the draft's path or id. None for one that does not look at
    it."""
    guesses, title = engine.support.guesses, engine.title
    if guesses is None:
        return None
    guess = next(
        (
            candidate
            for candidate in guesses
            if candidate.text in name.lower() and engine.number >= candidate.since
        ),
        None,
    )
    if guess is None or draft.kind in guess.kinds:
        return PairFinding(
            check="path", verdict="compatible", detail=f"{title} reads no other method out of its text"
        )
    message = f"{title} takes a path with {guess.text!r} in it for {WORDS[guess.kinds[0]]}"
    if draft.kind in engine.support.named_for_good:
        detail = f"{message}: always name the method"
        return PairFinding(check="path", verdict="needs_setting", detail=detail, witness=name)
    detail = f"{message}, whatever method is named: serve it from a path without that text"
    return PairFinding(check="path", verdict="needs_setting", detail=detail, witness=name)


def parallel_finding(
    engine: EngineRelease, draft: Draft, heads: int | None, tensor_parallel: int
) -> PairFinding | None:
    """Return whether the draft can be divided as the target is. None where the target is not divided."""
    if not engine.support.divides or draft.kind not in WHOLE_MODELS or tensor_parallel == 1:
        return None
    if not heads:
        return PairFinding(
            check="tensor parallel",
            verdict="unknown",
            detail="its config.json does not give num_attention_heads",
            find_out="look in its model card; the number must be a multiple of the GPUs",
        )
    if heads % tensor_parallel:
        detail = (
            f"its {heads} attention heads cannot be divided among {tensor_parallel} GPUs, and "
            f"{engine.title} divides draft models as it does the target"
        )
        return PairFinding(check="tensor parallel", verdict="incompatible", detail=detail)
    detail = f"{heads} attention heads on {tensor_parallel} GPUs"
    return PairFinding(check="tensor parallel", verdict="compatible", detail=detail)


def vocabulary(
    engine: EngineRelease,
    draft: Draft,
    sizes: tuple[int | None, int | None],
    *,
    ids_agree: bool,
    maps_equal: bool,
) -> PairFinding:
    """Return what becomes of config.json's two vocabulary sizes, (target's, draft's).

    ids_agree: no id in use means two things. maps_equal: the maps are the same to the last placeholder.
    """
    check = "vocabulary size"
    target_size, draft_size = sizes
    if target_size is None or draft_size is None:
        return PairFinding(
            check=check,
            verdict="unknown",
            detail="config.json does not give vocab_size for both",
            find_out="compare the rows of both embeddings",
        )
    if target_size == draft_size:
        same_tokens = engine.support.same_tokens
        if same_tokens is not None and draft.kind in WHOLE_MODELS and not maps_equal:
            return PairFinding(check=check, verdict="incompatible", detail=same_tokens)
        return PairFinding(check=check, verdict="compatible", detail=f"{target_size:,} in both config.json")
    message = f"{target_size:,} in the target's config.json, {draft_size:,} in the draft's"
    if draft.kind not in WHOLE_MODELS and not engine.support.heads_compared:
        detail = f"{message}; compared for draft models alone"
        return PairFinding(check=check, verdict="compatible", detail=detail)
    spare = engine.support.spare_tokens
    if abs(target_size - draft_size) <= spare and ids_agree:
        detail = f"{message}; {engine.words} takes up to {spare} more"
        return PairFinding(check=check, verdict="compatible", detail=detail)
    refusal = f"{message}: {engine.words} {engine.support.refuses}"
    remedy = engine.support.other_vocabulary
    if remedy is None or not ids_agree:
        return PairFinding(check=check, verdict="incompatible", detail=refusal)
    if engine.number < remedy.since:
        return PairFinding(check=check, verdict="incompatible", detail=f"{refusal}; {remedy.before}")
    detail = f"{refusal} unless {remedy.needed}"
    return PairFinding(check=check, verdict="needs_setting", detail=detail)


def heterogeneous(engine: EngineRelease, draft: Draft, finding: PairFinding) -> PairFinding:
    """Return the finding on ids that differ, with what the engine has for it. The pair is incompatible
    still."""
    remedy = engine.support.other_vocabulary
    has_it = remedy is not None and engine.number >= remedy.since and draft.kind in WHOLE_MODELS
    if finding.verdict != "incompatible" or remedy is None or not has_it:
        return finding
    return finding.model_copy(update={"detail": f"{finding.detail}; {remedy.way}"})


def _support(name: ServingEngine) -> DraftSupport:
    support = ENGINES[name].drafts
    assert support is not None  # ServingEngine has no other names
    return support
