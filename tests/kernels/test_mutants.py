"""Mistakes that these kernels could have: each is found by the comparison with the reference.

Where none of these failed, the tests of the kernels would prove less than they seem to.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from batches import Shape
from mutants import mutant
from specops_kernels import gather, gather_kernel, gather_naive, tree_attention, tree_attention_kernel
from specops_kernels.configuration import Configuration
from test_tree_attention import TOLERANCE, differs, tiled

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="on a GPU a mistake may end the process; the interpreter finds it too"
)

RAGGED = Shape((5, 37), (7, 20), kv_heads=1, page=8)
SLOTTED = Shape((5, 21), (7, 4), kv_heads=1)
WORDS = Shape((20,), (70,), group=1, kv_heads=1)

ATTENTION = {
    "the mask's next word is not looked at": (
        "at + 1, mask=has_high",
        "at, mask=has_low",
        WORDS,
    ),
    "the mask begins a slot late": ("tile * BLOCK_N - start)", "tile * BLOCK_N - start - 1)", RAGGED),
    "the upper half of a word is the lower": (
        "(visible >> 32).to(tl.uint32)",
        "visible.to(tl.uint32)",
        WORDS,
    ),
    "the prefix beside the tree is not seen": (" | ((tl.full([1], 1, tl.uint64) << before) - 1)", "", RAGGED),
    "words of a single row": ("ancestors + rows * words + index", "ancestors + rows * 0 + index", RAGGED),
    "slots after the last are read": ("present = inside[:, None] & in_dim", "present = in_dim", SLOTTED),
    "a tile too many needs no mask": (
        "unmasked = start // BLOCK_N",
        "unmasked = tl.cdiv(start, BLOCK_N)",
        RAGGED,
    ),
    "the sum is not rescaled": ("acc * shrink[:, None], input", "acc, input", RAGGED),
    "the total is not rescaled": ("total * shrink + tl.sum", "total + tl.sum", RAGGED),
    "-inf - -inf": (
        'tl.where(higher == float("-inf"), 0.0, higher)',
        "higher",
        Shape((0,), (40,), kv_heads=1),
    ),
    "splits overlap": ("tl.minimum(low + each,", "tl.minimum(low + each + 1,", RAGGED),
    "splits weigh the same": (
        'tl.exp2(size - tl.where(top == float("-inf"), 0.0, top))',
        'tl.where(size == float("-inf"), 0.0, 1.0)',
        SLOTTED,
    ),
    "another KV head's values": ("(kv_heads + kv_of) * kv_head", "kv_heads * kv_head", Shape((9,), (4,))),
    "another query head": ("kv_of * GROUP + m % GROUP", "kv_of * GROUP + m * 0", RAGGED),
    "pages of another sequence": (
        "table, sequence, slots, inside, pages",
        "table, 0, slots, inside, pages",
        RAGGED,
    ),
    "the first sequence's tokens": ("first_token + m // GROUP", "m // GROUP", RAGGED),
}


def configuration(shape: Shape) -> Configuration:
    return tiled(block_n=64 if shape is WORDS else 16, splits=2)


@pytest.mark.parametrize("shape", list(dict.fromkeys(shape for _, _, shape in ATTENTION.values())), ids=str)
def test_without_a_mistake(shape: Shape, device: torch.device) -> None:
    assert differs(shape, configuration(shape), device) < TOLERANCE[shape.dtype]


@pytest.mark.quick(4)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a NaN on the way is what some of them are about
@pytest.mark.parametrize(("right", "wrong", "shape"), ATTENTION.values(), ids=ATTENTION)
def test_attention(
    right: str,
    wrong: str,
    shape: Shape,
    tmp_path: Path,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = mutant(tree_attention_kernel, right, wrong, tmp_path)
    monkeypatch.setattr(tree_attention, "attend", made.attend)
    monkeypatch.setattr(tree_attention, "combine", made.combine)
    assert not differs(shape, configuration(shape), device) < TOLERANCE[shape.dtype]  # nor is NaN


GATHER = {
    "the target stands still": ("target += 1", "target += 0"),
    "the layer is forgotten": ("tl.program_id(1).to(tl.int64) * layer_stride", "tl.program_id(1) * 0"),
    "the sequence's own slots": ("tl.load(offsets + sequence), tl", "0, tl"),
    "what is beyond the slot": (", moved, mask=inside", ", moved"),
}


@pytest.mark.parametrize(("right", "wrong"), GATHER.values(), ids=GATHER)
def test_gather(
    right: str, wrong: str, tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, slots, table = [2, 3], [[4, 6], [5, 7]], torch.tensor([1, 0], dtype=torch.int32, device=device)

    def right_() -> bool:
        cache = torch.randn(2, 3, 12, 2, 12, device=device)
        expected = gather_naive.compact(cache, table, starts, slots)
        gather.compact(cache, gather.Moves.of(table, starts, slots))
        return torch.equal(cache, expected)

    monkeypatch.setattr(gather, "BLOCK", 32)
    assert right_()
    monkeypatch.setattr(gather, "gather", mutant(gather_kernel, right, wrong, tmp_path).gather)
    assert not right_()
