"""The last page of a run: the phases, the answer by load, the next command. Nothing of it is in files, so
what was measured has no sections; test_run_page.py has those."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_windows import judgement, windows

from specops.config import Rollout
from specops.experiment.records import WindowRecord
from specops.phases import PhaseName
from specops.phases.playbook import Skipped, Step, Walk
from specops.phases.run_page.document import walk_document
from specops.render.report.terminal import terminal
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


def page(walk: Walk, file: Rollout, path: Path) -> list[str]:
    return list(terminal(walk_document(walk, file, path)))


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
    assert shown[0].startswith("Rollout demo: does speculative decoding pay? · Speculation pays, with limits")
    assert [line.split()[:2] for line in shown if line.startswith(("  baseline ", "  ab "))] == [
        ["baseline", "passed"],
        ["ab", "passed"],
    ]
    assert any("deploy for long, short at 1 stream and 4 streams" in line for line in shown)
    assert any(
        line.startswith("At 1 stream, speculation answers faster for long (2.00× [2.00, 2.00]), short")
        for line in shown
    )
    assert "open runs/demo/index.html" in shown
    assert shown[-2].startswith("Use speculation for long and short at 1 and 4 streams a server.")
    assert shown[-1] == "next: specops run rollout.yaml"


@pytest.mark.parametrize(
    ("speed", "decision", "phase", "following"),
    [
        (
            0.5,
            "Keep speculation off.",
            ("failed", "do not deploy"),
            "pools.speculative in rollout.yaml\nnext: specops run rollout.yaml",
        ),
        (
            1.0,
            "Undecided; keep speculation off until it is decided",
            ("undecided", "not enough evidence"),
            "more prompts alone will not decide it\nnext: specops run rollout.yaml --only ab --fresh",
        ),
        (
            1.08,
            "Undecided; keep speculation off until it is decided",
            ("undecided", "not enough evidence"),
            "prompts to the file that `prompts` names in rollout.yaml\nnext: specops run rollout.yaml",
        ),
    ],
)
def test_each_verdict_and_what_to_do_next(speed, decision, phase, following) -> None:
    shown = lines(baseline(), compared(windows(speed, arms=ARMS, noise=0.2, seed=4)))
    assert any(line.startswith(decision) for line in shown)
    (row,) = [line for line in shown if line.startswith("  ab ")]
    assert row.split()[1] == phase[0]
    assert row.endswith(phase[1])
    assert "\n".join(shown[-2:]).endswith(following)


def test_a_load_that_is_not_shown_to_pay_is_never_in_the_decision() -> None:
    """A gain at 1 stream says nothing of 8."""

    def slower_at_8(window: Any, prompt: str, at: float) -> dict[str, Any]:
        heavy = window.level.concurrency == 8 and window.arm == "speculative"
        return {"slower": 2.5 if heavy else 1.0}

    shown = lines(
        baseline(), compared(windows(2.0, arms=ARMS, noise=0.02, concurrency=(1, 8), answer=slower_at_8))
    )
    first, second = [line for line in shown if line.startswith(("At 1 stream, ", "At 8 streams, "))]
    assert first.startswith("At 1 stream, speculation answers 2.0× as fast (edit ")
    assert second.startswith("At 8 streams, ")
    assert "slower" in second
    assert shown[-2] == (
        "Use speculation at 1 stream a server; keep speculation off at 8 (2 to 7 were not measured)."
    )
    assert any(line.endswith("deploy for edit, long, short at 1 stream") for line in shown)


def test_a_gain_beside_a_failed_gate_is_not_called_a_decision() -> None:
    """As `run --continue` leaves it."""
    shown = whole(
        baseline(),
        compared(windows(2.0, arms=ARMS, noise=0.02, concurrency=(1,))),
        made("canary", "no", "1 check failed: parity"),
    )
    assert "By speed alone: use speculation at 1 stream a server." in shown
    assert "Canary failed: 1 check failed: parity." in shown
    assert not any(line.startswith(("Decision: ", "Use speculation")) for line in shown)


def test_a_baseline_alone() -> None:
    shown = lines(baseline())
    assert "open runs/demo/index.html" in shown
    assert shown[-2:] == ["Measured.", "next: specops run rollout.yaml"]


def test_a_measurement_that_failed() -> None:
    shown = lines(baseline("no", "12 of 64 requests failed: 12 timeout", failed=12))
    assert "Baseline failed: 12 of 64 requests failed: 12 timeout." in shown
    assert shown[-2:] == ["change: fix what runs/demo/baseline.json names", "next: specops run rollout.yaml"]


def test_a_speed_up_that_ends_is_not_deployed() -> None:
    def slower(window: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 1.4 if window.arm == "speculative" and window.cycle > 10 else 1.0}

    shown = lines(baseline(), compared(windows(1.35, arms=ARMS, answer=slower)))
    assert not any("use speculation" in line for line in shown)


def test_a_running_server_that_was_not_asked_again_is_named() -> None:
    endpoint = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    shown = lines(baseline(), compared(windows(2.0, arms=ARMS)), reused=True, speculative=endpoint)
    (line,) = [line for line in shown if line.startswith("reused: ")]
    assert line.startswith("reused: http://127.0.0.1:1/v1 as it was on ")
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
    ran = ("drafts", "launch", "sweep", "checklist")
    phases = [line.split()[:2] for line in shown if line.startswith("  ") and line.split()[0] in ran]
    assert phases == [
        ["drafts", "passed"],
        ["launch", "undecided"],
        ["sweep", "skipped"],
        ["checklist", "undecided"],
    ]
    text = "\n".join(shown)
    assert "its K is not specops's to set; next: specops sweep ROLLOUT --attach" in text
    assert "not ready to go live: runbook-shared open" in text
    assert "Not ready to go live: runbook-shared open." in shown
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
    assert f"{phase.capitalize()} failed: it does not." in shown
    assert f"Stopped at {phase}; later phases did not run." in shown
    assert "To continue past this gate: specops run rollout.yaml --continue" in shown
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
    assert "All 14 items passed or are attested." in shown
    assert shown[-1] == "next: specops guard status rollout.yaml"


def test_a_phase_that_does_not_apply_and_was_asked_for_alone() -> None:
    shown = whole(skipped=(Skipped("route", "where the pools answer is not said", "add addresses"),))
    assert "Where the pools answer is not said." in shown
    assert shown[-2:] == ["change: add addresses", "next: specops run rollout.yaml"]
