"""What TensorRT-LLM does with each kind of draft, by release.

releases.json has the types of `speculative_config` of each release. What its loaders do with a head's tensors
and positions was not read for each release, so those checks answer *unknown* and say how to find out.
"""

from __future__ import annotations

from specops.checkpoints.draft_kind import BLOCKS, EAGLE3, Kind
from specops.serving.drafts import FIRST, OURS, DraftRule, DraftSupport, PositionRule, ServedPair
from specops.serving.trtllm.releases import Version, table

METHODS: dict[Kind, str] = {
    "independent": "DraftTarget",
    "pard": "PARD",
    "eagle3": "Eagle3",
    "eagle3_1": "Eagle3",
    "mtp": "MTP",
    "dflash": "DFlash",
    "dspark": "DSpark",
    "ngram": "NGram",
    "suffix": "SA",
}
OLDER_NAMES = {"Eagle3": "Eagle"}
"""What an older release calls a type."""

RULES = (
    DraftRule(("pard",), FIRST, "works", "it drafts all tokens in one pass"),
    DraftRule(tuple(METHODS), FIRST, "works"),
    DraftRule(("eagle",), FIRST, "refused", "it serves heads of EAGLE-3 only"),
    DraftRule(
        ("dflash2", "domino", "gemma4_assistant", "p_eagle"),
        FIRST,
        "unknown",
        "no known release names such a type, and its loaders were not read for this kind",
    ),
    DraftRule(("medusa", "hydra", "mlp_speculator", "early_exit"), FIRST, "refused", "it has no such type"),
    OURS,
)


def describe_serving(pair: ServedPair) -> str:
    draft = f", speculative_model: {pair.draft}" if pair.draft else ""
    return f"speculative_config: {{decoding_type: {pair.method}, max_draft_len: {pair.tokens}{draft}}}"


def has_method(version: str, method: str) -> bool | None:
    names = (method, OLDER_NAMES.get(method, method))
    answers = [table().has_type(Version.parse(version), name) for name in names]
    return True if True in answers else None if None in answers else False


DRAFTS = DraftSupport(
    newest=str(table().newest),
    rules=RULES,
    methods=METHODS,
    method_key="decoding_type",
    describe_serving=describe_serving,
    has_method=has_method,
    same_tokens="TensorRT-LLM does not compare tokens: of another tokenizer next to no draft is accepted",
    positions=(
        PositionRule(
            (*EAGLE3, *BLOCKS, "mtp", "gemma4_assistant"),
            FIRST,
            "unknown",
            "what it does at positions beyond the head's was not read in its sources",
        ),
    ),
)
