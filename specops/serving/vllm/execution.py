"""Choices that a release of vLLM makes by itself when it runs a command.

The model runner (V1 or V2), whether steps are scheduled ahead (asynchronously), and which CUDA graphs. A
method or a flag may change each of them, so two pools that differ in speculation alone may differ here as
well. What a setting does in which release is in execution.json, read from vLLM's own functions by
tools/vllm_execution.py.

Not said: what the platform changes. Without Triton, as in builds for CPUs, the runner is V1; there are CUDA
graphs on GPUs alone, and an attention backend may have fewer of them than are configured.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.serving.argv import is_unknown
from specops.serving.engine import Condition
from specops.serving.vllm.arguments import ParsedCommand, as_json
from specops.serving.vllm.settings import plain
from specops.serving.vllm.versions import Release, ReleaseSpan, Version, spans_of

PIN = "VLLM_USE_V2_MODEL_RUNNER"
GRAPHS = "cudagraph_mode"
REFUSED = "refused"

FLAGS = {
    "--enable-dbo": "dual_batch_overlap",
    "--enable-elastic-ep": "elastic_expert_parallel",
    "--logits-processors": "logits_processors",
    "--enable-prompt-embeds": "prompt_embeds",
    "--enable-return-routed-experts": "routed_experts",
    "--kv-sharing-fast-prefill": "kv_sharing_fast_prefill",
}
"""Settings of the table, by the flag that makes them."""

SIZES = {
    "--pipeline-parallel-size": "pipeline",
    "--prefill-context-parallel-size": "prefill_context_parallel",
}
"""Sizes that count where they are more than 1."""

KEYS = ("parallel_drafting", "use_heterogeneous_vocab", "disable_padded_drafter_batch")
WORDS = {
    "dual_batch_overlap": "dual batch overlap",
    "elastic_expert_parallel": "elastic expert parallelism",
    "logits_processors": "logits processors",
    "prompt_embeds": "prompt embeddings",
    "routed_experts": "the capture of routed experts",
    "raw_logits": "raw logits as logprobs",
    "kv_sharing_fast_prefill": "fast prefill with shared KV",
    "pipeline": "pipeline parallelism",
    "prefill_context_parallel": "prefill context parallelism",
    "parallel_drafting": "parallel drafting",
    "use_heterogeneous_vocab": "a draft of another vocabulary",
    "disable_padded_drafter_batch": "disable_padded_drafter_batch",
    "schedule": "a schedule by batch size",
    "mixture_of_experts": "a mixture of experts",
    "hybrid": "a hybrid model",
    "quantized": "a quantized model",
}

BEFORE = Version((0, 11, 1))
"""The first release of the table. Before it there is one runner, and speculation refuses async scheduling."""


@dataclass(frozen=True)
class EngineChoice:
    """One choice of vLLM. None: it depends on the model, of which nothing is known. `why` is empty where it
    is the usual."""

    value: str | None
    why: str = ""


@dataclass(frozen=True)
class Execution:
    runner: EngineChoice
    """V1, V2, or refused."""

    asynchronous: EngineChoice
    """on, off, or refused."""

    graphs: EngineChoice
    """As configured: FULL_AND_PIECEWISE, PIECEWISE, NONE, …"""


@dataclass(frozen=True)
class ModelFacts:
    """The facts of the target's config.json on which a choice may depend."""

    architectures: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    """Features of the model: of mixture_of_experts, hybrid, quantized."""


def model_in(folder: str) -> ModelFacts | None:
    """Return the model's facts; None where there is no config.json, as for an id on the hub."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    experts = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    layers = text.get("layer_types") or text.get("layers_block_type") or ()
    features = {
        "mixture_of_experts": any(text.get(key) for key in experts),
        "hybrid": any(kind in str(layer) for layer in layers for kind in ("linear", "mamba", "recurrent")),
        "quantized": bool(config.get("quantization_config")),
    }
    named = tuple(str(name) for name in config.get("architectures") or ())
    return ModelFacts(named, frozenset(name for name, true in features.items() if true))


def execution(command: ParsedCommand, release: Release, model: ModelFacts | None = None) -> Execution:
    """Return what the release chooses for a command. `model`: the target, where it is known."""
    if release.version < BEFORE:
        return _before(command)
    settings = _Settings(command, release, model)
    runner = settings.runner()
    return Execution(runner, settings.asynchronous(runner), settings.graphs(runner))


def conditions(command: ParsedCommand, release: Release, model: ModelFacts | None = None) -> list[Condition]:
    """Return what the release chooses, as conditions that should be equal in both pools of a rollout."""
    choices = execution(command, release, model)
    runner, scheduling, graphs = choices.runner.value, choices.asynchronous.value, choices.graphs.value
    switch = "--async-scheduling" if scheduling == "on" else "--no-async-scheduling"
    return [
        Condition(
            "model runner", runner, choices.runner.why, f'environment: {{{PIN}: "{int(runner == "V2")}"}}'
        ),
        Condition("async scheduling", scheduling, choices.asynchronous.why, f"arguments: [{switch}]"),
        Condition(
            "CUDA graphs",
            graphs,
            choices.graphs.why,
            f'arguments: ["--compilation-config.{GRAPHS}", "{graphs}"]',
        ),
    ]


class _Settings:
    def __init__(self, command: ParsedCommand, release: Release, model: ModelFacts | None) -> None:
        self.command, self.release, self.model = command, release, model
        method = command.literals.get("method")
        self.method = plain(method) if isinstance(method, str) else None
        self.unnamed = command.speculates and method is None
        self.features = set(_features(command)) | (model.features if model else set())

    def has(self, fact: str) -> str | None:
        """The setting of which `fact` holds in this release, in words; None: none."""
        spans_by_name = _table().get(fact, {})
        version = self.release.version
        names = [self.method, *self.features, *(f"{self.method}+{name}" for name in sorted(self.features))]
        for name in filter(None, names):
            if any(span.first <= version <= span.last for span in spans_by_name.get(name, ())):
                method, _, feature = name.partition("+")
                feature = feature or method
                return WORDS.get(feature, f"method {feature}")
        return None

    def is_usual(self, fact: str, name: str) -> bool:
        spans = _table().get(fact, {}).get(name, ())
        return any(span.first <= self.release.version <= span.last for span in spans)

    def runner(self) -> EngineChoice:
        if self.unnamed:
            return EngineChoice(None, "the method is not named")
        chosen = self._chosen_runner()
        refused = self.has(f"{chosen.value} refuses") if chosen.value else None
        if refused is None:
            return chosen
        because = f"{chosen.why}; " if chosen.why else ""
        return EngineChoice(REFUSED, f"{because}{chosen.value} does not have {refused}")

    def _chosen_runner(self) -> EngineChoice:
        pinned = self.command.environment.get(PIN, "") if PIN in self.release.variables else ""
        if pinned in ("0", "1"):
            return EngineChoice("V2" if pinned == "1" else "V1", f"{PIN}={pinned}")
        if is_unknown(pinned):
            return EngineChoice(None, f"{PIN} is {pinned}")
        if forced := self.has("V2 always"):
            return EngineChoice("V2", forced)
        return self._usual_runner()

    def _usual_runner(self) -> EngineChoice:
        """Return where neither a variable nor a method decides."""
        everywhere = self.is_usual("V2 by default", "any")
        names = _table()["V2 by default"].keys() - {"any"}
        listed = {name for name in names if self.is_usual("V2 by default", name)}
        if not everywhere and not listed:
            return EngineChoice("V1")
        if lacking := self.has("V2 refuses"):
            return EngineChoice("V1", f"V2 does not have {lacking}")
        depends = any(
            self.is_usual(fact, name)
            for fact in ("V1 if listed", "V1 unless listed")
            for name in ("mixture_of_experts", "hybrid", "quantized")
        )
        if self.model is None and (listed or depends):
            return EngineChoice(None, f"in {self.release.version} it depends on the model's architecture")
        on_list = self.model is not None and bool(listed & set(self.model.architectures))
        retained = self.has("V1 if listed" if on_list else "V1 unless listed")
        if retained is not None:
            return EngineChoice("V1", retained)
        return EngineChoice("V2" if everywhere or on_list else "V1")

    def asynchronous(self, runner: EngineChoice) -> EngineChoice:
        requested = self.command.has("--async-scheduling")
        if self.command.has("--no-async-scheduling"):
            return EngineChoice("off", "--no-async-scheduling")
        if not requested and not self.is_usual("async by default", "any"):
            return EngineChoice("off")
        if runner.value in (None, REFUSED):
            lacks = {self.has("V1 without async"), self.has("V2 without async")}
            if self.unnamed or len(lacks) > 1:
                return EngineChoice(None, "it depends on the model runner")
            lacking = lacks.pop()
        else:
            lacking = self.has(f"{runner.value} without async")
            if not requested and (left := self.has(f"{runner.value} async only where requested")):
                return EngineChoice("off", f"{left} has it only with --async-scheduling")
        if lacking is None:
            return EngineChoice("on", "--async-scheduling" if requested else "")
        other_runner = {"V1": "V2", "V2": "V1"}.get(runner.value or "")
        alone = other_runner is not None and self.has(f"{other_runner} without async") is None
        where = f" on Model Runner {runner.value}" if alone else ""
        return EngineChoice(REFUSED if requested else "off", f"{lacking} is without it{where}")

    def graphs(self, runner: EngineChoice) -> EngineChoice:
        stated = _stated_graphs(self.command)
        if stated is not None:
            return stated
        usual = next(name for name in _table()["default graphs"] if self.is_usual("default graphs", name))
        facts = [
            f"{candidate} with piecewise graphs"
            for candidate in ("V1", "V2")
            if runner.value in (candidate, None)
        ]
        causes = [self.has(fact) for fact in facts]
        if causes and all(causes):
            return EngineChoice("PIECEWISE", f"{causes[0]} on {runner.value or 'either runner'}")
        if any(causes):
            return EngineChoice(None, "it depends on the model runner")
        return EngineChoice(usual)


def _features(command: ParsedCommand) -> list[str]:
    features = [name for flag, name in FLAGS.items() if command.has(flag)]
    features += [name for flag, name in SIZES.items() if command.number(flag, 1) > 1]
    features += [key for key in KEYS if command.literals.get(key)]
    if "num_speculative_tokens_per_batch_size" in command.speculation:
        features.append("schedule")
    if command.value("--logprobs-mode") in ("raw_logits", "processed_logits"):
        features.append("raw_logits")
    return features


def _stated_graphs(command: ParsedCommand) -> EngineChoice | None:
    if command.has("--enforce-eager"):
        return EngineChoice("NONE", "--enforce-eager")
    config = as_json(command.value("--compilation-config") or "")
    named: Any = config.get(GRAPHS) if isinstance(config, dict) else None
    named = command.value(f"--compilation-config.{GRAPHS}") or named
    if named is not None:
        return EngineChoice(None if is_unknown(named) else str(named).upper(), "--compilation-config")
    level = next((o.flag[2:] or (o.values or ("",))[0] for o in command.options if o.flag[:2] == "-O"), None)
    level = command.value("--optimization-level") or level
    by_level = {"0": "NONE", "1": "PIECEWISE"}
    return EngineChoice(by_level[level], f"optimization level {level}") if level in by_level else None


def _before(command: ParsedCommand) -> Execution:
    requested = command.has("--async-scheduling")
    refused = requested and command.speculates
    why = "speculation refuses it before 0.11.1" if refused else "--async-scheduling" if requested else ""
    graphs = _stated_graphs(command) or EngineChoice("PIECEWISE")
    return Execution(
        EngineChoice("V1"), EngineChoice(REFUSED if refused else "on" if requested else "off", why), graphs
    )


@functools.cache
def _table() -> dict[str, dict[str, list[ReleaseSpan]]]:
    raw = json.loads(Path(__file__).with_name("execution.json").read_text(encoding="utf-8"))
    return {
        fact: {name: spans_of(text) for name, text in by_name.items()}
        for fact, by_name in raw.items()
        if isinstance(by_name, dict)
    }
