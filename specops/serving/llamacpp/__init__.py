"""llama.cpp's server, b8672 to b11549.

settings.py   the pool's section -> the words of a build; pool.py, its answers and its series
builds.py     which build knows which flag (builds.json, made by tools/llamacpp_table.py), and which one a
              program is
lint.py       what is wrong with a command, why, and what to write instead
wheel.py      the server inside the package xllamacpp, by llama-server's words
"""

from __future__ import annotations

import shlex

from specops.checkpoints.draft_kind import Kind
from specops.errors import ConfigError
from specops.serving.drafts import FIRST, OURS, DraftRule, DraftSupport, ServedPair
from specops.serving.engine import Engine, Survey
from specops.serving.llamacpp.builds import installed, table
from specops.serving.llamacpp.lint import COMMAND_LINE
from specops.serving.llamacpp.pool import SERIES, LlamacppPool, answer_drafts
from specops.serving.llamacpp.settings import K_OF_DRAFTS, K

METHODS: dict[Kind, str] = {
    "independent": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "ngram": "ngram-simple",
}


def served(pair: ServedPair) -> str:
    draft = f" -md {pair.draft}" if pair.draft else ""
    flag, _ = K.get(pair.method, K_OF_DRAFTS)
    return f"llama-server -m {pair.target}{draft} --spec-type {pair.method} {flag} {pair.tokens} --metrics"


DRAFTS = DraftSupport(
    newest=f"b{table().newest}",
    rules=(
        DraftRule(tuple(METHODS), FIRST, "works"),
        DraftRule(
            ("eagle", "medusa", "mlp_speculator", "suffix", "early_exit"),
            FIRST,
            "refused",
            "it has no such type",
        ),
        OURS,
    ),
    methods=METHODS,
    method_key="--spec-type",
    served=served,
    versions="newest",
    spare_tokens=128,
    refuses="serves without speculation",
    same_tokens="llama.cpp compares all tokens from id 5 on; where they differ it serves without speculation",
)


def survey(program: str) -> Survey:
    build = installed(shlex.split(program))
    if build is None:
        return Survey(
            "missing",
            f"'{program}' leads to no llama-server here",
            "pip install xllamacpp  # with program: xllamacpp in ROLLOUT; or install llama.cpp",
        )
    try:
        known = table().build(build)
    except ConfigError as error:
        return Survey(
            "warn", error.message, f"pip install --upgrade xllamacpp  # b{table().builds[0]} or newer"
        )
    newer = build > table().newest
    return Survey(
        "warn" if newer else "ok",
        f"{known}; drafts by {', '.join(sorted(known.types - {'none'}))}",
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
