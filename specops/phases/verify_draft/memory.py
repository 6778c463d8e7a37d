"""The GPU memory that a draft takes: its weights, and the KV blocks that target and draft then share.

An estimate before launch, from headers and configs. The engine itself also keeps activations and captured
graphs, alike with and without a draft, so that the blocks lost are nearer to the truth than those left.
"""

from __future__ import annotations

from specops.checkpoints.draft_kind import HEAD_FORMS, MTP_LAYERS, Draft
from specops.checkpoints.model_config import BYTES
from specops.errors import UsageError
from specops.hints import with_options
from specops.phases.verify_draft.pair import ModelFiles, PairFinding
from specops.section import Frozen

BLOCK = 16
"""Tokens of a KV block, vLLM's default."""

UTILISATION = 0.92
"""Share of the GPU that the engine may fill: vLLM's default, in 0.20 to 0.33 (0.9 before)."""


K = 5
"""Drafted tokens of the example: the playbook's number to start from."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")

NO_CACHE = {"mlp_speculator", *(kind for kind, form in HEAD_FORMS.items() if not form.has_cache)}


class ModelMemory(Frozen):
    weights_bytes: int | None
    """Bytes of all of it, before it is divided among GPUs."""

    dtypes: dict[str, int]
    kv_bytes_per_token: int | None
    """Bytes a token on each GPU."""

    kv: str
    """How the config says so, in words."""


class Blocks(Frozen):
    """The number of KV cache blocks on one GPU, of `BLOCK` tokens each."""

    gpu_bytes: int
    utilisation: float
    tokens_a_block: int
    without_draft: int
    with_draft: int

    @property
    def lost(self) -> int:
        return self.without_draft - self.with_draft


class PairMemory(Frozen):
    tensor_parallel: int
    target: ModelMemory
    draft: ModelMemory | None
    """None for drafts without a model."""

    blocks: Blocks | None = None
    blocks_missing: str | None = None
    """The reason for their absence."""


def memory(
    target: ModelFiles, side: ModelFiles | None, draft: Draft, *, gpu_bytes: int | None, tensor_parallel: int
) -> PairMemory:
    """Return the memory of a pair. `side`: the draft's checkpoint, the target's own, or None for a draft
    without a model."""
    target_memory, draft_memory = _model(target, tensor_parallel), None
    if side is not None:
        draft_memory = _without_cache(side) if draft.kind in NO_CACHE else _model(side, tensor_parallel)
    counted = next((layers for key in MTP_LAYERS if (layers := target.config.whole(key))), None)
    if side is target and draft.kind in ("mtp", "dspark"):
        draft_memory = _own_layers(target, counted or 1, tensor_parallel)
    elif side is not None and draft.kind == "mtp" and side.config.gguf:  # it counts the target's layers too
        own = _own_layers(side, side.config.whole(MTP_LAYERS[0]) or 1, tensor_parallel)
        size = side.weights.size if side.weights else None
        draft_memory = own.model_copy(update={"weights_bytes": size})
    if draft.kind == "early_exit" and draft.layers:
        own = _own_layers(target, draft.layers, tensor_parallel)
        adapter = side.weights.size if side is not None and side is not target and side.weights else 0
        draft_memory = own.model_copy(update={"weights_bytes": adapter})
    missing = _missing(target_memory, draft_memory, gpu_bytes)
    blocks = None
    if missing is None and gpu_bytes is not None:
        blocks = _blocks(target_memory, draft_memory, gpu_bytes, tensor_parallel)
    return PairMemory(
        tensor_parallel=tensor_parallel,
        target=target_memory,
        draft=draft_memory,
        blocks=blocks,
        blocks_missing=missing,
    )


def cost(target: ModelFiles, draft: ModelFiles) -> list[PairFinding]:
    """Return whether the draft is too large to pay. A small batch's step takes as long as its weights take to
    read.

    With K tokens a step costs 1 + K·r of the target's step, r = draft bytes / target bytes, and brings at
    most K + 1 tokens: from r = 1 on it cannot pay. Experts are not judged, since not all weights are read.
    """
    if draft is target or draft.weights is None or target.weights is None or not target.weights.size:
        return []
    if any(draft.config.whole(key) for key in EXPERTS):
        return []
    ratio = draft.weights.size / target.weights.size
    if ratio < 1:
        return []
    detail = (
        f"its weights are {ratio:.2g}× the target's: a step with {K} drafted tokens takes about "
        f"{1 + K * ratio:.2g} steps of the target and brings at most {K + 1} tokens, so it never pays"
    )
    return [PairFinding(check="cost", verdict="degraded", detail=detail)]


def _model(side: ModelFiles, tensor_parallel: int) -> ModelMemory:
    config, weights = side.config, side.weights
    cache, width = config.kv_cache(), BYTES.get(config.dtype or "")
    message = "config.json does not say its attention's shape"
    per_token = None
    if cache is not None:
        heads = "latent attention (MLA)" if cache.heads is None else f"{cache.heads} KV heads"
        message = f"{cache.layers} layers, {heads}, {config.dtype or 'unknown dtype'}"
        if cache.windowed:
            message += f"; {cache.windowed} of them keep only the last {cache.window:,} tokens"
        per_token = cache.bytes_per_token(width, tensor_parallel) if width else None
    return ModelMemory(
        weights_bytes=weights.size if weights else None,
        dtypes=weights.dtypes if weights else {},
        kv_bytes_per_token=per_token,
        kv=message,
    )


def _without_cache(side: ModelFiles) -> ModelMemory:
    message = "it keeps no keys and values"
    return _model(side, 1).model_copy(update={"kv_bytes_per_token": 0, "kv": message})


def _own_layers(target: ModelFiles, layers: int, tensor_parallel: int) -> ModelMemory:
    """Return the memory of a target that drafts for itself: the weights are counted with it, its layers for
    it keep KV too."""
    whole, cache = _model(target, tensor_parallel), target.config.kv_cache()
    per_token = whole.kv_bytes_per_token
    if per_token is not None and cache is not None and cache.layers:
        per_token = per_token // cache.layers * layers
    message = f"{layers} layers of its own for it"
    return ModelMemory(weights_bytes=0, dtypes={}, kv_bytes_per_token=per_token, kv=message)


def _missing(target: ModelMemory, draft: ModelMemory | None, gpu_bytes: int | None) -> str | None:
    if gpu_bytes is None:
        return "no --gpu was named"
    for name, model in (("target", target), ("draft", draft)):
        if model is not None and model.weights_bytes is None:
            return f"the {name} has no weights in safetensors, whose headers give their size"
        if model is not None and model.kv_bytes_per_token is None:
            return f"the {name}'s KV cache is not known: {model.kv}"
    return None


def _blocks(target: ModelMemory, draft: ModelMemory | None, gpu_bytes: int, tensor_parallel: int) -> Blocks:
    def fitting(*models: ModelMemory) -> int:
        weights = sum(model.weights_bytes or 0 for model in models) / tensor_parallel
        a_token = sum(model.kv_bytes_per_token or 0 for model in models)
        return max(0, int((gpu_bytes * UTILISATION - weights) // (a_token * BLOCK))) if a_token else 0

    return Blocks(
        gpu_bytes=gpu_bytes,
        utilisation=UTILISATION,
        tokens_a_block=BLOCK,
        without_draft=fitting(target),
        with_draft=fitting(target, draft) if draft else fitting(target),
    )


def gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:.1f} MiB"


GIB = 2**30
MIB = {
    "a10g-24": 23_028,
    "a100-40": 40_960,
    "a100-80": 81_920,
    "b200-180": 183_359,
    "h100-80": 81_559,
    "h200-141": 143_771,
    "l4-24": 23_034,
    "l40s-48": 46_068,
    "rtx4090-24": 24_564,
    "t4-16": 15_360,
}


def memory_of(gpu: str) -> int:
    """Bytes of a GPU by its name, or of a number of GiB. Raises UsageError for anything else."""
    if gpu.lower() in MIB:
        return MIB[gpu.lower()] * 2**20
    try:
        size = float(gpu)
        if not 0 < size < 10_000:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"unknown --gpu {gpu!r}: expected GiB, such as 79.6, or one of {', '.join(MIB)}",
            hint=with_options({"--gpu": "79.6"}),
        ) from None
    return int(size * GIB)
