"""What vLLM does with each kind of draft, by version.

Read in its released sources, 0.8.0 to 0.33.0 (config/speculative.py and, up to 0.14, the refusals in
engine/arg_utils.py); tried on 0.32.0.
"""

from __future__ import annotations

import json

from specops.checkpoints.draft_kind import Kind
from specops.serving.drafts import (
    FIRST,
    DraftRule,
    DraftSupport,
    Format,
    Guess,
    OtherVocabulary,
    ServedPair,
)

RULES = (
    DraftRule(("independent",), (0, 15, 0), "works"),
    DraftRule(
        ("independent",), (0, 10, 0), "refused", "0.10 to 0.14 have no draft models (NotImplementedError)"
    ),
    DraftRule(("independent",), FIRST, "works"),
    DraftRule(("eagle",), FIRST, "works"),
    DraftRule(("eagle3",), (0, 8, 5), "works"),
    DraftRule(("eagle3",), FIRST, "refused", "EAGLE-3 came with 0.8.5"),
    DraftRule(("medusa",), (0, 33, 0), "refused", "0.33 removed Medusa"),
    DraftRule(("medusa",), (0, 8, 2), "works"),
    DraftRule(("medusa",), FIRST, "refused", "the method came with 0.8.2"),
    DraftRule(("mlp_speculator",), (0, 33, 0), "refused", "0.33 removed MLP speculators"),
    DraftRule(
        ("mlp_speculator",), (0, 10, 0), "refused", "since 0.10 it takes the method and has no such model"
    ),
    DraftRule(("mlp_speculator",), FIRST, "works"),
    DraftRule(("mtp",), (0, 11, 0), "works"),
    DraftRule(
        ("mtp",), FIRST, "needs_setting", "before 0.11 each model's method has a name, such as deepseek_mtp"
    ),
    DraftRule(("dflash",), (0, 20, 0), "works"),
    DraftRule(("dflash",), FIRST, "refused", "DFlash came with 0.20"),
    DraftRule(("dspark",), (0, 25, 0), "works"),
    DraftRule(("dspark",), FIRST, "refused", "DSpark came with 0.25"),
    DraftRule(("ngram",), FIRST, "works"),
    DraftRule(("suffix",), (0, 11, 1), "needs_setting", "the package arctic-inference must be installed"),
    DraftRule(("suffix",), FIRST, "refused", "suffix decoding came with 0.11.1"),
    DraftRule(("early_exit",), FIRST, "refused", "it has no early exit"),
    DraftRule(("recurrent",), FIRST, "refused", "the form is the embedded engine's own"),
)
METHODS: dict[Kind, str] = {
    "independent": "draft_model",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "medusa": "medusa",
    "mlp_speculator": "mlp_speculator",
    "mtp": "mtp",
    "dflash": "dflash",
    "dspark": "dspark",
    "ngram": "ngram",
    "suffix": "suffix",
}


def served(pair: ServedPair) -> str:
    model = {"model": pair.draft} if pair.draft else {}
    keys = {"method": pair.method, **model, "num_speculative_tokens": pair.tokens, **pair.settings}
    return f"--speculative-config '{json.dumps(keys)}'"


DRAFTS = DraftSupport(
    newest="0.33.0",
    rules=RULES,
    methods=METHODS,
    method_key="method",
    served=served,
    oldest=(0, 8, 0),
    too_old="0.8 is the oldest one known",
    too_old_hint="give 0.8 to 0.33",
    formats=(
        Format("speculators", (0, 10, 1), "it reads the speculators format since 0.10.1"),
        Format("parallel", (0, 16, 0), "parallel drafting (P-EAGLE) came with 0.16"),
        Format("assistant", (0, 21, 0), "Gemma 4's assistants came with 0.21 (vllm#41745)"),
    ),
    guesses=(
        Guess("eagle-", "eagle", FIRST),
        Guess("eagle3", "eagle3", (0, 8, 5)),
        Guess("dflash", "dflash", (0, 20, 0)),
        Guess("dspark", "dspark", (0, 25, 0)),
    ),
    named_for_good=("eagle", "eagle3", "dflash", "dspark"),  # it does change `draft_model`
    divides=True,
    other_vocabulary=OtherVocabulary(
        since=(0, 25, 0),
        settings={"use_heterogeneous_vocab": True},
        before="0.25 and later can, with use_heterogeneous_vocab",
        needed="use_heterogeneous_vocab is true; it then drafts greedily",
        way="use_heterogeneous_vocab would draft from the tokens that both have; only a test tells how well",
    ),
)
