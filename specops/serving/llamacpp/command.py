"""llama.cpp: a pool's settings -> the command line that starts its server in a build."""

from __future__ import annotations

import shlex
import sys

from specops.errors import ConfigError
from specops.serving.llamacpp.builds import WHEEL, Build, table
from specops.serving.llamacpp.settings import LlamacppSettings, LlamacppSpeculation

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
    for name in _NAMED:
        if (value := getattr(pool, name)) is not None:
            words += ["--" + name.replace("_", "-"), str(value)]
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
