"""Measure, roll out and guard speculative decoding for LLM serving.

The functions of `__all__` are the Python API (docs/python.md). They are loaded when the first is used, so
that `import specops` takes no time.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would be the only import here
if TYPE_CHECKING:
    from specops.api import baseline, compare, lint, read, verify_draft

__version__ = "0.1.0"
__all__ = ["baseline", "compare", "lint", "read", "verify_draft"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("specops.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
