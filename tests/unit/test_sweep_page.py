"""The page of a sweep: every figure where a person looks for it, what was left out, and the next command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_sweeps import died, judged, loads, settings, swept

from specops.errors import FileError
from specops.phases.sweep.document import document
from specops.phases.sweep.plan import STORED, FailedJob, Load, Measurements, Memory, SkippedCell
from specops.phases.sweep.report import read, recommendation
from specops.render.report.document import text_of
from specops.render.report.terminal import terminal
from specops.results import Result

THREE = settings(3, 5)
POOLS: dict[str, Any] = {one.name: one.pool.model_dump(mode="json") for one in THREE}
LEFT = SkippedCell(
    setting="k=5", concurrency=4, temperature=0.0, length="any length", after=0, why="in the slower half"
)


def result(
    speed: Any, at: Any = None, *, failed: tuple[FailedJob, ...] = (), pools: Any = POOLS, **made: Any
) -> Result:
    """As it is after it was written and read."""
    left = made.pop("left", [])
    cells = swept(speed, THREE, at, **made)
    found = judged(THREE, at or loads(), cells, failed)
    kept = Measurements(cells=cells, failed=list(failed), skipped=left, run="0a1b2c3d", spent_s=150.0)
    whole = Result(
        phase="sweep",
        verdict=found.verdict,
        reason=found.reason,
        summary=found.summary,
        recommendation=found.recommendation,
        settings={"settings": pools},
        data=found.data | {"prompts": {"count": 48}, STORED: kept.model_dump(mode="json", by_alias=True)},
    )
    return Result.model_validate(json.loads(whole.model_dump_json(by_alias=True)))


def page(whole: Result) -> list[str]:
    return list(terminal(document(whole, Path("sweep.json"))))


def rows(whole: Result, title: str) -> list[list[str]]:
    """The cells of the table `title`; empty where there is none."""
    (section,) = document(whole, Path("sweep.json")).sections
    tables = [table for table in section.tables if table.title == title]
    return [list(map(text_of, row)) for table in tables for row in table.rows]


def lines(*asked: Any, **made: Any) -> list[str]:
    return page(result(*asked, **made))


def line(shown: list[str], start: str) -> str:
    return next(found for found in shown if found.startswith(start))


def test_a_whole_page() -> None:
    def speed(name: str, load: Load, of: str) -> float:
        return {"k=3": 1.3, "k=5": 1.6}[name] / load.concurrency**0.4

    whole = result(speed, loads(1, 4), noise=0)
    shown = page(whole)
    assert shown[0] == ("sweep · passed · 3 settings at 2 loads, 4 rungs · 48 prompts · 2.5 min · sweep.json")
    settings_of = {row[0]: row[1:] for row in rows(whole, "")}
    assert settings_of["standard, 1 stream"][0] == "the standard"
    assert settings_of["standard, 1 stream"][8:] == ["384", "both"]
    chosen = settings_of["k=5, 1 stream"]
    assert chosen[:2] == ["pays, recommended", "1.60× [1.60, 1.60]"]
    assert chosen[6:] == ["0.39", "1.5 GiB host", "96", "confirmation"]
    assert settings_of["k=5, 4 streams"][-1] == "choice"
    assert settings_of["k=3, 4 streams"][0] == "does not pay"
    assert rows(whole, "Measured again")[0] == [
        "k=5 at 1 stream", "1.60× [1.60, 1.60], n=48; 1.60× [1.60, 1.60], n=48 when it was chosen",
    ]  # fmt: skip
    assert ["class edit", "k=5", "pays", "1.60× [1.60, 1.60], n=16"] in rows(whole, "By group")
    costs = {row[0]: row[1] for row in rows(whole, "Costs and acceptance")}
    assert " per drafted token, fitted over K = 0, 3, 5; fit error " in costs["step"]
    assert "▆▄▃▂▂ by position, of k=5" in costs["accepted"]
    assert costs["break-even"].startswith("acceptance 0.")
    assert costs["break-even"].endswith("per position), from decoding time only; k=5 measured 0.39, n=96")
    assert costs["playbook"] == (
        "acceptance above 0.55: no, 0.39; E2E above 1.30×: yes, 1.60×; GPU memory below 95%: not known; n=96"
    )
    at_loads = {row[0]: row[1] for row in rows(whole, "Loads")}
    assert "k=5 pays up to 1 stream and is slower at 4: 0.9" in at_loads["load"]
    assert "K by requests in the batch: [[1, 2, 5], [3, 4, 0]]" in at_loads["schedule"]
    assert rows(whole, "The machine")[0][1].endswith("; included in the intervals")
    assert shown[-3].startswith("Deploy K=5 for all traffic at 1 stream (1.60× [")
    assert shown[-2:] == [
        "change: set pools.speculative.speculation.tree: ngram:5 in ROLLOUT",
        "next: specops run ROLLOUT --only ab",
    ]


def test_what_failed_and_what_was_left_out_have_their_lines() -> None:
    whole = result({"k=3": 1.3, "k=5": 1.6}, failed=(died("k=5", "it answered, then died"),), left=[LEFT])
    assert rows(whole, "Left out") == [
        ["failed", "k=5 in rung 1: it answered, then died; its log ends: the last line"],
        ["skipped", "k=5 at 4 streams after rung 1: in the slower half"],
    ]
    assert [row[1] for row in rows(whole, "") if row[0].startswith("k=5, ")] == ["failed"]


@pytest.mark.parametrize(
    ("speeds", "noise", "following"),
    [
        ((0.7, 0.8), 0.03, "change: serve without speculation, or set other sweep.drafts"),
        ((1.06, 1.08), 0.4, "change: add about "),
    ],
)
def test_what_to_do_where_nothing_is_recommended(speeds, noise, following) -> None:
    shown = lines(dict(zip(("k=3", "k=5"), speeds, strict=True)), noise=noise)
    assert following in shown[-2]
    assert shown[-1].startswith("next: specops")
    assert line(shown, "  schedule").endswith("  none: nothing is recommended")


@pytest.mark.parametrize(
    ("pool", "following"),
    [
        (
            {"engine": "vllm", "speculation": {"num_speculative_tokens": 5}},
            "speculation.num_speculative_tokens: 5 in ROLLOUT",
        ),
        ({"engine": "sglang", "speculation": {"num_steps": 5}}, "speculation.num_steps: 5 in ROLLOUT"),
        ({"engine": "command", "command": "vllm serve M -k 5"}, "with: vllm serve M -k 5"),
        ({"engine": "endpoint", "base_url": "http://h:1/v1"}, "--arm best=http://h:1/v1 --prompts PROMPTS"),
    ],
)
def test_what_to_do_with_what_is_recommended(pool, following) -> None:
    assert following in "\n".join(lines({"k=3": 1.2, "k=5": 1.6}, pools=POOLS | {"k=5": pool})[-2:])


def test_what_is_not_known_says_why() -> None:
    costs = dict(
        rows(result({"k=3": 1.2, "k=5": 1.6}, counted=False, memory=Memory()), "Costs and acceptance")
    )
    assert costs["accepted"].startswith("not known: the server exposes no counters")
    assert costs["break-even"] == "–: the server exposes no counters (k=5, n=96)"
    assert "acceptance above 0.55: not known" in costs["playbook"]


def test_where_a_draft_should_be_cut_is_not_said_before_a_setting_pays() -> None:
    undecided = dict(rows(result({"k=3": 1.01, "k=5": 1.0}, noise=0.4), "Costs and acceptance"))
    assert undecided["accepted"].split(" by position, of ")[1].count(";") == 1
    assert any("accepted" in one and one.count(";") > 1 for one in lines({"k=3": 1.2, "k=5": 1.6}))


def test_lengths_and_temperatures_have_their_lines() -> None:
    at = loads(1, temperatures=(0.0, 0.7), lengths=("up to 512 tokens", "more"))
    whole = result(lambda n, load, of: {"k=3": 1.2, "k=5": 1.6}[n] - load.temperature, at)
    groups = {row[0]: row[1:3] for row in rows(whole, "By group")}
    assert groups["temperature 0.7"] == ["k=5", "does not pay"]
    assert "length up to 512 tokens" in groups


def test_a_damaged_report_is_named() -> None:
    good = result({"k=3": 1.2, "k=5": 1.6})
    assert read(good, "sweep.json").recommended == recommendation(good, "sweep.json").setting == "k=5"
    earlier = good.model_copy(update={"data": {k: v for k, v in good.data.items() if k != "confirmation"}})
    with pytest.raises(FileError, match="written by an earlier version of specops"):
        read(earlier, "sweep.json")
    good.data["cells"][0]["concurrency"] = "many"
    with pytest.raises(FileError, match=r"sweep\.json is damaged: data\.cells\.0\.concurrency"):
        read(good, "sweep.json")
    bare = good.model_copy(update={"recommendation": None})
    with pytest.raises(FileError, match=r"sweep\.json is damaged: recommendation"):
        recommendation(bare, "sweep.json")


def test_what_is_against_a_setting_is_on_the_page_and_its_speed_is_in_the_table_only() -> None:
    whole = result({"k=3": 0.8, "k=5": 1.6})
    assert rows(whole, "Limits") == []
    for found in whole.data["overall"]:
        if found["setting"] == "k=3":
            found["decision"]["reason"] = "answers are 48% [45, 51] shorter; 0.80× [0.79, 0.81]: slower"
            against = {"claim": "length", "verdict": "against"}
            found["decision"]["findings"].append(against)
    assert rows(whole, "Limits") == [
        ["k=3 at 1 stream", "answers are 48% [45, 51] shorter; 0.80× [0.79, 0.81]: slower"]
    ]


def test_the_claims_on_the_recommended_setting_are_a_table_with_bounds_and_margins() -> None:
    whole = result({"k=3": 1.3, "k=5": 1.6})
    claims = {row[0]: row[1:] for row in rows(whole, "What the recommended setting rests on")}
    assert {name.split(" (")[0] for name in claims} >= {"wait", "length of answers", "first token"}
    assert claims["failed, refused or late"][0].startswith("0 of 128 (standard 0 of 256)")
    assert claims["failed, refused or late"][2] == "≤ 20%"
    assert not [row for row in page(whole) if "--same-prompts" in row]


def test_prompts_that_were_sent_as_they_are_are_said() -> None:
    whole = result({"k=3": 1.3, "k=5": 1.6})
    whole.settings["same_prompts"] = True
    assert "--same-prompts" in "\n".join(page(whole))


@pytest.mark.parametrize(
    ("more", "budget", "change", "options"),
    [
        (40, None, "add about 40 prompts to the file", "--plot a.svg --fresh"),
        (40, 2.5, "add about 40 prompts to the file", "--plot a.svg --fresh --budget 5"),
        (None, None, "fix the fault that the sentence above names", "--plot a.svg --fresh --repeats 4"),
        (None, 2.5, "fix the fault that the sentence above names", "--plot a.svg --budget 5  # stored"),
    ],
)
def test_an_undecided_sweep_is_repeated_with_what_would_decide_it(
    more, budget, change, options, monkeypatch
) -> None:
    """A larger budget resumes a sweep; other prompts and more repeats are another one."""
    monkeypatch.setattr("sys.argv", ["specops", "sweep", "r.yaml", "--plot", "a.svg", "--fresh"])
    undecided = result({"k=3": 1.01, "k=5": 1.02}, noise=0.4)
    undecided.settings.update({"repeats": 2, "budget_min": budget})
    undecided.summary["more_prompts"] = more
    shown = page(undecided)
    assert shown[-2].startswith(f"change: {change}")
    assert shown[-1].removesuffix(" measurements are reused") == f"next: specops sweep r.yaml {options}"


def test_the_comparison_that_follows_has_the_prompts_of_the_sweep() -> None:
    endpoint = {"engine": "endpoint", "base_url": "http://h:1/v1"}
    whole = result({"k=3": 1.3, "k=5": 1.6}, pools={"standard": endpoint, "k=3": endpoint, "k=5": endpoint})
    whole.data["prompts"]["path"] = "my prompts.json"
    assert page(whole)[-1].endswith("--prompts 'my prompts.json'")
