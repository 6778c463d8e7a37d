"""What serving engines do with kinds of drafts, by version, as data. Of the rules, the first that fits holds.

vLLM's were read in its released sources, 0.8.0 to 0.33.0 (config/speculative.py and, up to 0.14, the refusals
in engine/arg_utils.py); on 0.32.0 they were tried. SGLang's are those of 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specops import __version__
from specops.checkpoints.kind import Kind
from specops.phases.verify_draft.settings import ServingEngine

Version = tuple[int, int, int]
Does = Literal["works", "needs_setting", "refused"]

NEWEST: dict[ServingEngine, str] = {"vllm": "0.33.0", "sglang": "0.5.23", "embedded": __version__}
OLDEST_VLLM: Version = (0, 8, 0)
FIRST: Version = (0, 0, 0)
HETEROGENEOUS: Version = (0, 25, 0)
"""The first vLLM that has `use_heterogeneous_vocab`."""

HETEROGENEOUS_SETTING: dict[str, bool | int | str] = {"use_heterogeneous_vocab": True}


@dataclass(frozen=True)
class Rule:
    engine: ServingEngine
    kinds: tuple[Kind, ...]
    since: Version
    does: Does
    told: str = ""
    """Why it is refused, or which setting it needs."""


EMBEDDED: tuple[Kind, ...] = (
    "independent",
    "eagle",
    "medusa",
    "recurrent",
    "early_exit",
    "ngram",
    "suffix",
)
RULES = (
    Rule("vllm", ("independent",), (0, 15, 0), "works"),
    Rule(
        "vllm",
        ("independent",),
        (0, 10, 0),
        "refused",
        "0.10 to 0.14 have no draft models (NotImplementedError)",
    ),
    Rule("vllm", ("independent",), FIRST, "works"),
    Rule("vllm", ("eagle",), FIRST, "works"),
    Rule("vllm", ("eagle3",), (0, 8, 5), "works"),
    Rule("vllm", ("eagle3",), FIRST, "refused", "EAGLE-3 came with 0.8.5"),
    Rule("vllm", ("medusa",), (0, 33, 0), "refused", "0.33 removed Medusa"),
    Rule("vllm", ("medusa",), (0, 8, 2), "works"),
    Rule("vllm", ("medusa",), FIRST, "refused", "the method came with 0.8.2"),
    Rule("vllm", ("mlp_speculator",), (0, 33, 0), "refused", "0.33 removed MLP speculators"),
    Rule(
        "vllm",
        ("mlp_speculator",),
        (0, 10, 0),
        "refused",
        "since 0.10 it takes the method and has no such model",
    ),
    Rule("vllm", ("mlp_speculator",), FIRST, "works"),
    Rule("vllm", ("mtp",), (0, 11, 0), "works"),
    Rule(
        "vllm",
        ("mtp",),
        FIRST,
        "needs_setting",
        "before 0.11 each model's method has a name, such as deepseek_mtp",
    ),
    Rule("vllm", ("dflash",), (0, 20, 0), "works"),
    Rule("vllm", ("dflash",), FIRST, "refused", "DFlash came with 0.20"),
    Rule("vllm", ("dspark",), (0, 25, 0), "works"),
    Rule("vllm", ("dspark",), FIRST, "refused", "DSpark came with 0.25"),
    Rule("vllm", ("ngram",), FIRST, "works"),
    Rule("vllm", ("suffix",), (0, 11, 1), "needs_setting", "the package arctic-inference must be installed"),
    Rule("vllm", ("suffix",), FIRST, "refused", "suffix decoding came with 0.11.1"),
    Rule("vllm", ("early_exit",), FIRST, "refused", "it has no early exit"),
    Rule("vllm", ("recurrent",), FIRST, "refused", "the form is the embedded engine's own"),
    Rule("sglang", ("independent", "eagle", "eagle3", "mtp", "dflash", "dspark", "ngram"), FIRST, "works"),
    Rule(
        "sglang",
        ("medusa", "mlp_speculator", "suffix", "early_exit"),
        FIRST,
        "refused",
        "it has no such algorithm",
    ),
    Rule("sglang", ("recurrent",), FIRST, "refused", "the form is the embedded engine's own"),
    Rule("embedded", EMBEDDED, FIRST, "works"),
    Rule(
        "embedded",
        ("eagle3", "mlp_speculator", "mtp", "dflash", "dspark"),
        FIRST,
        "refused",
        "of heads it takes EAGLE, Medusa and recurrent ones",
    ),
)
METHODS: dict[ServingEngine, dict[Kind, str]] = {
    "vllm": {
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
    },
    "sglang": {
        "independent": "STANDALONE",
        "eagle": "EAGLE",
        "eagle3": "EAGLE3",
        "mtp": "NEXTN",
        "dflash": "DFLASH",
        "dspark": "DSPARK",
        "ngram": "NGRAM",
    },
    "embedded": {
        "independent": "chain:3",
        "eagle": "chain:3",
        "medusa": "chain:2",
        "recurrent": "chain:3",
        "early_exit": "chain:2",
        "ngram": "ngram:8",
        "suffix": "suffix:8",
    },
}
"""What the kind is called there: vLLM's `method`, SGLang's --speculative-algorithm, a tree to begin with."""

GUESSES: tuple[tuple[str, Kind, Version], ...] = (
    ("eagle-", "eagle", FIRST),
    ("eagle3", "eagle3", (0, 8, 5)),
    ("dflash", "dflash", (0, 20, 0)),
    ("dspark", "dspark", (0, 25, 0)),
)
"""Text in a draft's path, what vLLM takes such a draft for, and since when; the first that fits."""

NAMED_FOR_GOOD: tuple[Kind, ...] = ("eagle", "eagle3", "dflash", "dspark")
"""Methods that vLLM, once they are named, does not change by the path's text, as it does `draft_model`."""
