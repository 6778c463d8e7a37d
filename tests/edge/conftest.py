"""Fixtures of the edge's tests: the engine's tiny pairs and oracles, which lie beside its own tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

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
def llama(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return save_pair(
        "llama", tmp_path_factory.mktemp("llama"), PreTrainedTokenizerFast.from_pretrained(tiny_pair[0])
    )
