"""TensorRT-LLM's trtllm-serve, 1.2.1 to 1.4.0rc1.

settings.py   the pool's section -> words, and the YAML file that they write and name
pool.py       its answers and its series
releases.py   which release knows which flag and key (releases.json), and which one a program is
arguments.py  a command with its YAML file, read; lint.py, what is wrong with both, and both corrected
drafts.py     what a release does with each kind of draft
limits.py     values of speculative_config that it refuses or ignores
"""

from __future__ import annotations

import shlex

from specops.serving.engine import Engine, Survey
from specops.serving.trtllm.drafts import DRAFTS
from specops.serving.trtllm.lint import COMMAND_LINE
from specops.serving.trtllm.pool import SERIES, TrtllmPool
from specops.serving.trtllm.releases import installed, table

_REFUSED = "TensorRT-LLM refuses it where it speculates"


def survey(program: str) -> Survey:
    version = installed(shlex.split(program))
    if version is None:
        return Survey(
            "missing",
            f"trtllm-serve is not installed here ('{program}')",
            f"docker pull nvcr.io/nvidia/tensorrt-llm/release:{table().newest}  # it serves in a container",
        )
    judged = table().release(version).version
    return Survey(
        "ok" if judged == version else "warn",
        f"TensorRT-LLM {version}",
        f"pip install tensorrt-llm=={judged}  # specops judges it as {judged}",
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
