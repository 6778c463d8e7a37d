"""A target and what drafts for it, loaded once for as many engines as are to be set side by side."""

from __future__ import annotations

from pathlib import Path

import torch

from specops.engine.drafters import make_drafter
from specops.engine.drafters.grower import DraftHead
from specops.engine.drafts import grower_of, open_draft
from specops.engine.load import load_target
from specops.engine.offload import Offload
from specops.engine.step import Engine
from specops.engine.tree import Draw
from specops.engine.verifiers import Verifier


class Pair:
    """`draft` is named as for `load_engine`: a model, heads over the target's features, or an exit."""

    def __init__(
        self, target: Path, draft: str | Path, *, threads: int | None = None, offload: Offload | None = None
    ) -> None:
        """threads: of torch; None leaves them as they are. offload: where the target's layers stay.

        Raises ModelError.
        """
        self._loaded = load_target(target, threads=threads, offload=offload)
        self.folder, self.target, self.tokenizer = target, self._loaded.model, self._loaded.tokenizer
        self.draft = open_draft(draft, target, self.target)
        self.grower = grower_of(self.draft)
        self.threads = torch.get_num_threads()

    @property
    def positions(self) -> int:
        """Tokens that a sequence may have, prompt included."""
        own = self.target.shape.max_positions
        its = (
            self.draft.max_positions if isinstance(self.draft, DraftHead) else self.draft.shape.max_positions
        )
        return own if its is None else min(own, its)

    @property
    def reads_features(self) -> bool:
        """Whether the draft has nothing to say before the first step, which gives it a feature to read."""
        return isinstance(self.draft, DraftHead)

    def engine(
        self,
        tree: str,
        max_length: int,
        *,
        draw: Draw = Draw.WITHOUT_REPLACEMENT,
        verifier: Verifier | None = None,
        max_batch: int = 1,
    ) -> Engine:
        """An engine over the two; without `verifier`, the best that is lossless for `tree`."""
        drafter = make_drafter(tree, draw, [self.grower], max_batch, max_length)
        return self._loaded.engine(drafter, verifier, max_batch=max_batch, max_length=max_length)
