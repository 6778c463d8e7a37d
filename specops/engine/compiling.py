"""C functions made of Python ones, by Numba: small loops that are called once a step or oftener.

A call keeps the interpreter's lock: it is over before another thread could have had it. What is compiled is
kept on disk, and taken for current as long as the file of the compiled function is, so such a function has
all that it calls in its own file.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from numba import cfunc, types

# Sums may be reordered, which lets them be vectorised; infinities and NaN keep their meaning.
ARITHMETIC = {"contract", "reassoc", "nsz", "arcp", "afn"}

_NUMBERS = {types.int64: ctypes.c_int64, types.float32: ctypes.c_float, types.float64: ctypes.c_double}

_kept: list[Any] = []


def compiled(*arguments: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """arguments: Numba's types. Pointers are given as addresses, as ctypes arrays or as bytes."""

    def of(function: Callable[..., None]) -> Callable[..., None]:
        # error_model: a division is not looked at, which would keep loops from being vectorised.
        options = {"fastmath": ARITHMETIC, "error_model": "numpy"}
        signature = types.void(*arguments)
        try:
            made = cfunc(signature, cache=True, **options)(function)
        # No place, neither beside this file nor in a home; none left on it; or what lies there is torn.
        except (RuntimeError, OSError, EOFError, UnpicklingError):
            made = cfunc(signature, **options)(function)
        taken: list[Any] = [_NUMBERS.get(argument, ctypes.c_void_p) for argument in arguments]
        call: Callable[..., None] = ctypes.PYFUNCTYPE(None, *taken)(made.address)
        _kept.append(made)  # its code lives as long as it does
        return call

    return of
