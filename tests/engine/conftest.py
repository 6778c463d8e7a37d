"""Fixtures of the engine's tests: tiny random models of every supported family, and one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from sampled_output import save_models
from tiny_models import Pair, save_pair
from transformers import PreTrainedTokenizerFast


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """The tensors are tiny: a second thread only waits for the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def pair_of(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A family's name -> its pair, made once."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tiny_pair[0])

    @cache
    def make(family: str) -> Pair:
        return save_pair(family, tmp_path_factory.mktemp(family), tokenizer)

    return make


@pytest.fixture(scope="session")
def llama(pair_of: Callable[[str], Pair]) -> Pair:
    return pair_of("llama")


@pytest.fixture(scope="session")
def small(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    """By kind, the folders of a target (None) and of drafts for it, over a vocabulary of a few tokens."""
    return save_models(tmp_path_factory.mktemp("small"), tiny_pair[0])
