"""llama.cpp's server out of the package xllamacpp, by llama-server's own words.

    python -m specops.serving.llamacpp.wheel --model FILE.gguf --port 8080 …

For machines without a llama-server: the package on PyPI has the same server, built for CPUs. Of the flags it
takes those below; with any other it says so and ends with 2.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any


def _enum(name: str, begin: str) -> Callable[[Any, str], Any]:
    """The member of xllamacpp's enumeration `name` that is called `begin` and the text."""
    return lambda package, text: getattr(getattr(package, name), begin + text.upper().replace("-", "_"))


def _whole(package: Any, text: str) -> int:
    return int(text)


def _share(package: Any, text: str) -> float:
    return float(text)


def _text(package: Any, text: str) -> str:
    return text


def _layers(package: Any, text: str) -> int:
    return {"auto": -1, "all": -2}.get(text) or int(text)


def _types(package: Any, text: str) -> list[Any]:
    member = _enum("common_speculative_type", "COMMON_SPECULATIVE_TYPE_")
    return [member(package, name) for name in text.split(",")]


def _cache(package: Any, text: str) -> Any:
    return getattr(package.ggml_type, f"GGML_TYPE_{text if text.startswith('iq') else text.upper()}")


FLAGS: dict[tuple[str, ...], tuple[str, Callable[[Any, str], Any]]] = {
    ("-m", "--model"): ("model.path", _text),
    ("-a", "--alias"): ("model_alias", lambda package, text: {text}),
    ("--host",): ("hostnames", lambda package, text: [text]),
    ("--port",): ("port", _whole),
    ("-np", "--parallel"): ("n_parallel", _whole),
    ("-c", "--ctx-size"): ("n_ctx", _whole),
    ("-t", "--threads"): ("cpuparams.n_threads", _whole),
    ("-tb", "--threads-batch"): ("cpuparams_batch.n_threads", _whole),
    ("-b", "--batch-size"): ("n_batch", _whole),
    ("-ub", "--ubatch-size"): ("n_ubatch", _whole),
    ("-ngl", "--n-gpu-layers", "--gpu-layers"): ("n_gpu_layers", _layers),
    ("-fa", "--flash-attn"): ("flash_attn_type", _enum("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_")),
    ("-ctk", "--cache-type-k"): ("cache_type_k", _cache),
    ("-ctv", "--cache-type-v"): ("cache_type_v", _cache),
    ("-cram", "--cache-ram"): ("cache_ram_mib", _whole),
    ("-n", "--predict", "--n-predict"): ("n_predict", _whole),
    ("-lv", "--verbosity", "--log-verbosity"): ("verbosity", _whole),
    ("--spec-type",): ("speculative.types", _types),
    ("-md", "--model-draft", "--spec-draft-model"): ("speculative.draft.mparams.path", _text),
    ("--spec-draft-n-max",): ("speculative.draft.n_max", _whole),
    ("--spec-draft-n-min",): ("speculative.draft.n_min", _whole),
    ("--spec-draft-p-min", "--draft-p-min"): ("speculative.draft.p_min", _share),
    ("-td", "--threads-draft", "--spec-draft-threads"): ("speculative.draft.cpuparams.n_threads", _whole),
    ("--spec-ngram-simple-size-n",): ("speculative.ngram_simple.size_n", _whole),
    ("--spec-ngram-simple-size-m",): ("speculative.ngram_simple.size_m", _whole),
    ("--spec-ngram-map-k-size-n",): ("speculative.ngram_map_k.size_n", _whole),
    ("--spec-ngram-map-k-size-m",): ("speculative.ngram_map_k.size_m", _whole),
    ("--spec-ngram-map-k4v-size-n",): ("speculative.ngram_map_k4v.size_n", _whole),
    ("--spec-ngram-map-k4v-size-m",): ("speculative.ngram_map_k4v.size_m", _whole),
    ("--spec-ngram-mod-n-match",): ("speculative.ngram_mod.n_match", _whole),
    ("--spec-ngram-mod-n-min",): ("speculative.ngram_mod.n_min", _whole),
    ("--spec-ngram-mod-n-max",): ("speculative.ngram_mod.n_max", _whole),
}
"""The names of a flag, the setting of CommonParams, and how its value is read."""

SWITCHES = {
    "--metrics": ("endpoint_metrics", True),
    "--slots": ("endpoint_slots", True),
    "--no-slots": ("endpoint_slots", False),
    "--cache-prompt": ("cache_prompt", True),
    "--no-cache-prompt": ("cache_prompt", False),
    "--kv-unified": ("kv_unified", True),
    "--no-kv-unified": ("kv_unified", False),
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="specops.serving.llamacpp.wheel", allow_abbrev=False)
    for names, (setting, _) in FLAGS.items():
        parser.add_argument(*names, dest=setting)
    for name, (setting, value) in SWITCHES.items():
        parser.add_argument(name, dest=setting, action="store_const", const=value)
    options, unsupported = parser.parse_known_args(words)
    if unsupported:
        print(
            f"error: xllamacpp is not given {unsupported[0]}; llama-server itself takes it", file=sys.stderr
        )
        return 2
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.hostnames, settings.port = ["127.0.0.1"], 8080
    readers = dict(FLAGS.values())
    for setting, value in vars(options).items():
        if value is None:
            continue
        owner, _, name = setting.rpartition(".")
        try:
            converted = readers[setting](xllamacpp, value) if setting in readers else value
            setattr(attrgetter(owner)(settings) if owner else settings, name, converted)
        except (ValueError, AttributeError, TypeError, OverflowError):
            print(f"error: invalid value {value!r} of {setting}", file=sys.stderr)
            return 2
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        server = xllamacpp.Server(settings)
    except RuntimeError as error:
        print(f"error: the server did not start: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"listening on {server.listening_address}", file=sys.stderr, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
