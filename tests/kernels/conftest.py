"""The kernels' tests: on a GPU where one is here, otherwise in Triton's interpreter (tests/conftest.py)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

MISSING = [name for name in ("torch", "triton") if find_spec(name) is None]
if MISSING and not os.environ.get("CI"):
    pytest.skip(f"the kernels' tests need {' and '.join(MISSING)}", allow_module_level=True)

import torch  # noqa: E402

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("a GPU, but a torch without it; TRITON_INTERPRET=1 interprets", allow_module_level=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Triton 3.6's interpreter makes scalars of arrays of one element, which NumPy 2.4 refuses."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"))


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
