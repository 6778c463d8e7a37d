"""What SGLang does with each kind of draft, by version.

Read in the released sources, 0.5.1 to 0.5.23: models/*eagle*, dflash.py, dspark.py, gemma4_mtp.py,
speculative/dflash_utils.py and configs/model_config.py. heads.json has the keys that each release reads;
releases.json has the algorithms.
"""

from __future__ import annotations

from pathlib import Path

from specops.checkpoints.draft_kind import BLOCKS, EAGLE3, Kind
from specops.serving.drafts import (
    FIRST,
    OURS,
    DraftRule,
    DraftSupport,
    HeadTable,
    Inheritance,
    PlainLayer,
    PositionRule,
    ServedPair,
)
from specops.serving.sglang.releases import table

METHODS: dict[Kind, str] = {
    "independent": "STANDALONE",
    "pard": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "eagle3_1": "EAGLE3",
    "mtp": "NEXTN",
    "gemma4_assistant": "FROZEN_KV_MTP",
    "dflash": "DFLASH",
    "dflash2": "DFLASH",
    "domino": "DFLASH",
    "dspark": "DSPARK",
    "ngram": "NGRAM",
}
RULES = (
    DraftRule(("eagle3_1",), (0, 5, 12), "works"),
    DraftRule(("eagle3_1",), FIRST, "refused", "it reads the norms of EAGLE-3.1 since 0.5.12"),
    DraftRule(("gemma4_assistant",), (0, 5, 12), "works"),
    DraftRule(("gemma4_assistant",), FIRST, "refused", "FROZEN_KV_MTP came with 0.5.12"),
    DraftRule(("dflash",), (0, 5, 11), "works"),
    DraftRule(("dflash",), FIRST, "refused", "DFLASH came with 0.5.11"),
    DraftRule(("dspark",), (0, 5, 16), "works"),
    DraftRule(("dspark",), FIRST, "refused", "DSPARK came with 0.5.16"),
    DraftRule(("dflash2",), (0, 5, 19), "works"),
    DraftRule(("dflash2",), FIRST, "refused", "DFlash2DraftModel came with 0.5.19"),
    DraftRule(("domino",), (0, 5, 20), "works"),
    DraftRule(("domino",), FIRST, "refused", "Domino heads came with 0.5.20"),
    DraftRule(("pard",), FIRST, "works", "it drafts with such a model token by token"),
    DraftRule(tuple(METHODS), FIRST, "works"),
    DraftRule(
        ("medusa", "hydra", "mlp_speculator", "suffix", "early_exit", "p_eagle"),
        FIRST,
        "refused",
        "it has no such algorithm",
    ),
    OURS,
)
OVERWRITE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def describe_serving(pair: ServedPair) -> str:
    path = f" --speculative-draft-model-path {pair.draft}" if pair.draft else ""
    algorithm = f"--speculative-algorithm {pair.method}{path}"
    if pair.method in ("DFLASH", "DSPARK"):  # the block has the known token, too
        algorithm += f" --speculative-num-draft-tokens {pair.tokens + 1}"
    set_before = "".join(f", with {name}={value}" for name, value in pair.settings.items())
    return f"{algorithm}{set_before}, and the same --max-running-requests with and without it"


def has_method(version: str, method: str) -> bool:
    return method in table().release(version).algorithms


def architecture(kind: Kind, name: str, speculators: str | None, model_type: str) -> str | None:
    """Return the class that a head is loaded as: the one that its config names, of a model's own name too."""
    return name if kind in ("eagle", *EAGLE3, "dflash", "dflash2", "domino") or "DSpark" in name else None


DRAFTS = DraftSupport(
    newest=table().newest.version,
    rules=RULES,
    methods=METHODS,
    method_key="--speculative-algorithm",
    describe_serving=describe_serving,
    has_method=has_method,
    oldest=(0, 5, 1),
    too_old="0.5.1 is the oldest one known",
    same_tokens="SGLang's STANDALONE refuses vocabularies that are not the same token for token",
    heads=HeadTable(Path(__file__).with_name("heads.json")),
    positions=(
        PositionRule(
            ("eagle", *EAGLE3, *BLOCKS, "gemma4_assistant"),
            (0, 5, 3),
            "needs_setting",
            f"it does not start with a longer --context-length; with {OVERWRITE}=1 it extends the head's "
            "positions (PR 10787)",
            settings={OVERWRITE: 1},
        ),
        PositionRule(
            ("eagle", *EAGLE3),
            FIRST,
            "fails",
            "it does not start with a longer --context-length, or reads beyond the head's rotary table "
            "(PR 10787; fixed in 0.5.3)",
        ),
    ),
    plain=(
        PlainLayer(
            ("dflash", "dflash2", "domino"), r"fc|encoder\.fc|layers\..+", None,
            "it skips the packed tensors without a word, the layer stays as it was initialised, and next to "
            "nothing is accepted", "sglang#39087; supports_quantization is False up to 0.5.23",
        ),
        PlainLayer(
            EAGLE3, r"fc", None,
            "it skips the packed tensors without a word, the layer stays as it was initialised, and next to "
            "nothing is accepted", "models/llama_eagle3.py: fc is a plain linear layer up to 0.5.23",
        ),
    ),
    inherits=(
        Inheritance(("mtp",), "target", "configs/model_config.py"),
        Inheritance(
            tuple(METHODS),
            "flag",
            "server_args.py",
            flag="--speculative-draft-model-quantization unquant",
        ),
    ),
    feature_keys=(("num_aux_hidden_states",), ("eagle_config", "eagle_aux_hidden_state_layer_ids")),
    shares_output="without draft_vocab_size",
    speculators=False,
    architecture=architecture,
)  # fmt: skip
