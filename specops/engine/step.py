"""The engine: one readable loop. `step()` drafts, runs the target once, verifies and commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import accumulate, pairwise
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from specops.engine.attention import Layout, Span, causal, causal_then
from specops.engine.draft import Drafter, Learner
from specops.engine.models.model import FeatureModel
from specops.engine.prefix_cache import PrefixCache
from specops.engine.request import (
    Counters,
    Emission,
    Sampling,
    StepTimes,
    Streaming,
    TokenLogprob,
    refuse_bad,
)
from specops.engine.rng import Distributions, all_finite
from specops.engine.sequence import Sequence
from specops.engine.tree import TokenTree
from specops.engine.verifiers.naive import verify_greedy
from specops.engine.verifiers.verifier import Verified, Verifier, check
from specops.errors import NotFinite


class Engine(Streaming):
    """Continuous batching of tree-speculative decoding. Not thread-safe: one thread owns an engine.

    Sequences in the batch lie in cache rows 0, 1, … without gaps, in the order of `_running`.
    """

    def __init__(
        self,
        target: FeatureModel,
        drafter: Drafter,
        verifier: Verifier,
        tokenizer: Any,
        eos: frozenset[int],
        *,
        max_batch: int,
        max_length: int,
        prefill_chunk: int,
        prefix_cache_mb: int = 0,
    ) -> None:
        """prefix_cache_mb: memory for the beginnings of prompts, in MB."""
        if drafter.nodes > 0:  # a bare root is the same to every verifier
            check(verifier, drafter.draws)
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.max_batch = max_batch
        self.prefill_chunk = prefill_chunk
        self.counters = Counters(accepted_per_position=[0] * drafter.depth)
        self.target, self._drafter, self._verifier = target, drafter, verifier
        self._learner = drafter if isinstance(drafter, Learner) else None
        if self._learner is not None:
            self.counters.steps_by_tree = self._learner.steps_by_tree
        self.eos = eos
        self._cache = target.shape.cache(max_batch, max_length + drafter.nodes)
        width = target.width if drafter.reads_features else 0
        self._prefixes = PrefixCache(prefix_cache_mb, self._cache, drafter.caches, width)
        self._line = torch.arange(max_length + drafter.nodes).clamp_(max=target.shape.max_positions - 1)
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._by_id: dict[int, Sequence] = {}  # all that have not ended; neither waiting nor in a row: parked
        self._next_id = 0
        self._holds = 0  # how often one was held: shows which was first
        self.clock: Callable[[], float] = perf_counter  # of the parts of a step

    @torch.inference_mode()
    def step(self) -> list[Emission]:
        """One iteration: draft trees, run the target once over all of them, verify, commit."""
        sequences = self._schedule()
        if not sequences:
            return []
        started = self.clock()
        trees = self._drafter.draft(sequences)
        drafted = self.clock()
        logits, features = self._forward(sequences, trees)
        deciding = [(s, t) for s, t in zip(sequences, trees, strict=True) if not s.reading]
        verified = self._verify(deciding, logits)
        decided = self.clock()
        for sequence in sequences:
            if sequence.reading:
                self._read(sequence, sequence.chunk_end(sequence.cached), features.get(sequence.row))
        emissions = [self._commit(*decision, features.get(decision[0].row)) for decision in verified]
        for sequence in [s for s in sequences if s.finish_reason is not None]:
            self._leave(sequence)
            del self._by_id[sequence.id]
        times = StepTimes(drafted - started, decided - drafted, self.clock() - decided)
        self.counters.add(times)
        if self._learner is not None:
            self._learner.learn(times)
        return emissions

    def _schedule(self) -> list[Sequence]:
        """The sequences of this step: all that decode, and as many prompts as fit in one chunk."""
        while self._waiting and (len(self._running) < self.max_batch or self._evict()):
            sequence = self._waiting.popleft()
            sequence.row = len(self._running)
            self._running.append(sequence)
        ready = [sequence for sequence in self._running if sequence.held is None]
        scheduled = [sequence for sequence in ready if sequence.uncached == 1]
        budget = self.prefill_chunk
        for sequence in sorted((s for s in ready if s.uncached > 1), key=lambda s: s.id):
            if budget <= 0:  # what the others store meanwhile may be a longer beginning of its prompt
                break
            if sequence.cached == 0:
                sequence.restored, features = self._prefixes.restore(sequence)
                if sequence.restored:
                    self._read(sequence, sequence.restored, features)
            budget -= min(sequence.uncached, self.prefill_chunk)
            if budget < 0:  # a later prompt that fits must not overtake
                break
            scheduled.append(sequence)
        return sorted(scheduled, key=lambda s: s.row)

    def _read(self, sequence: Sequence, stop: int, features: Tensor | None) -> None:
        """Record that tokens up to `stop` are in the sequence's row. features: of those that are new."""
        begun = sequence.cached
        self._drafter.commit(sequence, [], features)
        sequence.cached = stop
        new = len(sequence.tokens) == sequence.prompt_length  # and not read again
        if new and features is not None and begun < self._prefixes.features_of:
            sequence.features.append(features)

    def _forward(self, sequences: list[Sequence], trees: list[TokenTree]) -> tuple[Tensor, dict[int, Tensor]]:
        """Run uncached tokens and trees through the target.

        Returns [nodes of all trees, V] logits and, if the drafter reads them, the features of each row.
        """
        spans: list[Span] = []
        tokens: list[int] = []
        node_indices: list[int] = []  # where the trees' nodes lie
        for sequence, tree in zip(sequences, trees, strict=True):
            start, topology = sequence.cached, tree.topology
            root = len(sequence.tokens) - 1
            if sequence.reading:
                fed = sequence.tokens[start : sequence.chunk_end(start)]
                mask, positions = causal(len(fed)), self._line[start : start + len(fed)]
            else:
                fed = sequence.tokens[start:] + tree.tokens[1:]
                mask, positions = topology.mask, self._line[root + topology.depths]
                if start < root:
                    mask = causal_then(len(fed), topology.sees)
                    positions = torch.cat((self._line[start:root], positions))
                node_indices += range(len(tokens) + root - start, len(tokens) + len(fed))
            spans.append(Span(sequence.row, start, len(fed), positions, mask))
            tokens += fed
        layout = Layout(spans, self._cache, self.target.shape.tile)
        output_rows = (
            None if len(node_indices) == len(tokens) else torch.tensor(node_indices, dtype=torch.int64)
        )
        if not self._drafter.reads_features:
            return self.target.forward(torch.tensor(tokens), layout, output_rows), {}
        logits, features = self.target.with_features(torch.tensor(tokens), layout, output_rows)
        parts = torch.split(features, [span.count for span in spans])
        return logits, {span.row: part for span, part in zip(spans, parts, strict=True)}

    def _verify(
        self, pairs: list[tuple[Sequence, TokenTree]], logits: Tensor
    ) -> list[tuple[Sequence, TokenTree, Verified | NotFinite, list[TokenLogprob]]]:
        """Return each sequence with its tree, the verdict on it, or why there is none, and the
        log-probabilities of its new tokens."""
        finite = all_finite(logits)
        greedy = any(sequence.greedy for sequence, _ in pairs)
        choices = logits.argmax(-1).tolist() if greedy else []
        bounds = pairwise(accumulate((len(tree) for _, tree in pairs), initial=0))
        results = []
        for (sequence, tree), (start, stop) in zip(pairs, bounds, strict=True):
            rows = logits[start:stop]
            verified: Verified | NotFinite
            try:
                if not (tree.finite and (finite or all_finite(rows))):
                    raise NotFinite(f"the {'target' if tree.finite else 'draft'}'s logits are not finite")
                if sequence.greedy:
                    verified = verify_greedy(tree, choices[start:stop])
                else:
                    p = Distributions(rows, sequence.sampling)
                    verified = self._verifier.verify(tree, p, sequence.chance)
                logprobs = _logprobs(sequence.sampling, tree, verified, rows)
            except NotFinite as error:
                verified, logprobs = error, []
            results.append((sequence, tree, verified, logprobs))
        return results

    def _commit(
        self,
        sequence: Sequence,
        tree: TokenTree,
        verified: Verified | NotFinite,
        logprobs: list[TokenLogprob],
        features: Tensor | None,  # of what was fed: what was uncached, up to the root, and the tree's nodes
    ) -> Emission:
        """Append the verdict's tokens to the sequence, and move the accepted nodes' KV behind the root. A
        sequence without a verdict ends."""
        if isinstance(verified, NotFinite):
            self.counters.not_finite += 1
            return sequence.fail(verified.message)
        root, path = len(sequence.tokens) - 1, verified.path
        if features is not None:
            uncached = root - sequence.cached + 1
            retained = [*range(uncached), *(uncached + node - 1 for node in path)]
            chain = retained[-1] == len(retained) - 1  # a slice costs an eighth of a gather
            features = features[: len(retained)] if chain else features[retained]
        self._cache.compact(sequence.row, root + 1, [root + node for node in path])
        counters = self.counters
        if len(sequence.tokens) == sequence.prompt_length:  # and not when it is read again
            counters.prompt_tokens += sequence.prompt_length
            if self._prefixes.size:
                counters.queried_tokens += sequence.prompt_length
                counters.restored_tokens += sequence.restored
                self._prefixes.store(sequence, features)
        if len(tree) > 1:
            counters.drafts += 1
            counters.draft_tokens += len(tree) - 1
            counters.accepted_tokens += len(path)
            for depth in range(len(path)):
                counters.accepted_per_position[depth] += 1
        sequence.cached = root + 1 + len(path)
        tokens = [tree.tokens[node] for node in path] + [verified.bonus]
        restored = sequence.restored if self._prefixes.size else None
        emission = sequence.extend(
            tokens, logprobs, drafted=len(tree) - 1, accepted=len(path), restored=restored
        )
        counters.generated_tokens += len(emission.tokens)
        self._drafter.commit(sequence, path, features)
        return emission

    def _leave(self, sequence: Sequence) -> None:
        """Free the row. The last row moves into it, so that the used rows stay dense."""
        self._drafter.release(sequence)
        if sequence.finish_reason == "error":
            self._cache.clear(sequence.row)
        last = self._running.pop()
        if last is not sequence:
            self._cache.move(last.row, sequence.row, last.cached)
            self._drafter.move(last, sequence.row)
            last.row = sequence.row
            self._running[last.row] = last
        sequence.row = -1

    # --- held sequences ------------------------------------------------------------------------

    def hold(self, sequence_id: int) -> None:
        """Give a sequence no turn until `resume`. Unknown ids are ignored.

        If rows are short, a held sequence lends its row; the one that was last held longest ago is the first.
        """
        if (sequence := self._by_id.get(sequence_id)) is not None:
            self._holds += 1
            if sequence.held is None and sequence.row < 0:
                self._waiting.remove(sequence)
            sequence.held = self._holds

    def resume(self, sequence_id: int) -> None:
        """Give a held sequence its turns again. One without a row reads all its tokens again."""
        sequence = self._by_id.get(sequence_id)
        if sequence is not None and sequence.held is not None:
            sequence.held = None
            if sequence.row < 0:
                self._waiting.append(sequence)

    def unread(self, sequence_id: int) -> int:
        """Tokens before the last one that a sequence still has to read, or to read again."""
        return self._by_id[sequence_id].uncached - 1

    def _evict(self) -> bool:
        """Take a row from a held sequence. Returns whether there was one."""
        held = [sequence for sequence in self._running if sequence.held is not None]
        if not held:
            return False
        longest = min(held, key=lambda s: s.held or 0)
        self._leave(longest)
        longest.cached = longest.restored = 0
        longest.features.clear()
        self.counters.evictions += 1
        return True

    # --- requests -----------------------------------------------------------------------------

    def submit(self, prompt: list[int], sampling: Sampling) -> int:
        """Queue a sequence and return its id. Output ends at `max_tokens` or at `max_length`, whichever is
        first.

        Raises UsageError for a request that cannot be decoded.
        """
        refuse_bad(prompt, sampling, room=self.max_length, vocabulary=self.target.shape.vocab)
        sequence = Sequence(
            self._next_id,
            prompt,
            sampling,
            room=self.max_length,
            chunk=self.prefill_chunk,
            eos=self.eos,
            tokenizer=self.tokenizer.backend_tokenizer,
        )
        self._next_id += 1
        self._by_id[sequence.id] = sequence
        self._waiting.append(sequence)
        return sequence.id

    def cancel(self, sequence_id: int) -> None:
        """Drop a sequence and free its row. Nothing more is emitted for it. Unknown ids are ignored."""
        sequence = self._by_id.pop(sequence_id, None)
        if sequence is None:
            return
        if sequence.row >= 0:
            sequence.finish_reason = "cancelled"
            self._leave(sequence)
        elif sequence.held is None:
            self._waiting.remove(sequence)

    @property
    def drafter(self) -> Drafter:
        return self._drafter

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Return whether no sequence needs a step: there is no sequence, or all are held."""
        return not self._waiting and all(sequence.held is not None for sequence in self._running)

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that committed tokens fill."""
        return sum(s.cached for s in self._running) / (self.max_batch * self._cache.capacity)


def _logprobs(sampling: Sampling, tree: TokenTree, verified: Verified, logits: Tensor) -> list[TokenLogprob]:
    """Log-probabilities of new tokens under the target's own distribution, before temperature and cuts."""
    if sampling.logprobs is None:
        return []
    nodes = [0, *verified.path]
    tokens = [tree.tokens[node] for node in verified.path] + [verified.bonus]
    logs = logits[nodes].log_softmax(-1)
    own = logs[range(len(tokens)), tokens].tolist()
    top = logs.topk(min(sampling.logprobs, logs.shape[-1]), -1)
    rows = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [
        TokenLogprob(token, value, tuple(zip(ids, values, strict=True)))
        for token, value, (ids, values) in zip(tokens, own, rows, strict=True)
    ]
