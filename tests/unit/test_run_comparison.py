"""Two runs side by side: what is surely better or worse, what is not comparable, and the exit codes."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from calling import specops
from made_runs import compared as measured
from made_runs import prompts, run
from made_windows import cell, row

from specops.errors import FileError
from specops.load.arrivals import Level
from specops.phases.run_comparison.comparison import Comparison, compare_folders
from specops.phases.run_comparison.document import document
from specops.phases.run_comparison.latencies import acceptances, ratio
from specops.prometheus.exposition import DraftCounts
from specops.render.report.formats import html
from specops.render.report.terminal import terminal
from specops.results import SCHEMA, Result, sha256
from specops.stats import Interval, quantile_interval

CHECK = {"name": "parity", "status": "pass", "message": "12 of 12"}


def canary(verdict: Any) -> Result:
    data = {"checks": [CHECK], "unsupported": [], "requests": {}, "prompts": {}}
    return Result(phase="canary", verdict=verdict, reason="parity", data=data)


def pair(folder: Path, a: list[Result], b: list[Result]) -> Result:
    return compare_folders(run(folder / "runs" / "a", *a), run(folder / "runs" / "b", *b))


def data(result: Result) -> Comparison:
    return Comparison.model_validate(result.data)


@pytest.mark.parametrize(
    ("a", "b", "verdict", "outcome"),
    [(2.0, 1.5, "no", "worse"), (1.5, 2.0, "yes", "better"), (1.5, 1.51, "yes", "no sure change")],
)
def test_what_surely_changed(tmp_path: Path, a: float, b: float, verdict: str, outcome: str) -> None:
    result = pair(tmp_path, [measured(a, noise=0.05)], [measured(b, noise=0.05, seed=2)])
    assert result.verdict == verdict
    (whole,) = [
        one
        for one in data(result).changes
        if (one.traffic_class, one.figure) == ("all classes", "end to end")
    ]
    assert whole.outcome == outcome
    assert whole.change.low < b / a < whole.change.high


def test_one_class_that_is_worse_is_enough(tmp_path: Path) -> None:
    def slow_edits(arm: str, name: str) -> float:
        return 1.0 if arm == "standard" or name == "edit" else 2.6

    result = pair(tmp_path, [measured(2.0)], [measured(slow_edits, seed=1)])
    assert result.verdict == "no"
    assert {one.traffic_class for one in data(result).changes if one.outcome == "worse"} >= {"edit"}
    assert {one.traffic_class for one in data(result).changes if one.outcome == "better"} >= {"long", "short"}


def test_the_other_way_round_it_is_the_inverse(tmp_path: Path) -> None:
    there = pair(tmp_path, [measured(2.0, noise=0.1)], [measured(1.6, noise=0.1, seed=1)])
    back = pair(tmp_path, [measured(1.6, noise=0.1, seed=1)], [measured(2.0, noise=0.1)])
    swap = {"worse": "better", "better": "worse", "no sure change": "no sure change"}
    for one, other in zip(data(there).changes, data(back).changes, strict=True):
        assert one.change.estimate * other.change.estimate == pytest.approx(1, rel=1e-4)
        assert one.change.low * other.change.high == pytest.approx(1, rel=1e-4)
        assert other.outcome == swap[one.outcome]


def test_the_same_folder_twice_and_a_copy_of_it(tmp_path: Path) -> None:
    folder = run(tmp_path / "runs" / "a", measured(2.0), canary("no"))
    shutil.copytree(folder, tmp_path / "runs" / "copy")
    for other in (folder, tmp_path / "runs" / "copy"):
        result = compare_folders(folder, other)
        assert (result.verdict, result.reason) == ("yes", "both folders hold the same measurement")
        assert (data(result).same, data(result).settings, data(result).changes) == (True, [], [])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"prompt_set": prompts("others")}, "the prompts differ: "),
        ({"model": "another-model"}, "the models differ: the-model and another-model"),
        ({"temperature": 0.7}, "temperature differs: 0.0 and 0.7"),
    ],
)
def test_what_is_not_comparable_is_undecided(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    """However much slower it is."""
    result = pair(tmp_path, [measured(2.0)], [measured(0.5, **changes)])
    assert (result.verdict, data(result).changes) == ("undecided", [])
    assert any(one.why.startswith(why) for one in data(result).unknown)
    assert why in result.reason


def test_another_target_of_the_same_name_is_not_comparable(tmp_path: Path) -> None:
    one, other = measured(2.0), measured(0.5)
    other = other.model_copy(update={"inputs": other.inputs | {"standard target": sha256("b")}})
    one = one.model_copy(update={"inputs": one.inputs | {"standard target": sha256("a")}})
    result = pair(tmp_path, [one, canary("yes")], [other, canary("no")])
    assert result.verdict == "undecided"
    assert "the target models differ" in result.reason
    assert data(result).gates == []


def test_loads_of_one_run_alone_are_named(tmp_path: Path) -> None:
    result = pair(tmp_path, [measured(2.0, concurrency=(1, 4))], [measured(2.0, concurrency=(1, 8), seed=1)])
    assert {one.load for one in data(result).changes} == {"1 stream"}
    alone = {(one.what, one.why) for one in data(result).unknown}
    names = "all classes, edit, long, short"
    lone = {(f"{names} at {load} streams", f"measured in {run} only") for load, run in ((4, "A"), (8, "B"))}
    assert alone == lone


def test_answers_of_other_lengths_are_not_compared_end_to_end(tmp_path: Path) -> None:
    def short(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"tokens": 4, "slower": 0.4} if visit.arm == "speculative" else {"tokens": 10}

    def alike(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"finish_reason": "stop"}

    result = pair(tmp_path, [measured(2.0, answer=lambda *at: short(*at) | alike(*at))],
                  [measured(2.0, seed=1, answer=alike)])  # fmt: skip
    assert {one.figure for one in data(result).changes} == {"per output token"}
    assert all("differ in length" in one.why for one in data(result).unknown)


@pytest.mark.parametrize("damage", ["missing", "partial", "half", "schema"])
def test_a_run_without_a_readable_comparison(tmp_path: Path, damage: str) -> None:
    a = run(tmp_path / "runs" / "a", measured(2.0), canary("yes"))
    b = run(tmp_path / "runs" / "b", canary("yes"))
    path = b / "ab.json"
    if damage == "partial":
        run(b, Result(phase="ab", verdict="partial", reason="stopped"))
    elif damage != "missing":
        text = (a / "ab.json").read_text()
        path.write_text(
            text[:900] if damage == "half" else text.replace(f'"schema": {SCHEMA}', '"schema": 99')
        )
    result = compare_folders(a, b)
    assert result.verdict == "undecided"
    assert any(f"{b} has no finished comparison" in one.why for one in data(result).unknown)
    named = any(one.what == str(path) for one in data(result).unknown)
    assert named == (damage in ("half", "schema"))


def test_a_canary_that_fails_now_is_worse_without_a_comparison(tmp_path: Path) -> None:
    result = pair(tmp_path, [canary("yes")], [canary("no")])
    assert (result.verdict, [one.outcome for one in data(result).gates]) == ("no", ["worse"])
    assert pair(tmp_path, [canary("no")], [canary("undecided")]).verdict == "undecided"


def test_settings_that_differ_are_listed_without_addresses_or_folders(tmp_path: Path) -> None:
    environment = {"processor": "another", "python": "3.12"}
    other = measured(2.0, draft="/models/b-draft", version="0.2.0", environment=environment, seed=1)
    result = pair(tmp_path, [measured(2.0, draft="/home/me/a-draft")], [other])
    found = {one.name: (one.a, one.b) for one in data(result).settings}
    assert found["processor"] == ("a processor", "another")
    assert found["python"] == (None, "3.12")
    assert found["arms speculative pool speculation draft"] == ("a-draft", "b-draft")
    assert found["arms standard server"] == ("0.1.0", "0.2.0")
    assert not any("base_url" in name for name in found)


def test_the_interval_of_a_ratio_covers() -> None:
    """MOVER on two independent normal logarithms: 95%, by simulation."""
    dice, normal, hits = random.Random(1), NormalDist().inv_cdf(0.975), 0
    for _ in range(2000):
        sides = []
        for true, sd in ((1.5, 0.1), (1.2, 0.05)):
            got = true * 2.718281828 ** dice.gauss(0, sd)
            width = 2.718281828 ** (normal * sd)
            sides.append(Interval(got, got / width, got * width, 64, 0.95))
        found = ratio(*sides)
        hits += found.low <= 1.5 / 1.2 <= found.high
    assert 0.94 <= hits / 2000 <= 0.96


@pytest.mark.parametrize(
    ("name", "why"), [("nowhere", "there is no run folder"), ("empty", "is not a run folder")]
)
def test_a_bad_folder_is_named(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "empty").mkdir()
    good = run(tmp_path / "runs" / "a", measured(2.0))
    for pair_of in ((good, tmp_path / name), (tmp_path / name, good)):
        with pytest.raises(FileError, match=why):
            compare_folders(*pair_of)


def test_the_command(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    a = run(tmp_path / "runs" / "a", measured(2.0, noise=0.05))
    b = run(tmp_path / "runs" / "b", measured(1.5, noise=0.05, seed=1, draft=hostile))
    page = tmp_path / "pages" / "compare.html"
    shown = specops("compare", str(a), str(b), "--out", str(page))
    assert shown.returncode == 1
    written, verdict = shown.stdout.splitlines()[-2:]
    assert verdict.endswith(f"results are surely worse in {b}.")
    assert written == f"open {page}"
    text = page.read_text()
    assert hostile not in text
    assert "Surely worse" in text
    found = specops("compare", str(b), str(a), "--json")
    assert found.returncode == 0
    assert json.loads(found.stdout)["summary"]["worse"] == 0
    alone = run(tmp_path / "runs" / "c", canary("yes"))
    assert specops("compare", str(a), str(alone)).returncode == 4
    found = json.loads(specops("compare", str(a), str(alone), "--json").stdout)
    assert [one["name"] for one in found["data"]["settings"]] == ["ab.json", "canary.json"]
    assert specops("compare", str(a), str(tmp_path / "no")).returncode == 3


def test_the_page_and_the_terminal_say_the_same(tmp_path: Path) -> None:
    result = pair(tmp_path, [measured(2.0, concurrency=(1, 4))], [measured(1.5, seed=1, draft="b-draft")])
    text, page = "\n".join(terminal(document(result))), html(document(result))
    for one in data(result).changes:
        shown = f"{one.change.estimate:.2f}× [{one.change.low:.2f}, {one.change.high:.2f}]"
        assert shown in text
        assert shown in page
    for title in ("Results", "Not compared", "Settings that differ"):
        assert f"<h2>{title}" in page


def test_latencies_and_acceptance_of_both_arms_have_intervals(tmp_path: Path) -> None:
    """Noise of one seed in both: the only difference is the speed of the speculative pool."""
    result = pair(tmp_path, [measured(2.0, noise=0.05)], [measured(1.2, noise=0.05)])
    found = {(one.arm, one.figure): one for one in data(result).latencies}
    quantiles = {f"{name} {q}" for name in ("E2E", "TTFT") for q in ("p50", "p95", "p99")}
    assert set(found) == {(arm, name) for arm in ("standard", "speculative") for name in quantiles}
    slower = found["speculative", "E2E p50"]
    assert slower.outcome == "higher"
    assert slower.change is not None
    assert slower.change.low < 2.0 / 1.2 < slower.change.high
    assert found["standard", "E2E p50"].outcome == "no sure change"
    assert found["standard", "E2E p99"].outcome == "unknown"
    (latencies,) = [section for section in document(result).sections if section.title == "Latencies"]
    assert "the machine may have caused it" in latencies.text[0]


def test_a_latency_changes_no_verdict(tmp_path: Path) -> None:
    """Both arms are three times as slow, as on another machine: the speed-up is the same."""
    b = measured(lambda arm, name: (2.0 if arm == "speculative" else 1.0) / 3)
    result = pair(tmp_path, [measured(2.0)], [b])
    assert result.verdict == "yes"
    assert result.summary["latencies_higher"] > 0
    assert all(one.outcome != "lower" for one in data(result).latencies)
    assert result.reason.startswith("nothing is surely worse")


def test_phases_of_one_run_are_named(tmp_path: Path) -> None:
    result = pair(tmp_path, [measured(2.0), canary("yes")], [measured(2.0, seed=1)])
    assert [(one.phase, one.run) for one in data(result).unmatched] == [("canary", "A")]
    assert "  canary  only in A" in terminal(document(result))
    assert "<h2>Phases of one run" in html(document(result))


@pytest.mark.parametrize(("rate", "outcome"), [(0.75, "no sure change"), (0.4, "lower"), (0.95, "higher")])
def test_acceptance_that_surely_changed(rate: float, outcome: str) -> None:
    dice = random.Random(1)

    def cells(rate: float) -> Any:
        return {
            ("speculative", Level(1)): [
                cell(
                    [row("p", "edit", 10.0)],
                    Level(1),
                    0,
                    drafts=drafts(sum(dice.random() < rate for _ in range(200)), 200),
                )
                for _ in range(16)
            ]
        }

    (found,) = acceptances(cells(0.75), cells(rate))
    assert found.outcome == outcome
    assert found.change is not None
    assert found.change.low < rate - 0.75 < found.change.high


def drafts(accepted: int, drafted: int) -> Any:
    return DraftCounts(
        drafts=drafted, draft_tokens=drafted, accepted_tokens=accepted, accepted_per_position=(accepted,)
    )


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_the_interval_of_a_quantile_covers_where_requests_of_a_visit_are_alike(q: float) -> None:
    """Each visit has a noise of its own; an interval for independent requests covers 75% and 88%."""
    dice, hits, tries = random.Random(2), 0, 400
    true = 100 * 2.718281828 ** (NormalDist(0, (0.2**2 + 0.1**2) ** 0.5).inv_cdf(q))
    for _ in range(tries):
        visits = [
            [100 * 2.718281828 ** (shift + dice.gauss(0, 0.2)) for _ in range(20)]
            for shift in (dice.gauss(0, 0.1) for _ in range(24))
        ]
        found = quantile_interval(visits, q)
        hits += found is None or found.low <= true <= found.high
    assert 0.92 <= hits / tries <= 1


def test_a_quantile_beyond_the_samples_has_no_interval() -> None:
    visits = [[float(value) for value in range(10)] for _ in range(8)]
    assert quantile_interval(visits, 0.99) is None
    assert quantile_interval(visits[:1], 0.5) is None
    assert quantile_interval([], 0.5) is None
