"""The kind of draft that a checkpoint is, from its config, or from its weights' names if the config is
unclear.

The checks follow the order of vLLM 0.33. vLLM also guesses from the path's text, which is not evidence.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from specops.checkpoints.model_config import Config
from specops.checkpoints.source import Weights

Kind = Literal[
    "independent",
    "eagle",
    "eagle3",
    "medusa",
    "mlp_speculator",
    "mtp",
    "dflash",
    "dspark",
    "ngram",
    "suffix",
    "early_exit",
    "recurrent",
]
WITHOUT_MODEL: tuple[Kind, ...] = ("ngram", "suffix")
WORDS: dict[Kind, str] = {
    "independent": "independent model",
    "eagle": "EAGLE head",
    "eagle3": "EAGLE-3 head",
    "medusa": "Medusa heads",
    "mlp_speculator": "MLP speculator",
    "mtp": "multi-token prediction (MTP)",
    "dflash": "DFlash head",
    "dspark": "DSpark head",
    "ngram": "n-gram look-up",
    "suffix": "suffix decoding",
    "early_exit": "early exit",
    "recurrent": "recurrent head",
}
SPECULATORS: dict[str, Kind] = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "peagle": "eagle3",
    "dflash": "dflash",
    "dflash2": "dflash",
    "dspark": "dspark",
    "mlp": "mlp_speculator",
}
"""`speculators_model_type` of the speculators format (vllm-project/speculators)."""

MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
MTP_WEIGHTS = re.compile(r"(?:^|\.)(?:mtp\w*|nextn)\.")
"""Parts of a tensor's name that mark an MTP layer, unless the layer only has a number behind the last one."""
MASKS = ("pard_token", "ptd_token_id")
"""Keys in the config.json of a model that drafts in one pass (AMD's PARD; vLLM 0.33 reads both)."""

ASSISTANTS = ("gemma4_assistant", "gemma4_unified_assistant")
"""`model_type` of drafters that run on the target's own KV cache (vLLM PR #41745)."""

FUSE = "fc.weight"
"""Joins an embedding and the target's features: an EAGLE head has it, and a model does not."""


@dataclass(frozen=True)
class HeadForm:
    """A kind of draft that the embedded engine loads beside its target, for readers without torch."""

    loader: str
    """Module and class in specops.engine.heads."""

    marks: tuple[str, ...]
    """Names of weights: a folder of this form has one of them, and a folder of any other form has none."""

    also: tuple[str, ...] = ()
    """Other weights that it must have."""

    tree: str = "chain:3"
    """A tree to begin with."""

    has_cache: bool = True
    """Whether it has keys and values of its own, for each token."""

    ours: bool = False
    """Whether no other serving engine has the form."""


HEAD_FORMS: dict[Kind, HeadForm] = {
    "eagle": HeadForm("eagle.EagleHead", (FUSE,), ("embed_tokens.weight",)),
    "recurrent": HeadForm(
        "recurrent.Recurrent",
        ("recurrent.weight",),
        ("token.weight", "down.weight"),
        has_cache=False,
        ours=True,
    ),
    "medusa": HeadForm(
        # The second name is in the authors' separate files of heads.
        "medusa.Medusa",
        ("medusa_head.0.0.linear.weight", "0.0.linear.weight"),
        tree="chain:2",
        has_cache=False,
    ),
    "early_exit": HeadForm("draft_model.EarlyExit", ("exit.weight",), tree="chain:2"),
}
"""The registry. A kind that is ours has `specops_KIND` as its `model_type`."""


@dataclass(frozen=True)
class Draft:
    """A checkpoint's kind, and the evidence for it."""

    kind: Kind
    evidence: str
    """The fields or names in the files that show it."""

    ambiguous: bool = False
    """Whether an EAGLE head of the first form would have the same files."""

    parallel: bool = False
    """Whether it drafts all its tokens in one pass (P-EAGLE)."""

    speculators: bool = False
    """Whether it is in the speculators format."""

    lacks: tuple[str, ...] = ()
    """Fields that its format requires and its config does not have."""

    tokens: int | None = None
    """Tokens that it was trained to draft at a time; None if its config does not say."""

    verifier: str | None = None
    """The target that its config names, if any."""

    verifier_architectures: tuple[str, ...] = ()
    """The target's architectures, where its config names them (speculators format)."""

    masked: bool = False
    """Whether it is a whole model that was trained to draft in one pass over mask tokens (PARD)."""

    assistant: bool = False
    """Gemma 4's: it reads the target's last hidden state and KV cache, and has neither of its own."""

    layers: int | None = None
    """Layers of the target that an early exit runs; None for other kinds."""


def kind_of(config: Config, weights: Weights | None, generation: dict[str, Any], *, is_target: bool) -> Draft:
    """The kind of a draft from its files.

    weights: None if it has no safetensors. generation: its generation_config.json, or {}.
    is_target: whether the draft is the target's own checkpoint.
    """
    text, architecture = config.text, next(iter(config.architectures), "")
    found = _speculators(config)
    if found is not None:
        return found
    block_kinds: tuple[Kind, ...] = ("dflash", "dspark")
    for kind in block_kinds:
        if kind in architecture.lower():
            return Draft(kind, f"architecture {architecture}", tokens=config.whole("block_size"))
    parallel = re.search(r"P[Ee]agle", architecture) is not None
    if "Eagle3" in architecture or parallel:
        return Draft("eagle3", f"architecture {architecture}", parallel=parallel)
    for key in ("draft_vocab_size", "eagle_config"):
        if text.get(key) or config.raw.get(key):
            return Draft("eagle3", f"{key} in config.json")
    if architecture.startswith("Eagle") and not architecture.endswith("ConditionalGeneration"):
        return Draft("eagle", f"architecture {architecture}")
    if config.model_type == "eagle":
        return Draft("eagle", "model_type eagle")
    if config.model_type == "medusa" or "medusa_num_heads" in config.raw:
        heads = config.whole("medusa_num_heads") or config.whole("num_heads")
        return Draft("medusa", "Medusa's config.json", tokens=heads)
    ours = next((kind for kind in HEAD_FORMS if config.model_type == f"specops_{kind}"), None)
    if ours is not None:
        return Draft(ours, f"model_type {config.model_type}", layers=config.whole("exit_layers"))
    if config.model_type == "mlp_speculator":
        return Draft("mlp_speculator", "model_type mlp_speculator", tokens=config.whole("n_predict"))
    if config.model_type in ASSISTANTS:
        return Draft("mtp", f"model_type {config.model_type}", assistant=True)
    if config.model_type.endswith("_mtp") or config.model_type == "mtp":
        return Draft("mtp", f"model_type {config.model_type}", tokens=config.whole("n_predict"))
    if is_target:
        for key in MTP_LAYERS:
            layers = config.whole(key)
            if layers:
                return Draft("mtp", f"the target's own {key} is {layers}", tokens=layers)
        named = next(filter(MTP_WEIGHTS.search, sorted(weights.tensors)), None) if weights else None
        if named is not None:  # some families' config.json does not count them
            return Draft("mtp", f"the target's own weights have {named}")
    if "assistant_early_exit" in generation:
        exit_layer = generation["assistant_early_exit"]
        return Draft("early_exit", f"assistant_early_exit is {exit_layer} in generation_config.json")
    found = _model_or_head(config, architecture, weights)
    mask = next((key for key in MASKS if config.whole(key) is not None), None)
    if found.kind == "independent" and mask is not None:
        evidence = f"{found.evidence}; {mask} in config.json: it drafts in one pass (PARD)"
        return replace(found, masked=True, evidence=evidence)
    return found


def has_mtp_layers(config: Config, weights: Weights) -> bool:
    """Return whether there are tensors of MTP layers: by their names, or behind the model's last layer."""
    numbers = (re.search(r"(?:^|\.)(?:layers|blk|h)\.(\d+)\.", name) for name in weights.tensors)
    last = max((int(found[1]) for found in numbers if found), default=-1)
    return last >= (config.layers or 0) or any(map(MTP_WEIGHTS.search, weights.tensors))


def _speculators(config: Config) -> Draft | None:
    section = config.raw.get("speculators_config")
    if not isinstance(section, dict):
        return None
    named = str(config.raw.get("speculators_model_type", ""))
    methods = section.get("proposal_methods")
    first = methods[0] if isinstance(methods, list) and methods and isinstance(methods[0], dict) else {}
    verifier = section.get("verifier")
    target = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    trained = verifier.get("architectures") if isinstance(verifier, dict) else None
    tokens = first.get("speculative_tokens")
    required = {
        "speculators_model_type": named,
        "speculators_config.proposal_methods[0].speculative_tokens": tokens,
        "speculators_config.verifier.name_or_path": target,
        "transformer_layer_config": config.raw.get("transformer_layer_config"),
    }
    return Draft(
        SPECULATORS.get(named, "eagle3"),
        f"the speculators format, speculators_model_type {named or 'missing'}",
        parallel=named == "peagle",
        speculators=True,
        lacks=tuple(key for key, value in required.items() if not value),
        tokens=tokens if isinstance(tokens, int) else None,
        verifier=str(target) if target else None,
        verifier_architectures=tuple(map(str, trained)) if isinstance(trained, list) else (),
    )


def _model_or_head(config: Config, architecture: str, weights: Weights | None) -> Draft:
    """EAGLE's first heads have LlamaForCausalLM in their config: only the weights show the difference."""
    described = f"architecture {architecture or 'missing'}, {config.layers} hidden layers"
    if weights is not None and weights.tensors:
        if FUSE in weights.tensors:
            return Draft("eagle", f"{FUSE} among its weights, though its config.json says {architecture}")
        return Draft("independent", f"{described}, and no {FUSE} among its weights")
    return Draft("independent", described, ambiguous=config.layers == 1)


NOT_GENERATIVE = re.compile(
    r"For(Sequence|Token)Classification|ForMaskedLM|ForQuestionAnswering|ForMultipleChoice|ForPreTraining"
    r"|ForImageClassification|Reward|Encoder|Embedding|(?<!LMHead)(?<!ChatGLM)Model$"
)
"""Architectures without a head that continues text: encoders, classifiers, embedding and base models."""


def not_generative(config: Config, files: Collection[str]) -> str | None:
    """Return why a checkpoint cannot continue text, or None. `files`: the names of its files."""
    architecture = next(iter(config.architectures), "")
    if NOT_GENERATIVE.search(architecture):
        return f"architecture {architecture} does not generate text"
    if config.raw.get("is_encoder_decoder"):
        return f"architecture {architecture or 'not named'} is an encoder-decoder"
    if "modules.json" in files and "config_sentence_transformers.json" in files:
        return "it is an embedding model of sentence-transformers"
    return None
