"""Compiled calls are given addresses: what lies there must live as long as the call.

Every address that a tensor gives is remembered with its storage. When a compiled function is called, each
address among its arguments, and each that lies in its tables, must be of a storage that is still alive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drafts_cases import save_head, save_recurrent
from tiny_models import Pair, drain
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from specops.engine import Sampling, load_engine
from specops.engine.cpu import ops

PLAIN = ("_norm", "_add_norm", "_gate", "_sample", "_recurrent")
BY_HEADS = ("_store_of", "_attend_of", "_eagle_of")
"""These give the compiled function for a number of heads."""


class Watch:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.found = 0  # addresses that were looked up
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}  # and how many integers
        given = Tensor.data_ptr

        def remembered(tensor: Tensor) -> int:
            address, storage = given(tensor), tensor.untyped_storage()
            integers = tensor.numel() if tensor.dtype == torch.int64 else 0
            if address:  # of an empty tensor it is 0
                self._storages[address] = StorageWeakRef(storage), integers
            return address

        monkeypatch.setattr(Tensor, "data_ptr", remembered)
        for name in PLAIN:
            monkeypatch.setattr(ops, name, self._watched(getattr(ops, name)))
        for name in BY_HEADS:
            monkeypatch.setattr(ops, name, self._watching(getattr(ops, name)))

    def _watching(self, of: Callable[..., Callable[..., None]]) -> Callable[..., Callable[..., None]]:
        return lambda *heads: self._watched(of(*heads))

    def _watched(self, call: Callable[..., None]) -> Callable[..., None]:
        def watched(*arguments: Any) -> None:
            self.calls += 1
            for argument in arguments:
                if isinstance(argument, int) and argument in self._storages:
                    self._look(argument)
                elif isinstance(argument, ctypes.Array):
                    self._search(list(argument))
            call(*arguments)

        return watched

    def _look(self, address: int) -> None:
        storage, integers = self._storages[address]
        assert not storage.expired(), "a compiled call was given the address of a tensor that is gone"
        self.found += 1
        if integers:
            self._search(list((ctypes.c_int64 * integers).from_address(address)))

    def _search(self, numbers: list[Any]) -> None:
        for number in numbers:
            if isinstance(number, int) and number in self._storages:
                assert not self._storages[number][0].expired(), (
                    "a table holds the address of a tensor that is gone"
                )
                self.found += 1


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.mark.parametrize("draft", ["model", "head", "recurrent"])
def test_every_address_is_of_something_alive(draft: str, watch: Watch, llama: Pair, tmp_path: Path) -> None:
    """Sampled and greedy, alone and in a batch: trees, chains in one call, and prompts."""
    width = llama.target_model.width
    folder = {
        "model": lambda: llama.draft,
        "head": lambda: save_head(tmp_path / "head", width),
        "recurrent": lambda: save_recurrent(tmp_path / "recurrent", width),
    }[draft]()
    for tree in ("chain:3", "expand:2,2"):
        engine = load_engine(llama.target, folder, tree=tree, max_batch=3, prefill_chunk=7)
        for count in (1, 3):
            for temperature in (0.0, 1.0):
                sampling = Sampling(temperature=temperature, seed=1, max_tokens=8)
                drain(engine, [([5, 9, 2, 7, 1, 3, 8, 4, 6], sampling)] * count)
    assert watch.calls > 100
    assert watch.found > 4 * watch.calls


def test_an_address_of_a_temporary_is_found(watch: Watch) -> None:
    """The control."""
    of = ops.Quantised(torch.ones(10, 4), torch.ones(4, 3), torch.ones(5, 4))
    after, logits = torch.empty(1, 4), torch.empty(1, 5)
    token, scratch = torch.ones(1, 10), of.scratch.address(1000)
    rest = (
        of.addresses.data_ptr(),
        scratch,
        of.short.data_ptr(),
        after.data_ptr(),
        logits.data_ptr(),
        4,
        3,
        5,
    )
    with pytest.raises(AssertionError, match="was given the address"):
        ops._recurrent(torch.ones(1, 4).data_ptr(), token.data_ptr(), *rest)
    del of._packed
    with pytest.raises(AssertionError, match="a table holds the address"):
        ops.recurrent(torch.ones(1, 4), token, of)
