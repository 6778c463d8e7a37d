"""The prefix cache: what was computed of prompts, for later prompts that begin with the same tokens.

It has copies, so that the rows of a batch stay dense (attention.py). A block is found by a hash of its tokens
and of all before them. A block stays until its place is needed, and the least recently used goes first.

Only tokens that were read as a prompt are stored. An answer's keys and values are computed beside a draft's,
in other operations, and differ in their last bits; the next turn of its conversation reads it. So an answer
does not depend on what is stored.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Sequence as Batch
from dataclasses import dataclass

import torch
from torch import Tensor

from specops.engine.attention import BLOCK, KVCache
from specops.engine.rng import all_finite
from specops.engine.sequence import Sequence


@dataclass(frozen=True)
class DraftCache:
    """The KV cache of a draft that reads the text as the target does."""

    rows: KVCache
    read: list[int]
    """By row: slots that hold committed tokens."""


class _Blocks:
    """Blocks of one kind of data, in numbered places."""

    def __init__(self, shape: tuple[int, ...], places: int, dtype: torch.dtype, device: torch.device) -> None:
        """shape: of one token, behind the layers: (layers, …)."""
        layers, *rest = shape
        self._data = torch.empty(layers, places, BLOCK, *rest, dtype=dtype, device=device)
        self.filled: set[int] = set()

    def fill(self, places: list[int], tokens: Tensor) -> None:
        """Copy the whole blocks of `tokens`, [layers, n, …], to `places`, but for those that are filled."""
        count = tokens.shape[1] // BLOCK
        blocks = tokens[:, : count * BLOCK].reshape(len(tokens), count, BLOCK, *tokens.shape[2:])
        lacking = [i for i, place in enumerate(places[:count]) if place not in self.filled]
        if lacking:
            self._data[:, [places[i] for i in lacking]] = blocks[:, lacking]
            self.filled.update(places[i] for i in lacking)

    def read(self, places: list[int]) -> Tensor:
        """The tokens of `places` up to the first that is not filled, [layers, n, …]."""
        count = next((i for i, place in enumerate(places) if place not in self.filled), len(places))
        return self._data[:, places[:count]].flatten(1, 2)


class PrefixCache:
    """The blocks of prompts, of a target and of the drafts that read with it."""

    def __init__(self, size_mb: int, target: KVCache, drafts: Batch[DraftCache], width: int) -> None:
        """size_mb: memory for all of it, in MB; 0: nothing is stored. width: of the target's features;
        0: they are not stored."""
        kinds = [_of_token(rows) for rows in (target, *(draft.rows for draft in drafts))]
        if width:
            kinds.append(((1, width), target.data.dtype, target.data.device))
        block_bytes = BLOCK * sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype, _ in kinds)
        self.size = size_mb * 10**6 // block_bytes
        """Blocks for which there is room."""
        self._target, self._drafts = target, drafts
        self.features_of = self.size * BLOCK if width else 0
        """Tokens at the beginning of a prompt whose features are stored."""

        self._kinds = [_Blocks(shape, self.size, dtype, device) for shape, dtype, device in kinds]
        self._places: OrderedDict[bytes, int] = OrderedDict()  # by hash, the least recently used first

    def __len__(self) -> int:
        """Tokens that are stored."""
        return len(self._places) * BLOCK

    def restore(self, sequence: Sequence) -> tuple[int, Tensor | None]:
        """Copy the longest stored beginning of a prompt to the sequence's row.

        At least two tokens are left to read, so that a draft head begins where it does without the cache.
        Returns its tokens, and their features, [tokens, width]; (0, None) without any.
        """
        most = (sequence.prompt_length - 2) // BLOCK
        places: list[int] = []
        for digest in self._hashes(sequence, most):
            if digest not in self._places:
                break
            places.append(self._places[digest])
        if not places:
            return 0, None
        self._use(sequence, len(places))
        length, row = len(places) * BLOCK, sequence.row
        target, *rest = (blocks.read(places) for blocks in self._kinds)
        self._target.data[:, row, :length] = target
        for draft, tokens in zip(self._drafts, rest, strict=False):  # features come behind the drafts
            draft.read[row] = tokens.shape[1]
            draft.rows.data[:, row, : tokens.shape[1]] = tokens
        return length, rest[-1][0] if self.features_of else None

    def store(self, sequence: Sequence, features: Tensor | None) -> None:
        """Copy the whole blocks before the last token of a prompt that was read.

        features: [tokens or more, width] of its last chunk, where features are stored.
        """
        count, row = min((sequence.prompt_length - 1) // BLOCK, self.size), sequence.row
        earlier, sequence.features = sequence.features, []
        self._use(sequence, count)  # so that none of its own is dropped for another
        places = [self._place(digest) for digest in self._hashes(sequence, count)]
        if not places:
            return
        self._use(sequence, count)
        reach = len(places) * BLOCK
        tokens = [self._target.data[:, row, :reach]]
        tokens += [_sound(draft.rows.data[:, row, : min(reach, draft.read[row])]) for draft in self._drafts]
        if self.features_of:
            assert features is not None
            tokens.append(torch.cat((*earlier, features))[None, :reach])
        for blocks, source in zip(self._kinds, tokens, strict=True):
            blocks.fill(places, source)

    def _place(self, digest: bytes) -> int:
        """The place of a block, which takes that of the least recently used one if it is new and all are in
        use."""
        if digest not in self._places:
            place = len(self._places)
            if place == self.size:
                _, place = self._places.popitem(last=False)
                for blocks in self._kinds:
                    blocks.filled.discard(place)
            self._places[digest] = place
        return self._places[digest]

    def _use(self, sequence: Sequence, count: int) -> None:
        """Make the first `count` blocks the most recently used: the last of them least, without which the
        others are still of use."""
        for digest in reversed(list(self._hashes(sequence, count))):
            if digest in self._places:
                self._places.move_to_end(digest)

    def _hashes(self, sequence: Sequence, count: int) -> Iterator[bytes]:
        """A hash for each of the first `count` blocks of the prompt."""
        digest = b""
        for start in range(0, count * BLOCK if self.size else 0, BLOCK):
            tokens = array("q", sequence.tokens[start : start + BLOCK])
            digest = hashlib.sha256(digest + tokens.tobytes()).digest()
            yield digest


def _of_token(rows: KVCache) -> tuple[tuple[int, ...], torch.dtype, torch.device]:
    layers, _, _, heads, dim = rows.data.shape
    return (layers, heads, dim), rows.data.dtype, rows.data.device


def _sound(tokens: Tensor) -> Tensor:
    """None of the tokens where a value is not finite: of a draft, not all logits are looked at."""
    return tokens if all_finite(tokens) else tokens[:, :0]
