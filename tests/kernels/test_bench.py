"""benchmarks/gpu_kernels.py but for what only a GPU can say: tiny sizes, interpreted, by a clock of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import ModuleType

import pytest
import torch
from benchmark_scripts import load_benchmark, run_benchmark
from specops_kernels.bench import attention, compaction, peers, sampling, verification
from specops_kernels.bench.contest import OURS, Absent, Ceilings, Contest, Outcome, held
from torch import Tensor

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CEILINGS = Ceilings(copied=1e9, multiplied=1e12)
ATTENTION = attention.Case(sequences=2, nodes=5, prefix=9, heads=4, kv_heads=2, dim=16)
COMPACTION = compaction.Case(sequences=2, layers=2, kv_heads=1, dim=8, start=3)
VERIFICATION = verification.Case(sequences=2, nodes=7, vocabulary=40)

SAMPLING = sampling.Case(sequences=2, nodes=7, vocabulary=40)
KERNELS = ["tree attention", "KV compaction", "greedy verification", "multi-step sampling", "traversal"]


def clock(seconds: Iterator[float]) -> Callable[[Callable[[], object]], float]:
    """A timer that does the work once, and says what it is given."""

    def timed(work: Callable[[], object]) -> float:
        work()
        return next(seconds)

    return timed


def second(work: Callable[[], object]) -> float:
    work()
    return 1.0


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    made = [
        *attention.contests((ATTENTION,), torch.float32, DEVICE),
        *compaction.contests((COMPACTION,), torch.bfloat16, DEVICE),
        *verification.contests((VERIFICATION,), torch.float32, DEVICE),
        *sampling.contests((SAMPLING,), torch.float32, DEVICE),
    ]
    # Compiled, flex_attention would take a C++ compiler and a minute: the next test has it as it is.
    made[0] = replace(made[0], arms={k: arm for k, arm in made[0].arms.items() if k != "flex_attention"})
    return {outcome.contest.partition(",")[0]: outcome for outcome in held(iter(made), CEILINGS, second)}


@pytest.mark.parametrize("kernel", KERNELS)
def test_all_who_are_here_are_right(kernel: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[kernel]
    assert outcome.right
    for entry in outcome.entries:
        if entry.arm != "FlashInfer" or not isinstance(peers.absent("flashinfer"), Absent):
            assert entry.seconds == 1.0, entry


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
def test_flex_attention_sees_what_we_see() -> None:
    made = attention.Inputs.of(ATTENTION, torch.float32, DEVICE)
    expected = attention.tree_attention_naive.tree_attention(made.q, made.kv, made.batch)
    assert (peers.flex(made, compiled=False)() - expected).abs().max() < 1e-5


def test_floors() -> None:
    """Counted by hand for an H200, 4.3 TB/s and 790 TFLOP/s: of each key and value once."""
    case = attention.Case(16, 16, 4096)
    assert case.bytes(2) / 4.3e12 == pytest.approx(63.6e-6, rel=2e-3)
    assert case.operations / 790e12 == pytest.approx(21.8e-6, rel=2e-3)
    assert compaction.Case(32).bytes(2) == pytest.approx(33.6e6, rel=2e-3)
    assert verification.Case(32, 64).bytes(2) == pytest.approx(525e6, rel=2e-3)


def _contest(ours: Tensor, other: Callable[[], Tensor]) -> Contest:
    return Contest(
        name="a kernel, of one number",
        bytes=2_000,
        operations=1_000_000,
        reference=lambda: torch.ones(1, dtype=torch.float64),
        tolerance=0.1,
        arms={
            OURS: lambda: lambda: ours,
            "another": lambda: other,
            "absent": Absent("not installed"),
        },
    )


def test_shares_and_ratios() -> None:
    contest = _contest(torch.ones(1), lambda: torch.ones(1))
    (outcome,) = held(iter([contest]), CEILINGS, clock(iter([4e-6, 6e-6])))
    assert outcome.bound == "memory"
    assert outcome.floor_seconds == pytest.approx(2e-6)
    assert outcome.share == pytest.approx(0.5)
    assert outcome.ratio("another") == pytest.approx(1.5)
    assert outcome.ratio("absent") is None
    (outcome,) = held(iter([contest]), Ceilings(1e9, 1e11), clock(iter([4e-5, 6e-5])))
    assert (outcome.bound, outcome.share) == ("math", pytest.approx(0.25))


def test_who_is_wrong_is_not_timed() -> None:
    def broken() -> Tensor:
        raise RuntimeError("no kernel image\nand a long trace")

    for value in (1.5, torch.nan):
        contest = _contest(torch.full((1,), value), broken)
        (outcome,) = held(iter([contest]), CEILINGS, clock(iter([])))
        assert not outcome.right
        assert outcome.share is None
        assert str(outcome[OURS].reason).startswith("wrong by")
        assert outcome["another"].reason == "RuntimeError: no kernel image"


kernels: ModuleType = load_benchmark("gpu_kernels")


def machine(contests: list[Contest]) -> object:
    return kernels.Machine("a GPU", second, lambda dtype: CEILINGS, lambda dtype: iter(contests))


def test_result_and_page() -> None:
    right, wrong = (
        _contest(torch.ones(1), lambda: torch.ones(1)),
        _contest(torch.zeros(1), lambda: torch.ones(1)),
    )
    measured = kernels.measure("bfloat16", machine([right]))
    assert (measured.wrong, kernels.reason(measured)) == (
        [],
        "all 1 are right, within the tolerances of their references",
    )
    page = kernels.page(measured)
    assert page.startswith(f"### {datetime.now(UTC):%Y-%m-%d}, a GPU, bfloat16\n")
    assert "| a kernel, of one number | 1000000.0 | 0.0 | 2.0 | memory | 0% | 0% | 1.00× | – |" in page
    assert "- absent: not installed" in page

    measured = kernels.measure("bfloat16", machine([right, wrong]))
    assert measured.wrong == ["a kernel, of one number"]
    assert kernels.reason(measured) == "1 of 2 are wrong: a kernel, of one number"
    assert kernels.table(measured)[2][1] == "wrong"
    assert any("wrong by 1" in note for note in kernels.notes(measured))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu() -> None:
    ended = run_benchmark("gpu_kernels")
    assert ended.returncode == 1
    assert "this torch is built for CPUs" in ended.stderr or "torch sees no GPU" in ended.stderr
