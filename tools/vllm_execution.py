"""Writes specops/serving/vllm/execution.json: how a release of vLLM runs a configuration.

    python tools/vllm_execution.py [--sources FOLDER]

Which model runner (V1, V2), whether scheduling is asynchronous, and which CUDA graphs. vLLM decides this in a
few functions of VllmConfig (vllm/config/vllm.py). They are taken out of each release's source and run with a
configuration that has one method and one flag at a time; nothing else of vLLM is run or installed. The table
says what a setting does. tests/unit/vllm_execution_rows.json has every method with every flag, as vLLM's
functions decided: the tests hold the table against it. The same releases give the same files.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import vllm_table
from vllm_table import Sources
from wheels import order, ranges, released, texts

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "specops" / "serving" / "vllm" / "execution.json"
ROWS = ROOT / "tests" / "unit" / "vllm_execution_rows.json"
FIRST = (0, 11, 1)
"""The first release whose configuration decides it in one place (config/vllm.py)."""


DECIDING = ("_is_dflash", "_dflash", "_get_dbo", "_maybe_override_dynamic_sd_cudagraph_mode")
"""How the other functions begin that decide it."""


class Absent:
    """A setting that is not there: false, equal to nothing, and so are all its parts."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **named: Any) -> Absent:
        return self

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return other is None

    def __hash__(self) -> int:
        return 0

    def __gt__(self, other: object) -> bool:
        return False

    def __and__(self, other: object) -> Absent:
        return self


class Part(SimpleNamespace):
    """A section of the configuration with a few settings; the others are absent."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()


FLAGS: dict[str, dict[str, dict[str, Any]]] = {
    # By the name that the table has: settings by the section of the configuration.
    "parallel_drafting": {"speculative": {"parallel_drafting": True}},
    "use_heterogeneous_vocab": {"speculative": {"use_heterogeneous_vocab": True}},
    "disable_padded_drafter_batch": {"speculative": {"disable_padded_drafter_batch": True}},
    "schedule": {"speculative": {"uses_dynamic_speculative_decoding": lambda: True}},
    "pipeline": {"parallel": {"pipeline_parallel_size": 2}},
    "dual_batch_overlap": {"parallel": {"enable_dbo": True, "use_ubatching": True}},
    "prefill_context_parallel": {"parallel": {"prefill_context_parallel_size": 2}},
    "elastic_expert_parallel": {"parallel": {"enable_elastic_ep": True}},
    "logits_processors": {"model": {"logits_processors": ["made.up"]}},
    "prompt_embeds": {"model": {"enable_prompt_embeds": True}},
    "routed_experts": {"model": {"enable_return_routed_experts": True}},
    "raw_logits": {"model": {"logprobs_mode": "raw_logits"}},
    "kv_sharing_fast_prefill": {"cache": {"kv_sharing_fast_prefill": True}},
    "mixture_of_experts": {"model": {"is_moe": True}},
    "hybrid": {"model": {"is_hybrid": True, "has_inner_state": True}},
    "quantized": {"model": {"is_quantized": True}},
}
UNUSUAL = ("mixture_of_experts", "hybrid")
"""What may keep a model from the V2 runner, without keeping the runner from it."""

OF_SPECULATION = tuple(name for name, parts in FLAGS.items() if "speculative" in parts)


@dataclass(frozen=True)
class Decided:
    runner: str
    """V1, V2, or why vLLM does not start."""

    asynchronous: str
    """on, off, or refused."""

    graphs: str


class Rules:
    """The functions of one release."""

    def __init__(self, sources: Sources) -> None:
        module = sources["vllm/config/vllm.py"]
        config = next(n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "VllmConfig")
        self.functions = {n.name: n for n in config.body if isinstance(n, ast.FunctionDef)}
        self.names: dict[str, Any] = {
            "logger": Absent(),
            "HAS_TRITON": True,
            "current_platform": Part(
                is_unspecified=lambda: False, is_rocm=lambda: False, is_cuda=lambda: True
            ),
            "entry_points": lambda **_: [],
            "get_args": tuple,
            "lru_cache": lambda function: function,
            "CompilationMode": Part(STOCK_TORCH_COMPILE="stock", VLLM_COMPILE="vllm"),
            "CUDAGraphMode": _modes(),
            "Executor": Part(get_class=lambda _: Part(supports_async_scheduling=lambda: True)),
        }
        aliases = vllm_table.aliases(sources)
        for name in ("EagleModelTypes", "NgramGPUTypes"):
            if name in aliases:
                self.names[name] = tuple(vllm_table.literals(aliases[name], aliases))
        for node in module.body:
            named = node.name if isinstance(node, ast.FunctionDef) else ""
            if isinstance(node, ast.Assign):
                named = ast.unparse(node.targets[0])
            if "v2_model_runner" in named.lower() or "MRV1" in named:
                self._define(node)
        for name, node in self.functions.items():
            if "_model_runner" in name or name.startswith(DECIDING):
                self._define(ast.FunctionDef(**{**vars(node), "decorator_list": []}))
        self.scheduling = _compiled(_scheduling(self.functions["__post_init__"]))
        self.async_by_default = _default_of(sources, "SchedulerConfig", "async_scheduling")
        self.default_graphs = _default_graphs(module)
        self.default_runner = _default_of_variable(sources)

    @property
    def architectures(self) -> list[str]:
        """Whose models the V2 runner serves by default, where a release lists them."""
        return sorted(self.names.get("DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES", ()))

    def decide(
        self,
        method: str | None,
        flags: tuple[str, ...] = (),
        pinned: bool | None = None,
        architecture: str = "MadeUpForCausalLM",
        asked: bool | None = None,
    ) -> Decided:
        parts: dict[str, dict[str, Any]] = {
            "model": {"architectures": [architecture], "runner_type": "generate"},
            "speculative": {
                "method": method,
                "draft_model_config": None,
                "draft_lm_head_quantization": None,
            },
            "parallel": {
                "pipeline_parallel_size": 1,
                "prefill_context_parallel_size": 1,
                "distributed_executor_backend": "mp",
            },
            "cache": {"mamba_cache_mode": "none"},
        }
        for flag in flags:
            for section, settings in FLAGS[flag].items():
                parts[section] |= settings
        speculative = None if method is None else Part(**parts["speculative"])
        scheduler = Part(async_scheduling=self.async_by_default if asked is None else asked)
        compilation = Part(cudagraph_mode=self.names["CUDAGraphMode"].FULL_AND_PIECEWISE)
        self.names["envs"] = Part(VLLM_USE_V2_MODEL_RUNNER=self.default_runner if pinned is None else pinned)
        config = Part(
            model_config=Part(**parts["model"]),
            speculative_config=speculative,
            parallel_config=Part(**parts["parallel"]),
            cache_config=Part(**parts["cache"]),
            scheduler_config=scheduler,
            compilation_config=compilation,
            attention_config=Part(hisparse_config=None),
            lora_config=None,
            ec_transfer_config=None,
            reasoning_config=None,
            watermark_config=None,
        )
        for name in self.functions:
            if name in self.names and name != "use_v2_model_runner":
                setattr(config, name, self._method(name, config))
        asynchronous = self._asynchronous(config)
        runner = self._runner(config)
        if "_maybe_override_dynamic_sd_cudagraph_mode" in self.functions:
            self._method("_maybe_override_dynamic_sd_cudagraph_mode", config)()
        mode = compilation.cudagraph_mode.name
        return Decided(runner, asynchronous, self.default_graphs if mode == "FULL_AND_PIECEWISE" else mode)

    def _runner(self, config: Part) -> str:
        v2 = config.use_v2_model_runner
        name = "_validate_v2_model_runner" if v2 else "_validate_v1_model_runner"
        if name in self.functions:
            try:
                self._method(name, config)()
            except ValueError:
                return "refused"
        return "V2" if v2 else "V1"

    def _asynchronous(self, config: Part) -> str:
        """First, as in vLLM: a runner refuses some settings together with it."""
        if "use_v2_model_runner" in self.functions:
            config.use_v2_model_runner = self._method("use_v2_model_runner", config)()
        else:  # before 0.22 the variable alone says it
            config.use_v2_model_runner = bool(self.names["envs"].VLLM_USE_V2_MODEL_RUNNER)
        try:
            exec(self.scheduling, self.names | {"self": config})
        except ValueError:
            return "refused"
        return "on" if config.scheduler_config.async_scheduling else "off"

    def _method(self, name: str, config: Part) -> Any:
        return lambda: self.names[name](config)

    def _define(self, node: ast.stmt) -> None:
        exec(_compiled([node]), self.names)


def _compiled(body: list[ast.stmt]) -> CodeType:
    copies = [ast.parse(ast.unparse(node)).body[0] for node in body]
    kept = [node for node in map(_Cleaned().visit, copies) if node is not None]
    return compile(ast.fix_missing_locations(ast.Module(kept, [])), "vllm", "exec")


class _Cleaned(ast.NodeTransformer):
    """Without imports, whose names are given, and without types of variables."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _modes() -> Any:
    """CUDAGraphMode, as far as these functions ask it."""
    names = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    made = {n: SimpleNamespace(name=n, has_full_cudagraphs=lambda n=n: n.startswith("FULL")) for n in names}
    return SimpleNamespace(**made)


def _scheduling(post_init: ast.FunctionDef) -> list[ast.stmt]:
    """The statement that decides on async scheduling, with what it reads."""
    body = post_init.body
    at = next(
        i
        for i, node in enumerate(body)
        if isinstance(node, ast.If)
        and ast.unparse(node.test) == "self.scheduler_config.async_scheduling"
        and "raise ValueError" in ast.unparse(node)
    )
    first = at
    while any(word in ast.unparse(body[first - 1]) for word in ("executor_", "uses_rocm_deepep", "v1_async")):
        first -= 1
    return body[first : at + 1]


def _default_of(sources: Sources, owner: str, field: str) -> Any:
    for module in sources.values():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and node.name == owner:
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == field:
                        value = line.value
                        if isinstance(value, ast.Call):  # Field(default=…)
                            value = next(k.value for k in value.keywords if k.arg == "default")
                        return ast.literal_eval(value) if value is not None else None
    raise LookupError(f"{owner}.{field}")


def _default_of_variable(sources: Sources) -> bool | None:
    for node in ast.walk(sources["vllm/envs.py"]):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "VLLM_USE_V2_MODEL_RUNNER":
            value = ast.literal_eval(node.value) if node.value is not None else None
            return None if value is None else bool(value)
    return False


def _default_graphs(module: ast.Module) -> str:
    """Of the usual optimization level (2), or before there were levels."""
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPTIMIZATION_LEVEL_02":
            for part in ast.walk(node.value):
                if isinstance(part, ast.Dict):
                    for key, value in zip(part.keys, part.values, strict=True):
                        if isinstance(key, ast.Constant) and key.value == "cudagraph_mode":
                            return ast.unparse(value).rsplit(".", 1)[-1]
    return "FULL_AND_PIECEWISE"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of how vLLM runs a configuration.")
    parser.add_argument("--sources", type=Path, help="keep what is fetched here")
    folder: Path | None = parser.parse_args().sources
    wheels = {v: url for v, url in released("vllm").items() if order(v) >= FIRST}
    versions = sorted(wheels, key=order)
    facts: dict[str, list[int]] = {}
    rows: dict[str, dict[str, list[str]]] = {}
    for number, version in enumerate(versions):
        print(version, flush=True)
        files = texts(wheels[version], vllm_table.READ, folder / version if folder else None)
        sources = {path: ast.parse(text) for path, text in files.items()}
        # What is called deepseek_mtp and the like is mtp by the time that this is decided.
        methods = sorted(name for name in vllm_table.methods(sources) if not name.endswith("_mtp"))
        rules = Rules(sources)
        for fact in facts_of(rules, methods):
            facts.setdefault(fact, []).append(number)
        rows[version] = rows_of(rules, methods)
    table: dict[str, object] = {
        "about": "Made by tools/vllm_execution.py from vLLM's own functions. A range is FIRST-LAST.",
        "versions": versions,
    }
    for name in sorted(facts):
        kind, _, what = name.partition(": ")
        kinds = table.setdefault(kind, {})
        assert isinstance(kinds, dict)
        kinds[what] = ranges(facts[name], versions)
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    ROWS.write_text(json.dumps(_shared(rows), indent=1) + "\n", encoding="utf-8")


def facts_of(rules: Rules, methods: list[str]) -> set[str]:
    """What each setting does. A flag that does it with every method stands alone; else with each method."""
    found = {f"default graphs: {rules.default_graphs}"}
    if rules.decide(None).asynchronous == "on":
        found.add("async by default: any")
    if rules.decide(None).runner == "V2":
        found.add("V2 by default: any")
    for architecture in rules.architectures:
        if rules.decide(None, architecture=architecture).runner == "V2":
            found.add(f"V2 by default: {architecture}")
    alone = {method: set(_effects(rules, method, ())) for method in methods}
    forced = {method for method, effects in alone.items() if "V2 always" in effects}
    for method, effects in alone.items():
        found |= {f"{effect}: {method}" for effect in effects}
    for flag in FLAGS:
        with_method = {method: set(_effects(rules, method, (flag,))) for method in methods}
        without = set(_effects(rules, None, (flag,))) if flag not in OF_SPECULATION else None
        for effect in set().union(*with_method.values(), without or ()):
            having = {method for method in methods if effect in with_method[method]}
            if effect in without if without is not None else having >= set(methods) - forced:
                found.add(f"{effect}: {flag}")
            else:
                found |= {f"{effect}: {method}+{flag}" for method in having if effect not in alone[method]}
    return found


def _effects(rules: Rules, method: str | None, flags: tuple[str, ...]) -> Iterator[str]:
    listed = rules.architectures[0] if rules.architectures else "MadeUpForCausalLM"
    unusual = rules.decide(method, (*UNUSUAL, *flags)).runner
    of_v1 = rules.decide(method, flags, pinned=False).runner
    if rules.decide(None, UNUSUAL).runner == "V1" and (
        unusual == "V2" or (unusual == "refused" and of_v1 == "V1")
    ):
        yield "V2 always"
    for runner, pin in (("V1", False), ("V2", True)):
        if rules.decide(method, flags, pin).runner == "refused":
            yield f"{runner} refuses"
        usual = rules.decide(None, pinned=pin).asynchronous
        if rules.decide(method, flags, pin, asked=True).asynchronous == "refused":
            yield f"{runner} without async"
        elif usual == "on" and rules.decide(method, flags, pin).asynchronous == "off":
            yield f"{runner} async only where requested"
        if rules.decide(method, flags, pin).graphs != rules.default_graphs:
            yield f"{runner} with piecewise graphs"
    if rules.decide(method, flags, pinned=True).runner != "refused":
        for effect, named in (("V1 unless listed", "MadeUpForCausalLM"), ("V1 if listed", listed)):
            usual = rules.decide(None, architecture=named).runner
            if usual == "V2" and rules.decide(method, flags, architecture=named).runner == "V1":
                yield effect


def rows_of(rules: Rules, methods: list[str]) -> dict[str, list[str]]:
    """By method, one text a flag: what is decided for a model of no list, then with the runner pinned to V1
    and to V2, then for the first model of the list; each as `_code` has it."""
    listed = rules.architectures[:1]
    found: dict[str, list[str]] = {}
    for method in ("", *methods):
        for flag in ("", *(name for name in FLAGS if method or name not in OF_SPECULATION)):
            flags = (flag,) if flag else ()
            cells = [_code(rules, method or None, flags, pinned=pin) for pin in (None, False, True)]
            cells += [_code(rules, method or None, flags, architecture=one) for one in listed]
            found.setdefault(method, []).append(" ".join([flag or "-", *cells]))
    return found


def _code(rules: Rules, method: str | None, flags: tuple[str, ...], **more: Any) -> str:
    """The runner (1, 2, x: refused); async scheduling as it is by default and where it is asked for (+, -,
    x); the first letter of the graphs (F: full and piecewise, P: piecewise)."""
    letters = {"V1": "1", "V2": "2", "refused": "x", "on": "+", "off": "-"}
    natural, asked = rules.decide(method, flags, **more), rules.decide(method, flags, asked=True, **more)
    parts = [letters[part] for part in (natural.runner, natural.asynchronous, asked.asynchronous)]
    return "".join(parts) + natural.graphs[0]


def _shared(rows: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    """Releases that decide alike are one entry."""
    found: dict[str, Any] = {}
    names: list[str] = []
    for version, decided in rows.items():
        if names and rows[names[-1]] == decided:
            names.append(version)
        else:
            names = [version]
        found = {key: value for key, value in found.items() if key.split(", ")[0] != names[0]}
        found[", ".join(names)] = decided
    return found


if __name__ == "__main__":
    main()
