"""What the serving engine makes of this pair: of its kind, its path, its vocabulary and its heads. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from specops import __version__
from specops.checkpoints.kind import WORDS, Draft
from specops.errors import UsageError
from specops.phases.verify_draft.findings import Finding
from specops.phases.verify_draft.rules import (
    GUESSES,
    HETEROGENEOUS,
    METHODS,
    NAMED_FOR_GOOD,
    NEWEST,
    OLDEST_VLLM,
    RULES,
    Does,
    Version,
)
from specops.phases.verify_draft.settings import ServingEngine


class Treatment(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ServingEngine
    version: str
    does: Does
    method: str | None
    told: str
    settings: dict[str, bool | int | str] = {}
    """What must be set beside the method, by the engine's own names."""


@dataclass(frozen=True)
class Engine:
    name: ServingEngine
    version: str

    @classmethod
    def of(cls, name: ServingEngine, version: str | None) -> Engine:
        """UsageError for a version that is none, or that specops knows nothing of."""
        if version is not None and name == "embedded":
            raise UsageError(
                f"the embedded engine is this specops's own, {__version__}", hint="leave --engine-version out"
            )
        chosen = cls(name, version or NEWEST[name])
        number = chosen.number  # raises where it is none
        if name == "vllm" and number < OLDEST_VLLM:
            raise UsageError(
                f"could not judge for vLLM {version}: 0.8 is the oldest one known", hint="give 0.8 to 0.33"
            )
        return chosen

    @property
    def number(self) -> Version:
        found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", self.version)
        if found is None:
            raise UsageError(f"--engine-version {self.version} is no version", hint="such as 0.33 or 0.32.0")
        major, minor, patch = found.groups(default="0")
        return int(major), int(minor), int(patch)

    @property
    def words(self) -> str:
        names = {"vllm": "vLLM", "sglang": "SGLang", "embedded": "the embedded engine"}
        return f"{names[self.name]} {self.version}"

    def treats(self, draft: Draft) -> Treatment:
        rule = next(
            rule
            for rule in RULES
            if rule.engine == self.name and draft.kind in rule.kinds and self.number >= rule.since
        )
        does, told = rule.does, rule.told
        if does != "refused" and self.name == "vllm":
            if draft.speculators and self.number < (0, 10, 1):
                does, told = "refused", "it reads the speculators format since 0.10.1"
            elif draft.parallel and self.number < (0, 16, 0):
                does, told = "refused", "parallel drafting (P-EAGLE) came with 0.16"
        return Treatment(
            name=self.name,
            version=self.version,
            does=does,
            method=METHODS[self.name].get(draft.kind) if does != "refused" else None,
            told=told,
        )


def finding(engine: Engine, treatment: Treatment, draft: Draft) -> Finding:
    kind = WORDS[draft.kind]
    if treatment.does == "refused":
        detail = f"{engine.words} refuses {kind}: {treatment.told}"
        return Finding(check="engine", verdict="incompatible", detail=detail)
    named = {"vllm": "method", "sglang": "--speculative-algorithm", "embedded": "tree"}[engine.name]
    detail = f"{engine.words} serves it: {named} {treatment.method}{_unknown(engine)}"
    if treatment.does == "needs_setting":
        return Finding(check="engine", verdict="needs_setting", detail=f"{detail}; {treatment.told}")
    return Finding(check="engine", verdict="compatible", detail=detail)


def path_finding(engine: Engine, draft: Draft, name: str) -> Finding | None:
    """What vLLM would guess from the draft's path or id. None for other engines."""
    if engine.name != "vllm":
        return None
    guess = next(
        ((text, kind) for text, kind, since in GUESSES if text in name.lower() and engine.number >= since),
        None,
    )
    if guess is None or guess[1] == draft.kind:
        return Finding(
            check="path", verdict="compatible", detail="vLLM reads no other method out of its text"
        )
    text, kind = guess
    told = f"vLLM takes a path with {text!r} in it for {WORDS[kind]}"
    if draft.kind in NAMED_FOR_GOOD:
        detail = f"{told}: always name the method"
        return Finding(check="path", verdict="needs_setting", detail=detail, witness=name)
    detail = f"{told}, whatever method is named: serve it from a path without that text"
    return Finding(check="path", verdict="needs_setting", detail=detail, witness=name)


def parallel_finding(engine: Engine, draft: Draft, heads: int | None, tensor_parallel: int) -> Finding | None:
    """Whether the draft can be divided as the target is. None where that is no question."""
    if engine.name != "vllm" or draft.kind != "independent" or tensor_parallel == 1 or not heads:
        return None
    if heads % tensor_parallel:
        detail = (
            f"its {heads} attention heads cannot be divided among {tensor_parallel} GPUs, and vLLM divides "
            "draft models as it does the target"
        )
        return Finding(check="tensor parallel", verdict="incompatible", detail=detail)
    detail = f"{heads} attention heads on {tensor_parallel} GPUs"
    return Finding(check="tensor parallel", verdict="compatible", detail=detail)


def vocabulary(
    engine: Engine, draft: Draft, sizes: tuple[int | None, int | None], *, ids_agree: bool, maps_equal: bool
) -> Finding:
    """What becomes of config.json's two vocabulary sizes, (target's, draft's); HETEROGENEOUS_SETTING where
    it needs a setting.

    ids_agree: no id in use means two things. maps_equal: the maps are the same to the last placeholder.
    """
    check = "vocabulary size"
    ours, theirs = sizes
    if ours is None or theirs is None:
        return Finding(check=check, verdict="compatible", detail="config.json does not say it for both")
    if ours == theirs:
        if engine.name == "sglang" and draft.kind == "independent" and not maps_equal:
            detail = "SGLang's STANDALONE refuses vocabularies that are not the same token for token"
            return Finding(check=check, verdict="incompatible", detail=detail)
        return Finding(check=check, verdict="compatible", detail=f"{ours:,} in both config.json")
    told = f"{ours:,} in the target's config.json, {theirs:,} in the draft's"
    if draft.kind != "independent" and engine.name != "embedded":
        detail = f"{told}; compared for draft models alone"
        return Finding(check=check, verdict="compatible", detail=detail)
    refusal = f"{told}: {engine.words} does not start with them"
    if engine.name != "vllm" or not ids_agree:
        return Finding(check=check, verdict="incompatible", detail=refusal)
    if engine.number < HETEROGENEOUS:
        detail = f"{refusal}; 0.25 and later can, with use_heterogeneous_vocab"
        return Finding(check=check, verdict="incompatible", detail=detail)
    detail = f"{refusal} unless use_heterogeneous_vocab is true; it then drafts greedily"
    return Finding(check=check, verdict="needs_setting", detail=detail)


def heterogeneous(engine: Engine, draft: Draft, found: Finding) -> Finding:
    """Of ids that differ: what vLLM has for it is named. The pair is incompatible still."""
    has_it = engine.name == "vllm" and engine.number >= HETEROGENEOUS and draft.kind == "independent"
    if found.verdict != "incompatible" or not has_it:
        return found
    way = "use_heterogeneous_vocab would draft from the tokens that both have; only a test tells how well"
    return found.model_copy(update={"detail": f"{found.detail}; {way}"})


def _unknown(engine: Engine) -> str:
    """Said where the rules are another version's."""
    known = Engine(engine.name, NEWEST[engine.name])
    if engine.name == "sglang" and engine.number != known.number:
        return f" (as {known.version} does, the only one known)"
    return f" (as {known.version} does, the newest one known)" if engine.number > known.number else ""
