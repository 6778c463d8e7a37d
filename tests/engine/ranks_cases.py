"""What two ranks run together in test_parallel.py; as a program, rank 1: ranks_cases.py FOLDER."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import sleep

import torch
import torch.distributed as dist
from test_models import TOKENS, in_parts

from specops.engine.attention import Layout, Span, causal
from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.heads.eagle import EagleGrower, EagleHead
from specops.engine.models import load_model
from specops.engine.models.model import FeatureModel, Model
from specops.engine.parallel.parallel_engine import DataParallel, ParallelEngine
from specops.engine.parallel.process_group import Kind, Parallel, Ranks, meeting
from specops.engine.text import load_tokenizer
from specops.engine.tree import Draw
from specops.engine.verifiers import best_verifier

KINDS: tuple[Kind, ...] = ("tensor", "pipeline")
TREES = {"none": (3, 256), "chain:3": (8, 7), "expand:3,2,1": (1, 256), "dynamic:8:3+ngram:4": (5, 256)}
"""With how many at a time, and the prompts' chunks."""
FAMILIES = ("llama", "llama-biases", "qwen2")
MOMENT = timedelta(seconds=1)


def joined(store: dist.Store, kind: Kind, rank: int, patience: timedelta | None = None) -> Ranks:
    ranks = Ranks(Parallel(kind, 2), rank, store, patience or timedelta(seconds=60))
    ranks.broadcast("hello")
    return ranks


def passes(folder: Path, ranks: Ranks) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Of each family: logits of a text that is read in parts, and features."""
    for family in FAMILIES:
        model = load_model(folder / family / "target", ranks=ranks)
        yield family, in_parts(model, TOKENS, [30, 1, 29]), features(model)


def features(model: FeatureModel) -> torch.Tensor:
    count = len(TOKENS)
    span = Span(0, 0, count, torch.arange(count), causal(count))
    layout = Layout([span], model.shape.cache(1, count), model.shape.tile)
    return model.with_features(torch.tensor(TOKENS), layout, torch.tensor([count - 1]))[1]


def engine(
    folder: Path,
    tree: str,
    model: FeatureModel,
    draft: Model | EagleHead,
    ranks: Ranks,
    max_batch: int,
    prefill_chunk: int,
) -> ParallelEngine:
    grower = partial(EagleGrower, draft) if isinstance(draft, EagleHead) else partial(ModelGrower, draft)
    drafter = make_drafter(tree, Draw.WITHOUT_REPLACEMENT, [grower], max_batch, 160)
    return ParallelEngine(
        ranks,
        model,
        DataParallel(drafter, ranks),
        best_verifier(drafter.draws),
        load_tokenizer(folder / "llama" / "target"),
        frozenset(),
        max_batch=max_batch,
        max_length=160,
        prefill_chunk=prefill_chunk,
    )


def engines(folder: Path, ranks: Ranks) -> Iterator[tuple[str, ParallelEngine]]:
    """In the order in which both ranks build and run them."""
    model = load_model(folder / "llama" / "target", ranks=ranks)
    draft = load_model(folder / "llama" / "draft")
    for tree, (batch, chunk) in TREES.items():
        yield tree, engine(folder, tree, model, draft, ranks, batch, chunk)
    yield "head", engine(folder, "chain:3", model, EagleHead(folder / "head", model), ranks, 3, 256)
    yield "self", engine(folder, "expand:2,1", model, load_model(folder / "llama" / "target"), ranks, 3, 256)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    store = meeting(folder, 2)
    for kind in KINDS:
        ranks = joined(dist.PrefixStore(kind, store), kind, 1)
        for _ in passes(folder, ranks):
            pass
        for _, following in engines(folder, ranks):
            following.follow()
        ranks.leave()
    joined(dist.PrefixStore("hanging", store), "tensor", 1)
    sleep(60)


if __name__ == "__main__":
    main()
