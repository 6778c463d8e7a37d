"""A draft head that reads the target's features: EAGLE (arXiv 2401.15077), in its authors' checkpoint form.

One decoder layer without a norm in front. For the token after position i it reads that token's embedding
and the target's feature at i, what the target's output layer reads there, and gives a guess at the feature
at i + 1, from which the target's own output layer predicts. Fed its own guesses, it drafts deeper.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from collections.abc import Sequence as Batch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specops.checkpoints.draft_kind import FUSE
from specops.engine.attention import SHORT, KVCache, Layout, Mask, Span, attend_rotated, causal
from specops.engine.cpu import ops
from specops.engine.cpu.ops import EagleInput, EaglePasses, Quantised
from specops.engine.draft import CachedGrower, Draft, Level, joined, read_weights
from specops.engine.models import first_reason
from specops.engine.models.linear import Linear, TokenTable
from specops.engine.models.llama import (
    Norm,
    Weights,
    checked_config,
    explicit_config,
    head_dim,
    layer_shapes,
    queries_keys_values,
    rotation,
    rotations,
)
from specops.engine.models.model import FeatureModel, Shape
from specops.engine.rng import Dice
from specops.engine.sequence import Sequence
from specops.errors import ModelError
from specops.hints import listing

FUSE_BIAS = "fc.bias"
"""[hidden], which some of the authors' heads have."""


class EagleHead(Draft):
    reads_features = True

    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError where the folder is damaged or the head is another target's."""
        weights = read_weights(folder, "a draft head")
        try:
            config = _config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
            if config.hidden_act != "silu":
                raise ValueError(f"its activation is {config.hidden_act}, not silu")
            layer = _layer(Weights(weights).below("layers.0."), layer_shapes(config))
            fuse, embedding = weights[FUSE], weights["embed_tokens.weight"]
            width = config.hidden_size
            if fuse.shape != (width, 2 * width) or embedding.shape != (len(embedding), width):
                shapes = f"{tuple(fuse.shape)} and {tuple(embedding.shape)}"
                raise ValueError(f"{FUSE} and embed_tokens.weight are {shapes}, and its width is {width}")
            turned = rotation(config)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            ZeroDivisionError,
            RuntimeError,
        ) as error:
            raise ModelError(f"could not load a draft head from {folder}: {first_reason(error)}") from error
        self.shape = Shape(
            layers=1,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim(config),
            vocab=embedding.shape[0],
            max_positions=config.max_position_embeddings,
            dtype=torch.float32,
        )
        if self.shape.vocab != target.shape.vocab or width != target.width:
            raise ModelError(
                f"could not pair the draft head {folder} with this target: it is for {self.shape.vocab} "
                f"tokens and features of {width}, not for {target.shape.vocab} and {target.width}; "
                "a head is trained for one target",
                hint=listing(folder),
            )
        self._width, self.max_positions = width, self.shape.max_positions
        of_feature = self._enter_with(layer, fuse, weights.get(FUSE_BIAS), embedding)
        out, gate_up = layer.joined("self_attn.o_proj"), layer.joined("mlp.gate_proj", "mlp.up_proj")
        down, output = layer.joined("mlp.down_proj"), target.output.float()
        self._out, self._gate_up, self._down = Linear(*out), Linear(*gate_up), Linear(*down)
        self._norm = Norm(layer["post_attention_layernorm.weight"], config.rms_norm_eps)
        self._rope = rotations(*turned, positions=config.max_position_embeddings)
        self.logits = Linear(output)  # [n, hidden] features -> [n, vocab]
        self._in_one_call: EaglePasses | None = None
        if all(bias is None for _, bias in (out, gate_up, down)):
            before_keys = self._width + self.shape.heads * self.shape.head_dim
            entered = of_feature[:before_keys], of_feature[before_keys:]
            small = Quantised.of_small(*entered, out[0], gate_up[0], down[0], output)
            if small is not None:
                kv_heads, norm, table = self.shape.kv_heads, self._norm, self._of_token.rows
                rope, dim = self._rope, self.shape.head_dim
                self._in_one_call = EaglePasses(small, norm.weight, norm.eps, rope, kv_heads, dim, table)

    def _enter_with(
        self, layer: Weights, fuse: Tensor, fuse_bias: Tensor | None, embedding: Tensor
    ) -> Tensor:
        """Merge fc and the projections, since nothing stands between them: one matrix does both, and of
        tokens a table.

        Returns the matrix for features.
        """
        weight, bias = queries_keys_values(layer, self.shape)
        behind = torch.cat((torch.eye(self._width), weight))
        whole = behind @ fuse  # [hidden + q, k and v, 2 * hidden]
        self._of_feature = Linear(halved(whole[:, self._width :]))
        if bias is not None:
            bias = torch.cat((torch.zeros(self._width), bias))
        if fuse_bias is not None:
            bias = behind @ fuse_bias + (0 if bias is None else bias)
        self._of_token = TokenTable(embedding, whole[:, : self._width], bias)
        return whole[:, self._width :]

    def draft(
        self, tokens: list[int], features: Tensor, spans: list[Span], cache: KVCache, indices: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Guesses [indices, hidden] and logits [indices, V] at the `indices` places in `tokens`, ascending.

        features: [n, hidden] of the positions before the tokens. spans: as they follow each other in
        `tokens`. Of a span, `indices` has all its tokens, the last one, or none.
        """
        fed = torch.tensor(tokens)
        # One guess of a span is one call, others are packed. The last bits of the two differ, so the choice
        # for a sequence does not depend on those beside it.
        calls: list[tuple[int, slice, Span]] = []  # with the place in `indices`
        spans_packed: list[Span] = []
        rows: list[int] = []  # of the packed, in `tokens`
        ends: list[int] = []  # of those, the indices
        places: list[int] = []  # and the places in `indices`
        start = index = 0
        for span in spans:
            first, stop = index, start + span.count
            while index < len(indices) and indices[index] < stop:
                index += 1
            if index - first == 1 and span.count <= SHORT and self._in_one_call is not None:
                calls.append((first, slice(start, stop), span))
            else:
                ends += [len(rows) + i - start for i in indices[first:index]]
                rows += range(start, stop)
                places += range(first, index)
                spans_packed.append(span)
            start = stop
        if not calls:
            return self._packed(fed, features, spans, cache, indices)
        assert self._in_one_call is not None
        guesses: list[Tensor] = [features] * len(indices)
        logits: list[Tensor] = [features] * len(indices)
        for place, part, span in calls:
            read = self._fed(fed[part], features[part], span, cache)
            guesses[place], logits[place] = self._in_one_call.guess(read)
        if spans_packed:
            packed = self._packed(fed[rows], features[rows], spans_packed, cache, ends)
            for place, guess, row in zip(places, *(part[:, None] for part in packed), strict=True):
                guesses[place], logits[place] = guess, row
        return joined(guesses), joined(logits)

    def _packed(
        self, fed: Tensor, features: Tensor, spans: list[Span], cache: KVCache, indices: list[int]
    ) -> tuple[Tensor, Tensor]:
        layout = Layout(spans, cache, self.shape.tile)
        rows = None if len(indices) == len(fed) else torch.tensor(indices, dtype=torch.int64)
        guessed = self.forward(fed, features, layout, rows)
        return guessed, self.logits(guessed)

    def chains(self, count: int) -> bool:
        """Return whether a chain after `count` tokens can be one call."""
        return self._in_one_call is not None and self._in_one_call.table is not None and count <= SHORT

    def chain(
        self,
        tokens: list[int],
        features: Tensor,
        span: Span,
        cache: KVCache,
        dice: list[float],
        *,
        temperature: float,
        worth: float,
    ) -> tuple[list[int], Tensor]:
        """A chain of guesses after the last of `tokens`, in one call (EaglePasses.chain), where it `chains`
        so many. The cache needs room for the tokens, and a slot less than there are dice. span: causal."""
        assert self._in_one_call is not None
        fed = self._fed(torch.tensor(tokens), features, span, cache)
        return self._in_one_call.chain(fed, dice, temperature=temperature, worth=worth)

    def _fed(self, tokens: Tensor, features: Tensor, span: Span, cache: KVCache) -> EagleInput:
        row = cache.layers[0][span.row]
        return EagleInput(self._of_token(tokens), features, span.positions, row, span.start, span.mask.sees)

    def forward(
        self, tokens: Tensor, features: Tensor, layout: Layout, indices: Tensor | None = None
    ) -> Tensor:
        """tokens [n], features [n, hidden] of the positions before them -> guesses at theirs, [n, hidden], or
        at the `indices` ones only: of the others keys and values alone are made."""
        of_feature = self._of_feature
        y = torch.add(self._of_token(tokens), of_feature.product(features), alpha=of_feature.scale)
        x, qkv = y[:, : self._width].contiguous(), y[:, self._width :].contiguous()
        attended = attend_rotated(layout, 0, qkv.view(len(y), -1, self.shape.head_dim), 1.0, self._rope)
        if indices is not None:
            x, attended = x[indices], attended[indices]
        h = self._norm(x, (self._out.product(attended), self._out.scale))
        h = ops.gate(self._gate_up.product(h), self._gate_up.scale)
        return torch.add(x, self._down.product(h), alpha=self._down.scale)

    def grower(self, rows: int, length: int, nodes: int) -> EagleGrower:
        return EagleGrower(self, rows, length, nodes)

    def unroll(
        self, whole: list[int], first: int, features: Tensor, depth: int
    ) -> Iterator[tuple[int, Tensor]]:
        """The step that reads the prompt has no feature to draft from yet.

        Slots of the cache: first the text's, token i + 1 beside the feature at i; then, for each depth below,
        one slot for each root, beside the guess from the depth above.
        """
        true, roots = len(whole) - 2, len(whole) - 1 - first
        if roots < 1:
            return
        cache = self.shape.cache(1, true + (depth - 1) * roots)
        layout = Layout([Span(0, 0, true, torch.arange(true), causal(true))], cache, self.shape.tile)
        guesses = self.forward(torch.tensor(whole[1:-1]), features[:true], layout)[first - 1 :]
        yield 1, self.logits(guesses)
        for below in range(1, min(depth, roots)):
            count, start = roots - below, true + (below - 1) * roots
            sees = torch.zeros(count, start + count, dtype=torch.bool)
            sees[:, :true] = torch.arange(true) < torch.arange(first, first + count)[:, None]
            for above in range(below):
                sees[:, true + above * roots :][:, :count] |= torch.eye(count, dtype=torch.bool)
            positions = torch.arange(first + below - 1, first + below - 1 + count)
            positions = positions.clamp_(max=self.shape.max_positions - 1)
            layout = Layout([Span(0, start, count, positions, Mask(sees))], cache, self.shape.tile)
            tokens = torch.tensor(whole[first + below :][:count])
            guesses = self.forward(tokens, guesses[:count], layout)
            yield below + 1, self.logits(guesses)


class EagleGrower(CachedGrower):
    reads_features = True
    caches = ()  # a slot depends on the token behind it, so a block's would not be the block's alone

    def __init__(self, head: EagleHead, rows: int, length: int, nodes: int) -> None:
        super().__init__(head.shape, rows, length, nodes)
        self._head = head
        # By row:
        self._unread: list[list[Tensor]] = [[] for _ in range(rows)]  # features that were not read yet
        self._guessed: list[list[Tensor]] = [[] for _ in range(rows)]  # by place, [1, hidden]

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        spans: list[Span] = []
        tokens: list[int] = []
        features: list[Tensor] = []
        ready: list[int] = []
        ends: list[int] = []
        for index, sequence in enumerate(sequences):
            row = sequence.row
            if not self._unread[row] or sequence.cached == sequence.restored:
                continue  # its prompt is new: the target has not read any of it
            self._read_chunks(sequence)
            start, stop = self._read[row], sequence.cached
            tokens += sequence.tokens[start + 1 : stop + 1]
            features += self._unread[row]
            spans.append(self._span(row, start, stop))
            self._unread[row], self._read[row] = [], stop
            # With more than the root uncached, the target's features do not reach it yet.
            if sequence.uncached == 1 and sequence.depth_left > 0:
                ready.append(index)
                ends.append(len(tokens) - 1)
        if not tokens:
            return [], torch.empty(0, self._head.shape.vocab)
        guessed, logits = self._head.draft(tokens, joined(features), spans, self._cache, ends)
        for index, guess in zip(ready, _split_rows(guessed), strict=True):
            self._guessed[sequences[index].row] = [guess]
        return ready, logits

    def _read_chunks(self, sequence: Sequence) -> None:
        """Read what is unread but for the last chunk. So a prompt whose beginning was restored is read in the
        chunks in which it is read without the prefix cache, and in the same operations."""
        row, chunk = sequence.row, sequence.chunk
        while sequence.cached - self._read[row] > chunk:
            start, unread = self._read[row], joined(self._unread[row])
            stop = start + chunk - start % chunk
            span, count = self._span(row, start, stop), stop - start
            self._head.draft(sequence.tokens[start + 1 : stop + 1], unread[:count], [span], self._cache, [])
            self._read[row], self._unread[row] = stop, [unread[count:]]

    def chain(self, sequence: Sequence, most: int, worth: float) -> tuple[list[int], Tensor] | None:
        row, sampling, chance = sequence.row, sequence.sampling, sequence.chance
        if not self._unread[row] or sequence.uncached != 1:
            return None
        self._read_chunks(sequence)
        start, stop, most = self._read[row], sequence.cached, min(most, sequence.depth_left)
        if most < 1 or not self._head.chains(stop - start):
            return None
        if sequence.greedy:
            dice = [0.0] * most
        elif isinstance(chance, Dice) and sampling.top_k == 0 and sampling.top_p == 1:
            dice = chance.several(most)
        else:
            return None
        tokens, features = sequence.tokens[start + 1 : stop + 1], joined(self._unread[row])
        span, temperature = self._span(row, start, stop), sampling.temperature
        self._unread[row], self._read[row] = [], stop
        return self._head.chain(
            tokens, features, span, self._cache, dice, temperature=temperature, worth=worth
        )

    def grow(self, levels: Batch[Level]) -> Tensor:
        tokens = [token for level in levels for token in level.tokens]
        parents = [self._guessed[level.sequence.row][place] for level in levels for place in level.parents]
        spans = [self._level_span(level) for level in levels]
        indices = list(range(len(tokens)))
        guessed, logits = self._head.draft(tokens, joined(parents), spans, self._cache, indices)
        rows = iter(_split_rows(guessed))
        for level in levels:
            self._guessed[level.sequence.row] += [next(rows) for _ in level.tokens]
        return logits

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        assert features is not None
        self._unread[sequence.row].append(features)

    def move(self, sequence: Sequence, row: int) -> None:
        super().move(sequence, row)
        self._unread[row], self._unread[sequence.row] = self._unread[sequence.row], []

    def release(self, sequence: Sequence) -> None:
        super().release(sequence)
        self._unread[sequence.row] = []


def _split_rows(rows: Tensor) -> list[Tensor]:
    """[n, hidden] -> n times [1, hidden]."""
    return [rows] if len(rows) == 1 else list(rows[:, None].unbind())


def _config(raw: dict[str, Any]) -> Any:
    config = explicit_config(raw)
    if config is None:
        with checked_config():
            from transformers import LlamaConfig

            config = LlamaConfig(**raw)
    return config


def _layer(weights: Weights, shapes: dict[str, tuple[int, ...]]) -> Weights:
    """Return the layer's weights. Raises KeyError where some are missing, ValueError where one has another
    shape."""
    lacking = sorted(name for name in shapes if name not in weights and name != "input_layernorm.weight")
    if lacking:
        raise KeyError(f"the weights {', '.join(lacking)} are missing")
    for name, shape in shapes.items():
        if name in weights and tuple(weights[name].shape) != shape:
            raise ValueError(f"{name} is {tuple(weights[name].shape)}, and its config makes it {shape}")
    return Weights({name: weights[name] for name in shapes if name in weights})


def halved(weight: Tensor) -> Tensor:
    """Rounded to what `Linear` can keep in half the bytes. A draft may be a little off."""
    up = 2.0 ** (14 - math.frexp(float(weight.abs().max()))[1])  # float16 has no small exponents to speak of
    return (weight * up).half().float() / up
