"""TensorRT-LLM: a pool's settings -> the words that start it, and its YAML file, for a release.

Most settings of speculation have no flag. The YAML file that they stand in is written by the command itself,
so that a script, a container and a manifest are one piece: `bash -c` with a here document.
"""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from specops.errors import ConfigError
from specops.serving.trtllm.releases import Release
from specops.serving.trtllm.settings import TrtllmSettings, TrtllmSpeculation

FLAGS = {
    "tensor_parallel_size": "--tp_size",
    "pipeline_parallel_size": "--pp_size",
    "expert_parallel_size": "--ep_size",
    "max_batch_size": "--max_batch_size",
    "max_num_tokens": "--max_num_tokens",
    "max_seq_len": "--max_seq_len",
    "free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    "reasoning_parser": "--reasoning_parser",
    "tool_parser": "--tool_parser",
}
SWITCHES = ("enable_chunked_prefill", "trust_remote_code")
CONFIG = "--config"
MEASURED = {"return_perf_metrics": True, "enable_iter_perf_stats": True}
"""Without them /prometheus/metrics has neither latencies nor counters of drafts."""
END = "CONFIG"
NAMES = {
    ("Eagle3", False): "Eagle",  # up to 1.2 there is one name for both, and only EAGLE-3 is served
    ("DraftTarget", True): "Draft_Target",
}
"""A decoding type's name, by whether the release has Eagle3."""


def config(pool: TrtllmSettings, release: Release) -> dict[str, Any]:
    """The content of the YAML file. ConfigError for a setting that the release lacks."""
    content: dict[str, Any] = dict(MEASURED) | dict(pool.config)
    if pool.speculation is not None:
        content["speculative_config"] = speculative(pool.speculation, release)
    return content


def speculative(speculation: TrtllmSpeculation, release: Release) -> dict[str, Any]:
    of_today = "Eagle3" in release.types
    type_ = NAMES.get((speculation.decoding_type, of_today), speculation.decoding_type)
    if type_ not in release.types:
        raise ConfigError(
            f"TensorRT-LLM {release} has no decoding_type {type_}",
            hint=f"it has {', '.join(sorted(release.types))}",
        )
    given = speculation.model_dump(exclude_none=True, exclude={"more", "decoding_type"})
    if type_ == "AUTO":  # it ignores whatever else is given
        given.pop("max_draft_len")
    if type_ == "MTP" and not of_today:
        given["num_nextn_predict_layers"] = given.pop("max_draft_len")
    given |= speculation.more
    unknown = sorted(given.keys() - release.base - release.types[type_])
    if unknown:
        raise ConfigError(
            f"TensorRT-LLM {release} has no {', '.join(unknown)} in speculative_config of type {type_}",
            hint="leave it out, or name another version",
        )
    return {"decoding_type": type_, **given}


def server(pool: TrtllmSettings, *, port: int | str, host: str, file: str) -> list[str]:
    """The words of trtllm-serve itself."""
    words = [*shlex.split(pool.program), pool.model, "--host", host, "--port", str(port)]
    for name, flag in FLAGS.items():
        if (value := getattr(pool, name)) is not None:
            words += [flag, str(value)]
    words += [f"--{name}" for name in SWITCHES if getattr(pool, name)]
    return [*words, CONFIG, file, *pool.arguments]


def command(pool: TrtllmSettings, *, port: int | str, release: Release, host: str = "127.0.0.1") -> list[str]:
    """The words that write the YAML file and serve `pool` with `release`."""
    file = f"/tmp/trtllm-{port}.yaml"
    text = yaml.safe_dump(config(pool, release), sort_keys=False)
    words = shlex.join(server(pool, port=port, host=host, file=file))
    return ["bash", "-c", f"cat > {file} <<'{END}'\n{text}{END}\nexec {words}"]
