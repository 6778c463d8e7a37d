"""What the serving engine makes of this pair: of its kind, its path, its vocabulary and its heads. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops.checkpoints.draft_kind import WORDS, Draft
from specops.errors import UsageError
from specops.phases.verify_draft.findings import Finding
from specops.phases.verify_draft.pair import ServingEngine
from specops.serving import ENGINES, DraftSupport

Version = tuple[int, int, int]


class Treatment(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ServingEngine
    version: str
    does: Literal["works", "needs_setting", "refused"]
    method: str | None
    message: str
    settings: dict[str, bool | int | str] = {}
    """What must be set beside the method, by the engine's own names."""


@dataclass(frozen=True)
class Engine:
    name: ServingEngine
    version: str

    @classmethod
    def of(cls, name: ServingEngine, version: str | None) -> Engine:
        """UsageError for a version that is none, or that specops knows nothing of."""
        known = _support(name)
        title = ENGINES[name].title
        if version is not None and known.versions == "own":
            raise UsageError(
                f"{title} is this specops's own, {known.newest}", hint="leave --engine-version out"
            )
        chosen = cls(name, version or known.newest)
        number = chosen.number  # raises where it is none
        if number < known.oldest:
            message = f"could not judge for {title} {version}: {known.too_old}"
            raise UsageError(message, hint=known.too_old_hint)
        return chosen

    @property
    def support(self) -> DraftSupport:
        return _support(self.name)

    @property
    def number(self) -> Version:
        found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?|b(?P<build>\d+)$", self.version)
        if found is None:
            raise UsageError(f"--engine-version {self.version} is no version", hint="such as 0.33 or 0.32.0")
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
        return Treatment(
            name=self.name,
            version=self.version,
            does=does,
            method=known.methods.get(draft.kind) if does != "refused" else None,
            message=message,
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
    """What the engine would guess from the draft's path or id. None for one that does not look at it."""
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
    """Whether the draft can be divided as the target is. None where that is no question."""
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
    """What becomes of config.json's two vocabulary sizes, (target's, draft's).

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
    """Of ids that differ: what the engine has for it is named. The pair is incompatible still."""
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
    """Said where the rules are another version's."""
    known = Engine(engine.name, engine.support.newest)
    if engine.support.versions == "newest" and engine.number != known.number:
        return f" (as {known.version} does, the only one known)"
    return f" (as {known.version} does, the newest one known)" if engine.number > known.number else ""
