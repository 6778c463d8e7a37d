"""The kind of draft that a checkpoint is, from the names of its tensors.

`ROWS` is the table: a kind, the tensors that tell it, the tensors that it may have besides, and how many
tokens it drafts at a time. What an engine calls the method is in the engine's package (serving/*/drafts.py).

A checkpoint is of a kind if the tensors of exactly one row are there and every other tensor is explained. If
no row or several rows fit, the kind is *unknown*, and the tensors that were observed are the evidence.
config.json never decides alone: configs of EAGLE heads name LlamaForCausalLM, and the layers that a config
counts as multi-token prediction can be DSpark stages. Where the config names a kind that the tensors are
not, the kind is unknown as well. A path is not evidence.

Tensor names were read in the loaders of vLLM 0.8 to 0.33, SGLang 0.5.2 to 0.5.23, llama.cpp b11549 and in
the published code of Medusa and Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from specops.checkpoints.model_config import Config
from specops.checkpoints.source import Weights

Kind = Literal[
    "independent",
    "pard",
    "eagle",
    "eagle3",
    "eagle3_1",
    "p_eagle",
    "medusa",
    "hydra",
    "mlp_speculator",
    "mtp",
    "gemma4_assistant",
    "dflash",
    "dflash2",
    "domino",
    "dspark",
    "ngram",
    "suffix",
    "early_exit",
    "recurrent",
    "unknown",
]
WITHOUT_MODEL: tuple[Kind, ...] = ("ngram", "suffix")
WHOLE_MODELS: tuple[Kind, ...] = ("independent", "pard")
"""Drafts that run by themselves: they read tokens, and nothing of the target."""

WORDS: dict[Kind, str] = {
    "independent": "independent model",
    "pard": "independent model that drafts in one pass (PARD)",
    "eagle": "EAGLE head",
    "eagle3": "EAGLE-3 head",
    "eagle3_1": "EAGLE-3.1 head",
    "p_eagle": "P-EAGLE head",
    "medusa": "Medusa heads",
    "hydra": "Hydra heads",
    "mlp_speculator": "MLP speculator",
    "mtp": "multi-token prediction (MTP)",
    "gemma4_assistant": "Gemma 4's assistant",
    "dflash": "DFlash head",
    "dflash2": "DFlash2 head",
    "domino": "Domino head",
    "dspark": "DSpark head",
    "ngram": "n-gram look-up",
    "suffix": "suffix decoding",
    "early_exit": "early exit",
    "recurrent": "recurrent head",
    "unknown": "unknown kind",
}
EAGLE3: tuple[Kind, ...] = ("eagle3", "eagle3_1", "p_eagle")
BLOCKS: tuple[Kind, ...] = ("dflash", "dflash2", "domino", "dspark")
"""Kinds that draft a block of tokens in one pass."""

SPECULATORS: dict[str, Kind] = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "peagle": "p_eagle",
    "dflash": "dflash",
    "dflash2": "dflash2",
    "dspark": "dspark",
    "mlp": "mlp_speculator",
    "mtp": "mtp",
}
"""`speculators_model_type` of the speculators format (vllm-project/speculators)."""

MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")
MASKS = ("pard_token", "ptd_token_id")
"""Keys in the config.json of a model that drafts in one pass (AMD's PARD; vLLM 0.33 reads both)."""

FUSE = "fc.weight"
"""Joins the target's features: a head has it, and a model does not."""

SWITCHES = ("norm_before_fc", "fc_norm", "norm_output")
"""What EAGLE-3.1 changes in the computation of EAGLE-3. norm_output has no tensor."""

Tokens = Literal["chain", "heads", "block", "layers", "free"]
"""What bounds the tokens of a draft: chain: nothing; heads: the number of heads; block: the block's size;
layers: one a layer, repeated as often as one likes; free: a setting alone."""


@dataclass(frozen=True)
class KindRow:
    """A kind, and the tensors that tell it: patterns for names without quantisation suffixes."""

    kind: Kind
    needs: tuple[str, ...]
    """Each matches a tensor."""

    never: tuple[str, ...] = ()
    """Marks of kinds that extend this one: none matches."""

    may: tuple[str, ...] = ()
    """Further tensors of the kind, beside those of a decoder's layers."""

    body: bool = True
    """Whether it has embeddings, decoder layers, norms and an output head as a model has."""

    tokens: Tokens = "chain"


HIDDEN_NORM = r"(midlayer|layers\.\d+)\.hidden_norm|blk\.\d+\.attn_norm_2"
NORM_3_1 = r"input_norm|fc_norm\.\d+|aux_norm_(low|mid|high)|enc\.output_norm"
MARKOV = r"(mtp\.\d+\.)?markov_head(\..+)?|markov_w[12]"
STAGE = r"mtp\.\d+\.main_(norm|proj)"
CONFIDENCE = r"(mtp\.\d+\.)?confidence_head(\..+)?|conf_proj"
CONV = r"layers\.\d+\.(attention|mlp)_conv\.base_kernel|blk\.\d+\.(attn|ffn)_conv\w*"
SELECTOR = r"candidate_selector\..+|selector_\w+"
BLOCK_NORM = r"hidden_norm|enc\.output_norm|encoder\.output_norm_enc"
CONTEXT_NORMS = r"aux_hidden_norms\.\d+"
BLOCK_FUSE = r"fc|encoder\.fc"
VOCABULARY_MAP = r"d2t|t2d|draft_id_to_target_id"
JOINED = (
    r"(.+\.)?(layers|blk)\.\d+\.(nextn\.)?(eh_proj|e_proj)"
    r"|(.+\.)?mtp\w*(\.layers)?\.\d+\.(eh_proj|e_proj|input_proj|mtp_linear_proj)"
    r"|(.+\.)?mtp\.(eh_proj|fc|proj)|(.+\.)?mtp_linear_proj\.\d+|mtp\.fc\.\d+|(.+\.)?mtp\.layers\.\d+\.fc"
)
"""The projection that joins an embedding and a hidden state in a multi-token prediction layer."""

ROWS: tuple[KindRow, ...] = (
    KindRow(
        "eagle",
        (BLOCK_FUSE, r"embed_tokens|token_embd"),
        never=(HIDDEN_NORM, BLOCK_NORM, CONTEXT_NORMS, MARKOV, "mask_hidden", NORM_3_1, CONV, SELECTOR),
        may=(BLOCK_FUSE,),
    ),
    KindRow(
        "eagle3",
        (HIDDEN_NORM,),
        never=("mask_hidden", NORM_3_1, "mask_embedding"),
        may=(BLOCK_FUSE, VOCABULARY_MAP, HIDDEN_NORM),
    ),
    KindRow(
        "eagle3_1",
        (HIDDEN_NORM, NORM_3_1),
        never=("mask_hidden",),
        may=(BLOCK_FUSE, VOCABULARY_MAP, HIDDEN_NORM, NORM_3_1),
    ),
    KindRow(
        "p_eagle",
        (HIDDEN_NORM, "mask_hidden"),
        may=(BLOCK_FUSE, VOCABULARY_MAP, HIDDEN_NORM, NORM_3_1, "mask_hidden"),
        tokens="free",
    ),
    KindRow(
        "dflash",
        (BLOCK_FUSE, BLOCK_NORM + "|" + CONTEXT_NORMS),
        never=(HIDDEN_NORM, MARKOV, CONV, SELECTOR, r"prefix_gru\..+", r"mask_hidden"),
        may=(BLOCK_FUSE, BLOCK_NORM, CONTEXT_NORMS, VOCABULARY_MAP, "mask_embedding"),
        tokens="block",
    ),
    KindRow(
        "dflash2",
        (BLOCK_FUSE, BLOCK_NORM, CONV + "|" + SELECTOR),
        never=(HIDDEN_NORM, MARKOV),
        may=(
            BLOCK_FUSE,
            BLOCK_NORM,
            CONV,
            SELECTOR,
            VOCABULARY_MAP,
            "mask_embedding",
            r"layers\.\d+\.(attention|mlp)_conv\..+",
            r"blk\.\d+\.\w*conv\w*",
        ),
        tokens="block",
    ),
    KindRow(
        "domino",
        (BLOCK_FUSE, r"prefix_gru\..+"),
        may=(BLOCK_FUSE, BLOCK_NORM, r"prefix_gru\..+", r"embed_proj(\..+)?", VOCABULARY_MAP),
        tokens="block",
    ),
    KindRow(
        "dspark",
        (MARKOV + "|" + STAGE,),
        never=(JOINED, HIDDEN_NORM),
        may=(
            BLOCK_FUSE,
            BLOCK_NORM,
            CONTEXT_NORMS,
            MARKOV,
            STAGE,
            CONFIDENCE,
            VOCABULARY_MAP,
            "mask_embedding",
            r"mtp\.\d+\..+",
            r"hc_head\w*",
            r"output_hc_\w+",
            r"hc_\w+",
        ),
        tokens="block",
    ),
    KindRow(
        "mtp",
        (JOINED,),
        never=(MARKOV, STAGE),
        may=(
            JOINED,
            r"(.+\.)?(mtp|nextn)\w*\..+",
            r"(.+\.)?(layers|blk)\.\d+\..+",
            r"hc_head\w*",
            r"(enorm|hnorm|eh_proj|shared_head)(\..+)?",
            r"(.+\.)?mtp_\w+\.\d+(\..+)?",
            r"output_hc_\w+",
        ),
        tokens="layers",
    ),
    KindRow(
        "gemma4_assistant",
        (r"(nextn\.)?pre_projection", r"(nextn\.)?post_projection"),
        may=(r"(nextn\.)?(pre|post)_projection", r"masked_embedding\..+", r"masked_embd_\w+"),
    ),
    KindRow(
        "medusa",
        (
            r"(medusa_heads?\.)?\d+\.\d+\.linear|(medusa_heads\.\d+\.)?medusa_layers\.\d+\.linear"
            r"|medusa_heads\.\d+\.medusa_layers\.\d+\.linear|blocks\.\d+\.layers\.\d+",
        ),
        may=(
            r"(medusa_heads?\.)?\d+(\.\d+)?(\.linear)?",
            r"medusa_heads?\..+",
            r"blocks\.\d+\.layers\.\d+",
            r"lm_heads?\.\d+",
            r"lm_head",
            "token_map",
        ),
        body=False,
        tokens="heads",
    ),
    KindRow(
        "hydra",
        (r"(.+\.)?hydra_\w+(\..+)?",),
        may=(r"(.+\.)?hydra_\w+(\..+)?", r"prefix_\w+(\..+)?", r"\d+(\.\d+)*(\.linear)?"),
        tokens="heads",
    ),
    KindRow(
        "mlp_speculator",
        (r"emb\.\d+", r"proj\.\d+", r"head\.\d+"),
        may=(r"(emb|proj|head|ln)\.\d+", r"ln0"),
        body=False,
        tokens="heads",
    ),
    KindRow("recurrent", (r"recurrent", r"token", r"down"), may=(r"\w+",), body=False),
    KindRow("early_exit", (r"exit",), may=(r"\w+",), body=False),
)
"""Kinds that extend a model's or another kind's tensors exclude each other by `never`."""

MODEL = KindRow("independent", ())

SUFFIX = re.compile(
    r"\.(weight|bias|scale|weight_(scale(_inv|_2)?|packed|shape|zero_point|global_scale|g_idx|scale_inv)"
    r"|input_(scale|global_scale)|qweight|qzeros|scales|g_idx|(k|v)_scale)$"
)
PREFIX = re.compile(r"^(model\.language_model\.|language_model\.model\.|language_model\.|draft_model\."
                    r"|speculator\.|eagle_module\.|model\.)+")  # fmt: skip
BODY = re.compile(
    r"(embed_tokens|embed_in|embeddings?|wte|wpe|word_embeddings(_layernorm)?|token_embd(_norm)?|tok_embeddings"
    r"|position_embd|token_types"
    r"|embed_positions|embed_tokens_per_layer|per_layer_(model_projection|projection_norm|token_embd|proj_norm)"
    r"|per_layer_model_proj|rope_freqs|rotary_emb\.inv_freq|position_embeddings"
    r"|norm|norm_f|ln_f|final_layernorm|final_layer_norm|embedding_norm|output_norm|output_layer_norm|embed_out"
    r"|lm_head|output|output_layer|head|score)(\..+)?"
    r"|(transformer|gpt_neox|backbone|decoder|encoder_decoder)\..+"
    r"|((.+\.)?(layers|midlayer|h|blocks?|blk)(\.\d+)?)\..+"
    r"|(visual|vision\w*|audio\w*|multi_modal_projector|multimodal_projector|mm_projector|mlp1|patch_embed"
    r"|image_newline|embed_vision|embed_audio|connector)(\..+)?"
)
"""Tensors of a whole model: embeddings, layers, norms, an output head, towers for images and sound."""

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|blk)\.(\d+)\.")
EMBEDDING = re.compile(
    r"(.+\.)?(embed_tokens|embed_in|wte|word_embeddings|token_embd|tok_embeddings|embeddings)"
)
OWN_DRAFT = re.compile(r"(.+\.)?(mtp|nextn)\w*\.")
"""Tensors in the name space of layers that a model drafts with by itself."""

ATTENTION = re.compile(r"attn|attention|mixer|mamba|ssm|conv|recurrent|linear_attn")
SHOWN = 4
"""Number of tensor names in evidence."""


def bare(name: str) -> str:
    """Return a tensor's name without the containers in front and the suffix of its number format."""
    return SUFFIX.sub("", PREFIX.sub("", name))


PACKED = re.compile(
    r"\.(weight_packed|qweight|qzeros|weight_scale(_inv|_2)?|weight_zero_point|scales|scale)$"
)
"""Tensors that only a quantised layer has."""


def is_quantised(name: str, weights: Weights | None) -> bool:
    """Return whether a tensor is of a quantised layer, by its own name, its dtype, or a scale beside it."""
    if PACKED.search(name):
        return True
    if weights is None:
        return False
    tensor = weights.tensors.get(name)
    stem = SUFFIX.sub("", name)
    scaled = any(
        f"{stem}.{scale}" in weights.names for scale in ("weight_scale", "weight_scale_inv", "scale")
    )
    return scaled or (tensor is not None and tensor.dtype.startswith(("F8_", "F4")))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def matching(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the names of tensors, as `bare` writes them, that any pattern matches whole."""
    compiled = [_pattern(pattern) for pattern in patterns]
    return sorted(name for name in names if any(pattern.fullmatch(name) for pattern in compiled))


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

    embedded_only: bool = False
    """Whether no other serving engine has the form."""


HEAD_FORMS: dict[Kind, HeadForm] = {
    "eagle": HeadForm("eagle.EagleHead", (FUSE,), ("embed_tokens.weight",)),
    "recurrent": HeadForm(
        "recurrent.Recurrent",
        ("recurrent.weight",),
        ("token.weight", "down.weight"),
        has_cache=False,
        embedded_only=True,
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
    """The tensors that tell it; of an unknown kind, the tensors that were observed."""

    doubt: str | None = None
    """Why the kind is not proven; None where the tensors prove it. `kind` is then what the config names, or
    unknown."""

    find_out: str | None = None
    """How the kind would be found out, where it is not proven."""

    speculators: bool = False
    """Whether it is in the speculators format."""

    lacks: tuple[str, ...] = ()
    """Fields that its format requires and its config does not have."""

    tokens: int | None = None
    """Tokens that it drafts at a time at most, or was trained to; None if nothing says or bounds it."""

    verifier: str | None = None
    """The target that its config names, if any."""

    verifier_architectures: tuple[str, ...] = ()
    """The target's architectures, where its config names them (speculators format)."""

    layers: int | None = None
    """Layers of the target that an early exit runs; None for other kinds."""


def kind_of(
    config: Config,
    weights: Weights | None,
    generation: Mapping[str, Any],
    *,
    is_target: bool,
    unread: str | None = None,
) -> Draft:
    """Return the kind of a draft from its files. `unknown` if the tensors fit no row of the table or several.

    weights: its tensors; None if it has none that can be read. generation: its generation_config.json, or {}.
    is_target: whether the draft is the target's own checkpoint. unread: why its tensors could not be read.
    """
    names = {bare(name) for name in weights.names} if weights is not None else set()
    declared = _declared(config, is_target)
    if not names:
        draft = _unproven(declared, unread or "its files have no tensors that can be read")
    else:
        draft = _by_tensors(names, config, weights, declared, is_target)
    if is_target and draft.kind == "independent" and "assistant_early_exit" in generation:
        exit_layer = generation["assistant_early_exit"]
        evidence = f"assistant_early_exit is {exit_layer} in generation_config.json"
        draft = replace(draft, kind="early_exit", evidence=evidence)
    return _with_format(replace(draft, tokens=_tokens(draft.kind, config, names)), config)


def _unproven(declared: tuple[Kind, str] | None, unread: str) -> Draft:
    find_out = "convert the weights to safetensors, or download them, and run the command again"
    if declared is None:
        return Draft("unknown", "no tensor was read, and config.json names no kind", unread, find_out)
    return Draft(declared[0], declared[1], f"config.json alone names it: {unread}", find_out)


def _by_tensors(
    names: set[str],
    config: Config,
    weights: Weights | None,
    declared: tuple[Kind, str] | None,
    is_target: bool,
) -> Draft:
    fitting = [row for row in ROWS if _fits(row, names)]
    whole = _whole_model(names, config, weights)
    if is_target and whole is None:
        # Inside the target, everything that is not the head's belongs to the target.
        fitting = [row for row in fitting if row.kind in ("mtp", "dspark")]
        if not fitting and declared is not None and declared[0] in ("mtp", "dspark"):
            return Draft(*declared)  # whether the weights have such layers is a check of its own
        fitting = fitting or [MODEL]
    elif whole is None:
        fitting = [*fitting, MODEL]
    if len(fitting) != 1:
        return _unfit(fitting, names, whole)
    (row,) = fitting
    if row.kind == "independent":
        return _model(names, config, declared)
    stray = sorted(name for name in names if not _explains(row, name)) if not is_target else []
    telling = matching(row.needs, names)
    if stray:
        return Draft(
            "unknown",
            f"{_some(telling)} look like {WORDS[row.kind]}; {_some(stray)} do not belong to it",
            f"tensors that {WORDS[row.kind]} does not have",
            "read in the model card, or in the code that trained it, which method it is for",
        )
    kind = row.kind
    if kind == "eagle3" and any(_flag(config, key) for key in SWITCHES):
        kind = "eagle3_1"
    if declared is not None and declared[0] == "dflash2" and kind == "dflash" and not _has_parts(config):
        kind = "dflash2"  # its convolution and its selector are optional
    if declared is not None and not _agree(declared[0], kind):
        return Draft(
            "unknown",
            f"{declared[1]}, which is {WORDS[declared[0]]}; {_some(telling)}, which is {WORDS[kind]}",
            "config.json and tensors name two kinds",
            "compare with the checkpoint that its publisher offers: one of the two files is another model's",
        )
    if declared is not None and declared[0] == "p_eagle" and kind in ("eagle3", "eagle3_1"):
        kind = "p_eagle"  # some publish the mask in a file of its own
    return Draft(kind, f"tensors {_some(telling)}")


def _fits(row: KindRow, names: set[str]) -> bool:
    needed = all(matching((pattern,), names) for pattern in row.needs)
    return needed and not matching(row.never, names)


def _explains(row: KindRow, name: str) -> bool:
    return bool(matching((*row.needs, *row.may), (name,))) or (row.body and BODY.fullmatch(name) is not None)


def _whole_model(names: set[str], config: Config, weights: Weights | None) -> str | None:
    """Return why the tensors are not a whole model's; None if they are: an embedding, and every layer that
    the config counts, from the first one on, with attention or another mixer."""
    if not any(EMBEDDING.fullmatch(name) for name in names):
        return "no embedding"
    trunk_names = [name for name in names if not OWN_DRAFT.match(name)]
    layers = {int(hit[1]) for name in trunk_names if (hit := LAYER.search(name)) and ATTENTION.search(name)}
    counted = config.layers
    if counted is None:
        return "config.json does not count its layers"
    trunk = counted - (config.whole("num_nextn_predict_layers") or 0) if config.gguf else counted
    missing = [number for number in range(trunk) if number not in layers]
    if missing:
        return f"layer {missing[0]} of {trunk} is missing"
    stray = sorted(name for name in names if not BODY.fullmatch(name))
    heads = {name for row in ROWS for name in matching(row.needs, names)}
    stray = [name for name in stray if name not in heads and not OWN_DRAFT.match(name)]
    if stray:
        return f"{_some(stray)} do not belong to a model"
    marks = matching((HIDDEN_NORM, BLOCK_FUSE, "mask_hidden", MARKOV, NORM_3_1, BLOCK_NORM), names)
    return f"{_some(sorted(marks))} belong to a head" if marks else None


def _model(names: set[str], config: Config, declared: tuple[Kind, str] | None) -> Draft:
    mask = next((key for key in MASKS if config.whole(key) is not None), None)
    count = f"an embedding and {config.layers} layers"
    if declared is not None and declared[0] not in ("independent", "pard", "mtp"):
        return Draft(
            "unknown",
            f"{declared[1]}, which is {WORDS[declared[0]]}; {count} and no tensor of such a head",
            "config.json and tensors name two kinds",
            "compare with the checkpoint that its publisher offers: one of the two files is another model's",
        )
    if mask is not None:
        return Draft("pard", f"{count}; {mask} in config.json")
    return Draft("independent", f"{count}, no tensor of a head")


def _unfit(fitting: list[KindRow], names: set[str], whole: str | None) -> Draft:
    find_out = "read in the model card, or in the code that trained it, which method it is for"
    if fitting:
        kinds = " and ".join(WORDS[row.kind] for row in fitting)
        observed = sorted({name for row in fitting for name in matching(row.needs, names)})
        if {row.kind for row in fitting} >= {"independent"}:
            find_out = (
                "name the method yourself: the model is served alone, or for its layers beside the target"
            )
        return Draft("unknown", _some(observed), f"its tensors fit {kinds}", find_out)
    unusual = sorted(name for name in names if not BODY.fullmatch(name)) or sorted(names)
    return Draft("unknown", _some(unusual), f"its tensors fit no kind that is known ({whole})", find_out)


def _some(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(re.sub(r"\.\d+", ".N", name) for name in names))
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


def _flag(config: Config, key: str) -> bool:
    """Return whether a switch is on, wherever the format keeps it."""
    inner = config.raw.get("eagle_config")
    places = (config.raw, config.text, inner if isinstance(inner, dict) else {})
    return any(bool(place.get(key)) for place in places)


def _has_parts(config: Config) -> bool:
    """Return whether the config counts parts that DFlash2 adds to DFlash."""
    inner = config.raw.get("dflash_config")
    sections = (config.raw, inner if isinstance(inner, dict) else {})
    return any(
        bool(section.get(key)) for section in sections for key in ("conv_kernel_size", "selector_rank")
    )


def _agree(declared: Kind, kind: Kind) -> bool:
    """Return whether what config.json names is what the tensors are, or the family that it extends."""
    if declared == kind or (declared == "mtp" and kind == "dspark"):
        return True  # a config counts DSpark's stages as MTP layers
    extends = {("eagle3", "eagle3_1"), ("eagle3", "p_eagle"), ("p_eagle", "eagle3"), ("p_eagle", "eagle3_1"),
               ("dflash", "dflash2"), ("dflash", "domino"), ("eagle3_1", "eagle3"), ("eagle3_1", "p_eagle"),
               ("independent", "eagle"), ("dflash", "dspark")}  # fmt: skip
    return (declared, kind) in extends


def _declared(config: Config, is_target: bool) -> tuple[Kind, str] | None:
    """Return the kind that config.json names, and where; None if it names none.

    The checks follow the order of vLLM 0.33.
    """
    section = config.raw.get("speculators_config")
    if isinstance(section, dict):
        named = str(config.raw.get("speculators_model_type", ""))
        kind = SPECULATORS.get(named)
        return (kind, f"speculators_model_type {named}") if kind else None
    architecture = next(iter(config.architectures), "")
    evidence = f"architecture {architecture}"
    lower = architecture.lower()
    for kind, pattern in _DECLARED:
        if re.search(pattern, lower):
            return kind, evidence
    if "dspark_block_size" in config.raw or "dspark_block_size" in config.text:
        return "dspark", "dspark_block_size in config.json"
    for key in ("draft_vocab_size", "eagle_config"):
        if config.text.get(key) or config.raw.get(key):
            return "eagle3", f"{key} in config.json"
    by_type = next(
        (kind for kind, pattern in _TYPES if re.fullmatch(pattern, config.model_type)),
        None,
    )
    if by_type is not None:
        return by_type, f"model_type {config.model_type}"
    if "medusa_num_heads" in config.raw:
        return "medusa", "medusa_num_heads in config.json"
    if "hydra_num_heads" in config.raw:
        return "hydra", "hydra_num_heads in config.json"
    for key in MTP_LAYERS if is_target else ():
        if layers := config.whole(key):
            return "mtp", f"the target's own {key} is {layers}"
    return None


_DECLARED: tuple[tuple[Kind, str], ...] = (
    ("dflash2", r"dflash2"),
    ("dspark", r"dspark"),
    ("dflash", r"dflash|museglimmerassistant"),
    ("p_eagle", r"peagle"),
    ("eagle3", r"eagle3"),
    ("gemma4_assistant", r"gemma4\w*assistant"),
    ("hydra", r"^hydra"),
    ("medusa", r"^medusa"),
    ("eagle", r"^eagle(?!\w*conditionalgeneration)|forcausallmeagle$"),
    ("mtp", r"mtp(model)?$|nextn$"),
)
_TYPES: tuple[tuple[Kind, str], ...] = (
    ("eagle", "eagle"),
    ("medusa", "medusa"),
    ("hydra", "hydra"),
    ("mlp_speculator", "mlp_speculator"),
    ("gemma4_assistant", r"gemma4\w*_assistant"),
    ("mtp", r"(\w+_)?mtp"),
    *((kind, f"specops_{kind}") for kind in HEAD_FORMS),
)


def _tokens(kind: Kind, config: Config, names: set[str]) -> int | None:
    """Return how many tokens a draft of this kind brings at a time, where something bounds it."""
    bound = next((row.tokens for row in ROWS if row.kind == kind), "chain")
    if bound == "heads":
        named = (
            config.whole("medusa_num_heads") or config.whole("num_heads") or config.whole("hydra_num_heads")
        )
        numbers = {int(match[1]) for name in names if (match := re.match(r"\D*(\d+)\.", name + "."))}
        return named or config.whole("n_predict") or (max(numbers) + 1 if numbers else None)
    if bound == "layers":
        counted = next((layers for key in MTP_LAYERS if (layers := config.whole(key))), None)
        return config.whole("n_predict") or counted
    if bound == "block":
        return _block(kind, config)
    return config.whole("n_predict")


def _block(kind: Kind, config: Config) -> int | None:
    """Return the tokens of a block of B: one is the token that is known already, so B - 1 are drafted. DSpark
    drafts from that token too, unless its config says that it does not."""
    size, from_anchor = None, kind == "dspark"
    for section in (
        config.raw,
        config.text,
        config.raw.get("dflash_config"),
        config.raw.get("dspark_config"),
    ):
        if isinstance(section, dict):
            value = section.get("block_size", section.get("dspark_block_size"))
            size = value if isinstance(value, int) and not isinstance(value, bool) and value > 1 else size
            if "sample_from_anchor" in section:
                from_anchor = kind == "dspark" and bool(section["sample_from_anchor"])
    return None if size is None else size if from_anchor else size - 1


def _with_format(draft: Draft, config: Config) -> Draft:
    """Add what the speculators format says."""
    section = config.raw.get("speculators_config")
    if not isinstance(section, dict):
        return draft
    methods = section.get("proposal_methods")
    first = methods[0] if isinstance(methods, list) and methods and isinstance(methods[0], dict) else {}
    verifier = section.get("verifier")
    target = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    trained = verifier.get("architectures") if isinstance(verifier, dict) else None
    tokens = first.get("speculative_tokens")
    required = {
        "speculators_model_type": config.raw.get("speculators_model_type"),
        "speculators_config.proposal_methods[0].speculative_tokens": tokens,
        "speculators_config.verifier.name_or_path": target,
        "transformer_layer_config": config.raw.get("transformer_layer_config"),
    }
    return replace(
        draft,
        speculators=True,
        lacks=tuple(key for key, value in required.items() if not value),
        tokens=tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else draft.tokens,
        verifier=str(target) if target else None,
        verifier_architectures=tuple(map(str, trained)) if isinstance(trained, list) else (),
    )


def mtp_tensors(weights: Weights) -> list[str]:
    """Return the tensors that join an embedding and a hidden state in layers of multi-token prediction."""
    return matching((JOINED,), sorted({bare(name) for name in weights.names}))


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
