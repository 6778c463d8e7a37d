"""The last page of a run: the answer by load, the phases, what was measured, the next command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_windows import judgement, windows

from specops.cli.page import _wrapped, page
from specops.config import Rollout
from specops.experiment.records import WindowRecord
from specops.phases import PhaseName
from specops.phases.playbook import Skipped, Step, Walk
from specops.results import Result, Verdict

EMBEDDED = {"engine": "embedded"}
POOLS = {"standard": EMBEDDED, "speculative": EMBEDDED | {"speculation": {"tree": "ngram:8"}}}
ARMS = ("standard", "speculative")
PROMPTS = {"count": 48, "classes": {"edit": 16, "long": 16, "short": 16}}


def rollout(**pools: Any) -> Rollout:
    return Rollout.model_validate({"rollout": "demo", "pools": POOLS | pools})


def baseline(verdict: Verdict = "yes", reason: str = "measured", failed: int = 0) -> Result:
    levels = [
        {
            "concurrency": concurrency,
            "requests": 64,
            "failed": failed,
            "ttft_ms": {"p50": 12.6, "p95": 20.0},
            "tpot_ms": {"p50": 3.14159, "p95": None},
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
        data={"prompts": PROMPTS, "by_concurrency": levels},
    )


def compared(made: list[WindowRecord], **asked: Any) -> Result:
    found = judgement(made, ARMS, **asked)
    known = {"prompts": PROMPTS, "run": "abcd", "windows": [], "margins": []}
    return Result(
        phase="ab",
        verdict=found.verdict,
        reason=found.reason,
        summary=found.summary,
        environment={"cores": 2},
        data=json.loads(json.dumps(found.data)) | known,
    )


def lines(*steps: Result, reused: bool = False, **pools: Any) -> list[str]:
    phases: tuple[PhaseName, ...] = ("baseline", "ab")
    walk = Walk("demo", Path("runs/demo"))
    for phase, result in zip(phases, steps, strict=False):
        walk.steps.append(Step(phase, walk.folder / f"{phase}.json", result, reused=reused))
    return page(walk, rollout(**pools), Path("rollout.yaml"))


def test_a_whole_run() -> None:
    def speed(arm: str, name: str) -> float:
        return {"edit": 0.5}.get(name, 2.0) if arm == "speculative" else 1.0

    shown = lines(baseline(), compared(windows(speed, arms=ARMS, noise=0.0, concurrency=(1, 4))))
    assert shown[0].startswith("At 1 stream, speculation answers faster for long (2.00× [2.00, 2.00]), short")
    assert any(line.startswith("Same answers: ") for line in shown)
    at = shown.index("")
    assert "Decision: use speculation for long and short at 1 and 4 streams a server." in " ".join(shown[:at])
    assert shown[at + 1 : at + 3] == [
        "  baseline     passed     measured",
        "  ab           passed     deploy for long, short at 1 stream and 4 streams",
    ]
    shown = shown[at - 5 :]
    head = shown.index("demo · 2 cores · 48 prompts in 3 classes · runs/demo")
    shown = shown[head - 9 :]
    assert [line.split()[:4] for line in shown[10:14]] == [
        ["measured", arm, *load] for arm in ARMS for load in (("1", "stream"), ("4", "streams"))
    ]
    assert [line.split()[:4] for line in shown[14:18]] == [
        ["tail", arm, "at", load] for arm in ARMS for load in ("1", "4")
    ]
    assert shown[-2:] == ["open runs/demo/index.html", "next: specops run rollout.yaml"]


@pytest.mark.parametrize(
    ("speed", "decision", "phase", "following"),
    [
        (
            0.5,
            "Decision: keep speculation off.",
            "failed     do not deploy",
            "pools.speculative in rollout.yaml\nnext: specops run rollout.yaml",
        ),
        (
            1.0,
            "Decision: undecided; keep speculation off until it is decided",
            "undecided  not enough evidence",
            "more prompts alone will not decide it\nnext: specops run rollout.yaml --only ab --fresh",
        ),
        (
            1.08,
            "Decision: undecided; keep speculation off until it is decided",
            "undecided  not enough evidence",
            "prompts to the file that `prompts` names in rollout.yaml\nnext: specops run rollout.yaml",
        ),
    ],
)
def test_each_verdict_and_what_to_do_next(speed, decision, phase, following) -> None:
    shown = lines(baseline(), compared(windows(speed, arms=ARMS, noise=0.2, seed=2)))
    assert any(line.startswith(decision) for line in shown)
    assert f"  ab           {phase}" in shown
    assert "\n".join(shown[-2:]).endswith(following)


def test_a_load_that_is_not_shown_to_pay_is_never_in_the_decision() -> None:
    """A gain at 1 stream says nothing of 8."""

    def slower_at_8(window: Any, prompt: str, at: float) -> dict[str, Any]:
        heavy = window.level.concurrency == 8 and window.arm == "speculative"
        return {"slower": 2.5 if heavy else 1.0}

    shown = lines(
        baseline(), compared(windows(2.0, arms=ARMS, noise=0.02, concurrency=(1, 8), answer=slower_at_8))
    )
    assert shown[0].startswith("At 1 stream, speculation answers 2.0× as fast (edit ")
    assert shown[1].startswith("At 8 streams, ")
    assert "slower" in shown[1]
    at = shown.index(
        "Decision: use speculation at 1 stream a server; keep speculation off at 8 (2 to 7 were not"
    )
    assert shown[at + 1] == "  measured)."
    assert "  ab           passed     deploy for edit, long, short at 1 stream" in shown


def test_a_gain_beside_a_failed_gate_is_not_called_a_decision() -> None:
    """As `run --continue` leaves it."""
    shown = whole(
        baseline(),
        compared(windows(2.0, arms=ARMS, noise=0.02, concurrency=(1,))),
        made("canary", "no", "1 check failed: parity"),
    )
    assert "By speed alone: use speculation at 1 stream a server." in shown
    assert "Canary failed: 1 check failed: parity." in shown
    assert not any(line.startswith("Decision: ") for line in shown)


def test_a_baseline_alone() -> None:
    shown = lines(baseline())
    assert shown == [
        "Measured.",
        "",
        "demo · 2 cores · 48 prompts in 3 classes · runs/demo",
        "  measured  standard  1 stream   TTFT 13 ms  TPOT 3.14 ms  p95 –  E2E 250 ms  302 tok/s",
        "  measured  standard  4 streams  TTFT 13 ms  TPOT 3.14 ms  p95 –  E2E 250 ms  302 tok/s",
        "open runs/demo/index.html",
        "next: specops run rollout.yaml",
    ]


def test_a_measurement_that_failed() -> None:
    shown = lines(baseline("no", "12 of 64 requests failed: 12 timeout", failed=12))
    assert shown[0] == "12 of 64 requests failed: 12 timeout."
    assert shown[3].endswith("12 of 64 failed")
    assert shown[-2:] == ["change: fix what runs/demo/baseline.json names", "next: specops run rollout.yaml"]


def test_a_speed_up_that_ends_is_not_deployed() -> None:
    def slower(window: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 1.4 if window.arm == "speculative" and window.cycle > 10 else 1.0}

    shown = lines(baseline(), compared(windows(1.35, arms=ARMS, answer=slower)))
    assert not any("use speculation" in line for line in shown)


def test_a_running_server_that_was_not_asked_again_is_named() -> None:
    endpoint = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    shown = lines(baseline(), compared(windows(2.0, arms=ARMS)), reused=True, speculative=endpoint)
    (line,) = [line for line in shown if line.startswith("  reused")]
    assert line.startswith("  reused    http://127.0.0.1:1/v1 as it was on ")
    assert line.endswith("(ab); --fresh measures it again")
    assert shown[-1] == "next: specops run rollout.yaml"


def made(phase: PhaseName, verdict: Verdict = "yes", reason: str = "well", **data: Any) -> Result:
    return Result(phase=phase, verdict=verdict, reason=reason, environment={"cores": 2}, data=data)


def whole(*results: Result, skipped: tuple[Skipped, ...] = (), stopped: PhaseName | None = None) -> list[str]:
    walk = Walk("demo", Path("runs/demo"), skipped=list(skipped), stopped=stopped)
    for result in results:
        phase: Any = result.phase
        walk.steps.append(Step(phase, walk.folder / f"{phase}.json", result))
    return page(walk, rollout(), Path("rollout.yaml"))


def test_each_phase_has_its_line_in_the_order_of_the_playbook() -> None:
    long = "the standard pool does not carry the peak alone: " + "at most 3 requests/s; " * 6
    shown = whole(
        made("drafts", reason="compatible"),
        made("launch", "undecided", long),
        made("checklist", "undecided", "not ready to go live: runbook-shared open"),
        skipped=(Skipped("sweep", "its K is not specops's to set", "specops sweep ROLLOUT --attach"),),
    )
    phases = [line.split()[:2] for line in shown[2:-4] if not line.startswith(" " * 12)]
    assert phases == [
        ["drafts", "passed"],
        ["launch", "undecided"],
        ["sweep", "skipped"],
        ["checklist", "undecided"],
    ]
    assert "  sweep        skipped    its K is not specops's to set; specops sweep ROLLOUT --attach" in shown
    assert "  checklist    undecided  not ready to go live: runbook-shared open" in shown
    assert max(map(len, shown)) <= 100
    assert shown[0] == "Not ready to go live: runbook-shared open."
    assert shown[-1].startswith("next: specops checklist rollout.yaml")


@pytest.mark.parametrize(
    ("phase", "following"),
    [
        ("drafts", "choose another draft: pools.speculative in rollout.yaml\nnext: specops run rollout.yaml"),
        ("sweep", "sweep.drafts, sweep.trees\nnext: specops run rollout.yaml"),
        (
            "canary",
            "runs/demo/canary.json shows\nnext: specops run rollout.yaml --only canary --fresh",
        ),
        ("guard-drill", "-*.log\nnext: specops run rollout.yaml --only guard-drill"),
    ],
)
def test_a_gate_that_stops_the_walk_says_why_and_what_would_change_its_mind(phase, following) -> None:
    shown = whole(made("launch", "undecided", "no peak"), made(phase, "no", "it does not"), stopped=phase)
    assert shown[0] == (
        f"Stopped at {phase}: it does not. To continue past this gate: specops run rollout.yaml --continue"
    )
    assert "\n".join(shown[-2:]).endswith(following)


def test_a_drill_of_the_live_set_up_that_failed_is_to_be_repeated_there() -> None:
    walk = Walk("demo", Path("runs/demo"), stopped="guard-drill")
    failed = made("guard-drill", "no", "requests were lost")
    walk.steps.append(
        Step("guard-drill", Path("runs/demo/guard-drill.json"), failed, reused=True, by_hand=True)
    )
    assert page(walk, rollout(), Path("rollout.yaml"))[-1] == "next: specops guard drill rollout.yaml"


def test_a_standard_pool_that_does_not_carry_the_peak_is_told_with_what_would() -> None:
    change = "3 servers would carry it (deploy.standard_replicas)"
    gate = {"verdict": "no", "reason": "it does not carry it", "change": change}
    data = {"folder": "runs/demo", "files": [], "pools": {}, "capacity": gate}
    shown = whole(made("drafts"), made("launch", "no", "it does not carry it", **data), stopped="launch")
    assert shown[-2:] == [f"change: {change}", "next: specops run rollout.yaml"]


def test_all_that_is_decided_ends_with_going_live() -> None:
    shown = whole(made("drafts"), made("checklist", reason="all 14 items passed or are attested"))
    assert shown[0] == "All 14 items passed or are attested."
    assert shown[-1] == "next: specops guard status rollout.yaml"


def test_a_phase_that_does_not_apply_and_was_asked_for_alone() -> None:
    shown = whole(skipped=(Skipped("route", "where the pools answer is not said", "add addresses"),))
    assert shown[0] == "Where the pools answer is not said."
    assert shown[-2:] == ["change: add addresses", "next: specops run rollout.yaml"]


def test_a_command_that_does_not_fit_has_a_line_to_itself() -> None:
    """It is pasted; in a line that it shares, the shell would see a part of it."""
    command = f"specops sweep rollout.yaml --attach 0=http://127.0.0.1:8000/{'v' * 60} --fresh"
    shown = _wrapped(f"the pool runs already, so its K stays; {command}", "  sweep  ", "         ")
    assert shown == ["  sweep  the pool runs already, so its K stays", f"         {command}"]
    assert _wrapped("it runs; specops run r.yaml", "  ", "  ") == ["  it runs; specops run r.yaml"]
