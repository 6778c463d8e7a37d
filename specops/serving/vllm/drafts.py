"""What vLLM does with each kind of draft, by version.

Read in the released sources, 0.8.0 to 0.33.0: config/speculative.py, the loaders of heads, and, up to 0.14,
the refusals in engine/arg_utils.py. heads.json has the keys that each release reads. Tried on 0.32.0.
"""

from __future__ import annotations

import json
from pathlib import Path

from specops.checkpoints.draft_kind import BLOCKS, EAGLE3, Kind
from specops.serving.drafts import (
    FIRST,
    OURS,
    DraftRule,
    DraftSupport,
    HeadTable,
    Inheritance,
    KindByName,
    OtherVocabulary,
    PositionRule,
    ServedPair,
)

PARALLEL = {"parallel_drafting": True}
RULES = (
    DraftRule(("independent",), (0, 15, 0), "works"),
    DraftRule(
        ("independent", "pard"),
        (0, 16, 0),
        "needs_setting",
        "it was trained to draft all tokens in one pass (PARD): parallel_drafting is true",
        settings=PARALLEL,
    ),
    DraftRule(("pard",), (0, 15, 0), "works", "it drafts token by token before 0.16"),
    DraftRule(
        ("independent", "pard"),
        (0, 10, 0),
        "refused",
        "0.10 to 0.14 have no draft models (NotImplementedError)",
    ),
    DraftRule(("independent", "pard"), FIRST, "works"),
    DraftRule(("eagle",), FIRST, "works"),
    DraftRule(("eagle3",), (0, 8, 5), "works"),
    DraftRule(("eagle3",), FIRST, "refused", "EAGLE-3 came with 0.8.5"),
    DraftRule(("eagle3_1",), (0, 18, 0), "works"),
    DraftRule(("eagle3_1",), FIRST, "refused", "the norms of EAGLE-3.1 came with 0.18"),
    DraftRule(
        ("p_eagle",), (0, 16, 0), "needs_setting", "it drafts in one pass: parallel_drafting is true",
        settings=PARALLEL,
    ),
    DraftRule(("p_eagle",), FIRST, "refused", "parallel drafting (P-EAGLE) came with 0.16"),
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
    DraftRule(("gemma4_assistant",), (0, 21, 0), "works"),
    DraftRule(
        ("gemma4_assistant",), FIRST, "refused", "Gemma 4's assistants came with 0.21 (vllm#41745)"
    ),
    DraftRule(("dflash",), (0, 20, 0), "works"),
    DraftRule(("dflash",), FIRST, "refused", "DFlash came with 0.20"),
    DraftRule(("dflash2",), (0, 28, 0), "works"),
    DraftRule(("dflash2",), FIRST, "refused", "DFlash2 came with 0.28"),
    DraftRule(("dspark",), (0, 25, 0), "works"),
    DraftRule(("dspark",), FIRST, "refused", "DSpark came with 0.25"),
    DraftRule(("ngram",), FIRST, "works"),
    DraftRule(("suffix",), (0, 11, 1), "needs_setting", "the package arctic-inference must be installed"),
    DraftRule(("suffix",), FIRST, "refused", "suffix decoding came with 0.11.1"),
    DraftRule(("early_exit",), FIRST, "refused", "it has no early exit"),
    DraftRule(("hydra", "domino"), FIRST, "refused", "no release up to 0.33 loads such heads"),
    OURS,
)  # fmt: skip
METHODS: dict[Kind, str] = {
    "independent": "draft_model",
    "pard": "draft_model",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "eagle3_1": "eagle3",
    "p_eagle": "eagle3",
    "medusa": "medusa",
    "mlp_speculator": "mlp_speculator",
    "mtp": "mtp",
    "gemma4_assistant": "mtp",
    "dflash": "dflash",
    "dflash2": "dflash",
    "dspark": "dspark",
    "ngram": "ngram",
    "suffix": "suffix",
}
TABLE_OVERRUN = "it reads beyond the head's rotary table, with an error or with wrong drafts"


def describe_serving(pair: ServedPair) -> str:
    model = {"model": pair.draft} if pair.draft else {}
    keys = {"method": pair.method, **model, "num_speculative_tokens": pair.tokens, **pair.settings}
    return f"--speculative-config '{json.dumps(keys)}'"


def architecture(kind: Kind, name: str, speculators: str | None, model_type: str) -> str | None:
    """Return the class that a head is loaded as (transformers_utils/configs/eagle.py and speculators/)."""
    if kind in EAGLE3:
        if speculators is not None:
            inner = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}.get(model_type, model_type)
            return f"{'Peagle' if speculators == 'peagle' else 'Eagle3'}{inner}"
        return name if name.startswith("Eagle3") or name.endswith("Eagle3") else f"Eagle3{name}"
    if kind == "eagle":
        return name if name.startswith("Eagle") else f"Eagle{name}"
    if kind in ("dflash", "dflash2"):
        if speculators is not None:
            return "DFlash2DraftModel" if speculators == "dflash2" else "DFlashDraftModel"
        return name if name.startswith("DFlash") or name.endswith("DFlash") else f"DFlash{name}"
    if kind == "dspark" and speculators is None and "DSpark" in name:
        return name
    return None


DRAFTS = DraftSupport(
    newest="0.33.0",
    rules=RULES,
    methods=METHODS,
    method_key="method",
    describe_serving=describe_serving,
    oldest=(0, 8, 0),
    too_old="0.8 is the oldest one known",
    guesses=(
        KindByName("eagle-", ("eagle",), FIRST),
        KindByName("eagle3", EAGLE3, (0, 8, 5)),
        KindByName("dflash", ("dflash", "dflash2"), (0, 20, 0)),
        KindByName("dspark", ("dspark",), (0, 25, 0)),
    ),
    named_for_good=("eagle", *EAGLE3, "dflash", "dflash2", "dspark"),  # it does change `draft_model`
    divides=True,
    other_vocabulary=OtherVocabulary(
        since=(0, 25, 0),
        settings={"use_heterogeneous_vocab": True},
        before="0.25 and later can, with use_heterogeneous_vocab",
        needed="use_heterogeneous_vocab is true; it then drafts greedily",
        way="use_heterogeneous_vocab would draft from the tokens that both have; only a test shows how well",
    ),
    heads=HeadTable(Path(__file__).with_name("heads.json")),
    strict=True,
    positions=(
        PositionRule(
            ("eagle", *EAGLE3), (0, 27, 0), "extends", "it extends the head's rotary table (vllm PR 49343)"
        ),
        PositionRule(("eagle", *EAGLE3), FIRST, "fails", f"{TABLE_OVERRUN} (vllm#48894; fixed in 0.27)"),
        PositionRule(
            (*BLOCKS, "gemma4_assistant"), (0, 33, 0), "extends", "it extends the head's rotary table"
        ),
        PositionRule(BLOCKS, FIRST, "fails", f"{TABLE_OVERRUN} (vllm PR 57964; fixed in 0.33)"),
        PositionRule(
            ("gemma4_assistant",), FIRST, "unknown", "no report and no source says what it does before 0.33"
        ),
    ),
    inherits=(
        Inheritance(("mtp",), "target", "config/speculative.py"),
        Inheritance(
            (
                "eagle",
                *EAGLE3,
                *BLOCKS,
                "gemma4_assistant",
                "medusa",
                "mlp_speculator",
                "independent",
                "pard",
            ),
            "draft",
            "config/speculative.py",
        ),
    ),
    feature_keys=(("num_aux_hidden_states",), ("eagle_config", "eagle_aux_hidden_state_layer_ids")),
    shares_output="always",
    architecture=architecture,
)
