"""Passes of a few tokens as CUDA graphs: one launch in place of hundreds.

While a sequence decodes, its pass feeds a tree, and a GPU finishes each of the pass's kernels before the next
one is launched. A graph is those kernels recorded, with the addresses that they read; replaying it runs no
Python. So everything that differs from pass to pass is in one buffer on the device, which is written first.
Numbers that a launch fixes (tokens, sequences, longest sequence) are rounded up, so that a few graphs serve
all passes.

The tests replay passes that were recorded operation by operation on a CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
import torch.nn.functional as F
from specops_kernels.configuration import LEAST_SPLIT
from specops_kernels.ragged import WORD, Ragged
from torch import Tensor

from specops.engine.attention import Addresses, Layout
from specops.engine.models.model import FeatureModel

MOST_TOKENS = 256
"""Tokens of a pass. By their data sheets, GPUs multiply some hundred rows in the time of reading the weights
once. Beyond that, launches hide behind the products, and padding costs time."""

LONGEST_TREE = 64
"""Tokens of one sequence. More belong to a prompt, and such a pass is seldom repeated."""

FEWEST = 4
"""Tokens of one sequence that a launch allows at least: the kernel's tiles have 16 rows or more."""

MOST_GRAPHS = 64
"""Graphs of a model. For one more, the least recently replayed is dropped."""

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Records what a function launches, and returns a function that launches it again. It may call the function
several times. Raises RuntimeError if it does something that cannot be recorded."""

log = logging.getLogger(__name__)


class CudaCapture:
    """Graphs of one device, replayed one after another, so that they share memory."""

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):  # around all: a capture that fails leaves its stream in place
            run()  # compiles kernels and makes workspaces, of this stream
            with _refused_to_wait():
                run()
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                run()
        current.wait_stream(self._stream)
        return graph.replay


@contextmanager
def _refused_to_wait() -> Iterator[None]:
    """Raises RuntimeError if the host waits for the device, which would end a capture."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@dataclass(frozen=True)
class GraphKey:
    """The properties that a graph fixes: passes of one key are run by the same graph."""

    cache: tuple[int, ...]  # where it lies, and its shape
    tokens: int
    sequences: int
    words: int  # of a token's mask
    most: int  # as of Ragged
    longest: int

    @staticmethod
    def for_layout(layout: Layout) -> GraphKey | None:
        """The form of a pass, with every number rounded up; None if a graph does not pay.

        Tokens are rounded to quarters of a power of two, sequences to powers of two. `most` and `longest`
        only bound the launch, and are rounded to powers of four: too high a bound starts programs that find
        nothing to do.
        """
        counts = [span.count for span in layout.spans]
        fed = sum(counts)
        if fed > MOST_TOKENS or max(counts) > LONGEST_TREE:
            return None
        step = max(_power_of_two(fed) // 4, 1)
        tokens = -(-fed // step) * step
        data, capacity = layout.cache.data, layout.cache.capacity
        stop = max(span.stop for span in layout.spans)
        return GraphKey(
            cache=(data.data_ptr(), *data.shape),
            tokens=tokens,
            sequences=_power_of_two(len(counts)),
            words=-(-max(span.mask.sees.shape[1] for span in layout.spans) // WORD),
            most=_times_four(FEWEST, max(*counts, counts[-1] + tokens - fed)),
            longest=min(_times_four(LEAST_SPLIT, stop), capacity),
        )


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _times_four(bound: int, least: int) -> int:
    while bound < least:
        bound *= 4
    return bound


class _Inputs:
    """Everything that differs between passes of a form: parts of one buffer on the device."""

    def __init__(self, form: GraphKey, device: torch.device) -> None:
        n, b = form.tokens, form.sequences
        short, long = [b, b + 1, b, b], [n * form.words, n, n, n]
        rooms = [_room(size) // 2 for size in short]
        self._form = form
        self._buffer = torch.zeros(sum(rooms) + sum(long), dtype=torch.int64, device=device)
        parts = torch.split(self._buffer, rooms + long)
        table, offsets, starts, stops = (
            part.view(torch.int32)[:size] for part, size in zip(parts[:4], short, strict=True)
        )
        ancestors, self.tokens, positions, slots = parts[4:]
        ancestors = ancestors.view(n, form.words)
        ragged = Ragged(table, offsets, starts, stops, ancestors, form.most, form.longest)
        self.addresses = Addresses(positions, slots, ragged)

    def write(self, tokens: Tensor, layout: Layout) -> None:
        """Write a pass, padded, in one copy.

        The last token is repeated as padding of its sequence: at the same position, with the same mask, and
        into the same slot, so that it writes the same values there. Padding sequences feed nothing.
        """
        spans, n, b = layout.spans, self._form.tokens, self._form.sequences
        padding = n - len(tokens)
        reaches = [span.mask.sees.shape[1] for span in spans]
        ends = list(accumulate(span.count for span in spans))
        numbers: list[int] = []
        for part, size in (
            ([span.row for span in spans], b),
            ([0, *ends[:-1]] + [n] * (b + 1 - len(spans)), b + 1),
            ([span.stop - reach for span, reach in zip(spans, reaches, strict=True)], b),
            ([span.stop for span in spans], b),
        ):
            numbers += part + [0] * (_room(size) - len(part))
        words = [span.mask.words for span in spans]
        if self._form.words > 1:
            words = [F.pad(mask_words, (0, self._form.words - mask_words.shape[1])) for mask_words in words]
        first = [span.row * layout.cache.capacity + span.start for span in spans]
        slots = [s for a, span in zip(first, spans, strict=True) for s in range(a, a + span.count)]
        parts = (
            torch.tensor(numbers, dtype=torch.int32).view(torch.int64),
            *(mask_words.flatten() for mask_words in words),
            words[-1][-1].repeat(padding),
            tokens,
            tokens[-1:].expand(padding),
            *(span.positions for span in spans),
            spans[-1].positions[-1:].expand(padding),
            torch.tensor(slots + slots[-1:] * padding),
        )
        # Not by way of pinned memory, which the next pass might overwrite before it has been read.
        self._buffer.copy_(torch.cat(parts))


def _room(size: int) -> int:
    """Room for `size` int32 that keeps the next part aligned to 16 bytes: Triton compiles a kernel anew
    otherwise."""
    return 4 * -(-size // 4)


@dataclass
class _Graph:
    """A recorded pass, and whether its first result was compared."""

    inputs: _Inputs
    replay: Callable[[], None]
    proved: bool = False


class Graphed:
    """A model whose small passes over the kernel's attention are graphs; other passes are the model's own.

    A form is captured at its second pass, and the first result of its graph is compared with the model's own.
    A model that cannot be captured, or that differs, runs without graphs from then on.
    """

    def __init__(self, model: FeatureModel, capture: Capture) -> None:
        self.shape, self.width, self.output = model.shape, model.width, model.output
        self.replays = 0
        """Passes that graphs have run."""
        self._model, self._capture = model, capture
        self._given_up = False
        self._met: set[GraphKey] = set()
        self._graphs: dict[GraphKey, _Graph] = {}  # the one unused for longest first

    def beside(self, model: FeatureModel) -> Graphed:
        """Another model that runs in turn with this one."""
        return Graphed(model, self._capture)

    def forward(self, tokens: Tensor, layout: Layout, indices: Tensor | None = None) -> Tensor:
        if self._ran(tokens, layout):
            return _copied(self._logits[: len(tokens)], indices)
        return self._model.forward(tokens, layout, indices)

    def with_features(
        self, tokens: Tensor, layout: Layout, indices: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if self._ran(tokens, layout):
            return _copied(self._logits[: len(tokens)], indices), self._features[: len(tokens)].clone()
        return self._model.with_features(tokens, layout, indices)

    @cached_property
    def _logits(self) -> Tensor:
        """[MOST_TOKENS, vocab] float32, of the last replay of any graph: one for each would take most of the
        memory."""
        return torch.empty(MOST_TOKENS, self.shape.vocab, device=self.shape.device)

    @cached_property
    def _features(self) -> Tensor:
        return torch.empty(MOST_TOKENS, self.width, device=self.shape.device)

    @torch.inference_mode()
    def _ran(self, tokens: Tensor, layout: Layout) -> bool:
        """Return whether a graph has run this pass; its logits and features are then in `_logits` and
        `_features`."""
        form = GraphKey.for_layout(layout) if layout.kernel and not self._given_up else None
        if form is None:
            return False
        graph = self._graphs.pop(form, None)
        if graph is None:
            if form in self._met:
                self._record(form, tokens, layout)
            self._met.add(form)
            return False
        graph.inputs.write(tokens, layout)
        graph.replay()
        if not graph.proved and not self._proved(tokens, layout):
            self._give_up("a graph's logits differ from its own")
            return False
        graph.proved = True
        self._graphs[form] = graph
        self.replays += 1
        return True

    def _record(self, form: GraphKey, tokens: Tensor, layout: Layout) -> None:
        inputs = _Inputs(form, self.shape.device)
        inputs.write(tokens, layout)
        lasting = Layout(layout.spans, layout.cache, self.shape.tile, inputs.addresses)
        logits_room, features_room = self._logits[: form.tokens], self._features[: form.tokens]

        def run() -> None:
            logits, features = self._model.with_features(inputs.tokens, lasting)
            logits_room.copy_(logits)
            features_room.copy_(features)

        try:
            replay = self._capture(run)
        except RuntimeError as error:
            self._give_up(str(error).partition("\n")[0])
            return
        while len(self._graphs) >= MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        self._graphs[form] = _Graph(inputs, replay)

    def _proved(self, tokens: Tensor, layout: Layout) -> bool:
        """Return whether the model's own logits, for other tokens than were captured, are the graph's."""
        own = self._model.forward(tokens, layout)
        tolerance = torch.finfo(self.shape.dtype).eps ** 0.5 * float(own.abs().max())
        return torch.allclose(self._logits[: len(tokens)], own, rtol=0, atol=tolerance)

    def _give_up(self, reason: str) -> None:
        self._given_up = True
        self._graphs.clear()
        log.warning("a model of %d layers runs without CUDA graphs: %s", self.shape.layers, reason)


def _copied(rows: Tensor, indices: Tensor | None) -> Tensor:
    """A copy of the wanted rows: the next replay overwrites them, and a drafter may hold its result."""
    return rows.clone() if indices is None else rows[indices.to(rows.device)]
