"""The last page of a run: each figure where a person looks for it, the verdict and the next command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specops.cli.page import bar, page
from specops.config import Rollout
from specops.phases.playbook import Step, Walk
from specops.results import Result, Verdict

EMBEDDED = {"engine": "embedded"}
ROLLOUT = Rollout.model_validate(
    {
        "rollout": "demo",
        "pools": {"standard": EMBEDDED, "speculative": EMBEDDED | {"speculation": {"tree": "ngram:8"}}},
    }
)
LATENCY = {"p50": 3.14159, "p95": None}
PARITY = {"equal": 64, "compared": 64, "control": {"equal": 63, "compared": 64}}
COUNTS = {"rate": 0.623, "length": 2.87, "per_position": [0.9, 0.5, 0.1]}


def measured(
    verdict: Verdict = "yes", reason: str = "measured", failed: int = 0, counts: Any = COUNTS
) -> Result:
    levels = [
        {
            "concurrency": concurrency,
            "requests": 64,
            "failed": failed,
            "ttft_ms": {"p50": 12.6, "p95": 20.0},
            "tpot_ms": LATENCY,
            "e2e_ms": {"p50": 250.0, "p95": 300.0},
            "over_repeats": {"tokens_per_sec": {"estimate": 301.7}},
        }
        for concurrency in (1, 4)
    ]
    return Result(
        phase="baseline",
        verdict=verdict,
        reason=reason,
        environment={"cores": 2},
        data={
            "prompts": {"count": 64},
            "by_class": {"long": [], "edit": []},
            "by_concurrency": levels,
            "acceptance": counts,
            "acceptance_missing": None if counts else "the server exposes no counters",
        },
    )


def compared(
    verdict: Verdict, reason: str, pays_up_to: int | None = 1, parity: dict[str, Any] | None = PARITY
) -> Result:
    interval = {"estimate": 1.624, "low": 1.55, "high": 1.7}
    return Result(
        phase="compare",
        verdict=verdict,
        reason=reason,
        environment={"cores": 2},
        summary={"pays_up_to": pays_up_to},
        data={
            "by_class": {"long": {"levels": [{"e2e": interval}]}, "edit": {"levels": [{"e2e": None}]}},
            "by_concurrency": [
                {"concurrency": 1, "e2e": {"estimate": 1.4, "low": 1.3, "high": 1.5}},
                {"concurrency": 4, "e2e": {"estimate": 0.9, "low": 0.85, "high": 0.95}},
            ],
            "parity": parity,
            "parity_missing": None if parity else "outputs are comparable at temperature 0 only",
        },
    )


def lines(*steps: Result) -> list[str]:
    phases = ("baseline", "speculative", "compare")
    walk = Walk("demo", Path("runs/demo"))
    for phase, result in zip(phases, steps, strict=False):
        walk.steps.append(Step(phase, walk.folder / f"{phase}.json", result, reused=False))
    return page(walk, ROLLOUT, Path("rollout.yaml"))


def test_a_whole_run() -> None:
    assert lines(measured(), measured(), compared("yes", "deploy for long; not for edit: too few")) == [
        "demo · 2 cores · 64 prompts in 2 classes · runs/demo",
        "  measured  standard     1 stream   TTFT 13 ms  TPOT 3.14 ms  p95 –  E2E 250 ms  302 tok/s",
        "  measured  standard     4 streams  TTFT 13 ms  TPOT 3.14 ms  p95 –  E2E 250 ms  302 tok/s",
        "  measured  speculative  1 stream   TTFT 13 ms  TPOT 3.14 ms  p95 –  E2E 250 ms  302 tok/s",
        "  measured  speculative  4 streams  TTFT 13 ms  TPOT 3.14 ms  p95 –  E2E 250 ms  302 tok/s",
        "  compared  long  1.62× [1.55, 1.70]   edit  – (too few prompts)   parity 64/64 (control 63/64)",
        "  accepted  0.62 of drafts, 2.9 tokens a step  █▅▁ by position",
        "Deploy for long; not for edit: too few. Above 1 stream it stops paying.",
        "next: specops serve --tree ngram:8",
    ]


@pytest.mark.parametrize(
    ("result", "verdict", "following"),
    [
        (
            compared("yes", "deploy for long", pays_up_to=4),
            "It pays at every load measured, up to 4 streams.",
            "",
        ),
        (compared("no", "do not deploy: slower"), "Do not deploy: slower.", "change pools.speculative"),
        (compared("undecided", "not enough evidence"), "Not enough evidence.", "raise measure.repeats"),
    ],
)
def test_each_verdict_and_what_to_do_next(result, verdict, following) -> None:
    page = lines(measured(), measured(), result)
    assert page[-2].endswith(verdict)
    assert following in page[-1]


def test_a_measurement_that_failed() -> None:
    page = lines(measured("no", "12 of 64 requests failed: 12 timeout", failed=12))
    assert page[1].endswith("12 of 64 failed")
    assert page[-2] == "12 of 64 requests failed: 12 timeout."
    assert "specops run rollout.yaml; it resumes" in page[-1]


def test_parity_without_a_control_says_what_it_takes() -> None:
    page = lines(measured(), measured(), compared("no", "slower", parity=PARITY | {"control": None}))
    assert page[5].endswith("parity 64/64 (control needs two repeats)")


def test_what_is_not_known_is_said_with_its_reason() -> None:
    page = lines(measured(), measured(counts=None), compared("yes", "deploy", parity=None))
    assert "  accepted  not known: the server exposes no counters" in page
    assert "parity not asked: outputs are comparable at temperature 0 only" in page[5]


@pytest.mark.parametrize(("share", "drawn"), [(0.0, "▁"), (0.5, "▅"), (0.999, "█"), (1.0, "█"), (None, " ")])
def test_a_bar_for_a_share(share, drawn) -> None:
    assert bar(share) == drawn
