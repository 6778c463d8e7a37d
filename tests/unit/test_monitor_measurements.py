"""What `monitor render` takes from earlier results, and what it says of those that it cannot use."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from adopting import adopted_by
from calling import specops
from made_monitoring import ADDRESSES, POOLS, rollout

from specops import results
from specops.config import Rollout
from specops.phases.monitor.thresholds import measurements
from specops.results import Result, write

EXAMPLES = Path(__file__).parents[2] / "alerts" / "examples"


def folder_with(tmp_path: Path, *names: str) -> Path:
    for name in names:
        shutil.copy(EXAMPLES / f"{name}.json", tmp_path)
    return tmp_path


def test_the_baselines_loads_are_read_with_their_means_and_quantiles(tmp_path: Path) -> None:
    known = measurements(rollout(), folder_with(tmp_path, "baseline"))
    raw = json.loads((tmp_path / "baseline.json").read_text())["data"]["by_concurrency"]
    assert [load.concurrency for load in known.loads] == [level["concurrency"] for level in raw]
    for load, level in zip(known.loads, raw, strict=True):
        assert load.seconds["tpot", "mean"] == pytest.approx(level["tpot_ms"]["mean"] / 1000)
        assert load.seconds["e2e", "p95"] == pytest.approx(level["e2e_ms"]["p95"] / 1000)
        tokens = level["total_tokens"] / (level["requests"] - level["failed"])
        assert load.token_s is not None
        e2e = load.seconds["ttft", "mean"] + load.token_s * (tokens - 1)
        assert e2e == pytest.approx(level["e2e_ms"]["mean"] / 1000)
    assert set(known.missing) == {"ab", "sweep"}
    assert set(known.read) == {"baseline"}


def test_the_recorded_acceptance_is_that_of_all_loads_of_the_comparison(tmp_path: Path) -> None:
    found = measurements(rollout(), folder_with(tmp_path, "ab")).acceptance
    arms = json.loads((tmp_path / "ab.json").read_text())["data"]["arms"]["speculative"]
    drafted = sum(level["acceptance"]["draft_tokens"] for level in arms)
    assert found is not None
    assert found.value == pytest.approx(
        sum(level["acceptance"]["accepted_tokens"] for level in arms) / drafted
    )
    assert found.source.startswith("ab.json of ")


def sweep(tmp_path: Path, recommended: float | None, deployed: float | None, verdict: Any = "yes") -> None:
    """One that recommends k=5, and that also tried the pool of the rollout as k=3."""
    step = {"k": 3, "tokens": 2.0, "drafted": 3.0, "step_ms": 2.0, "target_ms": 1.0, "acceptance": 0.6}
    unknown = {"break_even_alpha": None, "missing": None}
    report = {
        "standard": "standard", "confidence": 0.95, "confidence_of_each": 0.99, "looks": 1, "decided_at": 1,
        "recommended": "k=5", "nearest": "k=5", "only_for": [], "cells": [], "overall": [], "runners_up": [],
        "by_class": {}, "by_length": {}, "by_temperature": {}, "lines": [], "crossover": None,
        "schedule": None, "schedule_missing": None, "standards": [], "start_sd": None,
        "confirmation": None, "starts": 0,
        "steps": [step | unknown | {"setting": "k=3", "break_even_acceptance": deployed}],
    }  # fmt: skip
    recommendation = {
        "verdict": verdict, "setting": "k=5", "method": None, "k": 5, "tree": None, "draft": None,
        "only_for": [], "schedule": None, "break_even_acceptance": recommended,
        "cost": {"draft_ms": 1.0, "target_ms": 1.0},
        "crossover": {"on_max": None, "off_min": None, "per": "replica"}, "by_class": {},
    }  # fmt: skip
    pool = rollout().pools.speculative.model_dump(mode="json")
    result = Result(
        phase="sweep",
        settings={"settings": {"k=3": pool}},
        verdict=verdict,
        reason="made",
        data=report,
        recommendation=recommendation,
    )
    write(tmp_path / "sweep.json", result)


def test_break_even_is_that_of_the_pool_as_it_is_deployed(tmp_path: Path) -> None:
    sweep(tmp_path, recommended=0.3, deployed=0.45)
    found = measurements(rollout(), tmp_path).break_even
    assert found is not None
    assert found.value == 0.45
    other = POOLS | {"speculative": {"engine": "embedded", "speculation": {"tree": "chain:5"}}}
    assert measurements(rollout(pools=other), tmp_path).break_even is None, (
        "another setting's says nothing of it"
    )


def test_a_sweep_that_recommends_nothing_has_no_break_even_to_give(tmp_path: Path) -> None:
    sweep(tmp_path, recommended=0.3, deployed=None, verdict="no")
    assert measurements(rollout(), tmp_path).break_even is None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda kept: kept | {"verdict": "partial", "reason": "stopped after 1 of 6 cells"},
            "stopped after 1",
        ),
        (lambda kept: kept | {"verdict": "no", "reason": "9 of 9 requests failed"}, "requests failed"),
        (lambda kept: kept | {"phase": "ab"}, "is a result of ab"),
        (lambda kept: kept | {"data": {}}, "by_concurrency"),
        (lambda kept: {}, "is damaged"),
    ],
)
def test_a_baseline_that_does_not_count_is_told_and_left_out(spoil: Any, said: str, tmp_path: Path) -> None:
    path = folder_with(tmp_path, "baseline") / "baseline.json"
    path.write_text(results.sealed(spoil(json.loads(path.read_text()))))
    known = measurements(rollout(), tmp_path)
    assert known.loads == ()
    assert said in known.missing["baseline"]
    assert "specops run" in known.missing["baseline"]


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "rollout.yaml"
    path.write_text(yaml.safe_dump({"rollout": "made", "pools": POOLS, "addresses": ADDRESSES} | changes))
    return path


def test_render_says_what_it_made_and_keeps_it(tmp_path: Path) -> None:
    path = written(folder_with(tmp_path, "baseline", "ab"))
    adopted_by(path)
    done = specops("monitor", "render", str(path), "--out", str(tmp_path), "--quiet")
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "monitor.json").read_text())
    assert all((tmp_path / name).is_file() for name in kept["data"]["files"])
    assert kept["data"]["alerts"]["LowAcceptRatio"]["source"] == "default"
    assert set(kept["inputs"]) == {"settings", "baseline", "ab"}
    assert "LowAcceptRatio" in done.stdout
    assert re.search(r"^  sweep +there is no sweep.json", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"addresses": {"standard": ["a:1"]}},
            "the addresses of the speculative pool's servers are not known",
        ),
        ({"monitor": {"alerts": {"LowAcceptance": {"for_s": 1}}}}, "LowAcceptance"),
        ({"monitor": {"alerts": {"SpecopsGuardFellBack": {"threshold": 1.0}}}}, "has no threshold"),
        ({"monitor": {"window_s": 30}}, "too few scrapes"),
        ({"monitor": {"labels": {"specops_pool": "a"}}}, "is set by specops"),
    ],
)
def test_a_rollout_that_cannot_be_watched_is_wrong_usage(changes: Any, said: str, tmp_path: Path) -> None:
    done = specops("monitor", "render", str(written(tmp_path, **changes)), "--out", str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint: " in done.stderr


def test_the_page_asks_for_no_address_that_the_file_has(tmp_path: Path) -> None:
    with_address = written(tmp_path, addresses=ADDRESSES | {"prometheus": "http://127.0.0.1:9090"})
    done = specops("monitor", "render", str(with_address), "--out", str(tmp_path))
    page = " ".join(done.stdout.split())
    assert f"change: let the Prometheus at http://127.0.0.1:9090 load {tmp_path}/rendered" in page
    assert "as addresses.prometheus" not in page
    done = specops("monitor", "render", str(written(tmp_path)), "--out", str(tmp_path))
    assert "as addresses.prometheus" in " ".join(done.stdout.split())


def test_rendered_files_that_cannot_be_written_are_the_environments_failure(tmp_path: Path) -> None:
    (tmp_path / "rendered").write_text("in the way")
    done = specops("monitor", "render", str(written(tmp_path)), "--out", str(tmp_path))
    assert done.returncode == 3
    assert done.stderr.startswith("error: could not write")


def test_an_endpoint_is_scraped_beside_its_api() -> None:
    from specops.render.prometheus.scrape import targets

    pool = {"engine": "endpoint", "base_url": "https://llm.example:8443/team/v1", "model": "m"}
    made = Rollout.model_validate({"rollout": "made", "pools": {"standard": pool, "speculative": pool}})
    [one, _] = targets(made)
    assert (one.scheme, one.addresses, one.path) == ("https", ("llm.example:8443",), "/team/metrics")
