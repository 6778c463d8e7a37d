"""What llama.cpp's server does with each kind of draft, by build.

Read in the sources of b8672 to b11549: common/speculative.cpp, src/models/eagle3.cpp, dflash.cpp and
gemma4-assistant.cpp. builds.json has the types of each build.
"""

from __future__ import annotations

from specops.checkpoints.draft_kind import BLOCKS, EAGLE3, Kind
from specops.errors import ConfigError
from specops.serving.drafts import FIRST, OURS, DraftRule, DraftSupport, PositionRule, ServedPair
from specops.serving.llamacpp.builds import table
from specops.serving.llamacpp.settings import K_OF_DRAFTS, K

METHODS: dict[Kind, str] = {
    "independent": "draft-simple",
    "pard": "draft-simple",
    "eagle3": "draft-eagle3",
    "eagle3_1": "draft-eagle3",
    "mtp": "draft-mtp",
    "gemma4_assistant": "draft-mtp",
    "dflash": "draft-dflash",
    "dflash2": "draft-dflash",
    "dspark": "draft-dspark",
    "ngram": "ngram-simple",
}
RULES = (
    DraftRule(("pard",), FIRST, "works", "it drafts with such a model token by token"),
    DraftRule(tuple(METHODS), FIRST, "works"),
    DraftRule(
        ("eagle", "p_eagle", "medusa", "hydra", "mlp_speculator", "domino", "suffix", "early_exit"),
        FIRST,
        "refused",
        "it has no such type",
    ),
    OURS,
)


def describe_serving(pair: ServedPair) -> str:
    draft = f" -md {pair.draft}" if pair.draft else ""
    flag, _ = K.get(pair.method, K_OF_DRAFTS)
    return f"llama-server -m {pair.target}{draft} --spec-type {pair.method} {flag} {pair.tokens} --metrics"


def has_method(version: str, method: str) -> bool:
    number = int(version.lstrip("vb").partition(".")[0])
    try:
        return method in table().build(number).types
    except ConfigError:
        return False


DRAFTS = DraftSupport(
    newest=f"b{table().newest}",
    rules=RULES,
    methods=METHODS,
    method_key="--spec-type",
    describe_serving=describe_serving,
    reads=("gguf",),
    has_method=has_method,
    spare_tokens=128,
    refuses="serves without speculation",
    same_tokens="llama.cpp compares all tokens from id 5 on; where they differ it serves without speculation",
    switches=("norm_before_fc",),
    strict=True,
    positions=(
        PositionRule(
            (*EAGLE3, *BLOCKS, "mtp", "gemma4_assistant"),
            FIRST,
            "extends",
            "it computes rotary positions as it goes, and warns about a longer context",
        ),
    ),
    feature_keys=(),
    shares_output="always",
    speculators=False,
)
