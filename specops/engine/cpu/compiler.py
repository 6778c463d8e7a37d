"""Machine code made of Python functions by Numba: small loops that are called once a step or more often.

A call keeps the interpreter's lock, since it ends before another thread could have had it.

The machine code is stored on disk. A process that finds it there does without Numba, whose import takes a
second of CPU, a third of a server's start. So a loop must do without Python: it allocates nothing, cannot
fail, and calls only functions of its own module. Stored code is current while that module, this one, Numba,
LLVM and the processor are the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm

# Sums may be reordered, which lets them be vectorised; infinities and NaN keep their meaning.
ARITHMETIC = {"contract", "reassoc", "nsz", "arcp", "afn"}

OF_C = {"memcpy", "memmove", "memset", "sqrt", "sqrtf", "floor", "floorf"}
"""Functions that machine code may call: every process has C's memory and mathematics."""

SPAN = 5
"""Integers of a span: row, first slot, tokens, slots that its mask covers, and the mask's address."""

ROWS = 64
"""Rows of a quantised matrix that are multiplied at once, and are stored together."""

_NUMBERS: dict[str, Any] = {"int64": ctypes.c_int64, "float32": ctypes.c_float, "float64": ctypes.c_double}

Call = Callable[..., None]

_linked: list[Any] = []  # machine code lives as long as its engine


@dataclass(frozen=True)
class Loop:
    """A function to compile, and Numba's types of its arguments."""

    function: Callable[..., None]
    arguments: tuple[Any, ...]


def loop(*arguments: Any) -> Callable[[Callable[..., None]], Loop]:
    """Decorator: a Loop of the function with these types of arguments."""
    return lambda function: Loop(function, arguments)


@dataclass(frozen=True)
class _Code:
    """A compiled loop."""

    symbol: str
    arguments: list[str]  # names of Numba's types; what is not in _NUMBERS is a pointer
    machine_code: bytes


def load(module: str, name: str, *constants: int) -> Call:
    """The Loop `name` of `module` as a C function; with `constants`, the Loop that the function `name`
    returns for them.

    Pointers are given as addresses, as ctypes arrays or as bytes. The module is imported only if no machine
    code of it is stored. Raises ValueError for a loop that needs Python.
    """
    key = _key(module)
    file = "-".join((module, name, *map(str, constants), _processor()[2])) + ".loop"
    code = next(filter(None, (_read(folder / file, key) for folder in _folders(module))), None)
    if code is None:
        source = getattr(import_module(module), name)
        code = _compiled(source(*constants) if constants else source)
        for folder in _folders(module):
            if _written(folder / file, key, code):
                break
    return _linked_in(code)


def _compiled(source: Loop) -> _Code:
    """Compile a loop. Raises ValueError if its code would call Python."""
    from numba import cfunc, types

    # error_model: no check of divisions, which would keep loops from being vectorised.
    options = {"fastmath": ARITHMETIC, "error_model": "numpy"}
    compiled = cfunc(types.void(*source.arguments), **options)(source.function)
    module = llvm.parse_assembly(compiled.inspect_llvm())
    # With internal linkage LLVM knows all callers of a part, and so that no caller needs its error code.
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != compiled.native_name:
            value.linkage = "internal"
    machine = _machine()
    passes = llvm.create_new_module_pass_manager()
    passes.add_ipsccp_pass()
    passes.add_simplify_cfg_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    outside = {value.name for value in (*module.functions, *module.global_variables) if value.is_declaration}
    needed = {symbol for symbol in outside - OF_C if not symbol.startswith("llvm.")}
    if needed:
        raise ValueError(f"the loop {source.function.__name__} needs {', '.join(sorted(needed))}")
    types_of = [str(argument) for argument in source.arguments]
    return _Code(compiled.native_name, types_of, machine.emit_object(module))


def _linked_in(code: _Code) -> Call:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.machine_code))
    engine.finalize_object()
    _linked.append(engine)
    argument_types = [_NUMBERS.get(argument, ctypes.c_void_p) for argument in code.arguments]
    call: Call = ctypes.PYFUNCTYPE(None, *argument_types)(engine.get_function_address(code.symbol))
    return call


@cache
def _processor() -> tuple[str, str, str]:
    """The processor's name, its features, and a short hash of both."""
    name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return name, features, hashlib.sha256(f"{name} {features}".encode()).hexdigest()[:8]


def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features, _ = _processor()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=3, codemodel="jitdefault", jit=True)


@cache
def _key(module: str) -> str:
    """A hash of everything that the machine code of a module's loops is made from."""
    digest = hashlib.sha256(f"{version('numba')} {version('llvmlite')}".encode())
    for path in (_source(module), Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _source(module: str) -> Path:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


def _folders(module: str) -> Iterator[Path]:
    """Folders in which machine code may be stored: beside the module, else in the user's cache."""
    yield _source(module).parent / "__pycache__"
    with suppress(RuntimeError):  # no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "specops"


def _read(path: Path, key: str) -> _Code | None:
    """The stored code. None where nothing is stored, where it was made from other sources, or where the file
    is damaged and would crash."""
    try:
        head, _, machine_code = path.read_bytes().partition(b"\n")
        described = json.loads(head)
        if described["key"] != key or described["sha256"] != hashlib.sha256(machine_code).hexdigest():
            return None
        return _Code(described["symbol"], described["arguments"], machine_code)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _written(path: Path, key: str, code: _Code) -> bool:
    """Store the code, whole or not at all, since others may read meanwhile. Returns whether a folder took
    it."""
    described = {
        "key": key,
        "sha256": hashlib.sha256(code.machine_code).hexdigest(),
        "symbol": code.symbol,
        "arguments": code.arguments,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            partial.write_bytes(json.dumps(described).encode() + b"\n" + code.machine_code)
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
    except OSError:
        return False
    return True
