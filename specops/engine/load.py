"""From folders on disk to an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from specops.engine.drafters import Drafter, make_drafter
from specops.engine.drafters.auto import Auto
from specops.engine.drafters.grower import Draft
from specops.engine.drafts import grower_of, open_draft
from specops.engine.graphs import CudaCapture, Graphed
from specops.engine.model import FeatureModel, eos_token_ids, load_model
from specops.engine.offload import Offload
from specops.engine.place import PLAIN, Backend, find_backend
from specops.engine.planning.warm_up import warm_up
from specops.engine.ranks import Parallel, Ranks
from specops.engine.step import Engine
from specops.engine.tokenizer import load_tokenizer
from specops.engine.tree import Draw
from specops.engine.verifiers import Verifier, best_verifier, make_verifier
from specops.errors import UsageError
from specops.trees import parse_tree

PREFILL_CHUNK = 256
"""Tokens of prompts that one step reads."""


@dataclass(frozen=True)
class Target:
    """A model, and what its folder says beside the weights: what all engines over it share."""

    model: FeatureModel
    tokenizer: Any
    eos: frozenset[int]

    def length(self, wanted: int | None) -> int:
        """Tokens that a sequence may have, prompt included; None: all that the model has positions for.

        Raises UsageError.
        """
        positions = self.model.shape.max_positions
        length = positions if wanted is None else wanted
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
        make: Callable[..., Engine] = Engine,
    ) -> Engine:
        """verifier: None: the best that is lossless for what `drafter` draws. make: a kind of Engine."""
        engine = make(
            self.model,
            drafter,
            verifier or best_verifier(drafter.draws),
            self.tokenizer,
            self.eos,
            max_batch=max_batch,
            max_length=max_length,
            prefill_chunk=prefill_chunk,
        )
        if isinstance(drafter, Auto):
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
    """From a local folder in transformers' format. threads: of torch; None leaves them as they are.

    Raises ModelError.
    """
    folder = Path(folder)
    if threads is not None:
        torch.set_num_threads(threads)
    model = load_model(
        folder, backend.dtype, device=backend.device, kernel=backend.kernel, offload=offload, ranks=ranks
    )
    if backend.graphs and offload is None and ranks is None:  # else a pass waits for more than its device
        model = Graphed(model, CudaCapture(backend.device))
    return Target(model, load_tokenizer(folder), eos_token_ids(folder))


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

    draft: one for each part of a union that a model grows, or one for all.
    tree: see specops.trees.
    verifier: for sequences at temperature > 0; None: the best that is lossless for the tree.
    max_length: tokens of one sequence, prompt included; default: the target's positions.
    threads: of torch; None leaves them as they are.
    device: cpu, or cuda with or without a number; target and draft model run there.
    dtype: float32, float16 or bfloat16, of both.
    attention: reference (PyTorch's, with a mask) or kernel (Triton's).
    graphs: with the kernel on cuda, run passes of a few tokens as CUDA graphs.
    offload: leave the target's layers on disk or in host memory, and read them for every step.
    parallel: lay the target on several devices of this machine (parallel.py), and draft on all of them.
    ranks: what a process that `parallel` started gives, of which it is one.
    """
    folders = [draft] if isinstance(draft, str | Path) else draft or []
    if parallel is not None:
        from specops.engine.parallel import start

        if offload is not None:
            raise UsageError(
                "a target that lies on several devices cannot be offloaded", hint="choose one of the two"
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
        )
    if max_batch < 1 or prefill_chunk < 1:
        raise UsageError(
            f"max_batch and prefill_chunk must be at least 1, not {max_batch} and {prefill_chunk}"
        )
    spec = parse_tree(tree if speculate else "none")
    chosen = make_verifier(verifier) if verifier is not None else None
    place = device if ranks is None else f"{device}:{ranks.rank}"
    backend = find_backend(place, dtype, attention, graphs=graphs)
    loaded = load_target(target, backend, threads=threads, offload=offload, ranks=ranks)
    length = loaded.length(max_length)
    growers = [load_draft(folder, target, loaded.model) for folder in folders if spec.takes_draft]
    draw = chosen.prefers if chosen is not None else Draw.WITHOUT_REPLACEMENT
    drafter = make_drafter(tree if speculate else "none", draw, growers, max_batch, length)
    make: Callable[..., Engine] = Engine
    if ranks is not None:
        from specops.engine.drafters.data_parallel import DataParallel
        from specops.engine.parallel import ParallelEngine

        drafter, make = DataParallel(drafter, ranks), partial(ParallelEngine, ranks)
    return loaded.engine(
        drafter, chosen, max_batch=max_batch, max_length=length, prefill_chunk=prefill_chunk, make=make
    )


def load_draft(name: str | Path, target: str | Path, model: FeatureModel) -> Draft:
    """What grows trees for `model`, of whichever kind the draft of that name is (drafts.py)."""
    draft = open_draft(name, target, model)
    if isinstance(model, Graphed):
        from specops.engine.generic import GenericModel  # imported with the target, and with it alone

        if isinstance(draft, GenericModel):
            draft = model.beside(draft)
    return grower_of(draft)
