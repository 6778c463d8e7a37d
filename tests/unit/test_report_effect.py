"""The weekly report states the live effect by class, with its interval and the requests behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_monitoring import MEASURED, rollout
from made_reports import FILE, seen

from specops.effect.estimate import effects
from specops.effect.simulation import Traffic, simulate
from specops.phases.effect import LiveEffect, conclude, has_effect
from specops.phases.report import assembly
from specops.phases.report.delivery import write

ROUTED = {"routers": ["127.0.0.1:8081"]}


def live(ratio: float) -> LiveEffect:
    drawn = simulate(Traffic(12 * 3600.0, ratio=ratio, loads=(4.0, 5.0)), np.random.default_rng(3))
    classes = effects(drawn.counters)
    verdict, reason = conclude(classes[0])
    return LiveEffect(
        since=0.0,
        until=12 * 3600.0,
        holdout=0.1,
        verdict=verdict,
        reason=reason,
        classes=classes,
        now=(),
        left_out={},
        server_hours={"standard": 12.0, "speculative": 24.0},
    )


@pytest.mark.parametrize(("ratio", "verdict"), [(0.8, "yes"), (1.0, "undecided"), (1.25, "no")])
def test_the_verdict_is_that_of_the_intervals_of_every_moment(ratio: float, verdict: str) -> None:
    effect = live(ratio)
    assert effect.verdict == verdict
    assert "end-to-end time" in effect.reason


def test_the_report_has_the_effect_by_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "measurements", lambda rollout, folder, unfit: MEASURED)
    effect = live(0.8)
    observed = seen(effect=effect)
    result = assembly.assemble(rollout(), FILE, tmp_path, observed)
    text = write(tmp_path, observed.window, result).markdown.read_text()
    tpot = effect.classes[1].figure_effect("tpot")
    assert "## Live effect" in text
    assert "By chance 10% of the eligible requests stayed" in text
    row = next(line for line in text.splitlines() if "default" in line and "time per output token" in line)
    assert f"{tpot.once_low:.3f} to {tpot.once_high:.3f}" in row
    assert f"{tpot.requests} / {tpot.holdout_requests}" in row
    assert "standard 12, speculative 24" in text


def test_a_report_without_routers_has_no_such_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "measurements", lambda rollout, folder, unfit: MEASURED)
    observed = seen()
    written = write(tmp_path, observed.window, assembly.assemble(rollout(), FILE, tmp_path, observed))
    assert "Live effect" not in written.markdown.read_text()


def test_an_effect_needs_routers_and_a_holdout() -> None:
    assert has_effect(rollout(addresses=ROUTED))
    assert not has_effect(rollout(addresses=ROUTED, effect={"holdout": 0}))
    assert not has_effect(rollout(addresses={}))
