"""TensorRT-LLM's trtllm-serve, 1.2.1 to 1.4.0rc1.

settings.py   the pool's section -> words, and the YAML file that they write and name
pool.py       its answers and its series
releases.py   which release knows which flag and key (releases.json), and which one a program is
arguments.py  a command with its YAML file, read; lint.py, what is wrong with both, and both corrected
limits.py     values of speculative_config that it refuses or ignores
"""

from __future__ import annotations

import shlex

from specops.checkpoints.draft_kind import Kind
from specops.serving.drafts import FIRST, OURS, DraftRule, DraftSupport, MaskedDrafts, ServedPair
from specops.serving.engine import Engine, Survey
from specops.serving.trtllm.lint import COMMAND_LINE
from specops.serving.trtllm.pool import SERIES, TrtllmPool
from specops.serving.trtllm.releases import installed, table

METHODS: dict[Kind, str] = {
    "independent": "DraftTarget",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "dflash": "DFlash",
    "dspark": "DSpark",
    "ngram": "NGram",
    "suffix": "SA",
}

_REFUSED = "TensorRT-LLM refuses it where it speculates"


def served(pair: ServedPair) -> str:
    draft = f", speculative_model: {pair.draft}" if pair.draft else ""
    return f"speculative_config: {{decoding_type: {pair.method}, max_draft_len: {pair.tokens}{draft}}}"


def survey(program: str) -> Survey:
    version = installed(shlex.split(program))
    if version is None:
        return Survey(
            "missing",
            f"'{program}' leads to no trtllm-serve here",
            f"docker pull nvcr.io/nvidia/tensorrt-llm/release:{table().newest}  # it serves in a container",
        )
    judged = table().release(version).version
    return Survey(
        "ok" if judged == version else "warn",
        f"TensorRT-LLM {version}",
        f"pip install tensorrt-llm=={judged}  # specops judges it as {judged}",
    )


DRAFTS = DraftSupport(
    newest=str(table().newest),
    rules=(
        DraftRule(tuple(METHODS), FIRST, "works"),
        DraftRule(("eagle",), FIRST, "refused", "it serves heads of EAGLE-3 only"),
        DraftRule(("medusa", "mlp_speculator", "early_exit"), FIRST, "refused", "it has no such type"),
        OURS,
    ),
    methods=METHODS,
    method_key="decoding_type",
    served=served,
    versions="newest",
    masked=MaskedDrafts(FIRST, "it drafts all tokens in one pass", settings={}, method="PARD"),
    same_tokens="TensorRT-LLM does not compare tokens: of another tokenizer next to no draft is accepted",
)

ENGINE = Engine(
    name="trtllm",
    title="TensorRT-LLM",
    about="specops configures trtllm-serve",
    settings=TrtllmPool,
    namings={"trtllm": SERIES},
    # Since 1.3, in the sampler of one-model speculation. It refuses penalties too, unless the settings have
    # enable_penalty: that depends on the pool, and the canary finds it.
    refused={"min_p": _REFUSED, "logit_bias": _REFUSED},
    command_line=COMMAND_LINE,
    speculation_flags=(),
    drafts=DRAFTS,
    k_key="max_draft_len",
    program="trtllm-serve",
    survey=survey,
)
