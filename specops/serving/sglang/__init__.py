"""SGLang, 0.5.1 to 0.5.23.

settings.py   the pool's section -> words; pool.py, its answers and its series
releases.py   which flags and algorithms each release knows (releases.json, made by tools/sglang_table.py)
lint.py       what is wrong with words, and words corrected
"""

from __future__ import annotations

from specops.checkpoints.draft_kind import Kind
from specops.serving.drafts import FIRST, OURS, DraftRule, DraftSupport, ServedPair
from specops.serving.engine import Engine
from specops.serving.sglang.lint import COMMAND_LINE
from specops.serving.sglang.pool import ASK_FOR_DRAFTS, SERIES, SglangPool, answer_drafts
from specops.serving.sglang.settings import VERSION

METHODS: dict[Kind, str] = {
    "independent": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
    "ngram": "NGRAM",
}


def served(pair: ServedPair) -> str:
    path = f" --speculative-draft-model-path {pair.draft}" if pair.draft else ""
    algorithm = f"--speculative-algorithm {pair.method}{path}"
    return f"{algorithm}, and the same --max-running-requests with and without it"


DRAFTS = DraftSupport(
    newest=VERSION,
    rules=(
        DraftRule(tuple(METHODS), FIRST, "works"),
        DraftRule(
            ("medusa", "mlp_speculator", "suffix", "early_exit"), FIRST, "refused", "it has no such algorithm"
        ),
        OURS,
    ),
    methods=METHODS,
    method_key="--speculative-algorithm",
    served=served,
    versions="newest",
    same_tokens="SGLang's STANDALONE refuses vocabularies that are not the same token for token",
)

ENGINE = Engine(
    name="sglang",
    title="SGLang",
    about="specops configures them",
    settings=SglangPool,
    namings={"sglang": SERIES},
    answer_drafts=answer_drafts,
    ask_for_drafts=ASK_FOR_DRAFTS,
    owned_by="sglang",
    command_line=COMMAND_LINE,
    speculation_flags=("--speculative",),
    drafts=DRAFTS,
    k_key="num_steps",
)
