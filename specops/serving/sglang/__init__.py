"""SGLang, 0.5.1 to 0.5.23.

settings.py   the pool's section -> words; pool.py, its answers and its series
releases.py   which flags and algorithms each release knows (releases.json, made by tools/sglang_table.py)
lint.py       what is wrong with words, and words corrected
drafts.py     what a release does with each kind of draft (heads.json, made by tools/heads_table.py)
"""

from __future__ import annotations

from specops.serving.engine import Engine
from specops.serving.sglang.drafts import DRAFTS
from specops.serving.sglang.lint import COMMAND_LINE
from specops.serving.sglang.pool import ASK_FOR_DRAFTS, SERIES, SglangPool, answer_drafts

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
