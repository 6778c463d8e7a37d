"""llama.cpp's server, b8672 to b11549.

settings.py   the pool's section -> the words of a build; pool.py, its answers and its series
builds.py     which build knows which flag (builds.json, made by tools/llamacpp_table.py), and which one a
              program is
lint.py       what is wrong with a command, why, and what to write instead
drafts.py     what a build does with each kind of draft
wheel.py      the server inside the package xllamacpp, by llama-server's words
"""

from __future__ import annotations

import shlex

from specops.errors import ConfigError
from specops.serving.engine import Engine, Survey
from specops.serving.llamacpp.builds import installed, table
from specops.serving.llamacpp.drafts import DRAFTS
from specops.serving.llamacpp.lint import COMMAND_LINE
from specops.serving.llamacpp.pool import SERIES, LlamacppPool, answer_drafts


def survey(program: str) -> Survey:
    build = installed(shlex.split(program))
    if build is None:
        return Survey(
            "missing",
            f"llama-server is not installed here ('{program}')",
            "pip install xllamacpp  # with program: xllamacpp in ROLLOUT; or install llama.cpp",
        )
    try:
        judged = table().build(build)
    except ConfigError as error:
        return Survey(
            "warn", error.message, f"pip install --upgrade xllamacpp  # b{table().builds[0]} or newer"
        )
    newer = build > table().newest
    return Survey(
        "warn" if newer else "ok",
        f"{judged}; drafts by {', '.join(sorted(judged.types - {'none'}))}",
        f"llama-server --version  # specops knows builds up to b{table().newest}, and judges it by that one",
    )


ENGINE = Engine(
    name="llamacpp",
    title="llama.cpp",
    about="specops configures llama-server",
    settings=LlamacppPool,
    namings={"llamacpp": SERIES},
    answer_drafts=answer_drafts,
    owned_by="llamacpp",
    parameters={"repetition_penalty": "repeat_penalty"},
    command_line=COMMAND_LINE,
    speculation_flags=("--spec-", "-md", "--model-draft", "--draft"),
    # b11549 says so in its log and then serves without speculation.
    vocabulary_errors=(r"draft model vocab type must match target model",),
    drafts=DRAFTS,
    k_key="n_max",
    program="llama-server",
    survey=survey,
)
