"""vLLM, 0.8.0 to 0.33.0.

settings.py   the pool's section -> the words of a version; pool.py, its answers and its series
arguments.py  words -> what they set, and back
versions.py   which release knows which flag and speculative key (versions.json, made by
              tools/vllm_table.py), and which release a program is
execution.py  how a release runs a command: runner, async scheduling, CUDA graphs (execution.json, made by
              tools/vllm_execution.py)
lint.py       what is wrong with a command, why, and what to write instead; rules/, a file a subject
drafts.py     what a release does with each kind of draft (heads.json, made by tools/heads_table.py)
"""

from __future__ import annotations

import shlex

from specops.errors import ConfigError
from specops.serving.acceptance import read_speculative_decoding
from specops.serving.engine import Engine, Survey
from specops.serving.vllm.drafts import DRAFTS
from specops.serving.vllm.lint import COMMAND_LINE
from specops.serving.vllm.pool import NAMINGS, VllmPool
from specops.serving.vllm.versions import Release, installed, table

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
            f"vLLM is not installed here ('{program}')",
            "pip install vllm  # where a GPU is; or name it in ROLLOUT, program: FOLDER/bin/vllm serve",
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
