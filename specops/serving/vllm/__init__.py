"""vLLM, 0.8.0 to 0.33.0.

settings.py   the pool's section -> the words of a version; pool.py, its answers and its series
arguments.py  words -> what they set, and back
versions.py   which release knows which flag and speculative key (versions.json, made by
              tools/vllm_table.py), and which release a program is
execution.py  how a release runs a command: runner, async scheduling, CUDA graphs (execution.json, made by
              tools/vllm_execution.py)
lint.py       what is wrong with a command, why, and what to write instead; rules/, a file a subject

Here is what vLLM does with each kind of draft, by version; known issues of kinds are rows of `DRAFT_RULES`.
It was read in the released sources, 0.8.0 to 0.33.0 (config/speculative.py and, up to 0.14, the refusals in
engine/arg_utils.py); tried on 0.32.0.
"""

from __future__ import annotations

import json
import shlex

from specops.checkpoints.draft_kind import Kind
from specops.errors import ConfigError
from specops.serving.acceptance import read_speculative_decoding
from specops.serving.drafts import (
    FIRST,
    OURS,
    DraftRule,
    DraftSupport,
    Format,
    KindByName,
    MaskedDrafts,
    OtherVocabulary,
    ServedPair,
)
from specops.serving.engine import Engine, Survey
from specops.serving.vllm.lint import COMMAND_LINE
from specops.serving.vllm.pool import NAMINGS, VllmPool
from specops.serving.vllm.versions import Release, installed, table

DRAFT_RULES = (
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
    OURS,
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
    rules=DRAFT_RULES,
    methods=METHODS,
    method_key="method",
    served=served,
    oldest=(0, 8, 0),
    too_old="0.8 is the oldest one known",
    formats=(
        Format("speculators", (0, 10, 1), "it reads the speculators format since 0.10.1"),
        Format("parallel", (0, 16, 0), "parallel drafting (P-EAGLE) came with 0.16"),
        Format("assistant", (0, 21, 0), "Gemma 4's assistants came with 0.21 (vllm#41745)"),
    ),
    guesses=(
        KindByName("eagle-", "eagle", FIRST),
        KindByName("eagle3", "eagle3", (0, 8, 5)),
        KindByName("dflash", "dflash", (0, 20, 0)),
        KindByName("dspark", "dspark", (0, 25, 0)),
    ),
    named_for_good=("eagle", "eagle3", "dflash", "dspark"),  # it does change `draft_model`
    divides=True,
    masked=MaskedDrafts(
        since=(0, 16, 0),
        why="it was trained to draft all tokens in one pass (PARD): parallel_drafting is true",
        settings={"parallel_drafting": True},
    ),
    other_vocabulary=OtherVocabulary(
        since=(0, 25, 0),
        settings={"use_heterogeneous_vocab": True},
        before="0.25 and later can, with use_heterogeneous_vocab",
        needed="use_heterogeneous_vocab is true; it then drafts greedily",
        way="use_heterogeneous_vocab would draft from the tokens that both have; only a test shows how well",
    ),
)


COMMON_METHODS = ("ngram", "draft_model", "eagle", "eagle3", "mtp", "suffix", "medusa", "dflash")
"""Methods that rollout files mostly name; a release knows more."""
GONE_KEY = "disable_by_batch_size"
"""A key of old guides. vLLM ignored it from 0.10 on, and refuses it since it is gone."""
_REFUSED = "vLLM refuses it where it speculates"


def survey(program: str) -> Survey:
    version = installed(shlex.split(program))
    if version is None:
        return Survey(
            "missing",
            f"'{program}' leads to no vLLM here",
            "pip install vllm  # or name it in ROLLOUT, program: FOLDER/bin/vllm serve",
        )
    try:
        release = table().release(version)
    except ConfigError as error:
        return Survey("warn", error.message, "pip install --upgrade vllm  # 0.8 or newer")
    return Survey(
        "warn" if version > table().newest else "ok",
        "; ".join([str(version), *_speculation(release)]),
        f"pip install vllm=={table().newest}  # the newest that specops knows; newer ones are judged by it",
    )


def _speculation(release: Release) -> list[str]:
    """Return in words what can draft, and the flags of other releases that this one does not have."""
    lines = [f"drafts by {', '.join(method for method in COMMON_METHODS if method in release.methods)}"]
    gone = [flag for flag in ("--speculative-model", "--num-speculative-tokens") if flag not in release.flags]
    if gone and "--speculative-config" in release.flags:
        lines.append(f"--speculative-config in place of {', '.join(gone)}")
    if GONE_KEY not in release.keys:
        lines.append(f"no {GONE_KEY}")
    return lines


ENGINE = Engine(
    name="vllm",
    title="vLLM",
    about="specops configures them",
    settings=VllmPool,
    namings=NAMINGS,
    answer_drafts=read_speculative_decoding,
    owned_by="vllm",
    # From 0.14 on it answers 400 (v1/engine/processor.py, later input_processor.py).
    refused={"min_p": _REFUSED, "logit_bias": _REFUSED},
    command_line=COMMAND_LINE,
    speculation_flags=("--speculative", "--spec-", "-sc"),
    outcomes=(
        "num_gpu_blocks",
        "num_cpu_blocks",
        "kv_cache_size_tokens",
        "kv_cache_max_concurrency",
        "engine",
    ),
    # The playbook's RuntimeError, and the ValueErrors of today.
    vocabulary_errors=(
        r"different vocab sizes",
        r"vocab size \d+ != target model vocab size \d+",
        r"target and draft model should have the same vocabulary size",
    ),
    drafts=DRAFTS,
    k_key="num_speculative_tokens",
    program="vllm serve",
    survey=survey,
)
