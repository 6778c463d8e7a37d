"""`bench kernels`: the Triton kernels on this machine's GPU, first checked, then timed beside their peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

from specops_kernels.bench import gpu
from specops_kernels.bench.contest import OURS, Ceilings, Contest, Outcome, Timer, held
from specops_kernels.bench.programme import programme

from specops import results
from specops.progress import Progress
from specops.section import Frozen


class KernelSettings(Frozen):
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    quick: bool = False


class ContestRecord(Frozen):
    """One contest, as it is stored."""

    contest: str
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
    copied_gb_s: float
    multiplied_tflop_s: float
    contests: list[ContestRecord]


@dataclass(frozen=True)
class Machine:
    """The device of the contests: a GPU, or what a test puts in its place."""

    name: str
    timer: Timer
    ceilings: Callable[[str], Ceilings]
    """By type."""

    contests: Callable[[KernelSettings], tuple[int, Iterator[Contest]]]


def this_machine() -> Machine:
    """This machine's first GPU, or an error that says what is missing."""
    device = gpu.first()
    return Machine(
        gpu.name(device),
        gpu.median,
        lambda dtype: gpu.ceilings(gpu.TYPES[dtype], device),
        lambda settings: programme(gpu.TYPES[settings.dtype], settings.quick, device),
    )


def measure(settings: KernelSettings, machine: Machine, progress: Progress) -> results.Result:
    count, contests = machine.contests(settings)
    progress.start("kernels", count)
    ceilings = machine.ceilings(settings.dtype)
    outcomes = []
    for outcome in held(contests, ceilings, machine.timer):
        outcomes.append(outcome)
        progress.advance()
    wrong = [outcome.contest for outcome in outcomes if not outcome.right]
    measured = KernelsData(
        device=machine.name,
        copied_gb_s=ceilings.copied / 1e9,
        multiplied_tflop_s=ceilings.multiplied / 1e12,
        contests=[_timed(outcome, ceilings) for outcome in outcomes],
    )
    return results.Result(
        phase="kernels",
        settings=settings.model_dump(mode="json"),
        environment=results.environment() | {"torch": version("torch"), "triton": version("triton")},
        verdict="no" if wrong else "yes",
        reason=_reason(len(outcomes), wrong),
        summary={one.contest: one.share for one in measured.contests},
        data=measured.model_dump(mode="json"),
    )


def _reason(count: int, wrong: list[str]) -> str:
    if wrong:
        return f"{len(wrong)} of {count} are wrong: {'; '.join(wrong)}"
    return f"all {count} are right, within the tolerances of their references"


def _timed(outcome: Outcome, ceilings: Ceilings) -> ContestRecord:
    entries = outcome.entries
    return ContestRecord(
        contest=outcome.contest,
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


def table(measured: KernelsData) -> tuple[list[str], list[list[str]]]:
    """Return for each contest time, bytes, floor and shares; then how many times as long the others take."""
    others = list(dict.fromkeys(arm for one in measured.contests for arm in one.ratio))
    columns = ["kernel", "µs", "MB", "floor µs", "bound", "of floor", "of copy", *others]
    rows = []
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
    return columns, rows


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


def page(result: results.Result) -> str:
    """A section for kernels/RESULTS.md: date, device, what was measured, and what was not."""
    measured = KernelsData.model_validate(result.data)
    columns, rows = table(measured)
    environment = result.environment
    lines = [
        f"### {result.created:%Y-%m-%d}, {measured.device}, {result.settings['dtype']}",
        "",
        f"torch {environment['torch']}, Triton {environment['triton']}. Ceilings measured in this run: copy"
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
