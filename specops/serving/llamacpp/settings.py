"""The settings of a pool of llama.cpp's server, in its own words, and the command line for a build."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from specops.errors import ConfigError
from specops.section import Arguments, Program, Section
from specops.serving.configured_pool import ConfiguredPool, Size, Text, unfit
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
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class LlamacppSpeculation(Section):
    """llama-server's --spec-* flags."""

    type: SpecType = Field(description="Always named: since b9873 a draft without --spec-type is not used.")
    model: ModelFile | None = Field(
        default=None, description="GGUF file of the draft, or hub id USER/REPO[:QUANT]; n-grams have none."
    )
    n_max: Size = Field(
        default=5, description="Tokens drafted ahead at most; of n-grams, the length that is looked up."
    )
    n_min: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Drafts shorter than this are not used; of draft-* and ngram-mod."
    )
    p_min: Share | None = Field(
        default=None, description="Drafting ends at a token less probable than this; of draft-*."
    )
    sampling: Literal["greedy", "probabilistic"] | None = Field(
        default=None, description="How draft-* is drawn at a temperature above 0; since b11549."
    )
    size_n: Size | None = Field(default=None, description="Length of the n-gram that is looked for.")
    arguments: Arguments = Field(default=[], description="Further words, such as -ngld 99.")

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
        description="The build, such as b11549; left out: the one that `program` says it has.",
    )
    program: Program = Field(
        default="llama-server",
        description="How it is called, with what comes before; xllamacpp: the server inside that package.",
    )
    alias: Text | None = Field(default=None, description="What clients call the model; left out: its file.")
    parallel: Size = Field(
        default=4, description="Requests at a time. Always given: left out, the build chooses."
    )
    ctx_size: Size | None = Field(
        default=None,
        description="Tokens of all `parallel` requests together; left out: the model's.",
    )
    threads: Size | None = Field(default=None, description="CPU threads of a step; left out: all cores.")
    threads_batch: Size | None = Field(default=None, description="CPU threads of a prompt.")
    batch_size: Size | None = Field(default=None, description="Tokens of a prompt in one call.")
    ubatch_size: Size | None = Field(default=None, description="Tokens of one forward pass.")
    gpu_count: int = Field(
        default=0, ge=0, description="GPUs that a container gets; a server takes all that it finds."
    )
    n_gpu_layers: Annotated[int, Field(ge=0)] | Literal["auto", "all"] | None = Field(
        default=None, description="Layers on the GPU; left out: what fits."
    )
    flash_attn: Literal["on", "off", "auto"] | None = None
    cache_type_k: CacheType | None = Field(default=None, description="Of the KV cache's keys.")
    cache_type_v: CacheType | None = Field(default=None, description="Of its values.")
    cache_prompt: bool | None = Field(default=None, description="false: repeated prompts are not faster.")
    speculation: LlamacppSpeculation | None = Field(default=None, description="Left out: one token a step.")


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
    """The words that serve `pool` with `build`. ConfigError for a setting that the build lacks.

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
    """Whether it is a hub id, and no file."""
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
            words += [_known(flags, build), str(value)]
    return words + speculation.arguments


def _type(type_: str, build: Build) -> list[str]:
    if type_ in build.types:
        return ["--spec-type", type_]
    if type_ == "draft-simple":  # up to b9093 a draft alone was enough, and the type had no name
        return []
    raise ConfigError(
        f"llama.cpp {build} has no --spec-type {type_}", hint=f"it is there in {table().type_history(type_)}"
    )


def _known(flags: tuple[str, ...], build: Build) -> str:
    found = next((flag for flag in flags if flag in build.flags), None)
    if found is None:
        there = table().history(flags[0])
        raise ConfigError(f"llama.cpp {build} has no {flags[0]}", hint=f"it is there in {there}")
    return found
