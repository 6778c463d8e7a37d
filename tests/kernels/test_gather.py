"""KV compaction in one launch against moving slot by slot."""

from __future__ import annotations

import pytest
import torch
from batches import Shape, poisoned
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from specops_kernels import gather as gathering
from specops_kernels import gather_naive
from specops_kernels.gather import Moves, compact

LAYERS = 2


def caches(stops: list[int], page: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """[layers, …] of values that occur once each; a table."""
    kv, table = poisoned(stops, Shape((0,), (1,), page=page), device)
    cache = torch.arange(LAYERS * kv.numel(), dtype=torch.float32, device=device)
    return cache.view(LAYERS, *kv.shape), table


@given(data=st.data())
@settings(max_examples=15, phases=[Phase.generate])
def test_as_slot_by_slot(data: st.DataObject) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    starts = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=4))
    slots = [
        sorted(start + j for j in data.draw(st.sets(st.integers(0, 15), max_size=6))) for start in starts
    ]
    cache, table = caches([start + 16 for start in starts], data.draw(st.sampled_from([0, 4])), device)
    expected = gather_naive.compact(cache, table, starts, slots)
    compact(cache, Moves.of(table, starts, slots))
    assert torch.equal(cache, expected)


def test_slots_of_more_than_a_block(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "BLOCK", 16)
    cache, table = caches([20, 20], 0, device)
    narrow = cache[..., :3, :].contiguous()  # 48 elements a slot: the last program's are not all there
    narrow = narrow[..., :13].contiguous()
    slots = [[7, 9, 12], [5, 6]]
    expected = gather_naive.compact(narrow, table, [6, 5], slots)
    compact(narrow, Moves.of(table, [6, 5], slots))
    assert torch.equal(narrow, expected)


def test_bits_are_kept(device: torch.device) -> None:
    """Of every type: NaNs with their payloads, too."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        bits = torch.randint(-(2**15), 2**15, (1, 1, 8, 2, 16), dtype=torch.int16, device=device)
        cache = bits.view(dtype)
        before = cache.clone()
        compact(cache, Moves.of(torch.zeros(1, dtype=torch.int32, device=device), [1], [[3, 6]]))
        assert torch.equal(cache[:, :, [1, 2]].view(torch.int16), before[:, :, [3, 6]].view(torch.int16))


def test_what_is_in_place_is_not_moved() -> None:
    moves = Moves.of(torch.arange(3), [4, 4, 9], [[4, 5, 7], [4, 5], []])
    assert moves.starts.tolist() == [6, 6, 9]
    assert moves.offsets.tolist() == [0, 1, 1, 1]
    assert moves.sources.tolist() == [7]


def test_refuses() -> None:
    table = torch.arange(1)
    with pytest.raises(ValueError, match=r"\[5, 4\] are not ascending"):
        Moves.of(table, [3], [[5, 4]])
    with pytest.raises(ValueError, match="not ascending from 3"):
        Moves.of(table, [3], [[2, 4]])
    with pytest.raises(ValueError, match="not of the same sequences"):
        Moves.of(table, [3, 4], [[5]])
    with pytest.raises(ValueError, match="has room for 8"):
        compact(torch.zeros(1, 1, 8, 2, 16), Moves.of(table, [3], [[8]]))
    with pytest.raises(ValueError, match="side by side"):
        compact(torch.zeros(1, 1, 8, 16, 2).transpose(3, 4), Moves.of(table, [3], [[5]]))
