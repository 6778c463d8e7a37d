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
from specops.serving.vllm.arguments import GivenCommand, as_json
from specops.serving.vllm.settings import plain
from specops.serving.vllm.versions import Release, Span, Version, spans_of

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
class Choice:
    """One choice of vLLM. None: it depends on the model, of which nothing is known. `why` is empty where it
    is the usual."""

    value: str | None
    why: str = ""


@dataclass(frozen=True)
class Execution:
    runner: Choice
    """V1, V2, or refused."""

    asynchronous: Choice
    """on, off, or refused."""

    graphs: Choice
    """As configured: FULL_AND_PIECEWISE, PIECEWISE, NONE, …"""


@dataclass(frozen=True)
class Model:
    """The facts of the target's config.json on which a choice may depend."""

    architectures: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    """Features of the model: of mixture_of_experts, hybrid, quantized."""


def model_in(folder: str) -> Model | None:
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
    found = {
        "mixture_of_experts": any(text.get(key) for key in experts),
        "hybrid": any(kind in str(layer) for layer in layers for kind in ("linear", "mamba", "recurrent")),
        "quantized": bool(config.get("quantization_config")),
    }
    named = tuple(str(name) for name in config.get("architectures") or ())
    return Model(named, frozenset(name for name, true in found.items() if true))


def execution(given: GivenCommand, release: Release, model: Model | None = None) -> Execution:
    """Return what the release chooses for a command. `model`: the target, where it is known."""
    if release.version < BEFORE:
        return _before(given)
    settings = _Settings(given, release, model)
    runner = settings.runner()
    return Execution(runner, settings.asynchronous(runner), settings.graphs(runner))


def conditions(given: GivenCommand, release: Release, model: Model | None = None) -> list[Condition]:
    """Return what the release chooses, as conditions that should be equal in both pools of a rollout."""
    found = execution(given, release, model)
    runner, scheduling, graphs = found.runner.value, found.asynchronous.value, found.graphs.value
    switch = "--async-scheduling" if scheduling == "on" else "--no-async-scheduling"
    return [
        Condition(
            "model runner", runner, found.runner.why, f'environment: {{{PIN}: "{int(runner == "V2")}"}}'
        ),
        Condition("async scheduling", scheduling, found.asynchronous.why, f"arguments: [{switch}]"),
        Condition(
            "CUDA graphs",
            graphs,
            found.graphs.why,
            f'arguments: ["--compilation-config.{GRAPHS}", "{graphs}"]',
        ),
    ]


class _Settings:
    def __init__(self, given: GivenCommand, release: Release, model: Model | None) -> None:
        self.given, self.release, self.model = given, release, model
        method = given.known.get("method")
        self.method = plain(method) if isinstance(method, str) else None
        self.unnamed = given.speculates and method is None
        self.features = set(_features(given)) | (model.features if model else set())

    def has(self, fact: str) -> str | None:
        """The setting of which `fact` holds in this release, in words; None: none."""
        known = _table().get(fact, {})
        version = self.release.version
        names = [self.method, *self.features, *(f"{self.method}+{name}" for name in sorted(self.features))]
        for name in filter(None, names):
            if any(span.first <= version <= span.last for span in known.get(name, ())):
                method, _, feature = name.partition("+")
                feature = feature or method
                return WORDS.get(feature, f"method {feature}")
        return None

    def is_usual(self, fact: str, name: str) -> bool:
        spans = _table().get(fact, {}).get(name, ())
        return any(span.first <= self.release.version <= span.last for span in spans)

    def runner(self) -> Choice:
        if self.unnamed:
            return Choice(None, "the method is not named")
        chosen = self._chosen_runner()
        refused = self.has(f"{chosen.value} refuses") if chosen.value else None
        if refused is None:
            return chosen
        because = f"{chosen.why}; " if chosen.why else ""
        return Choice(REFUSED, f"{because}{chosen.value} does not have {refused}")

    def _chosen_runner(self) -> Choice:
        pinned = self.given.environment.get(PIN, "") if PIN in self.release.variables else ""
        if pinned in ("0", "1"):
            return Choice("V2" if pinned == "1" else "V1", f"{PIN}={pinned}")
        if is_unknown(pinned):
            return Choice(None, f"{PIN} is {pinned}")
        if forced := self.has("V2 always"):
            return Choice("V2", forced)
        return self._usual_runner()

    def _usual_runner(self) -> Choice:
        """Return where neither a variable nor a method decides."""
        everywhere = self.is_usual("V2 by default", "any")
        names = _table()["V2 by default"].keys() - {"any"}
        listed = {name for name in names if self.is_usual("V2 by default", name)}
        if not everywhere and not listed:
            return Choice("V1")
        if lacking := self.has("V2 refuses"):
            return Choice("V1", f"V2 does not have {lacking}")
        depends = any(
            self.is_usual(fact, name)
            for fact in ("V1 if listed", "V1 unless listed")
            for name in ("mixture_of_experts", "hybrid", "quantized")
        )
        if self.model is None and (listed or depends):
            return Choice(None, f"in {self.release.version} it depends on the model's architecture")
        on_list = self.model is not None and bool(listed & set(self.model.architectures))
        retained = self.has("V1 if listed" if on_list else "V1 unless listed")
        if retained is not None:
            return Choice("V1", retained)
        return Choice("V2" if everywhere or on_list else "V1")

    def asynchronous(self, runner: Choice) -> Choice:
        requested = self.given.has("--async-scheduling")
        if self.given.has("--no-async-scheduling"):
            return Choice("off", "--no-async-scheduling")
        if not requested and not self.is_usual("async by default", "any"):
            return Choice("off")
        if runner.value in (None, REFUSED):
            both = {self.has("V1 without async"), self.has("V2 without async")}
            if self.unnamed or len(both) > 1:
                return Choice(None, "it depends on the model runner")
            lacking = both.pop()
        else:
            lacking = self.has(f"{runner.value} without async")
            if not requested and (left := self.has(f"{runner.value} async only where requested")):
                return Choice("off", f"{left} has it only with --async-scheduling")
        if lacking is None:
            return Choice("on", "--async-scheduling" if requested else "")
        other = {"V1": "V2", "V2": "V1"}.get(runner.value or "")
        alone = other is not None and self.has(f"{other} without async") is None
        where = f" on Model Runner {runner.value}" if alone else ""
        return Choice(REFUSED if requested else "off", f"{lacking} is without it{where}")

    def graphs(self, runner: Choice) -> Choice:
        stated = _stated_graphs(self.given)
        if stated is not None:
            return stated
        usual = next(name for name in _table()["default graphs"] if self.is_usual("default graphs", name))
        facts = [f"{one} with piecewise graphs" for one in ("V1", "V2") if runner.value in (one, None)]
        found = [self.has(fact) for fact in facts]
        if found and all(found):
            return Choice("PIECEWISE", f"{found[0]} on {runner.value or 'either runner'}")
        if any(found):
            return Choice(None, "it depends on the model runner")
        return Choice(usual)


def _features(given: GivenCommand) -> list[str]:
    found = [name for flag, name in FLAGS.items() if given.has(flag)]
    found += [name for flag, name in SIZES.items() if given.number(flag, 1) > 1]
    found += [key for key in KEYS if given.known.get(key)]
    if "num_speculative_tokens_per_batch_size" in given.speculation:
        found.append("schedule")
    if given.value("--logprobs-mode") in ("raw_logits", "processed_logits"):
        found.append("raw_logits")
    return found


def _stated_graphs(given: GivenCommand) -> Choice | None:
    if given.has("--enforce-eager"):
        return Choice("NONE", "--enforce-eager")
    config = as_json(given.value("--compilation-config") or "")
    named: Any = config.get(GRAPHS) if isinstance(config, dict) else None
    named = given.value(f"--compilation-config.{GRAPHS}") or named
    if named is not None:
        return Choice(None if is_unknown(named) else str(named).upper(), "--compilation-config")
    level = next((o.flag[2:] or (o.values or ("",))[0] for o in given.options if o.flag[:2] == "-O"), None)
    level = given.value("--optimization-level") or level
    by_level = {"0": "NONE", "1": "PIECEWISE"}
    return Choice(by_level[level], f"optimization level {level}") if level in by_level else None


def _before(given: GivenCommand) -> Execution:
    requested = given.has("--async-scheduling")
    refused = requested and given.speculates
    why = "speculation refuses it before 0.11.1" if refused else "--async-scheduling" if requested else ""
    graphs = _stated_graphs(given) or Choice("PIECEWISE")
    return Execution(Choice("V1"), Choice(REFUSED if refused else "on" if requested else "off", why), graphs)


@functools.cache
def _table() -> dict[str, dict[str, list[Span]]]:
    raw = json.loads(Path(__file__).with_name("execution.json").read_text(encoding="utf-8"))
    return {
        fact: {name: spans_of(text) for name, text in known.items()}
        for fact, known in raw.items()
        if isinstance(known, dict)
    }
