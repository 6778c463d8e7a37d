"""The page of a run: what it says, that no text becomes HTML, and that a damaged file never stops it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from calling import specops
from hypothesis import given
from hypothesis import strategies as st
from made_runs import ROLLOUT, compared, prompts, run

from specops import results
from specops.assets import asset
from specops.config import load
from specops.phases import ON_REQUEST, PHASES, PhaseName
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.document import PageUpdates, document, walk_document, write_page
from specops.render.report.charts import draw, ticks
from specops.render.report.document import (
    Axis,
    Badge,
    Cell,
    Curve,
    Distribution,
    Document,
    Level,
    Line,
    Ratio,
    Ratios,
    Samples,
    Section,
    Step,
    Table,
    Tile,
    TimeChart,
    Timeline,
)
from specops.render.report.formats import html
from specops.render.report.terminal import terminal
from specops.results import SCHEMA, Result, Verdict, sha256

WALKED = [phase for phase in PHASES if phase not in ON_REQUEST]

HOSTILE = '<script>alert("1")</script>\'&{{ 7*7 }}'
CHECK = {"name": "parity", "status": "fail", "message": "7 of 12 answers are equal", "request": "curl"}


def made(phase: PhaseName, verdict: Verdict = "yes", reason: str = "well", **data: Any) -> Result:
    return Result(phase=phase, verdict=verdict, reason=reason, data=data)


def canary(*checks: dict[str, Any], verdict: Verdict = "yes", reason: str = "well") -> Result:
    return made("canary", verdict, reason, checks=[*checks], unsupported=[], requests={}, prompts={})


def item(name: str, status: str, found: str = "found", **fields: Any) -> dict[str, Any]:
    known = {"name": name, "asks": "asks", "origin": "playbook", "status": status, "found": found}
    return known | {"evidence": [], "change": None, "decide": None} | fields


def checklist(*items: dict[str, Any]) -> Result:
    statuses = [one["status"] for one in items]
    counts = {status: statuses.count(status) for status in ("passed", "failed", "open", "attested")}
    verdict: Verdict = "no" if counts["failed"] else "undecided" if counts["open"] else "yes"
    result = made("checklist", verdict, "may not go live", rollout_file="r.yaml", items=[*items])
    return result.model_copy(update={"summary": counts})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "demo"


def written(folder: Path) -> str:
    return write_page(folder).read_text()


def both(arm: str, name: str) -> float:
    """Edits gain nothing; the rest is twice as fast."""
    return 1.0 if arm == "standard" or name == "edit" else 2.0


def test_the_page_says_what_the_terminal_says(folder: Path) -> None:
    run(folder, compared(both, concurrency=(1, 4), noise=0.1))
    found = document(RunFolder(folder))
    rollout = load(folder / "../../rollout.yaml")
    shown = terminal(walk_document(RunFolder(folder).walk(), rollout, Path("rollout.yaml")))
    text = " ".join(" ".join(shown).split())
    assert found.headline.startswith("Use speculation for ")
    assert found.headline in text
    *said, missing = found.summary
    for line in said:
        assert " ".join(str(line).split()) in text
    assert missing == Cell("Not complete: 9 phases of 10 did not run yet.", "open")
    assert (found.status, found.verdict) == ("good", "Speculation pays, with limits")
    assert next(step.command for step in found.steps).startswith("specops run ")
    page = written(folder)
    assert found.headline in page.replace("&#39;", "'")


def test_every_section_has_its_figures_and_links_to_its_file(folder: Path) -> None:
    route = made("route", files=["rendered/nginx/nginx.conf"],
                 rules={"max_in_flight": {"value": 4, "source": "ab.json"}})  # fmt: skip
    failed = item("capacity", "failed", decide="specops run r.yaml", change="add a server")
    run(folder, compared(2.0, concurrency=(1, 4)), canary(CHECK | {"status": "pass"}), route,
        checklist(failed, item("canary", "passed")))  # fmt: skip
    page = written(folder)
    titles = re.findall(r"<h2>([^<]+)", page)
    assert [title.strip() for title in titles] == [
        "Where it pays", "Can this measurement be trusted?", "Latency", "Acceptance", "Answers",
        "Conformance", "Go-live checklist", "Phases", "Rendered files", "Conditions",
    ]  # fmt: skip
    for name in ("ab.json", "canary.json", "checklist.json", "route.json", "rendered/nginx/nginx.conf"):
        assert f'href="{name}"' in page
    assert "The router uses speculation up to 4 requests in flight" in page
    assert "Not ready to go live: 1 item failed." in page
    assert "Add a server (capacity)." in page
    report = RunFolder(folder).comparison
    assert report is not None
    for level in report.challengers["speculative"].levels:
        shown = level.decision.speedup
        assert shown is not None
        assert f"{shown.estimate:.2f}× [{shown.low:.2f}, {shown.high:.2f}]" in page
    for arm in report.arms.values():
        assert all(f"{found.e2e_ms.p50:.0f} ms" in page for found in arm if found.e2e_ms.p50)


@pytest.mark.parametrize(
    ("speed", "status", "verdict"),
    [(2.0, "good", "Speculation pays"), (0.5, "bad", "Speculation does not pay"), (1.0, "open", "Undecided")],
)
def test_each_verdict_has_its_state(folder: Path, speed: float, status: str, verdict: str) -> None:
    run(folder, compared(speed, noise=0.2, seed=1))
    found = document(RunFolder(folder))
    assert (found.status, found.verdict) == (status, verdict)


def test_a_failed_gate_comes_before_a_good_comparison(folder: Path) -> None:
    reason = "1 check failed: parity"
    run(folder, compared(2.0), canary(CHECK, verdict="no", reason=reason), record={"stopped": "canary"})
    found = document(RunFolder(folder))
    assert (found.status, found.verdict) == ("bad", "Failed: canary")
    assert found.headline == "Canary failed: 1 check failed: parity."
    assert "By speed alone: use speculation at 1 stream a server." in found.summary
    assert Cell("Stopped at canary; later phases did not run.", "bad") in found.summary


def test_evidence_of_the_checklist_links_its_file(folder: Path) -> None:
    common = {"created": "2026-11-25T00:00:00Z", "age_s": 0, "figure": "1.9×"}
    ours = common | {"source": "ab.json", "sha256": "0" * 64}
    live = common | {"source": "http://127.0.0.1:9090", "sha256": None}
    run(
        folder,
        compared(2.0),
        checklist(item("speedup", "passed", evidence=[ours]), item("routing", "open", evidence=[live])),
    )
    page = written(folder)
    assert '<a href="ab.json">ab.json 000000000000</a>' in page
    assert "http://127.0.0.1:9090 (live)" in page


def test_what_passed_is_folded_and_what_did_not_is_shown(folder: Path) -> None:
    good = CHECK | {"name": "stop", "status": "pass", "message": "12 answers"}
    none = CHECK | {"name": "tools", "status": "unsupported", "message": "neither"}
    run(folder, compared(2.0), canary(CHECK, good, none), checklist(item("a", "passed"), item("b", "open")))
    sections = {one.title: one for one in document(RunFolder(folder)).sections}
    shown, without, passed = sections["Conformance"].tables
    assert [(one.folded, len(one.rows)) for one in (shown, without, passed)] == [
        ("", 1),
        ("1 check unsupported by both pools", 1),
        ("1 check passed", 1),
    ]
    assert [one.folded for one in sections["Go-live checklist"].tables] == ["", "1 item passed"]
    page = written(folder)
    folded = "".join(re.findall(r"<details>.*?</details>", page, re.DOTALL))
    assert "12 answers" in folded
    assert "7 of 12 answers are equal" not in folded
    assert "answers end before their stop string" in folded, "what a check is about stands below its name"


def test_a_figure_stands_beside_its_threshold(folder: Path) -> None:
    gate = {"measured": "1.22× [1.04, 1.45]", "threshold": "above 1.3×"}
    run(folder, compared(2.0), checklist(item("speedup", "open", gate=gate), item("b", "passed")))
    sections = {one.title: one for one in document(RunFolder(folder)).sections}
    for table in sections["Go-live checklist"].tables:
        assert table.columns == ("item", "state", "measured", "found", "evidence")
    row = sections["Go-live checklist"].tables[0].rows[0]
    assert row[2] == Cell("1.22× [1.04, 1.45]", about="threshold: above 1.3×")


def test_the_workload_stands_beside_the_latencies(folder: Path) -> None:
    run(folder, compared(2.0))
    (latency,) = [one for one in document(RunFolder(folder)).sections if one.title == "Latency"]
    (workload,) = [one for one in latency.tables if one.title == "Workload"]
    rows = {str(row[0]): row[1:] for row in workload.rows}
    assert rows["prompts, all classes"] == ("30", "30", "30", "48")
    assert rows["answers of speculative, edit"][:3] == ("10", "10", "10")
    assert [chart.title for chart in latency.charts][-2:] == ["Prompt length", "Answer length"]
    assert "tokens" in draw(latency.charts[-1], Axis(1, (), ()), 0).svg


def test_a_latency_that_is_not_known_has_its_reason(folder: Path) -> None:
    why = "the endpoint does not send usage with every chunk"

    def answer(visit: Any, *_: object) -> dict[str, Any]:
        return {} if visit.arm == "standard" else {"tpot_ms": None, "missing": {"tpot_ms": why}}

    run(folder, compared(2.0, answer=answer))
    (latency,) = [one for one in document(RunFolder(folder)).sections if one.title == "Latency"]
    assert latency.tables[0].note.endswith(f"Per output token, speculative is not known: {why}.")


def test_the_guide_has_the_pages_that_sections_name(folder: Path) -> None:
    run(folder, compared(2.0), canary(CHECK), checklist(item("a", "open")))
    guides = [one.guide for one in document(RunFolder(folder)).sections if one.guide]
    assert len(guides) >= 5
    assert all((Path(__file__).parents[2] / guide).is_file() for guide in guides)


def test_the_phases_show_their_state_in_words(folder: Path) -> None:
    skipped = [{"phase": "sweep", "reason": "K is fixed", "hint": "specops sweep r.yaml"}]
    launch = made("launch", "undecided", "no peak", files=[])
    cut, failed = made("monitor", "partial", "cut"), canary(CHECK, verdict="no")
    run(folder, compared(2.0), launch, cut, failed, record={"skipped": skipped})
    words = {badge.label: (badge.state, badge.word) for badge in document(RunFolder(folder)).badges}
    assert list(words) == WALKED
    assert words["ab"] == ("good", "passed")
    assert words["launch"] == ("open", "undecided")
    assert words["monitor"] == ("open", "stopped")
    assert words["canary"] == ("bad", "failed")
    assert words["sweep"] == ("none", "skipped")
    assert words["route"] == ("none", "not run")
    page = written(folder)
    assert "K is fixed; next: specops sweep r.yaml" in page
    assert all(f'id="phase-{phase}"' in page and f'href="#phase-{phase}"' in page for phase in WALKED)


def test_an_empty_folder_and_one_without_a_comparison_have_a_page(folder: Path) -> None:
    folder.mkdir(parents=True)
    assert "Nothing measured" in written(folder)
    run(folder, made("launch", reason="rendered", files=["rendered/a.sh"]))
    page = written(folder)
    assert "Not compared yet" in page
    assert "missing" in page  # rendered/a.sh


def test_the_headline_is_the_first_part_of_a_long_reason(folder: Path) -> None:
    reason = "not enough evidence: the best is k=5, 2.13×; repeats come from a cache; 11 requests"
    run(folder, made("launch", "undecided", reason=reason, files=[]))
    page = document(RunFolder(folder))
    assert page.headline == "Not enough evidence: the best is k=5, 2.13×."
    assert [str(one) for one in page.summary[:2]] == ["Repeats come from a cache.", "11 requests."]


def test_prompts_that_ship_with_specops_are_called_samples(folder: Path) -> None:
    shipped = asset("playbooks", "embedded", "prompts.json")
    known = prompts() | {"sha256": sha256(shipped), "path": str(shipped)}
    run(folder, compared(2.0, prompt_set=known))
    assert "The prompts are samples that ship with specops" in written(folder)
    run(folder, compared(2.0))
    page = written(folder)
    assert "samples" not in page
    assert sha256("mine") in page


def test_inputs_that_differ_between_phases_are_marked(folder: Path) -> None:
    other = canary(CHECK | {"status": "pass"}).model_copy(update={"inputs": {"prompts": sha256("others")}})
    run(folder, compared(2.0), other)
    (conditions,) = [one for one in document(RunFolder(folder)).sections if one.title == "Conditions"]
    (hashes,) = [table for table in conditions.tables if table.title == "Hashes of inputs"]
    marked = [row[0] for row in hashes.rows if isinstance(row[1], Cell) and row[1].state == "open"]
    assert marked == ["prompts", "prompts"]


# Damaged files.


def _half(path: Path) -> None:
    path.write_text(path.read_text()[: path.stat().st_size // 2])


def _edited(path: Path) -> None:
    path.write_text(path.read_text().replace('"reason": "', '"reason": "not '))


def _schema(path: Path) -> None:
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 99'))


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _binary(path: Path) -> None:
    path.write_bytes(b"\x00\xff\xfe")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _foreign(path: Path) -> None:
    results.write(path, Result(phase="doctor", verdict="yes", reason="of another phase"))


def _hollow(path: Path) -> None:
    """Sealed, but without what the phase keeps."""
    phase = json.loads(path.read_text())["phase"]
    results.write(path, Result(phase=phase, verdict="yes", reason="x", data={"challengers": 1, "visits": {}}))


DAMAGE = (_half, _edited, _schema, _emptied, _binary, _folder, _foreign, _hollow)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__.strip("_"))
def test_a_damaged_file_is_named_and_the_rest_is_shown(folder: Path, damage: Any) -> None:
    run(folder, compared(2.0), canary(CHECK | {"status": "pass"}), checklist(item("a", "passed")))
    for name in ("ab.json", "canary.json", "checklist.json", "run.json"):
        text = (folder / name).read_text()
        damage(folder / name)
        found = RunFolder(folder)
        assert [one.name for one in found.unreadable] == [name]
        page = written(folder)
        assert re.search(f"Unreadable: [^<]*{re.escape(str(folder / name))}", page)
        if name == "ab.json":
            assert document(found).status == "bad"
            assert "Result unreadable" in page
        if (folder / name).is_dir():
            (folder / name).rmdir()
        (folder / name).write_text(text)
    assert RunFolder(folder).unreadable == ()


# Text never becomes HTML.


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.data: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(f"{tag} {' '.join(sorted(name for name, _ in attrs))}")

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def everything(text: str) -> Document:
    """A document in which every text is `text`."""
    cells = (text, Cell(text, "bad", text, code=True, anchor=text, about=text))
    charts = (
        TimeChart(text, text, text, (Line(text, (1.0, 2.0)), Line(text, (None, 1.0))), (Level(text, 1.0),)),
        Timeline(text, text, ((text, ((0, 1),)),)),
        Curve(text, text, (Line(text, (0.5, 0.4)), Line(text, (0.5,)))),
        Ratios(text, text, text, (Ratio(text, text, "good", 2.0, 1.5, 2.5), Ratio(text, text, "none", None)),
               text, text),
        Distribution(text, text, (Samples(text, (1.0, 2.0)), Samples(text, (3.0,))), text),
    )  # fmt: skip
    table = Table(text, (text, text), (cells, cells), text, prose=(1,), folded=text)
    step = Step(text, text, text)
    sections = tuple(
        Section(f"{text}{n}", (text,), charts if n == 0 else (), (table,), (step,), (text,), text)
        for n in range(4)
    )
    badge = Badge(text, "open", text, text)
    summary, tiles = (text, Cell(text, "bad")), (Tile(text, text, text, "bad"),)
    axis = Axis(2, ((0, text), (1, text)), ())
    return Document(
        text, text, "open", text, text, summary, tiles, (step,), sections, (badge,), text, axis, (text,), text
    )


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30))
def test_no_text_becomes_a_tag_or_an_attribute(text: str) -> None:
    assert Tags(html(everything(text))).found == Tags(html(everything("plain"))).found


def test_hostile_names_stay_text(folder: Path) -> None:
    hostile = canary(CHECK | {"message": HOSTILE}, reason=HOSTILE)
    listed = checklist(item(HOSTILE, "open", HOSTILE, decide=HOSTILE, change=HOSTILE))
    launch = made("launch", "undecided", HOSTILE, files=[HOSTILE, 'x" onmouseover="alert(1)'])
    named = prompts(path=f"/x/{HOSTILE}")
    compare = compared(2.0, model=HOSTILE, draft=HOSTILE, version=HOSTILE, prompt_set=named)
    skipped = [{"phase": "sweep", "reason": HOSTILE, "hint": HOSTILE}]
    run(folder, compare, hostile, listed, launch, record={"skipped": skipped})
    page = written(folder)
    tags = Tags(page)
    assert not any(tag.startswith(("script", "img", "iframe")) or "onmouseover" in tag for tag in tags.found)
    assert HOSTILE in "".join(tags.data)  # it is shown as it is, not as what Jinja would make of it
    assert "javascript:" not in page


def test_half_a_surrogate_pair_does_not_stop_the_page() -> None:
    assert '<h1 id="answer">?</h1>' in html(everything("\ud83d"))


# The page itself.


def test_it_is_one_file_that_asks_for_nothing(folder: Path) -> None:
    run(folder, compared(2.0, concurrency=(1, 4)))
    page = written(folder)
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//|@import|url\((?!["']?data:)""", page)
    assert "<script" not in page
    assert page.count("<h1") == 1
    tags = Tags(page).found
    for landmark in ("header", "main", "nav", "footer"):
        assert sum(tag.split()[0] == landmark for tag in tags) == 1
    assert 'class="skip" href="#main"' in page
    assert all("scope" in tag for tag in tags if tag.startswith("th "))
    images = re.findall(r'<svg role="img" aria-labelledby="([^"]+)"', page)
    assert images
    assert all(re.search(rf'<title id="{name}">[^<]{{20,}}', page) for name in images)
    hidden = re.findall(r"<svg (?![^>]*role=\"img\")(?![^>]*viewBox=\"0 0 1000)[^>]*>", page)
    assert all('aria-hidden="true"' in one for one in hidden)
    assert written(folder) == page


def _themes() -> dict[str, dict[str, str]]:
    """The custom properties of each theme, by name: the dark and the print one override the light."""
    style = files("specops.render.report").joinpath("page.html").read_text()
    blocks = re.findall(r"(?:@media ([^{]+)\{[^}]*?)?:root \{([^}]+)\}", style)
    light: dict[str, str] = {}
    found = {}
    for media, block in blocks:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        light = light or colours
        found[media.strip() or "light"] = light | colours
    return found


def _contrast(one: str, other: str) -> float:
    """As WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_every_text_colour_is_legible_on_every_background_in_every_theme() -> None:
    """4.5 to 1 for text, 3 to 1 for lines that carry meaning."""
    themes = _themes()
    assert list(themes) == ["light", "(prefers-color-scheme: dark)", "print"]
    texts = ("ink", "soft", "link", "good", "bad", "open", "none")
    behind = ("paper", "panel", "good-tint", "bad-tint", "open-tint", "none-tint")
    for colours in themes.values():
        for text, background in product(texts, behind):
            assert _contrast(colours[text], colours[background]) >= 4.5, (text, background)
        for line in ("line-1", "line-2", "line-3", "strong"):
            assert _contrast(colours[line], colours["paper"]) >= 3, line


def test_charts_are_drawn_of_extreme_figures() -> None:
    axis = Axis(1, (), ())
    rows = (
        Ratio("a", "g", "open", 0.86, 0.03, 25.0),
        Ratio("b", "g", "bad", 1e-9),
        Ratio("c", "", "good", 1e9, 1, 2e9),
    )
    drawn = draw(Ratios("t", "d", "", rows), axis, 0).svg
    assert drawn.count("▸") == 2
    assert drawn.count("◂") == 1
    for values in ((), (5.0,), (1.0, 1.0, 1.0), (1e-3, 1e6), (0.0, 0.0)):
        drawn += draw(Distribution("t", "d", (Samples("a", values),)), axis, 0).svg
    drawn += draw(TimeChart("t", "d", "u", (Line("a", (None,)),)), axis, 0).svg
    drawn += draw(Curve("t", "d", ()), axis, 0).svg
    places = [float(value) for value in re.findall(r'(?:x|cx|x1|x2)="(-?[\d.]+)%"', drawn)]
    assert min(places) >= 0
    assert max(places) <= 100
    assert not re.search(r"\b(?:nan|inf)\b", drawn)


@given(st.floats(1e-6, 1e9))
def test_ticks_are_few_and_within_the_axis(most: float) -> None:
    found = ticks(most)
    assert 2 <= len(found) <= 6
    assert found[0] == 0
    assert found[-1] <= most * 1.000001


# When it is written.


def test_a_result_renews_the_page_and_partial_ones_wait(folder: Path) -> None:
    notes: list[str] = []
    updates = PageUpdates(notes.append)
    one = made("launch", reason="first", files=[])
    results.write(folder / "launch.json", one)
    updates(folder / "launch.json", one)
    assert "first" in (folder / "index.html").read_text()
    cut = made("ab", "partial", "stopped after 1 of 9 visits")
    results.write(folder / "ab.json", cut)
    updates(folder / "ab.json", cut)
    assert "stopped after" not in (folder / "index.html").read_text()
    updates.flush()
    assert "stopped after" in (folder / "index.html").read_text()
    assert notes == []


def test_only_run_folders_get_a_page(tmp_path: Path) -> None:
    updates = PageUpdates(lambda text: pytest.fail(text))
    one = made("launch", files=[])
    for path in (tmp_path / "launch.json", tmp_path / "runs" / "demo" / "bench.json"):
        results.write(path, one)
        updates(path, one)
    assert not list(tmp_path.rglob("index.html"))
    run(tmp_path / "elsewhere" / "demo", one)  # with run.json it is one, wherever it is
    updates(tmp_path / "elsewhere" / "demo" / "launch.json", one)
    assert [path.name for path in tmp_path.rglob("index.html")] == ["index.html"]


def test_a_page_that_cannot_be_written_is_a_note(folder: Path) -> None:
    notes: list[str] = []
    updates = PageUpdates(notes.append)
    run(folder, made("launch", files=[]))
    (folder / "index.html").write_text("<title>somebody else's</title>")
    updates(folder / "launch.json", made("launch", files=[]))
    assert (folder / "index.html").read_text() == "<title>somebody else's</title>"
    (folder / "index.html").unlink()
    (folder / "index.html").mkdir()
    updates(folder / "launch.json", made("launch", files=[]))
    assert [note.startswith(f"could not write {folder / 'index.html'}") for note in notes] == [True, True]


def test_a_phases_own_command_writes_the_page(tmp_path: Path) -> None:
    file = tmp_path / "rollout.yaml"
    file.write_text(ROLLOUT)
    done = specops("launch", "render", str(file), "--quiet")
    assert done.returncode in (0, 4), done.stderr
    page = (tmp_path / "runs" / "demo" / "index.html").read_text()
    assert 'href="launch.json"' in page
    assert "ab not run" in re.sub(r"<[^>]+>| +", " ", page).replace("  ", " ").replace("  ", " ")
    assert not results.listeners
