"""The page of a comparison and its picture: every figure where a person looks for it, and the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_visits import ARMS, judged, visits
from test_ab_failures import FAILED, nth
from test_ab_lengths import answering
from test_ab_repeats import caching

from specops import results
from specops.cli.ab_page import page
from specops.errors import FileError
from specops.phases.ab.judging import AbJudgement
from specops.phases.ab.report import Report, picture, read, read_comparison
from specops.render.ab_plot import draw
from specops.render.figures import bar, sentence, times
from specops.render.plot import Heading
from specops.results import Result
from specops.stats import Interval

THREE = ("standard", "chain", "ngram")
POOLS = {
    "standard": {"engine": "embedded"},
    "draft": {"engine": "embedded", "target": None, "speculation": {"tree": "ngram:8", "draft": None}},
    "ngram": {"engine": "command", "command": "vllm serve M --port {port}"},
    "chain": {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1"},
}

HEADING = Heading("Comparison: yes", ("deploy",))


def result(found: AbJudgement, **data: Any) -> Result:
    """As it is after it was written and read."""
    known = {
        "prompts": {"count": 48},
        "looks": {"done": 2, "planned": 4},
        "visits": [],
        "mixed": [],
        "margins": [],
    }
    made = Result(
        phase="ab",
        verdict=found.verdict,
        reason=found.reason,
        summary=found.summary,
        settings={"design": "interleaved", "arms": POOLS},
        data=found.data | known | data,
    )
    return Result.model_validate(json.loads(made.model_dump_json(by_alias=True)))


def lines(found: AbJudgement, **data: Any) -> list[str]:
    return page(result(found, **data), Path("ab.json"))


def test_a_whole_page() -> None:
    made = visits(lambda arm, name: 1.0 if arm == "standard" else {"edit": 0.5}.get(name, 2.0), noise=0.0)
    shown = lines(judged(made))
    assert shown[0] == "ab · 2 arms, interleaved · 48 prompts in 3 classes · look 2 of 4 · ab.json"
    assert shown[1].startswith("  measured  standard  1 stream  TTFT 20 ms  TPOT ")
    assert shown[3].startswith("  tail      standard at 1 stream: slowest ")
    assert "× the median" not in "".join(shown[3:5])
    assert shown[6] == "  draft against standard"
    shown = shown[:3] + shown[5:]
    table = [line.split("  ") for line in shown[5:11]]
    assert [row[1] for row in table] == ["class", "expected", "edit", "long", "short", "all"]
    assert "1.5–2.5×" in shown[6]
    assert shown[7].endswith("do not deploy")
    assert "2.00× [2.00, 2.00]" in shown[8]
    assert shown[8].endswith("+0.0 ms  deploy")
    assert shown[11] == "  parity    48/48 at 1 stream (control 48/48)"
    assert shown[12] == (
        "  accepted  0.60 of drafted tokens, 2.8 tokens a step  █▅▃ by position  at 1 stream "
        "(expected 0.6–0.85)"
    )
    assert "  checks    0 of 8 found drift" in shown
    assert shown[-2].startswith(
        "Deploy for long, short at 1 stream; not for edit: 0.50× [0.50, 0.50]: slower."
    )
    assert shown[-1] == "next: specops serve --tree ngram:8"


@pytest.mark.parametrize(
    ("speeds", "following"),
    [
        ((1.5, 2.0), "change: start the pool with: vllm serve M --port {port}"),
        ((2.0, 1.5), "change: send the classes of the decision above to http://127.0.0.1:1/v1"),
        ((0.5, 0.5), "compare another draft or tree as an arm\nnext: specops ab --help"),
        ((0.5, 1.0), "more prompts alone may not decide it\nnext: specops "),
    ],
)
def test_what_to_do_next(speeds, following) -> None:
    arms = dict(zip(THREE, (1.0, *speeds), strict=True))
    shown = lines(judged(visits(lambda arm, name: arms[arm], arms=THREE, noise=0.1), THREE))
    assert following in "\n".join(shown[-2:])


def test_drift_differences_and_an_earlier_run_have_their_lines() -> None:
    def slower(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 1 + 0.05 * at if visit.arm == "draft" else 1.0}

    facts = {"standard": {"server": "0.31"}, "draft": {"server": "0.32"}}
    earlier = {
        "recorded": "2026-11-01T10:00:00Z",
        "changes": [{"arm": "draft", "level": {"concurrency": 1}, "prompts": 9, "e2e": None, "tpot": None}],
        "differences": [{"of": "the environment", "what": "python", "one": "3.11", "other": "3.12"}],
    }
    shown = lines(judged(visits(3.0, answer=slower), facts=facts), against=earlier)
    assert any(
        line.startswith("  drift     speed-up of draft from the beginning to the end: -") for line in shown
    )
    assert "  differs   draft: server is 0.32, and 0.31 in standard" in shown
    assert "  against   a run of 2026-11-01 10:00 UTC, which was not interleaved with this one:" in shown
    assert "            the environment: python was 3.11, and is 3.12" in shown


def test_what_is_not_known_says_why() -> None:
    quiet = {"drafts": None, "drafts_missing": "no /metrics"}
    silent = [v.model_copy(update={"cell": v.cell.model_copy(update=quiet)}) for v in visits(2.0)]
    shown = "\n".join(lines(judged(silent, temperature=1.0)))
    assert "accepted  not known: no /metrics" in shown
    assert "parity    not compared: no requests were sent at temperature 0" in shown
    once = "\n".join(lines(judged(visits(2.0, rounds=1))))
    assert "48/48 at 1 stream (control needs two repeats)" in once


def test_the_slowest_requests_and_failures_are_named() -> None:
    hung = nth(17, {"e2e_ms": 1e4, "e2e_with_retries_ms": 1e4})
    shown = "\n".join(lines(judged(visits(2.0, prompts=64, answer=hung))))
    assert "slowest 10000 ms, 10000 ms, 10000 ms; 7 of 128 requests took over 10× the median" in shown
    assert "tail      draft at 1 stream: p99 10000 ms, slowest" in shown
    failed = "\n".join(lines(judged(visits(2.0, prompts=64, answer=nth(40, FAILED)))))
    assert "; 3 of 128 failed (http_500 3)" in failed
    assert "deploy for" not in failed.lower().splitlines()[-2]


def test_lengths_and_caches_have_their_lines() -> None:
    short = "\n".join(lines(judged(visits(1.0, prompts=96, answer=answering(0.52)), temperature=0.7)))
    assert "  lengths   answers are 48% [" in short
    assert "] shorter at 1 stream; decided on time per output token" in short
    cached = "\n".join(lines(judged(visits(1.0, prompts=64, answer=caching("draft")))))
    assert "  cache     draft answers repeats 50." in cached
    assert "from a cache (E2E): only first requests count" in cached
    plain = "\n".join(lines(judged(visits(2.0))))
    assert "  lengths" not in plain
    assert "  cache" not in plain


def test_every_load_has_its_verdict_on_the_page() -> None:
    def loaded(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"slower": 2.5 if visit.arm == "draft" and visit.level.concurrency == 8 else 1.0}

    shown = lines(judged(visits(2.0, prompts=96, concurrency=(1, 8), answer=loaded)))
    rows = [line.split() for line in shown if " stream" in line and "[" in line]
    ends = {(row[0], row[1]): " ".join(row)[-13:] for row in rows if row[0] in ("edit", "all")}
    assert ends["edit", "1"].endswith("ms deploy")
    assert ends["edit", "8"] == "do not deploy"
    assert ends["all", "1"].endswith("ms pays")
    assert ends["all", "8"].endswith("does not pay")


def test_a_result_of_an_earlier_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    old = result(judged(visits(2.0)))
    del old.data["format"]
    results.write(tmp_path / "ab.json", old)
    with pytest.raises(FileError, match=r"ab\.json was written by an earlier version of specops") as caught:
        read_comparison(tmp_path / "ab.json")
    assert str(caught.value.hint).endswith("# then compare again")


def test_an_arm_without_visits_has_a_page() -> None:
    shown = lines(judged([v for v in visits(2.0) if v.arm == "standard"], failed={"draft": "it died"}))
    assert shown[-3] == "Do not deploy: draft failed: it died."
    assert lines(judged([], failed={"standard": "down"}))[-3] == "The standard, standard, failed: down."


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ab.json"
    good = result(judged(visits(2.0)))
    results.write(path, good)
    assert isinstance(read(read_comparison(path), str(path)), Report)
    good.data["challengers"]["draft"]["pays_up_to"] = "many"
    results.write(path, good)
    with pytest.raises(FileError, match=r"ab\.json is damaged: data\.challengers\.draft\.pays_up_to"):
        read_comparison(path)
    partial = Result(
        phase="ab", verdict="partial", reason="stopped", data={"visits": [], "mixed": [], "margins": []}
    )
    results.write(path, partial)
    assert read_comparison(path).verdict == "partial"


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture_is_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    found = read(result(judged(visits(1.5, arms=THREE, concurrency=(1, 4)), THREE)), "ab.json")
    drawn = []
    for name in ("one", "two"):
        path = tmp_path / "new" / f"{name}{suffix}"
        draw(picture(found), HEADING, path)
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]
    if suffix == ".svg":
        text = drawn[0].decode()
        for label in (
            "chain against standard",
            "edit",
            "4 streams",
            "position in the draft",
            "expected by the",
        ):
            assert label in text


def test_a_picture_without_figures_is_drawn_all_the_same(tmp_path: Path) -> None:
    for number, made in enumerate(([], visits(2.0, prompts=3), visits(2.0, arms=ARMS)[:5])):
        path = tmp_path / f"{number}.svg"
        draw(picture(read(result(judged(made)), "ab.json")), HEADING, path)
        assert "draft against standard" in path.read_text()


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(FileError, match="could not write the plot"):
        draw(picture(read(result(judged(visits(2.0))), "ab.json")), HEADING, tmp_path / "taken" / "ab.svg")


@pytest.mark.parametrize(("share", "drawn"), [(0.0, "▁"), (0.5, "▅"), (0.999, "█"), (1.0, "█"), (None, " ")])
def test_a_bar_for_a_share(share, drawn) -> None:
    assert bar(share) == drawn


def test_a_speed_up_without_an_interval_is_told_as_such() -> None:
    assert times(Interval(1.624, 1.55, 1.7, 9)) == "1.62× [1.55, 1.70]"
    assert times(None, 1.5) == "1.50×"
    assert times(None) == "–"


def test_a_reason_becomes_a_sentence() -> None:
    assert sentence("deploy for a; not for b") == "Deploy for a; not for b."
    assert sentence("break-even, not met") == "Break-even, not met."
    for named in ("specops_guard_state of the guard is absent", "vllm:x of the rules is old", "vLLM waits"):
        assert sentence(named) == f"{named}."


def test_requests_that_were_refused_at_first_are_named() -> None:
    whole = result(judged(visits(2.0)))
    assert "sent again" not in "".join(page(whole, Path("ab.json")))
    whole.data["arms"]["draft"][0]["retried"] = 12
    (tail,) = [line for line in page(whole, Path("ab.json")) if "sent again" in line]
    assert tail.startswith("  tail      draft at 1 stream: ")
    assert tail.endswith("; 12 of 96 were refused at first and sent again")


def test_retries_are_counted_by_request() -> None:
    def refused(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"retries": 2} if visit.arm == "draft" and int(prompt[1:]) < 6 else {}

    arms = judged(visits(2.0, answer=refused)).data["arms"]
    assert [arms[name][0]["retried"] for name in ("standard", "draft")] == [0, 12]


def test_answers_that_change_where_prompts_come_again_are_on_the_page() -> None:
    def garbled(visit: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"text": f"{visit.arm == 'draft' and visit.round == 1 and int(prompt[1:]) < 20}"}

    shown = lines(judged(visits(2.0, answer=garbled)))
    assert (
        "  parity    48/48 at 1 stream (control 48/48); 28/48 for repeated prompts at 1 stream "
        "(control 48/48)"
    ) in shown
