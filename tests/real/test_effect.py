"""`specops effect` at a real Prometheus, with a router's counters of more than a day: a known effect."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from backfilled import remembering
from calling import specops

from specops.effect.counters import GROUPS
from specops.effect.simulation import Traffic, simulate
from specops.prometheus.series import EFFECT

HOURS = 30
RATIO = 0.8
POOL = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "tiny"}


def lines(now: float) -> Iterator[str]:
    """Samples every minute of all simulated figures, and of requests that one pool alone may have."""
    traffic = Traffic(HOURS * 3600.0, per_s=0.5, ratio=RATIO, loads=(3.0, 4.0), capacity=0.0)
    drawn = simulate(traffic, np.random.default_rng(11)).counters
    times = (now // 60 - HOURS * 60 + np.arange(drawn.ends.size + 1)) * 60
    target = 'specops_rollout="tiny",instance="127.0.0.1:8081",class="default"'
    for figure, moments in drawn.figures.items():
        for field, name in EFFECT.items():
            for column, group in enumerate(GROUPS):
                totals = np.append(0.0, getattr(moments, field)[:, 0, column].cumsum())
                labels = f'{target},figure="{figure}",group="{group}"'
                yield from (
                    f"{name}{{{labels}}} {total:.12g} {ts:.0f}"
                    for ts, total in zip(times, totals, strict=True)
                )
    for reason, per_minute in (("short", 3), ("holdout", 2), ("in-flight", 1)):
        labels = f'{target},pool="standard",reason="{reason}"'
        for index, ts in enumerate(times):
            yield f"specops_route_decisions_total{{{labels}}} {per_minute * index} {ts:.0f}"
    for ts in times:
        yield f'up{{specops_rollout="tiny",specops_pool="speculative",instance="127.0.0.1:2"}} 1 {ts:.0f}'


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("effect")
    with remembering([], folder, *lines(time.time())) as up:
        path = folder / "rollout.yaml"
        addresses = {
            "prometheus": up.url,
            "routers": ["127.0.0.1:8081"],
            "standard": ["127.0.0.1:1"],
            "speculative": ["127.0.0.1:2", "127.0.0.1:3"],
        }
        pools = {"standard": POOL, "speculative": POOL}
        path.write_text(yaml.safe_dump({"rollout": "tiny", "pools": pools, "addresses": addresses}))
        yield path


@pytest.mark.parametrize("hours", [20, 28])
def test_the_intervals_have_the_truth(rollout: Path, hours: int) -> None:
    """Over a day at most the bins are minutes, beyond it ten minutes."""
    done = specops("effect", str(rollout), "--hours", str(hours), "--json")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, answer["verdict"]) == (0, "yes")
    overall, by_class = answer["classes"]
    assert (overall["traffic_class"], by_class["traffic_class"]) == (None, "default")
    figures = {one["figure"]: one for one in overall["figures"]}
    for name in ("ttft", "e2e", "tpot"):
        assert figures[name]["low"] < RATIO < figures[name]["high"] < 1
        assert (
            figures[name]["low"]
            < figures[name]["once_low"]
            < figures[name]["once_high"]
            < figures[name]["high"]
        )
    expected = 0.5 * 3600 * hours
    compared = sum(figures["e2e"][name] for name in ("requests", "holdout_requests", "unmatched"))
    assert compared == pytest.approx(expected, rel=0.5)
    left_out = {
        "short": pytest.approx(3 * 60 * hours, rel=0.01),
        "in-flight": pytest.approx(60 * hours, rel=0.01),
    }
    assert answer["left_out"] == left_out
    assert answer["server_hours"] == {
        "standard": pytest.approx(hours),
        "speculative": pytest.approx(2 * hours),
    }
    assert {now["figure"]: now["direction"] for now in answer["now"]}["tpot"] == "faster"


def test_the_page_has_every_figure_with_its_interval(rollout: Path) -> None:
    done = specops("effect", str(rollout), "--hours", "20")
    assert done.returncode == 0
    assert "all classes: speculative over holdout" in done.stdout
    assert "at every moment" in done.stdout
    assert re.search(r"in no mean: in-flight \d+, short \d+", done.stdout)
    assert "yes: faster with speculation" in done.stdout


def changed(rollout: Path, folder: Path, **sections: Any) -> Path:
    path = folder / "rollout.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(rollout.read_text()) | sections))
    return path


def test_windows_are_read_by_block_and_a_full_pool_is_in_their_means(rollout: Path, tmp_path: Path) -> None:
    windows = {"mode": "windows", "holdout": 0.5, "window_s": 300}
    done = specops("effect", str(changed(rollout, tmp_path, effect=windows)), "--hours", "20", "--json")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, answer["mode"], answer["holdout"]) == (0, "windows", 0.5)
    assert answer["left_out"] == {"short": pytest.approx(3 * 60 * 20, rel=0.02)}
    tpot = next(one for one in answer["classes"][0]["figures"] if one["figure"] == "tpot")
    assert tpot["ratio"] == pytest.approx(0.8, abs=0.1)
    assert all(now["since"] % 600 == 0 for now in answer["now"])


def test_the_report_has_the_effect_by_class_with_its_interval(rollout: Path, tmp_path: Path) -> None:
    window = ("--window", "24h", "--end", "now", "--tz", "UTC", "--out", str(tmp_path), "--quiet")
    done = specops("report", str(rollout), *window)
    assert done.returncode == 0, done.stderr
    (text,) = (path.read_text() for path in tmp_path.glob("reports/*.md"))
    section = text.partition("## Live effect")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| default")]
    (tpot,) = (row for row in rows if "time per output token" in row)
    _, _, _, ratio, ends, requests, _ = (part.strip() for part in tpot.split("|"))
    low, high = (float(end) for end in ends.split(" to "))
    assert low < RATIO < high < 1
    assert low < float(ratio.rstrip("×")) < high
    speculative, held = (int(count) for count in requests.split(" / "))
    assert speculative > 5 * held > 1000
    assert "standard 24, speculative 48" in section


def test_a_time_without_requests_is_undecided(rollout: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load(rollout.read_text())
    other = tmp_path / "rollout.yaml"
    other.write_text(yaml.safe_dump(settings | {"rollout": "another"}))
    done = specops("effect", str(other), "--hours", "20", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["verdict"], answer["now"]) == (4, "undecided", [])
    assert "too few requests" in answer["reason"]


@pytest.mark.parametrize(
    ("section", "change", "words"),
    [
        ("effect", {"holdout": 0}, "effect.holdout is 0"),
        ("addresses", {"routers": []}, "addresses.routers"),
        ("addresses", {"prometheus": None}, "addresses.prometheus"),
    ],
)
def test_what_is_missing_is_named(
    rollout: Path, tmp_path: Path, section: str, change: dict[str, Any], words: str
) -> None:
    settings = yaml.safe_load(rollout.read_text())
    settings[section] = settings.get(section, {}) | change
    other = tmp_path / "rollout.yaml"
    other.write_text(yaml.safe_dump(settings))
    done = specops("effect", str(other))
    assert done.returncode == 2
    assert words in done.stderr
