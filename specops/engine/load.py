"""Loading an engine from folders on disk: a backend, a target, a pair, and the engine over them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import thread_time
from typing import Any

import torch

from specops.engine.draft import Drafter
from specops.engine.drafters import make_drafter
from specops.engine.drafters.auto import Auto
from specops.engine.heads import open_draft
from specops.engine.models import eos_token_ids, load_model
from specops.engine.models.graphs import CudaCapture, Graphed
from specops.engine.models.model import FeatureModel, Model
from specops.engine.models.offload import Offload
from specops.engine.parallel.parallel_engine import DataParallel, ParallelEngine, start
from specops.engine.parallel.process_group import Parallel, Ranks
from specops.engine.planner.warm_up import warm_up
from specops.engine.step import Engine
from specops.engine.text import load_tokenizer
from specops.engine.tree import Draw
from specops.engine.verifiers import best_verifier, make_verifier
from specops.engine.verifiers.verifier import Verifier
from specops.errors import EnvironmentFailure, UsageError, install_command
from specops.hints import with_options, with_value
from specops.trees import parse_tree

PREFILL_CHUNK = 256
"""Tokens of prompts that one step reads."""

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ATTENTION = ("reference", "kernel")


@dataclass(frozen=True)
class Backend:
    """The device of an engine, its number format, and its attention."""

    device: torch.device
    dtype: torch.dtype
    kernel: bool
    """Attention by the Triton kernel."""

    graphs: bool = False
    """Passes of a few tokens as CUDA graphs."""


PLAIN = Backend(torch.device("cpu"), torch.float32, kernel=False)
"""The backend that every machine has."""


def find_backend(device: str, dtype: str, attention: str, *, graphs: bool = True) -> Backend:
    """The backend that options describe.

    device: cpu, cuda or cuda:N. dtype: one of DTYPES. attention: one of ATTENTION. graphs: use CUDA graphs
    where they are possible, which is with the kernel on a GPU. Raises UsageError for an unknown value,
    EnvironmentFailure for a device or a package that this machine lacks.
    """
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not (number.isascii() and number.isdigit())):
        raise UsageError(
            f"there is no device {device!r}: expected cpu, cuda or cuda:1", hint=with_value(device, "cpu")
        )
    if dtype not in DTYPES or attention not in ATTENTION:
        raise UsageError(
            f"there is no engine in {dtype} with the attention {attention!r}: expected one of "
            f"{', '.join(DTYPES)}, and one of {', '.join(ATTENTION)}",
            hint=with_value(*((dtype, "float32") if dtype not in DTYPES else (attention, "reference"))),
        )
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise EnvironmentFailure(
            f"could not use {device}: PyTorch sees {torch.cuda.device_count()} CUDA devices; a PyTorch "
            "build with CUDA sees "
            "those of a GPU",
            hint=with_value(device, "cpu"),
        )
    kernel = attention == "kernel"
    if kernel and find_spec("triton") is None:
        raise EnvironmentFailure(
            "could not take the kernel for attention: triton is not installed",
            hint=install_command("kernels"),
        )
    if kernel and kind == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise UsageError(
            "the kernel for attention runs on a GPU, not on a CPU: expected the attention reference",
            hint=with_value(attention, "reference"),
        )
    torch_device = torch.device("cpu") if kind == "cpu" else torch.device("cuda", int(number or 0))
    return Backend(torch_device, DTYPES[dtype], kernel, graphs=graphs and kernel and kind == "cuda")


def compute_with(threads: int) -> None:
    """Set the number of PyTorch's threads on a CPU, in this process."""
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Target:
    """A model with its tokenizer and end tokens, which all engines over it share."""

    model: FeatureModel
    tokenizer: Any
    eos: frozenset[int]
    wrap: Callable[[FeatureModel], Model]
    """Makes a draft model run as this one does: with CUDA graphs if this one has them."""

    waits: bool = False
    """Whether a pass waits for more than the CPU: for a device, or for layers that are read."""

    def length(self, requested: int | None) -> int:
        """Most tokens of a sequence, prompt included; None: as many as the model has positions.

        Raises UsageError if the model has fewer positions than `requested`.
        """
        positions = self.model.shape.max_positions
        length = positions if requested is None else requested
        if not 2 <= length <= positions:
            raise UsageError(f"max_length must be from 2 to the target's {positions} positions, not {length}")
        return length

    def engine(
        self,
        drafter: Drafter,
        verifier: Verifier | None = None,
        *,
        max_batch: int,
        max_length: int,
        prefill_chunk: int = PREFILL_CHUNK,
        prefix_cache_mb: int = 0,
        make: Callable[..., Engine] = Engine,
    ) -> Engine:
        """An engine over this model.

        verifier: None: the best that is lossless for the draws of `drafter`. make: a kind of Engine.
        """
        engine = make(
            self.model,
            drafter,
            verifier or best_verifier(drafter.draws),
            self.tokenizer,
            self.eos,
            max_batch=max_batch,
            max_length=max_length,
            prefill_chunk=prefill_chunk,
            prefix_cache_mb=prefix_cache_mb,
        )
        if isinstance(drafter, Auto):
            if not self.waits:
                # Another process on the core makes a long step look longer more often than a short one.
                engine.clock = thread_time
            warm_up(engine, drafter)
        return engine


def load_target(
    folder: str | Path,
    backend: Backend = PLAIN,
    *,
    threads: int | None = None,
    offload: Offload | None = None,
    ranks: Ranks | None = None,
) -> Target:
    """A target from a local folder in transformers' format.

    threads: of PyTorch; None leaves them as they are. offload: leave the layers on disk or in host memory.
    ranks: hold the part of this process only. Raises ModelError.
    """
    folder = Path(folder)
    if threads is not None:
        torch.set_num_threads(threads)
    model = load_model(
        folder, backend.dtype, device=backend.device, kernel=backend.kernel, offload=offload, ranks=ranks
    )
    wrap: Callable[[FeatureModel], Model] = lambda draft: draft  # noqa: E731
    if backend.graphs and offload is None and ranks is None:  # else a pass waits for more than its device
        wrap = partial(Graphed, capture=CudaCapture(backend.device))
        model = wrap(model)
    waits = backend.device.type != "cpu" or offload is not None
    return Target(model, load_tokenizer(folder), eos_token_ids(folder), wrap, waits)


def load_engine(
    target: str | Path,
    draft: str | Path | Sequence[str | Path] | None = None,
    *,
    tree: str = "chain:3",
    verifier: str | None = None,
    speculate: bool = True,
    max_batch: int = 8,
    max_length: int | None = None,
    prefill_chunk: int = PREFILL_CHUNK,
    prefix_cache_mb: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    attention: str = "reference",
    graphs: bool = True,
    offload: Offload | None = None,
    parallel: Parallel | None = None,
    ranks: Ranks | None = None,
) -> Engine:
    """An engine over a target and, for trees that need one, a draft; local folders in transformers' format.

    draft: a folder or exit:LAYERS; one for each part of a union that a draft grows, or one for all.
    tree: see specops.trees.
    verifier: for sequences at temperature > 0; None: the best that is lossless for the tree.
    max_length: tokens of one sequence, prompt included; None: the target's positions.
    prefill_chunk: prompt tokens that a step reads.
    prefix_cache_mb: memory for the beginnings of prompts, which are not read again, in MB.
    threads: of PyTorch; None leaves them as they are.
    device: cpu, or cuda with or without a number; target and draft model run there.
    dtype: float32, float16 or bfloat16, of both.
    attention: reference (PyTorch's, with a mask) or kernel (Triton's).
    graphs: with the kernel on cuda, run passes of a few tokens as CUDA graphs.
    offload: leave the target's layers on disk or in host memory, and read them for every step.
    parallel: divide the target among several devices of this machine, and draft on all of them.
    ranks: the process group, in a process that `parallel` started.
    Raises UsageError for a wrong option, ModelError for a folder that cannot be used, EnvironmentFailure if
    this machine lacks a device or package, or if a rank does not start.
    """
    folders = [draft] if isinstance(draft, str | Path) else draft or []
    if parallel is not None:
        if offload is not None:
            raise UsageError(
                "a target on several devices cannot be offloaded: expected one of the two",
                hint=with_options({"--offload": None}),
            )
        if prefix_cache_mb:
            raise UsageError(
                "a target on several devices has no prefix cache: expected one of the two",
                hint=with_options({"--prefix-cache-mb": None}),
            )
        return start(
            parallel,
            {
                "target": str(target),
                "draft": [str(folder) for folder in folders],
                "tree": tree,
                "verifier": verifier,
                "speculate": speculate,
                "max_batch": max_batch,
                "max_length": max_length,
                "prefill_chunk": prefill_chunk,
                "threads": threads,
                "device": device,
                "dtype": dtype,
                "attention": attention,
                "graphs": graphs,
            },
            load_engine,
        )
    if max_batch < 1 or prefill_chunk < 1 or prefix_cache_mb < 0:
        raise UsageError(
            "max_batch and prefill_chunk must be at least 1, and prefix_cache_mb 0, not "
            f"{max_batch}, {prefill_chunk} and {prefix_cache_mb}"
        )
    spec = parse_tree(tree if speculate else "none")
    chosen = make_verifier(verifier) if verifier is not None else None
    place = device if ranks is None else f"{device}:{ranks.rank}"
    backend = find_backend(place, dtype, attention, graphs=graphs)
    loaded = load_target(target, backend, threads=threads, offload=offload, ranks=ranks)
    length = loaded.length(max_length)
    drafts = [open_draft(folder, target, loaded.model, loaded.wrap) for folder in folders if spec.takes_draft]
    growers = [draft.grower for draft in drafts]
    draw = chosen.prefers if chosen is not None else Draw.WITHOUT_REPLACEMENT
    drafter = make_drafter(tree if speculate else "none", draw, growers, max_batch, length)
    make: Callable[..., Engine] = Engine
    if ranks is not None:
        drafter, make = DataParallel(drafter, ranks), partial(ParallelEngine, ranks)
    return loaded.engine(
        drafter,
        chosen,
        max_batch=max_batch,
        max_length=length,
        prefill_chunk=prefill_chunk,
        prefix_cache_mb=prefix_cache_mb,
        make=make,
    )


class Pair:
    """A target and a draft, loaded once for several engines that are compared."""

    def __init__(
        self, target: Path, draft: str | Path, *, threads: int | None = None, offload: Offload | None = None
    ) -> None:
        """draft: as for `load_engine`. threads: of PyTorch; None leaves them as they are. offload: where the
        target's layers stay. Raises ModelError, and UsageError for an exit that the target does not have."""
        self._loaded = load_target(target, threads=threads, offload=offload)
        self.folder, self.target, self.tokenizer = target, self._loaded.model, self._loaded.tokenizer
        self.draft = open_draft(draft, target, self.target)
        self.threads = torch.get_num_threads()

    @property
    def positions(self) -> int:
        """Most tokens of a sequence, prompt included."""
        own, limit = self.target.shape.max_positions, self.draft.max_positions
        return own if limit is None else min(own, limit)

    def engine(
        self,
        tree: str,
        max_length: int,
        *,
        draw: Draw = Draw.WITHOUT_REPLACEMENT,
        verifier: Verifier | None = None,
        max_batch: int = 1,
    ) -> Engine:
        """An engine over the two; verifier: None: the best that is lossless for `tree`."""
        drafter = make_drafter(tree, draw, [self.draft.grower], max_batch, max_length)
        return self._loaded.engine(drafter, verifier, max_batch=max_batch, max_length=max_length)
