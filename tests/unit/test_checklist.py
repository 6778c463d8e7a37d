"""The checklist: what is not shown by evidence of this rollout, finished and fresh, is open; never passed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from made_checklists import ATTESTED, NOW, Made, faster, recommended, swept, write
from made_monitoring import POOLS

from specops import results
from specops.guard.guard import status as guard_status
from specops.guard.journal import JournalState
from specops.guard.state import Evaluation
from specops.phases.checklist.checklist import ITEMS
from specops.phases.checklist.evidence import FRESH_DAYS
from specops.phases.sweep.spec import spec_of
from specops.serving.endpoint import EndpointPool

OTHER_K = POOLS | {"speculative": {"engine": "embedded", "speculation": {"tree": "chain:5"}}}


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made(tmp_path_factory.mktemp("complete"))
    made.fill()
    return made


@pytest.fixture
def made(complete: Made, tmp_path: Path) -> Made:
    """A copy, to be spoilt."""
    shutil.copytree(complete.path.parent, tmp_path, dirs_exist_ok=True)
    return Made(tmp_path)


def test_an_empty_run_folder_leaves_every_item_open(tmp_path: Path) -> None:
    result, items = Made(tmp_path).checked()
    assert result.verdict == "undecided"
    assert {item.status for item in items.values()} == {"open"}
    assert [item.name for item in items.values()] == [spec.name for spec in ITEMS]
    assert sum(item.origin == "playbook" for item in items.values()) == 11
    assert all(item.decide and "{" not in item.decide for item in items.values())


def test_items_that_a_figure_decides_have_it_beside_its_threshold(complete: Made) -> None:
    _, items = complete.checked()
    shown = {name: (one.gate.measured, one.gate.threshold) for name, one in items.items() if one.gate}
    assert set(shown) >= {"acceptance", "speedup", "gpu-memory", "capacity"}
    assert shown["speedup"][0] in items["speedup"].found
    assert shown["speedup"][1] == "all of the interval above 1.3×"
    assert shown["gpu-memory"] == (shown["gpu-memory"][0], "below 95%")
    assert items["acceptance"].found.startswith(f"acceptance {shown['acceptance'][0]} for ")
    assert shown["acceptance"][1] in items["acceptance"].found
    assert " to " in shown["capacity"][0] or "requests/s" in shown["capacity"][0]
    assert shown["capacity"][1].startswith("at least ")


def test_with_all_its_evidence_it_may_go_live(complete: Made) -> None:
    result, items = complete.checked()
    assert (result.verdict, result.reason) == (
        "yes",
        f"ready to go live: all {len(ITEMS)} items passed or are attested",
    )
    assert {name for name, item in items.items() if item.status == "attested"} == set(ATTESTED)
    for item in items.values():
        assert item.evidence
        assert item.decide is None
        for one in item.evidence:
            assert one.sha256 == results.sha256(complete.folder / one.source)
            assert one.age_s > 0
    assert "break-even" in items["acceptance"].found
    assert "no GPU is used" in (items["gpu-memory"].evidence[0].figure or "")


@pytest.mark.parametrize(
    ("file", "opened"),
    [
        ("baseline", {"baseline", "capacity", "monitoring"}),
        ("drafts", {"draft-compatible"}),
        ("sweep", {"k-swept", "gpu-memory", "routing", "monitoring"}),
        ("ab", {"acceptance", "speedup", "routing", "monitoring"}),
        ("guard-drill", {"fallback-tested"}),
        ("canary", {"canary"}),
    ],
)
def test_what_is_not_there_or_damaged_opens_what_rests_on_it(file: str, opened: set[str], made: Made) -> None:
    (made.folder / f"{file}.json").unlink()
    result, items = made.checked()
    assert result.verdict == "undecided"
    lacking = {name for name, item in items.items() if item.status == "open"}
    assert lacking == {name for name in opened if name not in ATTESTED}
    (made.folder / f"{file}.json").write_text('{"schema": 1}')
    _, items = made.checked()
    assert not {name for name, item in items.items() if item.status == "passed"} & lacking


@pytest.mark.parametrize(
    ("file", "place", "value", "item"),
    [
        ("ab", ("created",), "2026-11-21T00:00:00", "speedup"),  # of no zone
        ("ab", ("data", "challengers", "speculative", "deploy"), ["gone"], "speedup"),
        ("sweep", ("settings", "settings"), "all", "k-swept"),
        ("monitor", ("data", "files"), 5, "monitoring"),
        ("route", ("data", "rules"), [], "routing"),
    ],
)
def test_a_result_that_is_damaged_within_opens_its_item(
    file: str, place: tuple[str, ...], value: Any, item: str, made: Made
) -> None:
    (made.folder / "attestations.json").unlink()
    path = made.folder / f"{file}.json"
    spoilt = json.loads(path.read_text())
    inner = spoilt
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    path.write_text(json.dumps(spoilt))
    _, items = made.checked()
    assert items[item].status == "open"


def test_evidence_grows_old(complete: Made) -> None:
    result, items = complete.checked(NOW + timedelta(days=FRESH_DAYS))
    assert result.verdict == "undecided"
    old = {name for name, item in items.items() if item.status == "open"}
    assert old >= {"baseline", "draft-compatible", "k-swept", "acceptance", "speedup", "canary", "capacity"}
    assert "30 days old" in items["baseline"].found
    assert items["runbook-shared"].status == "attested"


@pytest.mark.parametrize(
    ("file", "item"),
    [
        ("baseline", "baseline"),
        ("drafts", "draft-compatible"),
        ("sweep", "k-swept"),
        ("ab", "speedup"),
        ("canary", "canary"),
        ("guard-drill", "fallback-tested"),
        ("route", "routing"),
        ("monitor", "monitoring"),
        ("reports/2026-11-21", "weekly-report-scheduled"),
    ],
)
def test_what_was_edited_or_is_dated_in_the_future_is_refused_by_name(
    file: str, item: str, made: Made
) -> None:
    """An attestation does not help: it is for what no file shows."""
    path = made.folder / f"{file}.json"
    whole = path.read_text()
    kept = results.read(path)
    path.write_text(whole.replace('"made up"', '"as it should be"', 1).replace(kept.reason, "good", 1))
    found = made.checked()[1][item]
    assert found.status == "open"
    assert f"{path.name} was changed after it was written" in found.found
    results.write(path, kept.model_copy(update={"created": NOW + timedelta(days=1500)}))
    found = made.checked()[1][item]
    assert found.status == "open"
    assert f"{path.name} is dated 2030-12-30, in the future" in found.found
    results.write(path, kept.model_copy(update={"created": NOW + timedelta(minutes=4)}))
    assert "in the future" not in made.checked()[1][item].found, "another machine's clock"


def test_results_of_another_rollout_are_no_evidence(made: Made) -> None:
    write(made.path.parent, pools=OTHER_K)
    _, items = made.checked()
    assert items["baseline"].status == "passed"  # of the standard pool, which is the same
    for name in ("k-swept", "speedup", "canary", "gpu-memory", *ATTESTED):
        assert items[name].status == "open", name
    assert "the settings changed since" in items["speedup"].found
    assert "Kim said so" in items["runbook-shared"].found
    assert "changed since" in items["runbook-shared"].found


Change = Callable[[Made], None]


def _changed(phase: str, **fields: Any) -> Change:
    return lambda made: made.change(phase, **fields)


def _speedup(e2e: float, name: str = "short", level: int = -1) -> Change:
    """At one load of one class; the others stay at 1.6."""

    def change(made: Made) -> None:
        data = results.read(made.folder / "ab.json").data
        data["challengers"]["speculative"]["classes"][name]["levels"][level]["decision"] = faster(e2e)
        made.change("ab", data=data)

    return change


def _deploys(verdict: str, reason: str) -> Change:
    def change(made: Made) -> None:
        data = results.read(made.folder / "ab.json").data
        challenger = data["challengers"]["speculative"]
        challenger |= {"deploy": [], "decision": {"verdict": verdict, "reason": reason}}
        made.change("ab", data=data)

    return change


def _break_even(share: float | None) -> Change:
    return _changed("sweep", data=swept(break_even=share))


def _another_load(**more: float) -> dict[str, Any]:
    """Two loads of the deployed setting, of which the second takes more."""
    found = swept(gpu_share=0.5 if "gpu_memory_share" in more else None)
    found["cells"].append(found["cells"][0] | more)
    return found


@pytest.mark.parametrize(
    ("interval_s", "ago_s", "status"),
    [(600, 2900, "passed"), (600, 3100, "failed"), (10, 290, "passed"), (10, 310, "failed")],
)
def test_a_guard_is_late_after_five_intervals_and_not_within_five_minutes(
    made: Made, monkeypatch: pytest.MonkeyPatch, interval_s: int, ago_s: float, status: str
) -> None:
    write(made.path.parent, guard={"interval_s": interval_s})
    now = Evaluation(ts=NOW.timestamp() - ago_s, verdict="healthy", reason="it pays")
    found = guard_status(JournalState(evaluation=now), running=7)
    monkeypatch.setattr("specops.phases.checklist.items.standing", lambda _: found)
    assert made.checked()[1]["guard-running"].status == status


def _rivals(**differs: bool) -> dict[str, Any]:
    """Settings that pay beside the recommended, and whether they can be told apart from it."""
    found = [{"setting": f"k={name[1:]}", "ratio": None, "differs": each} for name, each in differs.items()]
    return swept() | {"runners_up": found}


@pytest.mark.parametrize(
    ("change", "item", "status", "said"),
    [
        (_changed("baseline", verdict="no", reason="9 of 9 failed"), "baseline", "failed", "9 of 9"),
        (_changed("ab", verdict="partial"), "speedup", "open", "stopped before its end"),
        (_speedup(1.35), "speedup", "open", "1.35× [1.25, 1.45] end to end for short at 8"),
        (_speedup(1.25), "speedup", "open", "×, and must surely be above the threshold 1.3×"),
        (_speedup(1.1), "speedup", "failed", "for short at 8 streams, the weakest of 9"),
        (_speedup(1.45), "speedup", "passed", "1.45× [1.35, 1.55] end to end for short at 8 streams"),
        (_speedup(1.1, "edit", 0), "speedup", "failed", "for edit at 1 stream"),
        (_deploys("no", "do not deploy: slower"), "speedup", "failed", "do not deploy: slower"),
        (_deploys("undecided", "the standard speculates"), "speedup", "open", "the standard speculates"),
        (_changed("sweep", recommendation=recommended("k=5")), "k-swept", "failed", "k=5 is better"),
        (_changed("sweep", recommendation=recommended("k=5"), data=_rivals(k3=False)), "k-swept", "passed",
         "within the noise of k=5"),
        (_changed("sweep", recommendation=recommended("k=5"), data=_rivals(k3=True)), "k-swept", "failed",
         "k=5 is better"),
        (_changed("sweep", recommendation=recommended("k=5"), data=_rivals(k8=False)), "k-swept", "failed",
         "k=5 is better"),
        (_changed("sweep", verdict="no"), "k-swept", "failed", "made up"),
        (_changed("sweep", data=swept(resident_gb=1e6)), "gpu-memory", "failed", "host's"),
        (_changed("sweep", data=swept(gpu_share=0.96)), "gpu-memory", "failed", "96%"),
        (_changed("sweep", data=swept(gpu_share=0.92)), "gpu-memory", "attested", "Kim said so"),
        (_changed("sweep", data=_another_load(gpu_memory_share=0.97)), "gpu-memory", "failed", "97%"),
        (_changed("sweep", data=_another_load(resident_gb=1e6)), "gpu-memory", "failed", "host's"),
        (_changed("sweep", data=swept("k=5")), "gpu-memory", "attested", "Kim said so"),
        (_break_even(0.95), "acceptance", "failed", "(threshold: above 0.95, break-even"),
        (_break_even(None), "acceptance", "passed", " (threshold: above 0.55, default)"),
        (_changed("guard-drill", verdict="no", reason="3 lost"), "fallback-tested", "failed", "3 lost"),
        (_changed("guard-drill", verdict="undecided"), "fallback-tested", "open", "made up"),
        (_changed("guard-drill", settings={}), "fallback-tested", "open", "guard changed since"),
        (_changed("guard-drill", settings={"stage": "a"}), "fallback-tested", "open", "no drill of the live"),
        (_changed("drafts", verdict="no"), "draft-compatible", "failed", "made up"),
        (_changed("drafts", settings={"target": "a/b"}, inputs={}), "draft-compatible", "open", "a/b"),
        (_changed("canary", verdict="no", reason="n > 1"), "canary", "failed", "n > 1"),
    ],
)  # fmt: skip
def test_each_item_is_decided_by_what_its_evidence_says(
    change: Change, item: str, status: str, said: str, made: Made
) -> None:
    change(made)
    result, items = made.checked()
    assert (items[item].status, said in items[item].found) == (status, True), items[item].found
    assert (items[item].decide is None) == (status in ("passed", "attested"))
    if status == "failed":
        assert result.verdict == "no"
        assert item in result.reason


def test_the_least_lower_end_decides_and_not_the_least_estimate(made: Made) -> None:
    """At one load the estimate is the higher one, and its interval reaches below the gate."""
    data = results.read(made.folder / "ab.json").data
    levels = data["challengers"]["speculative"]["classes"]["short"]["levels"]
    levels[0]["decision"]["speedup"] |= {"estimate": 1.4, "low": 1.35, "high": 1.45}
    levels[1]["decision"]["speedup"] |= {"estimate": 1.6, "low": 1.25, "high": 1.95}
    made.change("ab", data=data)
    item = made.checked()[1]["speedup"]
    assert (item.status, "1.60× [1.25, 1.95]" in item.found) == ("open", True), item.found


def test_loads_that_the_router_keeps_standard_are_not_held_against_the_gate(made: Made) -> None:
    _speedup(1.1)(made)
    assert made.checked()[1]["speedup"].status == "failed"
    write(made.path.parent, route={"max_in_flight": 4})
    item = made.checked()[1]["speedup"]
    assert (item.status, "the weakest of 6" in item.found) == ("passed", True)


def test_a_sweep_of_endpoints_is_held_against_the_endpoints_it_was_given(made: Made) -> None:
    ends = {
        name: {"engine": "endpoint", "base_url": f"http://127.0.0.1:{port}/v1", "model": "m"}
        for name, port in (("standard", 1), ("k=3", 2), ("k=5", 3))
    }
    write(made.path.parent, pools={"standard": ends["standard"], "speculative": ends["k=3"]})
    made.change("sweep", settings={"settings": ends})
    assert "changed since" in made.checked()[1]["k-swept"].found
    attached = {k: EndpointPool(**ends[name]) for k, name in ((0, "standard"), (3, "k=3"), (5, "k=5"))}
    wanted = spec_of(made.rollout, made.path.parent, attached)
    made.change("sweep", inputs=wanted.inputs())
    assert made.checked()[1]["k-swept"].status == "passed"
    slash = ends["k=3"] | {"base_url": "http://127.0.0.1:2/v1/"}
    write(made.path.parent, pools={"standard": ends["standard"], "speculative": slash})
    assert made.checked()[1]["k-swept"].status == "passed"
    made.change("sweep", settings={"settings": {"k=head": ends["k=3"]}})
    assert "not of endpoints" in made.checked()[1]["k-swept"].found


def test_a_peak_that_the_standard_pool_does_not_carry_fails(made: Made) -> None:
    write(made.path.parent, peak={"requests_per_s": 1e6})
    result, items = made.checked()
    assert items["capacity"].status == "failed"
    assert "baseline.json" in {one.source for one in items["capacity"].evidence}
    assert result.verdict == "no"


def test_rules_that_were_rendered_from_earlier_results_are_no_routing(made: Made) -> None:
    (made.folder / "attestations.json").unlink()
    _, items = made.checked()
    assert "addresses.routers names no router" in items["routing"].found
    made.change("sweep", reason="measured again")
    _, items = made.checked()
    assert "route.json is stale: sweep.json has changed since" in items["routing"].found
    assert items["routing"].decide == f"specops route render {made.path} --out {made.folder}"


def test_the_page_has_a_line_for_every_item_and_what_to_do_next(made: Made) -> None:
    (made.folder / "canary.json").unlink()
    done = specops("checklist", str(made.path), "--out", str(made.folder), "--quiet")
    assert done.returncode == 4, done.stderr
    assert "checklist · undecided · made" in done.stdout
    for spec in ITEMS:
        assert spec.name in done.stdout
    assert f"next: specops canary {made.path} --out {made.folder}  # canary\n" in done.stdout
    kept = json.loads((made.folder / "checklist.json").read_text())
    assert kept["phase"] == "checklist"
    assert set(kept["inputs"]) >= {"rollout", "baseline.json", "ab.json"}


def test_a_prometheus_that_is_down_leaves_its_items_open(made: Made) -> None:
    addresses: dict[str, Any] = {"prometheus": "http://127.0.0.1:9"}
    write(
        made.path.parent, addresses={"standard": ["127.0.0.1:1"], "speculative": ["127.0.0.1:2"]} | addresses
    )
    _, items = made.checked()
    for name in ("acceptance", "gpu-memory"):
        assert (items[name].status, "nothing listens there" in items[name].found) == ("open", True)


def test_the_guide_has_every_item_in_its_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "go-live.md").read_text(encoding="utf-8")
    places = [page.find(f"| `{item.name}` |") for item in ITEMS]
    assert [item.name for item, place in zip(ITEMS, places, strict=True) if place < 0] == []
    assert places == sorted(places)
