"""The page of a comparison and its picture: every figure where a person looks for it, and the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_windows import ARMS, judgement, windows

from specops import results
from specops.errors import FileError
from specops.phases.ab.document import document
from specops.phases.ab.judging import AbJudgement
from specops.phases.ab.report import Report, picture, read, read_comparison
from specops.render.ab_plot import draw
from specops.render.figures import bar, sentence, times
from specops.render.plot import Heading
from specops.render.report.terminal import terminal
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
        "run": "abcd",
        "windows": [],
        "margins": [],
        "duration_s": 130.0,
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


def page(result: Result) -> list[str]:
    return list(terminal(document(result, Path("ab.json"))))


def lines(found: AbJudgement, **data: Any) -> list[str]:
    return page(result(found, **data))


def test_a_whole_page() -> None:
    made = windows(lambda arm, name: 1.0 if arm == "standard" else {"edit": 0.5}.get(name, 2.0), noise=0.0)
    shown = lines(judgement(made))
    assert shown[0] == (
        "ab · Speculation pays, with limits · 2 arms, interleaved · 48 prompts in 3 classes · look 2 of 4 · "
        "ab.json"
    )
    text = "\n".join(shown)
    assert "  standard, 1 stream " in text
    table = {line.split(",")[0].strip(): line for line in reversed(shown) if line.startswith("  ")}
    assert "  do not deploy  0.5" in table["edit"]
    assert "  deploy         2.0" in table["long"]
    for item in ("failed, refused or late", "unacceptable answers", "sampled answers", "accepted tokens"):
        assert item in text
    assert "wait (long, 1 stream)" in text
    assert "Both arms were observed for 2.2 min together; what changes more slowly was not observed" in text
    measured = lines(judgement(made), windows=[window.model_dump(mode="json") for window in made])
    assert "together, and each for 42 requests without a pause; what changes more slowly" in "".join(measured)
    assert "Deploy for long, short at 1 stream" in text
    assert shown[-2].startswith("Use speculation for long and short at 1 stream a server.")
    assert shown[-1] == "next: specops serve --tree ngram:8"


@pytest.mark.parametrize(
    ("speeds", "following"),
    [
        ((1.5, 2.0), "change: start the pool with: vllm serve M --port {port}"),
        ((2.0, 1.5), "change: send the classes of the decision above to http://127.0.0.1:1/v1"),
        ((0.5, 0.5), "compare another draft or tree as an arm\nnext: specops ab --help"),
        ((0.5, 1.02), "\nnext: specops "),
    ],
)
def test_what_to_do_next(speeds, following) -> None:
    arms = dict(zip(THREE, (1.0, *speeds), strict=True))
    shown = lines(judgement(windows(lambda arm, name: arms[arm], arms=THREE, noise=0.1, seed=3), THREE))
    assert following in "\n".join(shown[-2:])


def test_differences_and_an_earlier_run_have_their_lines() -> None:
    facts = {"standard": {"server": "0.31"}, "draft": {"server": "0.32"}}
    earlier = {
        "recorded": "2026-11-01T10:00:00Z",
        "changes": [{"arm": "draft", "level": {"concurrency": 1}, "prompts": 9, "e2e": None, "tpot": None}],
        "differences": [{"of": "the environment", "what": "python", "one": "3.11", "other": "3.12"}],
    }
    shown = lines(judgement(windows(3.0), facts=facts), against=earlier)
    assert "  draft  server  0.32   0.31" in shown
    assert "  The run of 2026-11-01 10:00 UTC was not interleaved with this one." in shown
    assert "  the environment  python  3.11  3.12" in shown


def test_what_is_not_known_says_why() -> None:
    quiet = {"drafts": None, "drafts_missing": "no /metrics"}
    silent = [w.model_copy(update={"cell": w.cell.model_copy(update=quiet)}) for w in windows(2.0)]
    shown = "\n".join(lines(judgement(silent)))
    assert "Acceptance\n  Unknown: no /metrics.\n" in shown


def test_the_slowest_requests_and_failures_are_named() -> None:
    def failing(window: Any, prompt: str, at: float) -> dict[str, Any]:
        return {"error": "http_500", "detail": "down"} if window.arm == "draft" and prompt < "p004" else {}

    shown = "\n".join(lines(judgement(windows(2.0, answer=failing))))
    assert "(http_500 " in shown
    assert "deploy for" not in shown.lower().splitlines()[-2]


def test_a_result_of_an_earlier_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    old = result(judgement(windows(2.0)))
    del old.data["format"]
    results.write(tmp_path / "ab.json", old)
    with pytest.raises(FileError, match=r"ab\.json was written by an earlier version of specops") as caught:
        read_comparison(tmp_path / "ab.json")
    assert "--fresh" in str(caught.value.hint)


def test_an_arm_without_visits_has_a_page() -> None:
    shown = lines(judgement([w for w in windows(2.0) if w.arm == "standard"], failed={"draft": "it died"}))
    assert "draft failed: it died." in "\n".join(shown).lower()
    assert lines(judgement([], failed={"standard": "down"}))[-3].endswith(
        ": the standard, standard, failed: down."
    )


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ab.json"
    good = result(judgement(windows(2.0)))
    results.write(path, good)
    assert isinstance(read(read_comparison(path), str(path)), Report)
    good.data["challengers"]["draft"]["pays_up_to"] = "many"
    results.write(path, good)
    with pytest.raises(FileError, match=r"ab\.json is damaged: data\.challengers\.draft\.pays_up_to"):
        read_comparison(path)
    partial = Result(
        phase="ab", verdict="partial", reason="stopped", data={"run": "abcd", "windows": [], "margins": []}
    )
    results.write(path, partial)
    assert read_comparison(path).verdict == "partial"


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture_is_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    found = read(result(judgement(windows(1.5, arms=THREE, concurrency=(1, 4)), THREE)), "ab.json")
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
            "default targets",
        ):
            assert label in text


def test_a_picture_without_figures_is_drawn_all_the_same(tmp_path: Path) -> None:
    for number, made in enumerate(([], windows(2.0, prompts=3), windows(2.0, arms=ARMS)[:5])):
        path = tmp_path / f"{number}.svg"
        draw(picture(read(result(judgement(made)), "ab.json")), HEADING, path)
        assert "draft against standard" in path.read_text()


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(FileError, match="could not write the plot"):
        draw(
            picture(read(result(judgement(windows(2.0))), "ab.json")), HEADING, tmp_path / "taken" / "ab.svg"
        )


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
    whole = result(judgement(windows(2.0)))
    whole.data["arms"]["draft"][0]["retried"] = 12
    head, _, draft = next(
        page(whole)[number : number + 3] for number, line in enumerate(page(whole)) if "sent again" in line
    )
    place = head.index("sent again")
    assert draft.startswith("  draft, 1 stream ")
    assert draft[place : place + 12].strip() == "12"
