"""Dynamo's workers: python3 -m dynamo.vllm, dynamo.sglang and dynamo.trtllm start an engine inside Dynamo.

The first two take the engine's flags and some of their own; dynamo.trtllm has flags of its own alone, and a
YAML file with the engine's settings. Read in ai-dynamo/dynamo, components/src/dynamo/{vllm,sglang,trtllm} and
common/configuration/groups, at 1.6.
"""

from __future__ import annotations

from dataclasses import replace

from specops.serving import ENGINES, Command

SWITCHES = (
    "--fpm-trace",
    "--exclude-tools-when-tool-choice-none",
    "--dyn-enable-structural-tag",
    "--is-prefill-worker",
    "--is-decode-worker",
    "--use-vllm-tokenizer",
    "--use-sglang-tokenizer",
    "--route-to-encoder",
    "--multimodal-encode-worker",
    "--multimodal-worker",
    "--multimodal-decode-worker",
    "--multimodal-processor",
    "--enable-multimodal",
    "--frontend-decoding",
    "--embedding-worker",
    "--image-diffusion-worker",
    "--video-generation-worker",
    "--publish-events-and-metrics",
    "--publish-kv-events",
)
"""Flags of the workers that take no value."""

VALUED = (
    "--namespace",
    "--endpoint",
    "--kv-state-endpoint",
    "--discovery-backend",
    "--request-plane",
    "--response-plane",
    "--event-plane",
    "--connector",
    "--custom-jinja-template",
    "--endpoint-types",
    "--dump-config-to",
    "--multimodal-embedding-cache-capacity-gb",
    "--output-modalities",
    "--media-output-fs-url",
    "--media-output-http-url",
    "--health-check-payload",
    "--engine-request-limit",
    "--sleep-mode-level",
    "--mm-prompt-template",
    "--disagg-config",
    "--disagg-config-key",
    "--model-express-url",
    "--stage-configs-path",
)
"""Flags of the workers that take a value; those that begin with --dyn- or --router- mostly do."""

OWN_FLAGS = ("dynamo.trtllm",)
"""Workers that take no flags of the engine."""

SETTINGS = ("--extra-engine-args",)
"""How dynamo.trtllm names the engine's YAML file."""


def unwrapped(command: Command) -> Command:
    """Return the command with the launcher's words apart, and as trtllm-serve has it for TensorRT-LLM."""
    words = list(command.words)
    module = next((word for word in words if word.startswith("dynamo.")), None)
    if module is None:
        return command
    start = words.index(module) + 1
    engine, launcher = list[str](), list[str]()
    index = start
    while index < len(words):
        name = words[index].partition("=")[0].replace("_", "-")
        size = 1 if "=" in words[index] or _is_flag(words, index + 1) or name in SWITCHES else 2
        is_launchers = name in (*SWITCHES, *VALUED) or name.replace("--no-", "--", 1) in SWITCHES
        if is_launchers or name.startswith(("--dyn-", "--router-")):
            launcher += words[index : index + size]
            index += size
        else:
            engine.append(words[index])
            index += 1
    if module in OWN_FLAGS:
        line = ENGINES[command.engine].command_line
        assert line is not None
        serve_words = _by_settings(line.call.programs[0], engine)
        return replace(
            command, words=tuple(serve_words), launcher=(*words[:start], *launcher), flags_file=True
        )
    return replace(command, words=(*words[:start], *engine), launcher=tuple(launcher))


def _is_flag(words: list[str], index: int) -> bool:
    return index >= len(words) or words[index].startswith("--")


def _by_settings(program: tuple[str, ...], words: list[str]) -> list[str]:
    """Return the words of the engine's own server: its model and YAML file, whose defaults others are."""
    stated = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            stated[name] = value if equals else "".join(words[index + 1 : index + 2])
    target = stated.get("--model") or stated.get("--model-path")
    settings = next((stated[name] for name in SETTINGS if stated.get(name)), None)
    return [*program, *([target] if target else []), *(["--config", settings] if settings else [])]
