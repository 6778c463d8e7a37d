"""Names, dtypes and shapes of the tensors in a file of `torch.save`, without torch and without running it.

Such a file is a zip with a pickle, which is a program. This reader knows the few functions that describe a
tensor, and refuses every other one, so nothing of the file runs. Weights are not read. The format: PyTorch,
torch/serialization.py, since 1.6; older files are refused.
"""

from __future__ import annotations

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DTYPES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8",
    "ByteStorage": "U8", "BoolStorage": "BOOL",
}  # fmt: skip
LONGEST = 100_000_000
"""Bytes of the pickle, which only describes tensors."""

Described = tuple[str, tuple[int, ...]]


class _Storage:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in DTYPES:
            return _Storage(DTYPES[name])
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor"):
            return lambda storage, offset, shape, *rest: (storage.dtype, tuple(shape))
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda tensor, *rest: tensor
        raise pickle.UnpicklingError(f"it calls {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        storage: _Storage = pid[1]
        return storage


def read_pickled(path: Path) -> dict[str, Described] | None:
    """Return (dtype, shape) of each tensor by name; None for a file of another form, or a damaged one."""
    try:
        with zipfile.ZipFile(path) as archive:
            inner = next(info for info in archive.infolist() if info.filename.endswith("data.pkl"))
            if inner.file_size > LONGEST:
                return None
            with archive.open(inner) as file:
                content = _Reader(file).load()
    except Exception:  # a stranger's bytes may raise anything; the caller says that they were not read
        return None
    return dict(_tensors("", content)) if isinstance(content, Mapping) else None


def _tensors(prefix: str, content: Mapping[Any, Any]) -> list[tuple[str, Described]]:
    """Return all tensors of a state dict, and of dicts inside it."""
    listed: list[tuple[str, Described]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        match value:
            case Mapping():
                listed += _tensors(f"{name}.", value)
            case (str(dtype), tuple(shape)) if dtype in DTYPES.values():
                listed.append((name, (dtype, tuple(map(int, shape)))))
    return listed
