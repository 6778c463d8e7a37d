"""The settings of a pool of llama.cpp's server, in its own words, and the command line for a build."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from specops.errors import ConfigError
from specops.hints import in_rollout, with_value
from specops.quantities import Count, Share, Tokens
from specops.section import Arguments, Program, Section
from specops.serving.configured_pool import ConfiguredPool, Length, Size, Text, unfit
from specops.serving.llamacpp.builds import WHEEL, Build, table

SpecType = Literal[
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]


def _beside(value: str, info: ValidationInfo) -> str:
    """A file beside the rollout file by its whole path: a relative one would mean another in another working
    directory. Any other text stands as it is: a hub id, or a file that only the server's machine has."""
    folder: Path = (info.context or {}).get("folder", Path())
    path = folder / Path(value).expanduser()
    return str(path.absolute()) if path.is_file() else value


ModelFile = Annotated[str, Field(min_length=1), AfterValidator(_beside)]


class LlamacppSpeculation(Section):
    """llama-server's --spec-* flags."""

    type: SpecType = Field(
        description="Value of --spec-type, always named, since "
        "builds from b9873 on ignore a draft without it."
    )
    model: ModelFile | None = Field(
        default=None,
        description="GGUF file of the draft, or hub id USER/REPO[:QUANT]; default: none, for n-grams.",
    )
    n_max: Length = Field(
        default=5, description="Limit on tokens drafted per step; with n-grams, the length that is copied."
    )
    n_min: Annotated[Tokens, Field(ge=0)] | None = Field(
        default=None,
        description="Length in tokens below which a draft is not used, "
        "with draft-* and ngram-mod; default: the build's.",
    )
    p_min: Annotated[Share, Field(ge=0.0, le=1.0)] | None = Field(
        default=None,
        description="Probability below which drafting ends, 0 to 1, with draft-*; default: the build's.",
    )
    sampling: Literal["greedy", "probabilistic"] | None = Field(
        default=None,
        description="Sampling of draft tokens at temperatures above 0, "
        "with draft-* since b11549; default: the build's.",
    )
    size_n: Length | None = Field(
        default=None, description="Length of the n-gram to look up, in tokens; default: the build's."
    )
    arguments: Arguments = Field(
        default=[], description="Further arguments for speculation, such as -ngld 99."
    )

    @model_validator(mode="after")
    def _a_draft_where_one_is_needed(self) -> LlamacppSpeculation:
        problem = hint = None
        drafts = self.type.startswith("draft-")
        if drafts and self.model is None and self.type != "draft-mtp":
            problem, hint = f"{self.type} has no draft", "add model: its GGUF file"
        elif not drafts and self.model is not None:
            problem, hint = f"{self.type} drafts from the text itself", "remove model"
        elif drafts and self.size_n is not None:
            problem, hint = f"size_n is of n-grams, and the type is {self.type}", "remove size_n"
        elif not drafts and (self.p_min is not None or self.sampling is not None):
            problem, hint = f"p_min and sampling are of draft-*, and the type is {self.type}", "remove them"
        if problem:
            raise unfit(problem, hint)
        return self


class LlamacppSettings(ConfiguredPool):
    """The fields of a pool of llama.cpp; LlamacppPool (pool.py) answers with them."""

    TARGET: ClassVar[str] = "model"
    DRAFT: ClassVar[str] = "model"
    METHOD: ClassVar[str] = "type"
    SIDE_BY_SIDE: ClassVar[Mapping[str, Any]] = {"cache_prompt": False}

    engine: Literal["llamacpp"]
    model: ModelFile = Field(description="GGUF file of the target, or hub id USER/REPO[:QUANT].")
    version: str | None = Field(
        default=None,
        pattern=r"^b?\d{3,6}$",
        description="Build of llama.cpp, such as b11549; default: the one that `program` reports.",
    )
    program: Program = Field(
        default="llama-server",
        description="Command that calls llama-server, with any words "
        "before it; xllamacpp: the server in that package.",
    )
    alias: Text | None = Field(
        default=None, description="Name of the model for clients; default: its file name."
    )
    parallel: Size = Field(
        default=4,
        description="Limit on concurrent requests, always set, since builds have different defaults.",
    )
    ctx_size: Length | None = Field(
        default=None,
        description="Limit on tokens of all `parallel` requests together; default: the model's.",
    )
    threads: Size | None = Field(
        default=None, description="Number of CPU threads for a step; default: all cores."
    )
    threads_batch: Size | None = Field(
        default=None, description="Number of CPU threads for prompts; default: as `threads`."
    )
    batch_size: Length | None = Field(
        default=None, description="Limit on prompt tokens in one call; default: the build's."
    )
    ubatch_size: Length | None = Field(
        default=None, description="Limit on tokens of one forward pass; default: the build's."
    )
    gpu_count: Count = Field(
        default=0, ge=0, description="Number of GPUs of a container; a server uses all that it finds."
    )
    n_gpu_layers: Annotated[Count, Field(ge=0)] | Literal["auto", "all"] | None = Field(
        default=None, description="Number of layers on the GPU, auto or all; default: as many as fit."
    )
    flash_attn: Literal["on", "off", "auto"] | None = Field(
        default=None, description="Flash attention: on, off or auto; default: the build's."
    )
    cache_type_k: CacheType | None = Field(
        default=None, description="Number format of the KV cache's keys; default: the build's."
    )
    cache_type_v: CacheType | None = Field(
        default=None, description="Number format of the KV cache's values; default: the build's."
    )
    cache_prompt: bool | None = Field(
        default=None,
        description="Reuse the KV cache of repeated prompts, which makes them faster; default: the build's.",
    )
    speculation: LlamacppSpeculation | None = Field(
        default=None, description="Speculation of the pool; default: none, one token a step."
    )


IN_PROCESS = "specops.serving.llamacpp.wheel"
_NAMED = (
    "alias",
    "ctx_size",
    "threads",
    "threads_batch",
    "batch_size",
    "ubatch_size",
    "n_gpu_layers",
    "flash_attn",
    "cache_type_k",
    "cache_type_v",
)
"""Settings that are the server's own to choose where they are left out."""

K = {
    "ngram-simple": ("--spec-ngram-simple-size-m", "--spec-ngram-size-m"),
    "ngram-map-k": ("--spec-ngram-map-k-size-m", "--spec-ngram-size-m"),
    "ngram-map-k4v": ("--spec-ngram-map-k4v-size-m", "--spec-ngram-size-m"),
    "ngram-mod": ("--spec-ngram-mod-n-max", "--draft-max"),
}
"""The flag that says how many tokens a type drafts: of today, and up to b8929."""
K_OF_DRAFTS = ("--spec-draft-n-max", "--draft-max")
N = {
    "ngram-simple": ("--spec-ngram-simple-size-n", "--spec-ngram-size-n"),
    "ngram-map-k": ("--spec-ngram-map-k-size-n", "--spec-ngram-size-n"),
    "ngram-map-k4v": ("--spec-ngram-map-k4v-size-n", "--spec-ngram-size-n"),
    "ngram-mod": ("--spec-ngram-mod-n-match", "--spec-ngram-size-n"),
}
"""The flag for the length of the n-gram that is looked for."""


def command(pool: LlamacppSettings, *, port: int | str, build: Build, host: str = "127.0.0.1") -> list[str]:
    """The words that serve `pool` with `build`. Raises ConfigError for a setting that the build lacks.

    `--parallel` is always among them, since its default is the build's to choose; and `--metrics`, without
    which the server exposes none.
    """
    words = [*program(pool.program), *_model(pool.model, "--model", "--hf-repo")]
    words += ["--host", host, "--port", str(port), "--metrics", "--parallel", str(pool.parallel)]
    words += pool.flags(_NAMED)
    if pool.cache_prompt is not None:
        words += ["--cache-prompt" if pool.cache_prompt else "--no-cache-prompt"]
    words += pool.arguments
    if pool.speculation is not None:
        words += _speculative(pool.speculation, build)
    return words


def program(called: str) -> list[str]:
    """The words that call the server; the package's server has a module of specops before it."""
    return [sys.executable, "-m", IN_PROCESS] if called == WHEEL else shlex.split(called)


def on_a_hub(model: str) -> bool:
    """Return whether it is a hub id, and no file."""
    return not model.endswith(".gguf") and not model.startswith(("/", ".", "~"))


def _model(model: str, file: str, hub: str) -> list[str]:
    return [hub if on_a_hub(model) else file, model]


def _speculative(speculation: LlamacppSpeculation, build: Build) -> list[str]:
    type_ = speculation.type
    words = _type(type_, build)
    if speculation.model is not None:
        words += _model(speculation.model, "-md", "-hfd")
    n_min = ("--spec-ngram-mod-n-min" if type_ == "ngram-mod" else "--spec-draft-n-min", "--draft-min")
    requested: dict[tuple[str, ...], object] = {n_min: speculation.n_min}
    if type_ != "ngram-cache":
        requested[K.get(type_, K_OF_DRAFTS)] = speculation.n_max
    if type_ in N:
        requested[N[type_]] = speculation.size_n
    requested[("--spec-draft-p-min", "--draft-p-min")] = speculation.p_min
    requested[("--spec-draft-sampling",)] = speculation.sampling
    for flags, value in requested.items():
        if value is not None:
            words += [_supported_flag(flags, build), str(value)]
    return words + speculation.arguments


def _type(type_: str, build: Build) -> list[str]:
    if type_ in build.types:
        return ["--spec-type", type_]
    if type_ == "draft-simple":  # up to b9093 a draft alone was enough, and the type had no name
        return []
    raise ConfigError(
        f"llama.cpp {build} has no --spec-type {type_}: {table().type_history(type_)} have it",
        hint=with_value(type_, sorted(build.types)[0]),
    )


def _supported_flag(flags: tuple[str, ...], build: Build) -> str:
    flag = next((flag for flag in flags if flag in build.flags), None)
    if flag is None:
        history = table().history(flags[0])
        raise ConfigError(
            f"llama.cpp {build} has no {flags[0]}: {history} have it",
            hint=in_rollout("version", "name a build that has it"),
        )
    return flag
