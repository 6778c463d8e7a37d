"""Flags that a version does not have, has only for a while yet, or reads otherwise than they look."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from specops.serving.vllm.arguments import CONFIG, ParsedCommand
from specops.serving.vllm.rules.rule import Found, of_flag
from specops.serving.vllm.versions import LAST_OF_THE_OLD, Release, table


@dataclass(frozen=True)
class RemovedFlag:
    """The fate of a removed flag: a key of the JSON, another flag, or nothing but the reason."""

    why: str = ""
    key: str | None = None
    flag: str | None = None
    """The flag that takes its value."""


_V0 = "V0 engine only; removed in 0.10.0"
GONE = {
    "--speculative-model": RemovedFlag(key="model"),
    "--num-speculative-tokens": RemovedFlag(key="num_speculative_tokens"),
    "--speculative-draft-tensor-parallel-size": RemovedFlag(key="draft_tensor_parallel_size"),
    "--speculative-max-model-len": RemovedFlag(key="max_model_len"),
    "--speculative-model-quantization": RemovedFlag(key="quantization"),
    "--speculative-disable-by-batch-size": RemovedFlag(key="disable_by_batch_size"),
    "--ngram-prompt-lookup-min": RemovedFlag(key="prompt_lookup_min"),
    "--ngram-prompt-lookup-max": RemovedFlag(key="prompt_lookup_max"),
    "--speculative-method": RemovedFlag("no version has it: the method is a key of the JSON", key="method"),
    "--speculative-disable-mqa-scorer": RemovedFlag(_V0),
    "--use-v2-block-manager": RemovedFlag("the only block manager since 0.8.0; the flag did nothing"),
    "--spec-decoding-acceptance-method": RemovedFlag(_V0),
    "--typical-acceptance-sampler-posterior-threshold": RemovedFlag(_V0),
    "--typical-acceptance-sampler-posterior-alpha": RemovedFlag(_V0),
    "--disable-logprobs-during-spec-decoding": RemovedFlag("logprobs come with speculation too"),
    "--disable-frontend-multiprocessing": RemovedFlag(
        "it never had to do with bursts in a stream, which come from several tokens accepted at once"
    ),
    "--num-scheduler-steps": RemovedFlag("V0 engine only (multi-step scheduling)"),
    "--multi-step-stream-outputs": RemovedFlag("V0 engine only (multi-step scheduling)"),
    "--num-lookahead-slots": RemovedFlag("V0 engine only; speculation reserves its slots by itself"),
    "--scheduler-delay-factor": RemovedFlag(_V0),
    "--preemption-mode": RemovedFlag("V0 engine only; preempted requests are computed again"),
    "--swap-space": RemovedFlag("V0 engine only; preempted requests are computed again"),
    "--enable-lora-bias": RemovedFlag("LoRA biases were removed"),
    "--long-lora-scaling-factors": RemovedFlag(_V0),
    "--lora-extra-vocab-size": RemovedFlag("adapters with tokens of their own were removed"),
    "--max-prompt-adapters": RemovedFlag("V0 engine only (prompt adapters)"),
    "--enable-prompt-adapter": RemovedFlag("V0 engine only (prompt adapters)"),
    "--max-prompt-adapter-token": RemovedFlag("V0 engine only (prompt adapters)"),
    "--disable-async-output-proc": RemovedFlag("outputs are processed in a process of their own"),
    "--disable-log-requests": RemovedFlag(
        "requests are no longer logged unless --enable-log-requests says so"
    ),
    "--enable-reasoning": RemovedFlag("--reasoning-parser alone turns it on"),
    "--device": RemovedFlag("the installed build decides on the device"),
    "--worker-use-ray": RemovedFlag("--distributed-executor-backend ray in its place, where Ray is wanted"),
    "--engine-use-ray": RemovedFlag("it was removed in 0.6"),
    "--max-context-len-to-capture": RemovedFlag("CUDA graphs are captured by batch size, not by length"),
    "--max-seq-len-to-capture": RemovedFlag("CUDA graphs are captured by batch size, not by length"),
    "--rope-scaling": RemovedFlag("""--hf-overrides '{"rope_parameters": …}' in its place"""),
    "--rope-theta": RemovedFlag("""--hf-overrides '{"rope_parameters": …}' in its place"""),
    "--guided-decoding-backend": RemovedFlag("""--structured-outputs-config '{"backend": …}' in its place"""),
    "--quantization-param-path": RemovedFlag("scales of an FP8 KV cache are read from the checkpoint"),
    "--calculate-kv-scales": RemovedFlag("scales of an FP8 KV cache are read from the checkpoint"),
    "--disable-mm-preprocessor-cache": RemovedFlag("--mm-processor-cache-gb 0 in its place"),
    "--task": RemovedFlag("--runner and --convert in its place"),
    "--cuda-graph-sizes": RemovedFlag(flag="--cudagraph-capture-sizes"),
    "--override-pooler-config": RemovedFlag(flag="--pooler-config"),
    "--collect-model-forward-time": RemovedFlag("the V0 engine's"),
    "--collect-model-execute-time": RemovedFlag("the V0 engine's"),
}
"""Flags of which more is to say than when they came and went, where the version does not have them."""

NEVER = ("--help", "--version", "-h", "-v")


def unknown(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for flag in dict.fromkeys(option.flag.partition(".")[0] for option in command.options):
        if not _has_flag(flag, release) and flag not in NEVER:
            yield _abbreviated(flag, release) or _gone(flag, release, command)


def switches(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """--enable-chunked-prefill false, of releases up to 0.8.4."""
    for option in command.options:
        flag, value = option.flag, (option.values or ("",))[0].lower()
        if value not in ("true", "false") or release.arity(flag) != "none" or flag not in release.flags:
            continue
        new = flag if value == "true" else f"--no-{flag.removeprefix('--')}"
        why = f"it is a switch, and takes no value: vLLM {release.version} refuses to start"
        yield of_flag("error", flag, why, new, partial(_switched, flag=flag, new=new))


def _switched(command: ParsedCommand, flag: str, new: str) -> ParsedCommand:
    return command.with_option(flag).renamed(flag, new)


def without_value(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """--max-model-len at the end, or before another flag. The JSON of speculation has a rule of its own."""
    for option in command.options:
        checked = option.flag in release.flags and option.flag != CONFIG
        if checked and not option.values and release.arity(option.flag) == "one":
            yield of_flag("error", option.flag, "it takes a value")


def deprecated(command: ParsedCommand, release: Release) -> Iterator[Found]:
    for flag in dict.fromkeys(option.flag for option in command.options):
        if flag in release.deprecated:
            yield of_flag("warning", flag, f"deprecated: vLLM {release.version} prints a warning", None)


def last_release_with(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """0.8.2 has both; what comes next has the JSON alone."""
    old = [flag for flag, gone in GONE.items() if gone.key and command.has(flag) and flag in release.flags]
    if old and release.version == LAST_OF_THE_OLD:
        yield of_flag("warning", old[0], f"0.8.2 is the last version that has it; then {CONFIG} JSON", CONFIG)


def _has_flag(flag: str, release: Release) -> bool:
    if flag in release.flags or flag.startswith("-O"):
        return True
    # argparse gives every switch a --no- form.
    return flag.startswith("--no-") and f"--{flag.removeprefix('--no-')}" in release.flags


def _abbreviated(flag: str, release: Release) -> Found | None:
    """argparse takes what only one flag begins with."""
    meant = [candidate for candidate in release.flags if flag.startswith("--") and candidate.startswith(flag)]
    if len(meant) != 1 or flag in GONE:
        return None
    why = f"short for {meant[0]} in vLLM {release.version}; a version with another such flag refuses it"
    return of_flag("note", flag, why, meant[0], lambda command: command.renamed(flag, meant[0]))


def _gone(flag: str, release: Release, command: ParsedCommand) -> Found:
    history = table().history("flags", flag)
    missing = f"vLLM {release.version} does not have it" + (f" ({history} do)" if history else "")
    gone = GONE.get(flag)
    if gone is None:
        near = difflib.get_close_matches(flag, sorted(release.flags), n=1, cutoff=0.75)
        if history is None:
            missing = f"no version of vLLM from {table().versions[0]} to {table().newest} has it"
        return of_flag("error", flag, missing, near[0] if near else None)
    why = "; ".join(part for part in (missing if history else "", gone.why) if part)
    key, new = gone.key, gone.flag
    if new is not None and new in release.flags:
        return of_flag("error", flag, why, new, lambda g: g.renamed(flag, new))
    if key is None or release.version <= LAST_OF_THE_OLD:
        return of_flag("error", flag, why, "leave it out", lambda g: g.without(flag))
    value = command.value(flag)
    return of_flag("error", flag, why, f"{CONFIG} {key}", (lambda g: g.as_key(flag, key)) if value else None)
