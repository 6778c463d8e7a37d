"""The embedded engine: `specops serve`, its pool, and what it answers."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops import __version__
from specops.assets import asset
from specops.checkpoints.draft_kind import HEAD_FORMS, WORDS, Kind
from specops.errors import ConfigError, UsageError
from specops.hints import in_rollout, with_value
from specops.quantities import Count, Megabytes, Tokens
from specops.section import Draft, ExistingPath, Section, Tree, Verifier
from specops.serving.acceptance import Drafts, read_speculative_decoding
from specops.serving.drafts import (
    FIRST,
    DraftRule,
    DraftSupport,
    Inheritance,
    PositionRule,
    ServedPair,
)
from specops.serving.engine import (
    EVERYWHERE,
    Container,
    Engine,
    Grid,
    OwnModels,
    PairQuestion,
    Rendering,
    Setting,
    Start,
    Startable,
)
from specops.serving.metrics import Series
from specops.trees import exit_layers, parse_tree

SERIES = Series(
    ttft="vllm:time_to_first_token_seconds",
    tpot="vllm:request_time_per_output_token_seconds",
    e2e="vllm:e2e_request_latency_seconds",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
    generated="vllm:generation_tokens_total",
    finished="vllm:request_success_total",
    preemptions="vllm:num_preemptions_total",
    acceptance=(
        Drafts(
            drafts="vllm:spec_decode_num_drafts_total",
            draft_tokens="vllm:spec_decode_num_draft_tokens_total",
            accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
            per_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
        ),
    ),
    aborted="vllm:request_success_total",
    aborted_reasons="abort|error",
    drafts_come_late=True,
)
"""Those of `specops.serve.metrics`: vLLM's names in 0.33, so that rules and panels for vLLM hold. They stay
when vLLM renames its own."""

ANNOUNCED = r"^serving .* on (http://\S+)"


class Speculation(Section):
    """Draft, tree and verifier of the embedded engine."""

    draft: Draft | None = Field(
        default=None,
        description="Folder of a draft model or head, or exit:LAYERS, the target's first "
        "layers; default: the shipped draft for the shipped target, else none.",
    )
    tree: Tree = Field(
        default="chain:3",
        description="Draft tree: chain:K, adaptive:K, expand:K1,K2,…, dynamic:NODES:DEPTH, shape:PARENTS, "
        "ngram:K, suffix:N; + unites two, / falls back to the second; auto: planned while it serves.",
    )
    verifier: Verifier | None = Field(
        default=None,
        description="Rule that accepts draft tokens; default: the best one that is lossless for the tree.",
    )

    @property
    def folder(self) -> Path | None:
        """Return the folder of the draft; None of one that has none of its own."""
        return None if self.draft is None or exit_layers(str(self.draft)) else self.draft


class EmbeddedPool(Startable):
    """A pool of specops' embedded engine, which specops starts and stops: `specops serve`."""

    engine: Literal["embedded"]
    target: ExistingPath | None = Field(
        default=None, description="Folder of the target model; default: the pair that ships with specops."
    )
    speculation: Speculation | None = Field(
        default=None, description="Draft, tree and verifier; default: none, one token a step."
    )
    max_batch: Count = Field(default=8, ge=1, le=256, description="Limit on sequences decoded at a time.")
    max_length: Tokens | None = Field(
        default=None,
        ge=2,
        description="Limit on prompt and output tokens of one sequence; default: the model's.",
    )
    prefix_cache_mb: Megabytes = Field(
        default=0,
        ge=0,
        description="Memory for beginnings of prompts, which are not read again, in MB; default: none, "
        "since it makes repeated prompts faster.",
    )
    threads: Count | None = Field(
        default=None, ge=1, description="Number of CPU threads; default: PyTorch's choice."
    )
    device: str = Field(
        default="cpu",
        pattern=r"^(cpu|cuda(:[0-9]+)?)$",
        description="Device of target and draft: cpu, cuda or cuda:N.",
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        default="float32", description="Number format of target and draft."
    )
    attention: Literal["reference", "kernel"] = Field(
        default="reference",
        description="Attention: reference, PyTorch's, or kernel, the Triton kernel for GPUs.",
    )
    graphs: bool = Field(
        default=True, description="Run passes of a few tokens as CUDA graphs, with the kernel."
    )

    @model_validator(mode="after")
    def _a_draft_for_the_target(self) -> EmbeddedPool:
        speculation = self.speculation
        if self.target and speculation and not speculation.draft and parse_tree(speculation.tree).needs_draft:
            raise PydanticCustomError(
                "pools",
                "a target of your own has no draft",
                {"advice": "add speculation.draft, or take a tree that needs none, such as ngram:8"},
            )
        return self

    @classmethod
    def sections(
        cls, target: str | None, draft: str | None, method: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        standard = {"target": target} if target else {}
        speculation = ({"draft": draft} if draft else {}) | {"tree": method}
        return standard, standard | {"speculation": speculation}

    def start(self, port: int, name: str) -> Start:
        """Return how the server starts: on a port of the system's choice, which its log announces."""
        words = [sys.executable, "-m", "specops", *arguments(self, name, port=0)]
        return Start(words, announced=ANNOUNCED)

    def rendering(self, port: int | str, name: str) -> Rendering:
        return Rendering(["specops", *arguments(self, name, port=port)])

    def container(self, port: int, name: str, version: str | None, drain_s: int) -> Container:
        words = ["specops", *arguments(self, name, port=port), "--host", EVERYWHERE, "--grace", str(drain_s)]
        return Container(None, words, drains=True)

    @property
    def models(self) -> Mapping[str, str]:
        draft = self.speculation and self.speculation.folder
        named = {"target": self.target, "speculation.draft": draft}
        return {key: str(folder.absolute()) for key, folder in named.items() if folder}

    @property
    def target_folder(self) -> Path:
        return self.target or asset("playbooks", "embedded", "target")

    @property
    def series(self) -> Series:
        return SERIES

    @property
    def speculates(self) -> bool:
        return self.speculation is not None

    @property
    def method(self) -> str | None:
        if self.speculation is None:
            return None
        return "draft_model" if parse_tree(self.speculation.tree).takes_draft else "ngram"

    def variants(self, grid: Grid) -> list[Setting]:
        """Trees that need no draft are tried once, whatever drafts there are."""
        assert self.speculation is not None  # Pools refuses a speculative pool without it
        own = parse_tree(self.speculation.tree).kind
        kind = "ngram" if own == "ngram" else "chain"
        trees = list(dict.fromkeys(grid.trees)) if grid.trees else [f"{kind}:{k}" for k in grid.ks]
        drafts = {name: _folder(grid.folder, draft) for name, draft in (grid.drafts or {}).items()}
        settings = []
        for tree in trees:
            spec = parse_tree(tree)
            for name, draft in drafts.items() if drafts and spec.needs_draft else [(None, None)]:
                update: dict[str, object] = {"tree": tree}
                update |= {"draft": draft} if draft else {}
                # Another kind of tree is drawn in another way, for which the verifier may not be lossless.
                update |= {"verifier": None} if spec.kind != own else {}
                speculation = self.speculation.model_copy(update=update)
                label = f"k={spec.depth}" if grid.trees is None else tree
                pool = self.model_copy(update={"speculation": speculation})
                settings.append(Setting(label, pool, spec.depth, tree, name))
        return settings

    @property
    def pair(self) -> PairQuestion:
        assert self.speculation is not None
        alone = self.target is not None and self.speculation.draft is None
        if alone or not parse_tree(self.speculation.tree).takes_draft:
            draft = "ngram"
        else:
            draft = str(self.speculation.draft or asset("playbooks", "embedded", "draft"))
        return PairQuestion(target=str(self.target_folder), draft=draft)

    @property
    def own(self) -> OwnModels:
        chosen = self.speculation
        shipped = asset("playbooks", "embedded", "draft") if chosen and self.target is None else None
        named = chosen.draft if chosen else None
        model = chosen.folder if chosen is not None and named is not None else shipped
        weights = {"target": self.target_folder}
        if chosen is not None and model is not None and parse_tree(chosen.tree).takes_draft:
            weights["draft"] = model
        return OwnModels(
            target=self.target_folder,
            tree=chosen.tree if chosen else None,
            draft=str(named) if named is not None else None,
            weights=weights,
            draft_model=model,
            verifier=chosen.verifier if chosen else None,
            max_batch=self.max_batch,
            threads=self.threads,
        )


def arguments(pool: EmbeddedPool, model: str, *, port: int | str) -> list[str]:
    """Return what comes behind `specops`."""
    words = ["serve", "--port", str(port), "--served-model-name", model]
    words += ["--max-batch", str(pool.max_batch), "--prefix-cache-mb", str(pool.prefix_cache_mb)]
    if pool.target is not None:
        words += ["--target", str(pool.target)]
    if pool.speculation is None:
        words += ["--no-speculation"]
    else:
        if pool.speculation.draft is not None:
            words += ["--draft", str(pool.speculation.draft)]
        words += ["--tree", pool.speculation.tree]
        if pool.speculation.verifier is not None:
            words += ["--verifier", pool.speculation.verifier]
    if pool.max_length is not None:
        words += ["--max-length", str(pool.max_length)]
    if pool.threads is not None:
        words += ["--threads", str(pool.threads)]
    for name in ("device", "dtype", "attention"):
        if (value := getattr(pool, name)) != EmbeddedPool.model_fields[name].default:
            words += [f"--{name}", value]
    return words if pool.graphs else [*words, "--no-graphs"]


def _folder(folder: Path, draft: str) -> Path:
    if exit_layers(draft) is not None:
        return Path(draft)
    path = folder / Path(draft).expanduser()
    if not path.is_dir():
        raise ConfigError(
            f"invalid sweep.drafts: there is no folder {path}: expected a folder, relative to the rollout "
            "file, or exit:LAYERS",
            hint=in_rollout("drafts", "name a folder"),
        )
    return path.absolute()


_OF_THE_POOL = (
    "target",
    "max_batch",
    "max_length",
    "prefix_cache_mb",
    "threads",
    "device",
    "dtype",
    "attention",
    "graphs",
)
_OF_SPECULATION = ("draft", "verifier")
_WHOLE = ("max_batch", "max_length", "prefix_cache_mb", "threads")


def arm(spec: str) -> EmbeddedPool:
    parts = spec.split(",") if spec else []
    options = {key: value for key, separator, value in (part.partition("=") for part in parts) if separator}
    # An expansion's tree has commas of its own.
    tree = ",".join(part for part in parts if "=" not in part) or Speculation().tree
    _refuse_unknown(options)
    pool = {key: _value(key, options[key]) for key in _OF_THE_POOL if key in options}
    speculation = {key: options[key] for key in _OF_SPECULATION if key in options}
    if tree != "none":
        pool["speculation"] = {"tree": tree} | speculation
    elif speculation:
        raise UsageError(
            f"embedded:none does not speculate, so it takes no {next(iter(speculation))}: "
            "expected a tree in place of none",
            hint=with_value("embedded:none", "embedded:chain:3"),
        )
    return EmbeddedPool.model_validate({"engine": "embedded"} | pool)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    allowed = (*_OF_THE_POOL, *_OF_SPECULATION)
    for key in options:
        if key not in allowed:
            nearest = difflib.get_close_matches(key, allowed, n=1)
            guess = f"did you mean {nearest[0]}? " if nearest else ""
            raise UsageError(
                f"an embedded arm has no setting {key!r}: {guess}known: {', '.join(allowed)}",
                hint="specops ab --help",
            )


def _value(key: str, text: str) -> object:
    if key == "graphs" and text in ("yes", "no"):
        return text == "yes"
    if key not in _WHOLE:
        return text
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{key} is {text!r}, and should be a whole number") from None


def serve(pool: Mapping[str, Any]) -> str:
    speculation = pool.get("speculation") or {}
    options = {
        "target": pool.get("target"),
        **{key: speculation.get(key) for key in ("draft", "tree", "verifier")},
    }
    return " ".join(["specops serve", *(f"--{flag} {value}" for flag, value in options.items() if value)])


def describe_serving(pair: ServedPair) -> str:
    tree = pair.tree or pair.method
    drafted = f" --draft {pair.draft}" if pair.draft and parse_tree(tree).needs_draft else ""
    return f"specops serve --target {pair.target}{drafted} --tree {tree}"


METHODS: dict[Kind, str] = {
    "independent": "chain:3",
    "pard": "chain:3",
    **{kind: form.tree for kind, form in HEAD_FORMS.items()},
    "ngram": "ngram:8",
    "suffix": "suffix:8",
}
"""A tree to begin with."""

DRAFTS = DraftSupport(
    newest=__version__,
    rules=(
        DraftRule(("pard",), FIRST, "works", "it drafts with such a model token by token"),
        DraftRule(tuple(METHODS), FIRST, "works"),
        DraftRule(
            tuple(kind for kind in WORDS if kind not in METHODS and kind != "unknown"),
            FIRST,
            "refused",
            f"its forms of heads are: {', '.join(WORDS[kind] for kind in HEAD_FORMS)}",
        ),
    ),
    methods=METHODS,
    method_key="tree",
    describe_serving=describe_serving,
    versions="own",
    heads_compared=True,
    strict=True,
    positions=(PositionRule(("eagle",), FIRST, "extends", "it computes rotary positions as it goes"),),
    inherits=(Inheritance(tuple(METHODS), "draft", "engine/load.py"),),
    shares_output="always",
    speculators=False,
)

ENGINE = Engine(
    name="embedded",
    title="the embedded engine",
    about="specops serves a model folder",
    settings=EmbeddedPool,
    namings={"embedded": SERIES},
    answer_drafts=read_speculative_decoding,
    owned_by="specops",
    speculation_flags=("--draft", "--tree", "--verifier", "--no-speculation"),
    drafts=DRAFTS,
    k_key="tree",
    serve=serve,
    arm=arm,
    packages=("torch", "transformers"),
)
