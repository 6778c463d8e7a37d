"""The Triton kernels on this machine's GPU, first checked, then timed beside PyTorch's and FlashInfer's.

    python benchmarks/gpu_kernels.py [--dtype bfloat16] [--quick] [--json FILE] [--page kernels/RESULTS.md]

The exit code is 1 if a kernel is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from specops_kernels.bench import gpu
from specops_kernels.bench.contest import OURS, Ceilings, Contest, Outcome, Timer, held
from specops_kernels.bench.programme import programme

from specops.errors import EnvironmentFailure
from specops.render.figures import aligned
from specops.section import Frozen


class ContestRecord(Frozen):
    """One contest, as it is stored."""

    contest: str
    right: bool
    bytes: int
    bound: Literal["memory", "math"]
    floor_us: float
    share: float | None
    """The floor over our time: 1 is all that the device can do."""

    copy_share: float | None
    """Bytes that must be moved, over those that a copy moves in our time."""

    us: dict[str, float | None]
    """Time in µs by arm; None where an arm has no time."""

    ratio: dict[str, float | None]
    """How many times as long as specops another takes."""

    error: dict[str, float | None]
    reasons: dict[str, str]
    """Why an arm has no time."""


class KernelsData(Frozen):
    device: str
    dtype: str
    copied_gb_s: float
    multiplied_tflop_s: float
    contests: list[ContestRecord]

    @property
    def wrong(self) -> list[str]:
        return [one.contest for one in self.contests if not one.right]


@dataclass(frozen=True)
class Machine:
    """The device of the contests: a GPU, or what a test puts in its place."""

    name: str
    timer: Timer
    ceilings: Callable[[str], Ceilings]
    """By type."""

    contests: Callable[[str], Iterator[Contest]]
    """By type."""


def this_machine(quick: bool) -> Machine:
    """Return this machine's first GPU. Raises EnvironmentFailure where torch sees none."""
    device = gpu.first()
    return Machine(
        gpu.name(device),
        gpu.median,
        lambda dtype: gpu.ceilings(gpu.TYPES[dtype], device),
        lambda dtype: programme(gpu.TYPES[dtype], quick, device)[1],
    )


def measure(dtype: str, machine: Machine) -> KernelsData:
    ceilings = machine.ceilings(dtype)
    return KernelsData(
        device=machine.name,
        dtype=dtype,
        copied_gb_s=ceilings.copied / 1e9,
        multiplied_tflop_s=ceilings.multiplied / 1e12,
        contests=[
            _timed(outcome, ceilings) for outcome in held(machine.contests(dtype), ceilings, machine.timer)
        ],
    )


def reason(measured: KernelsData) -> str:
    count = len(measured.contests)
    if measured.wrong:
        return f"{len(measured.wrong)} of {count} are wrong: {'; '.join(measured.wrong)}"
    return f"all {count} are right, within the tolerances of their references"


def _timed(outcome: Outcome, ceilings: Ceilings) -> ContestRecord:
    entries = outcome.entries
    return ContestRecord(
        contest=outcome.contest,
        right=outcome.right,
        bytes=outcome.bytes,
        bound="math" if outcome.bound == "math" else "memory",
        floor_us=outcome.floor_seconds * 1e6,
        share=outcome.share,
        copy_share=None if outcome.moved is None else outcome.moved / ceilings.copied,
        us={one.arm: None if one.seconds is None else one.seconds * 1e6 for one in entries},
        ratio={one.arm: outcome.ratio(one.arm) for one in entries if one.arm != OURS},
        error={one.arm: one.error for one in entries},
        reasons={one.arm: one.reason for one in entries if one.reason is not None},
    )


def table(measured: KernelsData) -> list[list[str]]:
    """Return the columns' names, then for each contest time, bytes, floor and shares, and how many times as
    long the others take."""
    others = list(dict.fromkeys(arm for one in measured.contests for arm in one.ratio))
    columns = ["kernel", "µs", "MB", "floor µs", "bound", "of floor", "of copy", *others]
    rows = [columns]
    for one in measured.contests:
        ours = one.us[OURS]
        rows.append(
            [
                one.contest,
                "wrong" if ours is None else f"{ours:.1f}",
                f"{one.bytes / 1e6:.1f}",
                f"{one.floor_us:.1f}",
                one.bound,
                _share(one.share),
                _share(one.copy_share),
                *(_times(one, arm) for arm in others),
            ]
        )
    return rows


def _share(of: float | None) -> str:
    return "–" if of is None else f"{of:.0%}"


def _times(one: ContestRecord, arm: str) -> str:
    ratio = one.ratio.get(arm)
    return "–" if ratio is None else f"{ratio:.2f}×"


def notes(measured: KernelsData) -> list[str]:
    """Return why an arm has no time, each reason once."""
    found: dict[tuple[str, str], int] = {}
    for one in measured.contests:
        for arm, reason in one.reasons.items():
            found[arm, reason] = found.get((arm, reason), 0) + 1
    return [f"{arm}: {reason}" + (f" ({n} times)" if n > 1 else "") for (arm, reason), n in found.items()]


def page(measured: KernelsData) -> str:
    """A section for kernels/RESULTS.md: date, device, what was measured, and what was not."""
    columns, *rows = table(measured)
    lines = [
        f"### {datetime.now(UTC):%Y-%m-%d}, {measured.device}, {measured.dtype}",
        "",
        f"torch {version('torch')}, Triton {version('triton')}. Ceilings measured in this run: copy"
        f" {measured.copied_gb_s:,.0f} GB/s, product {measured.multiplied_tflop_s:,.0f} TFLOP/s. Medians,"
        " with a cold L2 cache, as CUDA graphs where the work never waits for the device; × is how many"
        " times as long another takes.",
        "",
        "| " + " | ".join(columns) + " |",
        "|---|" + "---:|" * (len(columns) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
        *(["", *(f"- {note}" for note in notes(measured))] if notes(measured) else []),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=[*gpu.TYPES], default="bfloat16")
    parser.add_argument("--quick", action="store_true", help="one or two sizes of each kernel")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--page", type=Path, help="Markdown file to which the answer is added")
    options = parser.parse_args()
    try:
        machine = this_machine(options.quick)
    except EnvironmentFailure as error:
        raise SystemExit(str(error)) from error
    measured = measure(options.dtype, machine)
    print(*aligned(table(measured)), *notes(measured), reason(measured), sep="\n")
    if options.page is not None:
        with options.page.open("a", encoding="utf-8") as file:
            file.write("\n" + page(measured))
    if options.json is not None:
        options.json.write_text(measured.model_dump_json(indent=1) + "\n", encoding="utf-8")
    if measured.wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
