"""A pool of SGLang, in SGLang's own words, and what it answers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.section import Arguments, Environment, Program, Section
from specops.serving.argv import Finding
from specops.serving.engine import (
    EVERYWHERE,
    Container,
    Grid,
    PairQuestion,
    Pool,
    Rendering,
    Start,
    Variant,
    by_k,
    check_program,
    comparable,
    with_environment,
)
from specops.serving.metrics import Series
from specops.serving.sglang import command
from specops.serving.sglang.metrics import CURRENT

Size = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
IMAGE = "lmsysorg/sglang"


class SglangSpeculation(Section):
    """SGLang's --speculative-* flags. `num_steps` counts alike for every algorithm; SGLang does not:
    NGRAM and DFLASH count the token before the draft too, and DSPARK has a flag of its own."""

    algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK"]
    draft_model_path: str | None = Field(
        default=None,
        min_length=1,
        description="Folder or hub id; NGRAM has none, nor a draft inside the target.",
    )
    num_steps: Size = Field(default=5, description="Tokens drafted ahead: the tree's depth.")
    eagle_topk: Size = Field(default=1, description="Branches of a step; 1 is a chain.")
    num_draft_tokens: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="Nodes of a tree, its root too; left out: those of a chain, num_steps + 1."
    )
    arguments: Arguments = Field(
        default=[], description="Further words, such as --speculative-draft-attention-backend and its value."
    )

    @model_validator(mode="after")
    def _as_sglang_has_it(self) -> SglangSpeculation:
        # Each is an error of SGLang 0.5.23 at start, or a silent change of what was asked for
        # (srt/arg_groups/speculative_hook.py).
        problem = hint = None
        if self.algorithm in ("EAGLE3", "STANDALONE", "DFLASH") and self.draft_model_path is None:
            problem, hint = f"{self.algorithm} needs a draft", "add draft_model_path"
        elif self.algorithm == "NGRAM" and self.draft_model_path is not None:
            problem, hint = "NGRAM drafts from the text itself", "remove draft_model_path"
        elif self.eagle_topk == 1 and self.num_draft_tokens not in (None, self.num_steps + 1):
            problem = (
                f"a chain of {self.num_steps} steps has {self.num_steps + 1} tokens, its root among them"
            )
            hint = "remove num_draft_tokens, or ask for a tree with eagle_topk"
        elif self.eagle_topk > 1 and self.algorithm in ("DFLASH", "DSPARK"):
            problem, hint = f"{self.algorithm} drafts one chain", "remove eagle_topk"
        elif self.eagle_topk > 1 and self.num_draft_tokens is None:
            problem, hint = "the size of the tree is not said", "add num_draft_tokens, such as 8"
        if problem:
            raise PydanticCustomError("speculation", "{message}", {"message": problem, "hint": hint})
        return self


class SglangPool(Pool):
    """Servers of SGLang that specops configures: it renders how to start them, and can start one itself."""

    engine: Literal["sglang"]
    model_path: str = Field(min_length=1, description="Folder or hub id of the target.")
    version: str | None = Field(
        default=None,
        pattern=r"^[0-9]+\.[0-9]+[0-9A-Za-z.]*$",
        description="SGLang's; left out: the newest one known.",
    )
    program: Program = Field(
        default="python -m sglang.launch_server", description="How SGLang is called, with what comes before."
    )
    served_model_name: Text | None = Field(
        default=None, description="What clients call the model; left out: its path."
    )
    revision: Text | None = Field(default=None, description="Branch, tag or commit of a hub id.")
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] | None = None
    quantization: Text | None = Field(default=None, description="Of the target's weights.")
    kv_cache_dtype: Text | None = Field(default=None, description="Such as fp8_e4m3.")
    tp_size: Size | None = Field(default=None, description="GPUs that share each layer.")
    pp_size: Size | None = Field(default=None, description="Groups of GPUs that share the layers.")
    dp_size: Size | None = Field(default=None, description="Copies of the model behind one address.")
    mem_fraction_static: Annotated[float, Field(gt=0.0, lt=1.0)] | None = Field(
        default=None, description="Share of GPU memory for weights and KV cache; left out: SGLang's choice."
    )
    context_length: Size | None = Field(default=None, description="Prompt and output tokens of one sequence.")
    max_running_requests: Size = Field(
        default=48,
        description="Always said: left out, SGLang takes 48 with speculation and far more without it.",
    )
    chunked_prefill_size: Annotated[int, Field(ge=-1)] | None = Field(
        default=None, description="Tokens of a prompt in one forward pass; -1: whole prompts."
    )
    schedule_policy: Text | None = Field(default=None, description="Left out: SGLang's, fcfs.")
    attention_backend: Text | None = None
    disable_radix_cache: bool = Field(
        default=False, description="true: answers do not get faster by being asked again."
    )
    trust_remote_code: bool = Field(default=False, description="Run code that comes with the model.")
    random_seed: Annotated[int, Field(ge=0)] | None = None
    arguments: Arguments = Field(
        default=[], description="Words for the end of the command, for what is not named above."
    )
    environment: Environment = Field(
        default={}, description="Variables of the server; secrets are named under `deploy`."
    )
    speculation: SglangSpeculation | None = Field(default=None, description="Left out: one token a step.")
    start_timeout_s: float = Field(default=600.0, gt=0.0, description="Longest time for it to come up.")

    def start(self, port: int, name: str) -> Start:
        check_program(shlex.split(self.program)[0])
        words = command.command(self, port=port)
        return Start(with_environment(self, words), timeout_s=self.start_timeout_s)

    def rendering(self, port: int | str, name: str) -> Rendering:
        """Judged as the one release whose flags are known."""
        version, known = self.version or command.VERSION, command.VERSION
        words = command.command(self, port=port)
        why = f"the flags are those of SGLang {known}; {version} was not checked"
        return Rendering(
            words,
            version,
            judged=f"SGLang {version}",
            findings=command.lint(words),
            notes=[] if version == known else [Finding(level="warning", flag="version", why=why)],
        )

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        called = self.model_copy(update={"program": "python3 -m sglang.launch_server"})
        words = command.command(called, port=port, host=EVERYWHERE)
        image = f"{IMAGE}:v{version or command.VERSION}"
        return Container(image, words, self.gpus, downloads=True, drains=True)

    @property
    def environment_variables(self) -> Mapping[str, str]:
        return self.environment

    @property
    def models(self) -> Mapping[str, str]:
        draft = self.speculation and self.speculation.draft_model_path
        return {"model_path": self.model_path} | ({"speculation.draft_model_path": draft} if draft else {})

    @property
    def target_folder(self) -> Path:
        return Path(self.model_path)

    @property
    def programs(self) -> Sequence[str]:
        return (self.program,)

    @property
    def gpus(self) -> int:
        return (self.tp_size or 1) * (self.pp_size or 1) * (self.dp_size or 1)

    @property
    def series(self) -> Series:
        return CURRENT

    @property
    def speculates(self) -> bool:
        return self.speculation is not None

    @property
    def comparable(self) -> Mapping[str, Any]:
        return comparable(self)

    @property
    def method(self) -> str | None:
        return self.speculation.algorithm if self.speculation else None

    def variants(self, grid: Grid) -> list[Variant]:
        return by_k(self, grid, partial(_at, self))

    @property
    def pair(self) -> PairQuestion:
        assert self.speculation is not None  # Pools refuses a speculative pool without it
        ngram = self.speculation.algorithm == "NGRAM"
        return PairQuestion(
            target=self.model_path,
            draft="ngram" if ngram else self.speculation.draft_model_path or self.model_path,
            version=self.version,
            tensor_parallel=self.tp_size or 1,
        )


def _at(pool: SglangPool, k: int, draft: str | None) -> SglangPool:
    assert pool.speculation is not None
    update: dict[str, object] = {"num_steps": k}
    update |= {"num_draft_tokens": None} if pool.speculation.eagle_topk == 1 else {}
    update |= {"draft_model_path": draft} if draft else {}
    return pool.model_copy(update={"speculation": pool.speculation.model_copy(update=update)})
