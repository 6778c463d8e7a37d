"""Kernels compiled ahead of time for GPUs that are not here, and what they take of those.

Compiling needs no driver: Triton brings LLVM, ptxas and cuobjdump along. It proves that a kernel compiles for
a target, within so many registers and so much shared memory, and without spilling; not that it is right or
fast.
Kernels that were imported with TRITON_INTERPRET=1 cannot be compiled.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS: dict[str, GPUTarget] = {
    "sm_80": GPUTarget("cuda", 80, 32),  # A100
    "sm_90": GPUTarget("cuda", 90, 32),  # H100, H200
    "sm_100": GPUTarget("cuda", 100, 32),  # B200
    "gfx942": GPUTarget("hip", "gfx942", 64),  # MI300X
}

SHARED = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 64 * 1024}
"""Bytes of shared memory that one program can have (CUDA C++ Programming Guide; CDNA 3 ISA)."""


@dataclass(frozen=True)
class Subject:
    """A kernel as one kind of launch specialises it."""

    name: str
    kernel: Any  # what @triton.jit made
    types: Mapping[str, Any]
    """Types of its arguments: "*bf16" a pointer (16-byte aligned), "i32", "fp32", or a named tuple of
    such."""

    constants: Mapping[str, Any]
    divisible: frozenset[str] = field(default_factory=frozenset)  # integers that are multiples of 16
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True)
class Resources:
    registers: int  # of a thread; on AMD, VGPRs and AGPRs together
    shared: int  # bytes
    spilled: int  # bytes of a thread's registers that lie in memory (on NVIDIA: its stack)
    matrix: str  # the instruction that multiplies matrices, of MATRIX; "" where none does
    seconds: float  # to compile


MATRIX = ("tcgen05.mma", "wgmma.mma_async", "mma.sync", "v_mfma")
"""Instructions of Blackwell's, Hopper's and older tensor cores, and CDNA's: the first of these that the
assembly has."""


def compiled(subject: Subject, target: str) -> Resources:
    """Return the resources that `subject` takes on a target of TARGETS. Raises whatever Triton does where it
    does not compile."""
    names = subject.kernel.arg_names
    signature = {name: subject.types.get(name, "constexpr") for name in names}
    unknown = (set(subject.types) | set(subject.constants)).symmetric_difference(names)
    if unknown or set(subject.types) & set(subject.constants):
        raise ValueError(f"{subject.name}: neither one type nor one value for each of {sorted(unknown)}")
    aligned = {
        place: [["tt.divisibility", 16]]
        for index, name in enumerate(names)
        for place, part, kind in _parts((index,), name, signature[name])
        if kind.startswith("*") or part in subject.divisible
    }
    source = ASTSource(
        fn=subject.kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in subject.constants.items()},
        attrs=aligned,
    )
    options = {"num_warps": subject.warps, "num_stages": subject.stages}
    # Into an empty cache: the time is a compilation's, and ptxas speaks only when it runs.
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        begun = time.perf_counter()
        binary = triton.compile(source, target=TARGETS[target], options=options)
        seconds = time.perf_counter() - begun
    if "amdgcn" in binary.asm:
        registers, spilled = _amd(binary.asm["amdgcn"])
    else:
        registers, spilled = _nvidia(binary.asm["cubin"])
    assembly = binary.asm["amdgcn" if "amdgcn" in binary.asm else "ptx"]
    matrix = next((one for one in MATRIX if one in assembly), "")
    return Resources(registers, binary.metadata.shared, spilled, matrix, seconds)


def _parts(place: tuple[int, ...], name: str, kind: Any) -> Iterator[tuple[tuple[int, ...], str, str]]:
    """An argument, or those of a named tuple: where it is, "name" or "name.field", and its type."""
    if isinstance(kind, str):
        yield place, name, kind
    else:
        for field_at, (part, of) in enumerate(zip(kind._fields, kind, strict=True)):
            yield from _parts((*place, field_at), f"{name}.{part}", of)


def _nvidia(cubin: bytes) -> tuple[int, int]:
    """Registers, and bytes spilled."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        said = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    used = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}
    return used["REG"], used["STACK"] + used["LOCAL"]


def _amd(assembly: str) -> tuple[int, int]:
    def of(key: str) -> int:
        found = re.search(rf"^\s*-?\s*\.{key}:\s*(\d+)", assembly, re.MULTILINE)
        if found is None:
            raise ValueError(f"the compiler's assembly does not say .{key}")
        return int(found[1])

    # .vgpr_count counts AGPRs too: on CDNA they are one file. SGPRs spill into lanes of VGPRs, which is no
    # memory; where those do not suffice, the private segment has them.
    spilled = of("private_segment_fixed_size") + 4 * of("vgpr_spill_count")
    return of("vgpr_count"), spilled
