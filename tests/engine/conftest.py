"""Fixtures of the engine's tests: tiny random models of every supported family, and one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# Reproducible, and never judged by the clock of a busy machine.
settings.register_profile("engine", deadline=None, derandomize=True, database=None)
settings.load_profile("engine")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """The tensors are tiny: a second thread only waits for the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
