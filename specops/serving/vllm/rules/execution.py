"""Rules on how a release runs a command: -O and its dotted forms, whose meaning changed from release to
release; the model runner; and settings that do not go with speculation (parallelism, metrics, the
program)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from operator import methodcaller

from specops.serving.argv import is_unknown
from specops.serving.vllm.arguments import CONFIG, SHORTCUTS, ParsedCommand, as_json
from specops.serving.vllm.execution import PIN, REFUSED, execution
from specops.serving.vllm.rules.rule import Found, of_flag, of_key
from specops.serving.vllm.versions import V1_ALONE, Release, Version, table

WITH_LEVELS = Version((0, 12, 0))
"""From then on -O is --optimization-level; before, it was the short form of --compilation-config. 0.12 still
took -O.KEY for the latter and warned (utils/argparse_utils.py)."""

COMPILATION, ATTENTION = "--compilation-config", "--attention-config"
RENAMED = {"level": "mode"}
"""Renamed in 0.11.1; the levels are the modes' numbers."""


WITHOUT_LEVEL = Version((0, 18, 0))
"""The first release whose --compilation-config refuses the key level."""
SAME_TP = Version((0, 15, 0))
"""The first release whose draft_model refuses a tensor parallel size that is not the target's."""
MODULE_IS_GOING = Version((0, 29, 0))
PER_REQUEST = "--per-request-spec-decode-metrics"


def dotted_compilation(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if release.version < WITH_LEVELS:
        return
    why = f"since {WITH_LEVELS} -O is the optimization level, and --compilation-config has the keys"
    for option in command.options:
        if option.flag.startswith("-O."):
            key = option.flag.removeprefix("-O.")
            new = f"{COMPILATION}.{RENAMED.get(key, key)}"
            fix = methodcaller("renamed", option.flag, new)
            if release.version == WITH_LEVELS:
                yield of_flag("warning", option.flag, f"{why}: {WITH_LEVELS} warns", new, fix)
            else:
                refuses = f"{why}: vLLM {release.version} refuses to start"
                yield of_flag("error", option.flag, refuses, new, fix)
        elif option.flag == "-O" and option.values and option.values[0].startswith("{"):
            refuses = f"{why}: vLLM {release.version} refuses to start"
            yield of_flag("error", "-O", refuses, COMPILATION, methodcaller("renamed", "-O", COMPILATION))


def compilation_level(command: ParsedCommand, release: Release) -> Iterator[Found]:
    config = as_json(command.value(COMPILATION) or "")
    if release.version >= WITH_LEVELS and isinstance(config, int) and not isinstance(config, bool):
        why = f"it takes JSON of keys; the levels are modes, and vLLM {release.version} refuses a bare one"
        fix = methodcaller("with_option", COMPILATION, json.dumps({"mode": config}))
        yield of_flag("error", COMPILATION, why, f"{COMPILATION} '{{\"mode\": {config}}}'", fix)
    if release.version >= WITHOUT_LEVEL and isinstance(config, dict) and "level" in config:
        why = f"the key level became mode, and vLLM {release.version} refuses it"
        renamed = {RENAMED.get(key, key): value for key, value in config.items()}
        fix = methodcaller("with_option", COMPILATION, json.dumps(renamed))
        yield of_flag("error", f"{COMPILATION} level", why, "mode", fix)


def attention(command: ParsedCommand, release: Release) -> Iterator[Found]:
    """Keys of --attention-config, whose names changed often; the parser refuses one that it does not know."""
    config = as_json(command.value(ATTENTION) or "")
    stated = list(config) if isinstance(config, dict) else []
    dotted = {
        option.flag: option.flag.partition(".")[2]
        for option in command.options
        if option.flag.startswith((f"{ATTENTION}.", "-ac."))
    }
    named = [*((f"{ATTENTION} {key}", key) for key in stated), *dotted.items()]
    for flag, key in named:
        name = key.partition(".")[0].replace("-", "_")
        if not release.attention or name in release.attention or is_unknown(key):
            continue
        history = table().history("attention", name)
        why = f"--attention-config of vLLM {release.version} does not have it"
        fix = methodcaller("without", flag) if flag in dotted else None
        yield of_flag("error", flag, why + (f" ({history} do)" if history else ""), "leave it out", fix)


def runner(command: ParsedCommand, release: Release) -> Iterator[Found]:
    chosen = execution(command, release).runner
    if chosen.value == REFUSED:
        why = f"{chosen.why}: vLLM {release.version} refuses to start"
        yield of_flag("error", PIN, why, f"leave {PIN} out, or set it to the other", _unpinned)
    elif command.speculates and chosen.value is not None and PIN in release.variables:
        options = tuple(option for option in command.options if option.flag not in (CONFIG, *SHORTCUTS))
        standard = replace(command, options=options, keys=None, opaque=False, unread=None)
        plain = execution(standard, release).runner
        if plain.value is not None and plain.value != chosen.value:
            why = (
                f"it runs on Model Runner {chosen.value} ({chosen.why}), and a pool without speculation on "
                f"{plain.value}: a comparison of the two includes the runner"
            )
            pin = f"{PIN}={int(chosen.value == 'V2')} in the environment of the pool without speculation"
            yield of_flag("note", CONFIG, why, pin)


def asynchronous(command: ParsedCommand, release: Release) -> Iterator[Found]:
    chosen = execution(command, release).asynchronous
    if chosen.value == REFUSED:
        why = f"{chosen.why}: vLLM {release.version} refuses to start"
        yield of_flag(
            "error", "--async-scheduling", why, "leave it out", lambda g: g.without("--async-scheduling")
        )


def _unpinned(command: ParsedCommand) -> ParsedCommand:
    assigned = [word for word in command.program if word.startswith(f"{PIN}=")]
    around = {name: value for name, value in command.around.items() if name != PIN}
    for word in assigned:
        command = command.without_assignment(word)
    return replace(command, around=around)


def pipeline_parallel(command: ParsedCommand, release: Release) -> Iterator[Found]:
    size = command.number("--pipeline-parallel-size", 1)
    if command.speculates and size > 1:
        yield of_flag(
            "error",
            "--pipeline-parallel-size",
            "with speculation it fails at start or later, depending on version and method (vllm#14117, "
            "vllm#49355); vLLM's configuration lets it through",
            f"--tensor-parallel-size {size * command.number('--tensor-parallel-size', 1)}",
        )


def draft_tensor_parallel(command: ParsedCommand, release: Release) -> Iterator[Found]:
    key, keys = "draft_tensor_parallel_size", command.literals
    size, target = keys.get(key), command.number("--tensor-parallel-size", 1)
    if size is None or size == target or is_unknown(command.value("--tensor-parallel-size")):
        return
    if size != 1:
        why = f"it is {size}, and may only be 1 or the target's, {target}: vLLM refuses to start"
        yield of_key("error", key, why, f"leave it out, which means {target}", lambda g: g.without_key(key))
    elif keys.get("method") == "draft_model" and release.version >= SAME_TP:
        why = (
            f"it is 1, and the target's is {target}: from {SAME_TP} on draft_model refuses to start unless "
            "they are the same"
        )
        yield of_key("error", key, why, f"leave it out, which means {target}", lambda g: g.without_key(key))
    elif release.version >= V1_ALONE and keys.get("method") != "mlp_speculator":
        why = f"from {V1_ALONE} on it does nothing: the draft runs as the target does (vllm#31345)"
        yield of_key("warning", key, why, "leave it out", lambda g: g.without_key(key))


def per_request_metrics(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if command.has(PER_REQUEST) and PER_REQUEST in release.flags and not command.speculates:
        yield of_flag(
            "error",
            PER_REQUEST,
            "without speculation there is nothing to report: vLLM refuses to start",
            "leave it out of the standard pool",
            lambda g: g.without(PER_REQUEST),
        )


def module(command: ParsedCommand, release: Release) -> Iterator[Found]:
    if "vllm.entrypoints.openai.api_server" in command.program and release.version >= MODULE_IS_GOING:
        yield of_flag(
            "note",
            "python -m vllm.entrypoints.openai.api_server",
            f"deprecated from {MODULE_IS_GOING} on: it prints a warning",
            "vllm serve MODEL",
        )
    if "serve" in command.program and command.has("--model"):
        yield of_flag("note", "--model", "deprecated: vllm serve prints a warning", "vllm serve MODEL")
