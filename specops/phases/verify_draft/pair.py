"""The pair that `verify-draft` judges (settings and checkpoints), and what a check finds of it.

A check answers ok, wrong or unknown, with the way to find it out. Its verdict says how much it matters:

no difference that matters                        compatible
a difference that a setting of this version takes compatible with that setting
the same ids, another way of cutting text up      degraded: lossless, fewer drafts accepted
ids in use that mean different tokens, or an
engine that will not start                        incompatible
what neither the files nor the sources show       unknown: undecided where the verdict rests on it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, model_validator

from specops import results
from specops.checkpoints.model_config import Config, config_of
from specops.checkpoints.source import Checkpoint, Weights, read_json, weights_of
from specops.checkpoints.tokenizer import Tokenizer, tokenizer_of
from specops.config import Pool
from specops.phases.measurement import checked
from specops.results import Result, Verdict
from specops.section import Frozen
from specops.serving import ENGINES, FileFormat

if TYPE_CHECKING:
    ServingEngine = str
else:
    ServingEngine = Literal[tuple(name for name, engine in ENGINES.items() if engine.drafts is not None)]

Ternary = Literal["ok", "wrong", "unknown"]
"""The answer of a check."""

Severity = Literal["compatible", "needs_setting", "degraded", "unknown", "incompatible"]
ORDER: tuple[Severity, ...] = ("compatible", "needs_setting", "degraded", "unknown", "incompatible")
"""compatible: no effect. needs_setting: none, once the setting that it names is made. degraded: what is said
stays the target's, but fewer drafts are accepted. incompatible: it does not start, or next to none are."""


class PairFinding(Frozen):
    check: str
    verdict: Severity
    detail: str
    witness: str | None = None
    """The first place where target and draft part."""

    find_out: str | None = None
    """How an unknown would be found out."""

    essential: bool = True
    """Whether the verdict rests on it; an unknown that costs acceptance at most is only counted."""

    @model_validator(mode="after")
    def _unknown_has_a_way(self) -> PairFinding:
        if (self.verdict == "unknown") != (self.find_out is not None):
            raise ValueError(f"{self.check}: an unknown, and no other finding, says how it is found out")
        return self

    @property
    def answer(self) -> Ternary:
        if self.verdict == "unknown":
            return "unknown"
        return "ok" if self.verdict in ("compatible", "needs_setting") else "wrong"


class _Findings(BaseModel):
    findings: list[PairFinding]


def findings_of(result: Result, name: str) -> list[PairFinding]:
    """The findings of a result that is called `name` in the message of the FileError."""
    return checked(_Findings, result.data, f"{name} is damaged: data").findings


def compatible(check: str, detail: str) -> PairFinding:
    return PairFinding(check=check, verdict="compatible", detail=detail)


def worst(findings: Iterable[PairFinding]) -> Severity:
    """Return the verdict on a pair: unknown only where it rests on what is unknown."""
    counted = (f.verdict for f in findings if f.verdict != "unknown" or f.essential)
    return max(counted, key=ORDER.index, default="unknown")


def decide(findings: Sequence[PairFinding], *, allow_degraded: bool) -> tuple[Verdict, str]:
    """The verdict and its reason, in words. A yes needs each finding that it rests on."""
    overall = worst(findings)
    unknown = [finding for finding in findings if finding.verdict == "unknown"]
    listed = f"{len(unknown)} unknown: {', '.join(finding.check for finding in unknown)}" if unknown else ""
    also = f"; {listed}" if unknown else ""
    if overall == "incompatible":
        telling = "; ".join(
            f"{finding.check}: {finding.detail}" for finding in findings if finding.verdict == overall
        )
        return "no", f"incompatible: {telling}{also}"
    degraded = ", ".join(finding.check for finding in findings if finding.verdict == "degraded")
    message = f"degraded: the output stays the target's, but fewer drafted tokens are accepted ({degraded})"
    if degraded and not allow_degraded:
        return "no", f"{message}{also}"
    if overall == "unknown":
        ways = "; ".join(f"{finding.check}: {finding.detail}" for finding in unknown if finding.essential)
        return "undecided", f"undecided, {listed}. {ways}"
    settings = "; ".join(finding.detail for finding in findings if finding.verdict == "needs_setting")
    if degraded:
        return "yes", f"{message}; allowed{also}"
    if settings:
        return "yes", f"compatible, with a setting: {settings}{also}"
    return "yes", f"compatible{also}"


# --- the pair ---------------------------------------------------------------------------------

DUPLICATE = re.compile(
    r"(pytorch_model|consolidated|training_args|optimizer|scheduler|rng_state|scaler|trainer_state)"
)
"""Files of the same weights in another format, and of the training."""

EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")
DEFAULT_ENGINE = next(name for name, engine in ENGINES.items() if engine.command_line is not None)


class VerifySettings(Frozen):
    target: str = Field(min_length=1)
    draft: str = Field(min_length=1)
    """A folder, a hub id, `exit:LAYERS`, or `ngram` or `suffix`."""

    engine: ServingEngine = DEFAULT_ENGINE
    engine_version: str | None = None
    """None: the newest one that this specops knows."""

    gpu: str | None = None
    """A name of specops.phases.verify_draft.memory, or a number of GiB."""

    tensor_parallel: int = Field(default=1, ge=1)
    allow_degraded: bool = False


def settings_for(pool: Pool) -> VerifySettings | None:
    """The settings of `verify-draft` for `pool`; None where its models are not known.

    A pair that is only degraded passes: it is lossless, and whether it pays is about to be measured.
    """
    pair = pool.pair
    if pair is None:
        return None
    return VerifySettings(
        target=pair.target,
        draft=pair.draft,
        engine=pool.engine,
        engine_version=pair.version,
        tensor_parallel=pair.tensor_parallel,
        allow_degraded=True,
    )


READ = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)


class CheckpointRecord(Frozen):
    """A checkpoint, as results store it."""

    name: str
    revision: str | None
    architectures: list[str]
    vocab_size: int | None
    tokenizer: str | None
    """The file that it was read from; null without a file."""

    tokens: int | None
    """Number of tokens of the tokenizer."""

    quantization: str | None


class ModelFiles:
    """Raises ModelError when a damaged file is read."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.config: Config = config_of(checkpoint)
        self.generation: dict[str, Any] = read_json(checkpoint, "generation_config.json") or {}

    @cached_property
    def weights(self) -> Weights | None:
        return weights_of(self.checkpoint)

    @property
    def file_format(self) -> FileFormat:
        return "gguf" if self.config.gguf else "safetensors"

    @cached_property
    def quantisation_config(self) -> dict[str, Any]:
        """The settings of its quantisation, from config.json or ModelOpt's own file; empty without any."""
        for section in (self.config.raw, self.config.text):
            if isinstance(inner := section.get("quantization_config"), dict):
                return inner
        return read_json(self.checkpoint, "hf_quant_config.json") or {}

    @property
    def quantisation(self) -> str | None:
        """The name of its quantisation; None if no file says that it is quantised."""
        settings = self.quantisation_config
        inner = settings.get("quantization")
        named = settings.get("quant_method") or (inner.get("quant_algo") if isinstance(inner, dict) else None)
        return str(named or "unnamed") if settings else None

    @property
    def unread_weights(self) -> str | None:
        """Return why no tensor of it could be read; None where its tensors, or their names, were."""
        if self.weights is not None and self.weights.names:
            return None
        unreadable = [name for name in self.checkpoint.names() if name.endswith((".bin", ".pt", ".pth"))]
        if unreadable:
            return f"{unreadable[0]} is of a form that is not read, or is not on this machine"
        return "there are no safetensors, and no GGUF file"

    @property
    def other_weights(self) -> list[str]:
        """Return files beside its weights that may hold further tensors, and are not read."""
        names = [name for name in self.checkpoint.names() if name.endswith((".bin", ".pt", ".pth", ".npz"))]
        read = {tensor.file for tensor in self.weights.tensors.values()} if self.weights else set()
        return [name for name in names if name not in read and not DUPLICATE.match(name)]

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        return tokenizer_of(self.checkpoint)

    @property
    def rows(self) -> int | None:
        """Rows of the embedding: config.json's vocab_size, or the tensor's own where that has fewer."""
        tensors = [self.weights.ends_with(name) for name in EMBEDDINGS] if self.weights else []
        row_counts = [tensor.shape[0] for tensor in tensors if tensor is not None and tensor.shape]
        sizes = [size for size in (self.config.vocab_size, *row_counts) if size is not None]
        return min(sizes, default=None)

    def described(self) -> CheckpointRecord:
        return CheckpointRecord(
            name=self.checkpoint.name,
            revision=self.checkpoint.revision,
            architectures=self.config.architectures,
            vocab_size=self.config.vocab_size,
            tokenizer=self.tokenizer.read_from if self.tokenizer else None,
            tokens=len(self.tokenizer.tokens) if self.tokenizer else None,
            quantization=self.quantisation,
        )

    def sha256(self) -> str:
        """Return the hash of the small files that are read, and of the weights' sizes."""
        files = {name: self.checkpoint.file(name) for name in READ}
        return results.sha256(
            {name: results.sha256(path) for name, path in files.items() if path is not None}
        )
