"""The fit of a head to its target and to a release of an engine: one finding for each check. Pure.

A head gets the checks that a draft model gets. What the files or the known sources do not show is *unknown*,
with the way to find it out, and never ok.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specops.checkpoints.draft_kind import (
    BLOCKS,
    EAGLE3,
    FUSE,
    HEAD_FORMS,
    WORDS,
    Draft,
    Kind,
    bare,
    is_quantised,
    matching,
    mtp_tensors,
)
from specops.checkpoints.model_config import Config
from specops.checkpoints.source import Tensor
from specops.phases.verify_draft.engine_fit import EngineRelease
from specops.phases.verify_draft.pair import ModelFiles, PairFinding, Severity, compatible

OUTPUT = ("lm_head", "output")
EMBEDDING = ("embed_tokens", "token_embd")
WITHOUT_POSITIONS: tuple[Kind, ...] = ("medusa", "hydra", "mlp_speculator", "recurrent", "early_exit")
WITHOUT_FEATURES: tuple[Kind, ...] = ("early_exit", "hydra")
FEATURES = 3
"""Features of EAGLE-3: of a low, a middle and a high layer."""

FIXED_ROPE = ("yarn", "deepseek_yarn", "dynamic", "longrope", "su")
"""Rotary embeddings whose frequencies depend on the length that the config names."""

BASE_KEYS = frozenset(
    """architectures model_type vocab_size draft_vocab_size hidden_size intermediate_size num_hidden_layers
    num_attention_heads num_key_value_heads head_dim hidden_act rms_norm_eps rope_theta rope_scaling
    rope_parameters max_position_embeddings tie_word_embeddings torch_dtype dtype bos_token_id eos_token_id
    pad_token_id attention_bias attention_dropout mlp_bias initializer_range use_cache transformers_version
    use_sliding_window sliding_window max_window_layers layer_types pretraining_tp bias auto_map
    num_experts num_local_experts num_experts_per_tok experts_per_token moe_intermediate_size
    quantization_config unsloth_version _name_or_path gguf_file output_router_logits router_aux_loss_coef
    decoder_sparse_step norm_topk_prob mlp_only_layers layer_norm_eps attention_value_scale gating
    speculators_config speculators_model_type speculators_version transformer_layer_config
    has_no_defaults_at_init n_predict num_nextn_predict_layers mtp_num_hidden_layers medusa_num_heads
    num_heads base_model_name_or_path
    target_hidden_size target_layer_ids aux_hidden_state_layer_ids eagle_aux_hidden_state_layer_ids
    num_target_layers block_size dflash_config dspark_config eagle_config mask_token_id markov_rank
    backbone_hidden_size text_config qk_rope_head_dim kv_lora_rank q_lora_rank qk_nope_head_dim v_head_dim
    model truncated_vocab_size target_model_type sep_token_id modules_to_not_convert is_decoder
    norm_before_residual""".split()  # noqa: SIM905
)
"""Keys of config.json that every release reads, that name sizes which are checks of their own, or that change
nothing of the computation."""

SWITCH_TENSORS = {
    "norm_before_fc": r"input_norm|output_norm_enc|enc\.output_norm",
    "fc_norm": r"fc_norm\.\d+",
}


@dataclass(frozen=True)
class JudgedPair:
    """A head, its target, and the release that is to serve them."""

    engine: EngineRelease
    draft: Draft
    target: ModelFiles
    head: ModelFiles
    used: int
    """One more than the highest id that the target's tokenizer uses."""


def fits(pair: JudgedPair) -> Iterator[PairFinding]:
    """Yield the findings on a head in a checkpoint of its own."""
    if pair.draft.speculators:
        yield _format(pair)
    if pair.draft.verifier_architectures:
        yield _trained_for(pair)
    yield from _architecture(pair)
    if pair.draft.kind not in WITHOUT_FEATURES:
        yield _features(pair)
    if pair.draft.kind in BLOCKS:
        yield _block(pair.draft)
    yield from _switches(pair)
    if pair.draft.kind not in WITHOUT_POSITIONS:
        yield _positions(pair)
    yield _rows(pair)
    yield from _vocabulary(pair)
    yield from _own_layers(pair)
    yield from number_format(pair)
    if pair.head.tokenizer is None:
        yield PairFinding(
            check="chat template",
            verdict="unknown",
            detail="the head has none, and its files do not say with which chats it was trained",
            find_out="compare the acceptance that the server counts with and without a template",
            essential=False,
        )
    if pair.engine.support.heads_compared and pair.draft.kind in HEAD_FORMS:
        yield _embedded(pair)


def own_layers(pair: JudgedPair) -> Iterator[PairFinding]:
    """Yield the findings on a head inside the target: whether its weights have the layers, and in which
    format. Exports often drop them."""
    check, target = "own layers", pair.target
    words = WORDS[pair.draft.kind]
    if target.weights is None or not target.weights.names:
        yield PairFinding(
            check=check,
            verdict="unknown",
            detail=f"its config.json counts layers of {words}, and its weights were not read",
            find_out="run the command where the weights are, or list the tensors whose names begin with mtp",
        )
        return
    beside = any(
        "mtp" in name.lower() and name.endswith(".safetensors") for name in target.checkpoint.names()
    )
    has_layers = pair.draft.kind == "dspark" or bool(mtp_tensors(target.weights))
    if not has_layers and not beside:
        detail = (
            f"its config.json counts layers of {words}, and its weights have none: the export dropped them"
        )
        yield PairFinding(check=check, verdict="incompatible", detail=detail)
        return
    yield compatible(check, "the target's weights have them")
    if pair.draft.kind in BLOCKS:
        yield _block(pair.draft)
    yield from number_format(pair)


def _block(draft: Draft) -> PairFinding:
    check = "block"
    if draft.tokens is None:
        return _unknown(
            check,
            "its config.json gives no block_size, so how many tokens it drafts is not known",
            "read the block's size in its model card: further tokens are drafted badly or not at all",
        )
    return compatible(check, f"{draft.tokens} tokens at a time")


def _unknown(check: str, detail: str, find_out: str) -> PairFinding:
    return PairFinding(check=check, verdict="unknown", detail=detail, find_out=find_out)


def _wrong(check: str, detail: str) -> PairFinding:
    return PairFinding(check=check, verdict="incompatible", detail=detail)


def _format(pair: JudgedPair) -> PairFinding:
    check, draft, support = "format", pair.draft, pair.engine.support
    if draft.lacks:
        return _wrong(check, f"the speculators format requires {', '.join(draft.lacks)}")
    named = str(pair.head.config.raw.get("speculators_model_type"))
    detail = f"speculators, {draft.tokens} tokens at a time, trained for {draft.verifier}"
    if support.speculators is False:
        return _wrong(check, f"{pair.engine.words} does not read the speculators format: convert the head")
    if support.heads is None:
        return _unknown(
            check,
            f"whether {pair.engine.words} reads the speculators format is not known",
            "start the server once, and look whether its log shows acceptance above 0",
        )
    if not support.heads.reads_format(named, pair.engine.number):
        since = support.heads.since("formats", named)
        came = f"; {since} does" if since else ""
        return _wrong(
            check, f"{pair.engine.words} does not read the speculators format of type {named}{came}"
        )
    return compatible(check, detail)


def _trained_for(pair: JudgedPair) -> PairFinding:
    """A head reads one model's features. A text model inside a multimodal one has another name."""
    check = "trained for"
    trained, architectures = pair.draft.verifier_architectures, pair.target.config.architectures
    if not architectures:
        return _unknown(
            check, "the target's config.json names no architecture", "read the target's model card"
        )
    if set(trained) & set(architectures):
        return compatible(check, f"{pair.draft.verifier}, {', '.join(trained)}")
    detail = f"its config names {', '.join(trained)}; the target is {', '.join(architectures)}"
    multimodal = any("ConditionalGeneration" in name for name in (*trained, *architectures))
    return PairFinding(check=check, verdict="degraded" if multimodal else "incompatible", detail=detail)


def _architecture(pair: JudgedPair) -> Iterator[PairFinding]:
    """Yield whether the release has a class for the head. Nothing for an engine that decides otherwise."""
    support, config = pair.engine.support, pair.head.config
    if support.architecture is None or support.heads is None or config.gguf or pair.draft.lacks:
        return
    check, named = "architecture", next(iter(config.architectures), "")
    speculators = str(config.raw.get("speculators_model_type")) if pair.draft.speculators else None
    loaded = support.architecture(
        pair.draft.kind, named, speculators, str(config.text.get("model_type") or "")
    )
    if loaded is None:
        return
    if support.heads.knows(loaded, pair.engine.number):
        yield compatible(check, f"{pair.engine.words} loads it as {loaded}")
        return
    since = support.heads.since("architectures", loaded)
    if since is not None:
        yield _wrong(check, f"{pair.engine.words} has no class {loaded}; {since} has")
    elif pair.engine.is_newer:
        yield _unknown(
            check,
            f"{named or 'no architecture'} becomes {loaded}, which the newest known release does not have",
            "start the server once: it ends at once where it has no such class",
        )
    else:
        detail = (
            f"config.json names {named or 'no architecture'}, so {pair.engine.title} looks for {loaded}, and "
            "no known release has a head of that class"
        )
        yield _wrong(check, detail)


def _features(pair: JudgedPair) -> PairFinding:
    check, config, kind = "features", pair.head.config, pair.draft.kind
    width, head_width = pair.target.config.hidden_size, config.hidden_size
    width_read = config.whole("backbone_hidden_size" if kind == "gemma4_assistant" else "target_hidden_size")
    if width_read is None and kind in ("mtp", "medusa", "recurrent", "eagle"):
        width_read = head_width  # these have no width of their own
    fuse = _tensor(pair.head, ("fc", "encoder.fc"))
    find_out = f"compare the widths that {FUSE} and the target's config.json have"
    if width is None:
        return _unknown(check, "the target's config.json does not give its width", find_out)
    if width_read is not None and width_read != width:
        detail = (
            f"it reads features of {width_read:,}, the target's are {width:,} wide: another target's head"
        )
        return _wrong(check, detail)
    if (deeper := _deeper(pair.target.config, config)) is not None:
        return _wrong(check, deeper)
    if fuse is None or len(fuse.shape) != 2:
        if width_read is None or kind in (*EAGLE3, *BLOCKS, "eagle"):
            return _unknown(check, f"its files do not show how many numbers {FUSE} takes", find_out)
        return compatible(check, f"{width:,} wide, as the target's are")
    # EAGLE joins an embedding and a feature, the later kinds several layers' features.
    embedding = (head_width or 0) if kind == "eagle" else 0
    # A byte may hold two numbers of 4 bits, and 32 bits eight, or four of 8.
    stored = fuse.shape[1]
    packed = {"U8": (stored, 2 * stored), "I32": (8 * stored, 4 * stored)}.get(fuse.dtype, (stored,))
    inputs = [numbers - embedding for numbers in packed]
    counts = {numbers // width for numbers in inputs if numbers > 0 and numbers % width == 0}
    if not counts:
        return _wrong(check, f"{FUSE} takes {fuse.shape[1]:,} numbers, which are not features of {width:,}")
    return _count(pair, counts, fuse.shape[1], width)


def _count(pair: JudgedPair, counts: set[int], inputs: int, width: int) -> PairFinding:
    """Return whether the engine feeds as many layers' features as the head joins."""
    check, config, kind = "features", pair.head.config, pair.draft.kind
    listed = len(_aux_layers(config)) or None
    expected = 1 if kind == "eagle" else listed or (FEATURES if kind in EAGLE3 else None)
    if expected is not None and expected not in counts:
        many = "layer" if expected == 1 else "layers"
        return _wrong(
            check,
            f"{FUSE} takes {inputs:,} numbers, which are not the features of {expected} {many} of {width:,}",
        )
    if kind in EAGLE3:
        keys = pair.engine.support.feature_keys
        fed = None if keys is None else _fed(pair, keys)
        if fed is None and counts != {FEATURES}:
            return _unknown(
                check,
                f"it joins features of {listed} layers; whether {pair.engine.words} feeds so many is unknown",
                "start the server once: a tensor of another shape ends it",
            )
        if fed is not None and fed not in counts:
            places = " or ".join(".".join(path) for path in keys or ()) or "nowhere"
            message = (
                f"it joins features of {expected} layers, and {pair.engine.words} takes it for {fed}: it "
                f"reads the number from {places}, not from where this config has it"
            )
            return _wrong(check, message)
    elif expected is None:
        return _unknown(
            check,
            f"{FUSE} joins {' or '.join(map(str, sorted(counts)))} features, and no key names the layers",
            "read in the model card which layers of the target it reads",
        )
    return compatible(check, f"{width:,} wide, as the target's are")


def _fed(pair: JudgedPair, keys: tuple[tuple[str, ...], ...]) -> int:
    """Return how many features the release counts from the head's config."""
    heads, config = pair.engine.support.heads, pair.head.config
    read = heads.keys("eagle3", pair.engine.number) if heads is not None else None
    for path in keys:
        place: Any = config.text if len(path) == 1 else config.raw
        if len(path) == 1 and not pair.draft.speculators:
            place = config.raw | config.text
        for key in path:
            place = place.get(key) if isinstance(place, Mapping) else None
        if read is not None and path[-1] not in read:
            continue
        if isinstance(place, list) and place:
            return len(place)
        if isinstance(place, int) and not isinstance(place, bool):
            return place
    return FEATURES


def _tensor(side: ModelFiles, names: tuple[str, ...]) -> Tensor | None:
    """Return the tensor of a layer, packed or not; None if its header was not read."""
    tensors = side.weights.tensors if side.weights else {}
    for full in sorted(tensors):
        if bare(full) in names and not full.endswith(("_scale", "_shape", "_zero_point", ".bias")):
            return tensors[full]
    return None


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


def _aux_layers(config: Config) -> list[Any]:
    """The layers whose features the head joins, where its config names them."""
    keys = (
        "eagle_aux_hidden_state_layer_ids",
        "aux_hidden_state_layer_ids",
        "target_layer_ids",
        "dspark_target_layer_ids",
    )
    for key in keys:
        for section in _sections(config):
            if isinstance(listed := section.get(key), list) and listed:
                return listed
    return []


def _sections(config: Config) -> list[dict[str, Any]]:
    inner = [config.raw.get(name) for name in ("eagle_config", "dflash_config", "dspark_config")]
    return [config.raw, config.text, *(section for section in inner if isinstance(section, dict))]


def _switches(pair: JudgedPair) -> Iterator[PairFinding]:
    """Yield what the release does not read of the head's config, though it changes the computation."""
    check, config, support = "config keys", pair.head.config, pair.engine.support
    if pair.draft.kind not in ("eagle", *EAGLE3, *BLOCKS):
        return
    set_keys = sorted(
        {
            key
            for section in _sections(config)
            for key, value in section.items()
            if value not in (None, False, 0, "", [], {}) and key not in BASE_KEYS
        }
    )
    present = {bare(name) for name in (pair.head.weights.names if pair.head.weights else ())}
    set_keys += [
        key for key, mark in SWITCH_TENSORS.items() if key not in set_keys and matching((mark,), present)
    ]
    if not set_keys:
        yield compatible(check, "none that changes its computation")
        return
    families = _families(pair)
    if support.heads is None or not families:
        lost = [key for key in set_keys if key not in support.switches]
        if lost:
            yield _unknown(
                check,
                f"whether {pair.engine.words} reads {', '.join(lost)} is not known",
                "search the engine's loader of such heads for the keys",
            )
        else:
            yield compatible(check, f"{pair.engine.words} reads {', '.join(set_keys)}")
        return
    dropped, alien = {}, []
    for key in set_keys:
        first = [support.heads.first_to_read(family, key) for family in families]
        if None in first:
            alien.append(key)
        elif any(key not in (support.heads.keys(family, pair.engine.number) or ()) for family in families):
            dropped[key] = max(filter(None, first), key=lambda version: [*map(int, version.split("."))])
    if dropped:
        listed = ", ".join(f"{key} (read since {since})" for key, since in dropped.items())
        held = [key for key in dropped if key in SWITCH_TENSORS and support.strict]
        detail = (
            f"{pair.engine.words} does not read {listed}: it computes other drafts than it was trained to"
        )
        if held:
            detail = f"{pair.engine.words} does not read {listed}: it has no place for their tensors"
        yield PairFinding(check=check, verdict="incompatible" if held else "degraded", detail=detail)
    if alien:
        yield _unknown(
            check,
            f"no known release of {pair.engine.title} reads {', '.join(alien)}",
            "read in the code that trained the head whether they change its computation",
        )
    if not dropped and not alien:
        yield compatible(check, f"{pair.engine.words} reads {', '.join(set_keys)}")


def _families(pair: JudgedPair) -> list[str]:
    """Return the parts of the table through which a key has to go."""
    heads, kind = pair.engine.support.heads, pair.draft.kind
    loader = "eagle3" if kind in EAGLE3 else kind
    families: list[str] = [loader]
    if pair.draft.speculators:
        families.append(f"speculators {pair.head.config.raw.get('speculators_model_type')}")
    return [family for family in families if heads is not None and heads.all_keys(family)]


def _positions(pair: JudgedPair) -> PairFinding:
    check, config = "positions", pair.head.config
    longest, reach = pair.target.config.max_positions, config.max_positions
    if longest is None or reach is None:
        side = "target" if longest is None else "head"
        return _unknown(
            check,
            f"the {side}'s config.json gives no max_position_embeddings",
            "send a prompt as long as the longest that you serve, and compare acceptance with a short one's",
        )
    detail = f"{longest:,} positions in the target, {reach:,} in the head"
    if reach >= longest:
        return compatible(check, detail)
    number, kind = pair.engine.number, pair.draft.kind
    rules = (rule for rule in pair.engine.support.positions if kind in rule.kinds and number >= rule.since)
    rule = next(rules, None)
    beyond = f"{detail}; above {reach:,}"
    find_out = f"send one prompt of more than {reach:,} tokens to a server of yours before production"
    if rule is None or rule.does == "unknown":
        reason = rule.why if rule is not None else f"what {pair.engine.words} does is not known"
        return _unknown(check, f"{beyond}: {reason}", find_out)
    if rule.does == "fails":
        avoided = f"a context of at most {reach:,} avoids it"
        reason = f"no for prompts above {reach:,}: {pair.engine.words}: {rule.why}; {avoided}; {detail}"
        return _wrong(check, reason)
    rope = _rope_type(config)
    if rope in FIXED_ROPE:
        reason = f"its rotary embedding ({rope}) depends on the length that its config names"
        return _unknown(check, f"{beyond}: {reason}", find_out)
    if rule.does == "needs_setting":
        return PairFinding(check=check, verdict="needs_setting", detail=f"{beyond}: {rule.why}")
    return compatible(
        check, f"{beyond}, {rule.why}; it was not trained there, so fewer drafts may be accepted"
    )


def _rope_type(config: Config) -> str | None:
    for key in ("rope_parameters", "rope_scaling"):
        section = config.text.get(key)
        if isinstance(section, dict):
            return str(section.get("rope_type") or section.get("type") or "default")
    return None


def _rows(pair: JudgedPair) -> PairFinding:
    check, config = "rows", pair.head.config
    rows, most = config.vocab_size, pair.target.config.vocab_size
    reduced = config.whole("draft_vocab_size")
    if rows is None:
        if pair.draft.kind in ("medusa", "hydra", "mtp"):
            return compatible(check, "the target's; it has no vocabulary of its own")
        return _unknown(check, "config.json gives no vocab_size", "compare the rows of its output head")
    if rows < pair.used:
        detail = f"its vocabulary has {rows:,} entries, the target uses ids up to {pair.used - 1:,}"
        return _wrong(check, detail)
    if most is None:
        return _unknown(
            check, "the target's config.json gives no vocab_size", "compare both embeddings' rows"
        )
    if rows > most and not (reduced is not None and reduced < rows):
        return _wrong(
            check, f"its vocabulary has {rows:,} entries, the target's {most:,}: another target's head"
        )
    return compatible(check, f"the target's; room for {rows:,}, {pair.used:,} used")


def _vocabulary(pair: JudgedPair) -> Iterator[PairFinding]:
    """Yield whether a head with fewer tokens than the target maps them back.

    d2t[i] + i is the target's id of the head's token i, and t2d marks those ids (arXiv:2503.01840). In a GGUF
    file d2t[i] is that id.
    """
    head, config = pair.head, pair.head.config
    size, rows = config.whole("draft_vocab_size"), pair.target.config.vocab_size
    if pair.draft.kind not in (*EAGLE3, *BLOCKS) or not size:
        return
    whole = config.vocab_size if config.vocab_size is not None else rows
    if whole is not None and size >= whole:
        return
    check = "reduced vocabulary"

    def finding(verdict: Severity, detail: str, find_out: str | None = None) -> PairFinding:
        text = f"it drafts from {size:,} tokens, {detail}"
        return PairFinding(check=check, verdict=verdict, detail=text, find_out=find_out)

    weights = head.weights
    look = "run the command on a local copy of the head: its d2t and t2d are then read whole"
    if weights is None or not weights.tensors:
        yield finding("unknown", "and its files do not show whether its weights map them back (d2t)", look)
        return
    offsets, marks = _tensor(head, ("d2t", "draft_id_to_target_id")), _tensor(head, ("t2d",))
    if offsets is None:
        yield finding("incompatible", "and its weights have no d2t to map them back")
        return
    if offsets.shape != (size,):
        yield finding("incompatible", f"and d2t maps {offsets.shape} of them back")
        return
    if marks is not None and rows is not None and marks.shape != (rows,):
        detail = f"t2d covers {marks.shape[0]:,} ids, the target has {rows:,}: another target's head"
        yield finding("incompatible", detail)
        return
    values = _values(head, offsets)
    if values is None:
        yield finding("unknown", "and the values of d2t were not read", look)
        return
    ids = values.astype(np.int64) + (0 if config.gguf else np.arange(size))
    if rows is not None and (ids.min() < 0 or ids.max() >= rows):
        detail = f"d2t maps them to ids up to {ids.max():,}, the target has {rows:,}: another target's head"
        yield finding("incompatible", detail)
        return
    if len(np.unique(ids)) != size:
        yield finding("incompatible", "and d2t maps several of them to one id")
        return
    marked = None if marks is None else _values(head, marks)
    if marked is not None and not np.array_equal(np.flatnonzero(marked), np.sort(ids)):
        yield finding("incompatible", "and t2d marks other ids than d2t maps them to")
        return
    yield finding("compatible", "d2t maps them back")


def _values(head: ModelFiles, tensor: Tensor) -> NDArray[Any] | None:
    """A vector's numbers; None where they cannot be read (the hub, an unusual type)."""
    types = {"I64": "<i8", "I32": "<i4", "BOOL": "?", "U8": "u1"}
    if tensor.dtype not in types or tensor.offsets[0] == tensor.offsets[1]:
        return None
    content = head.checkpoint.tensor(tensor.file, tensor.offsets)
    return None if content is None else np.frombuffer(content, types[tensor.dtype])


def _own_layers(pair: JudgedPair) -> Iterator[PairFinding]:
    """Yield what an engine puts in the place of an embedding or an output head that the head lacks."""
    if pair.draft.kind not in ("eagle", *EAGLE3, *BLOCKS):
        return
    head, config, support = pair.head, pair.head.config, pair.engine.support
    if head.weights is None or not head.weights.names:
        yield _unknown(
            "output head",
            "the head's tensors were not read",
            "list its tensors: without lm_head the engine has to use the target's",
        )
        return
    names = {bare(name) for name in head.weights.names}
    width, head_width = pair.target.config.hidden_size, config.hidden_size
    size, rows = config.whole("draft_vocab_size"), pair.target.config.vocab_size
    if not names & set(EMBEDDING) and width is not None and head_width is not None and head_width != width:
        detail = f"it has no embedding of its own, and the target's is {width:,} wide, not {head_width:,}"
        yield _wrong("embedding", detail)
    output = _tensor(head, OUTPUT)
    if output is not None and size and len(output.shape) == 2 and output.shape[0] not in (size, rows):
        detail = f"its output head has {output.shape[0]:,} rows, and draft_vocab_size is {size:,}"
        yield _wrong("output head", detail)
    if names & set(OUTPUT) or config.text.get("tie_word_embeddings") is True:
        yield compatible("output head", "its own")
        return
    if size is not None and rows is not None and size < rows:
        yield _wrong("output head", f"it drafts from {size:,} tokens and has no output head of its own")
    elif support.shares_output == "always" or (
        pair.draft.kind in BLOCKS and support.shares_output != "unknown"
    ):
        yield compatible("output head", f"the target's; {pair.engine.words} shares it")
    elif support.shares_output == "unknown":
        yield _unknown(
            "output head",
            f"it has none, and whether {pair.engine.words} uses the target's is not known",
            "start the server once, and look whether its acceptance is above 0",
        )
    elif size is not None and pair.draft.kind in EAGLE3:
        yield _wrong(
            "output head",
            f"it has none, and {pair.engine.words} takes the target's only without draft_vocab_size in "
            "config.json: its own stays random, and next to nothing is accepted",
        )
    else:
        yield compatible("output head", f"the target's; {pair.engine.words} shares it")


def number_format(pair: JudgedPair) -> Iterator[PairFinding]:
    """Yield what becomes of the dtype and the quantisation of a head, and of a head inside the target."""
    check, inside = "number format", pair.head is pair.target
    head, target, kind = pair.head, pair.target, pair.draft.kind
    names = list(head.weights.names) if head.weights is not None else []
    packed = sorted({bare(name) for name in names if is_quantised(name, head.weights)})
    for plain in pair.engine.support.plain:
        held = plain.before is None or pair.engine.number < plain.before
        hit = matching((plain.layer,), packed) if kind in plain.kinds and held else []
        if hit and not inside:
            detail = f"{hit[0]} is quantised, and {pair.engine.words} holds it without: {plain.effect}"
            yield _wrong(check, f"{detail} ({plain.source})")
            return
    rule = next((rule for rule in pair.engine.support.inherits if kind in rule.kinds), None)
    scheme = target.quantisation
    find_out = "start the server once, and look in its log for tensors that it skips, and at its acceptance"
    if head.config.gguf:
        yield compatible(check, "each tensor of a GGUF file has its own")
        return
    if rule is None:
        if packed or scheme:
            owner = "the head's" if packed else "the target's"
            detail = f"what {pair.engine.words} makes of {owner} quantisation is not known for {WORDS[kind]}"
            yield _unknown(check, detail, find_out)
        else:
            yield compatible(check, f"{head.config.dtype or 'not named'}, not quantised, nor is the target")
        return
    if rule.quantised_by == "target" and scheme:
        if inside:
            yield _inside(pair, names, scheme)
            return
        if not packed:
            detail = (
                f"{pair.engine.words} builds it by the target's quantisation ({scheme}); it is not quantised"
            )
            yield _unknown(check, detail, find_out)
            return
    if packed and not inside and head.quantisation is None:
        detail = f"{packed[0]} is quantised, and its config.json has no quantization_config to read it by"
        yield _wrong(check, detail)
        return
    dtype = (
        f"its {head.config.dtype or 'unnamed dtype'} becomes the target's {target.config.dtype or 'dtype'}"
    )
    if head.config.dtype == target.config.dtype and head.config.dtype is not None:
        dtype = f"{head.config.dtype}, as the target's"
    flag = f"; a --quantization of the target holds for it too, unless {rule.flag}" if rule.flag else ""
    yield compatible(check, f"{dtype}{flag}" if not packed else f"{head.quantisation}, its own{flag}")


def _inside(pair: JudgedPair, names: list[str], scheme: str) -> PairFinding:
    """Return whether layers of a quantised target are in the format that its config says."""
    check = "number format"
    marks = ("mtp", "nextn")
    layers = pair.target.config.layers or 0
    layer_names = [n for n in names if any(mark in n for mark in marks) or f"layers.{layers}." in n]
    matrices = [
        n for n in layer_names if n.endswith((".weight", ".weight_packed", ".qweight")) and "norm" not in n
    ]
    packed = [n for n in matrices if is_quantised(n, pair.target.weights)]
    excluded = str(pair.target.quantisation_config)
    if packed:
        return compatible(check, f"{scheme}, as the target's")
    if any(mark in excluded for mark in (*marks, f"layers.{layers}")):
        return compatible(check, f"not quantised, and quantization_config ({scheme}) excludes it")
    return _unknown(
        check,
        f"its layers are not quantised, and quantization_config ({scheme}) does not exclude them",
        "start the server once: it ends where it misses scales; else look at its acceptance",
    )


def _embedded(pair: JudgedPair) -> PairFinding:
    check, draft, head = "form", pair.draft, pair.head
    tensors = head.weights.tensors if head.weights else {}
    form = HEAD_FORMS[draft.kind]
    marked = any(mark in tensors for mark in form.marks)
    lacking = [name for name in (*(() if marked else form.marks[:1]), *form.also) if name not in tensors]
    if lacking:
        words = WORDS[draft.kind]
        return _wrong(
            check, f"the embedded engine takes {words} with {' and '.join(lacking)} in model.safetensors"
        )
    if draft.kind != "eagle":
        return compatible(check, f"{WORDS[draft.kind]} as the embedded engine takes it")
    rows = tensors["embed_tokens.weight"].shape[0]
    if rows != pair.target.config.vocab_size:
        size = pair.target.config.vocab_size
        detail = f"its embedding has {rows:,} rows, the target's vocabulary {size} entries"
        return _wrong(check, detail)
    return compatible(check, f"EAGLE's, {head.config.layers} layer, as the embedded engine takes it")
