"""The site of the guide: it builds without a network, has every page, and answers newcomers' questions."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from guide_pages import PAGES, ROOT, links, parts

CONFIG = ROOT / "mkdocs.yml"
HOME = ROOT / "docs" / "README.md"

ANSWERS = {
    "need a key": ("two-pools.md", r"api_key_env: PLAIN_KEY"),
    "Kubernetes": ("kubernetes.md", r"rendered/kubernetes/"),
    "production servers": ("load.md", r"max_rps: 2\.0"),
    "cost on GPUs": ("load.md", r"GPU-hours"),
    "stop a measurement": ("measure.md", r"Ctrl-C or SIGTERM stops it"),
    "roll back": ("roll-back.md", r"guard override rollout\.yaml standard"),
    "interval computed": ("intervals.md", r"jackknife"),
    "versions of vLLM": ("configure.md", r"0\.8\.0 to 0\.33\.0"),
    "pipeline": ("pipelines.md", r"GitHub Actions"),
    "two drafts": ("two-drafts.md", r"specops compare runs/small runs/head"),
    "own prompts": ("own-prompts.md", r"jq -"),
    "remove it": ("uninstall.md", r"\.cache/specops"),
}
"""By a word of a newcomer's question: the page that answers it, and a part of the answer."""


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without the functions that it names for MkDocs."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def nav_pages(entries: list[Any]) -> list[str]:
    """Return the files of the navigation, from the top."""
    pages = []
    for entry in entries:
        target = next(iter(entry.values())) if isinstance(entry, dict) else entry
        pages += nav_pages(target) if isinstance(target, list) else [target]
    return pages


@pytest.fixture(scope="module")
def nav() -> list[str]:
    config = yaml.load(CONFIG.read_text(encoding="utf-8"), Loader=_Loader)
    return nav_pages(config["nav"])


def section(page: Path, anchor: str) -> str:
    """Return the text of the page from the heading of `anchor` to the next one of its level, else all."""
    text = page.read_text(encoding="utf-8")
    if not anchor:
        return text
    headings = list(re.finditer(r"^(#+) (.+)$", text, re.MULTILINE))
    for number, heading in enumerate(headings):
        if re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-") == anchor:
            later = [end.start() for end in headings[number + 1 :] if len(end[1]) <= len(heading[1])]
            return text[heading.start() : later[0] if later else len(text)]
    raise AssertionError(f"{page}: no heading of #{anchor}")


def test_every_page_is_in_the_navigation_once(nav) -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert sorted(name for name in nav if not name.startswith("repository/")) == sorted(pages)


@pytest.mark.parametrize("question", ANSWERS)
def test_the_home_page_leads_from_a_question_to_its_answer(question: str, nav) -> None:
    rows = [line for line in parts(HOME)[0].splitlines() if line.startswith("|") and question in line]
    assert len(rows) == 1, "no row of the home page, or several, have this question"
    (target,) = re.findall(r"\]\(([^)]+)\)", rows[0])
    name, _, anchor = target.partition("#")
    page, answer = ANSWERS[question]
    assert name == page
    assert name in nav
    assert re.search(answer, section(HOME.parent / name, anchor))


def test_every_row_of_the_questions_is_tested() -> None:
    rows = re.findall(r"^\| (?!question|---)(.+?) \|", section(HOME, "questions"), re.MULTILINE)
    assert len(rows) == len(ANSWERS)


def test_the_picture_of_the_interval_is_current_and_is_of_the_text() -> None:
    spec = importlib.util.spec_from_file_location("interval_picture", ROOT / "tools" / "interval_picture.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    measured = json.loads(tool.WINDOWS.read_text(encoding="utf-8"))
    drawn = tool.PICTURE.read_text(encoding="utf-8")
    assert tool.picture(measured) == drawn, "it is old: python tools/interval_picture.py"
    (shown,) = re.findall(r"`(1\.18× \[[^`]*)`", (ROOT / "docs" / "intervals.md").read_text(encoding="utf-8"))
    cell = next(cell for cell in measured["cells"] if (cell["class"], cell["streams"]) == (tool.CLASS, 8))
    _, interval = tool.steps(np.array(cell["windows"]), measured["confidence"])[-1]
    assert shown == f"{interval.estimate:.2f}× [{interval.low:.2f}, {interval.high:.2f}]"


def test_only_the_history_refers_to_the_first_playbook() -> None:
    """Readers do not have that document. Others link its page; `playbooks/` are example files."""
    for page in PAGES:
        if page.is_relative_to(ROOT / "docs") and page.name != "playbook.md":
            prose = re.sub(r"\[[^\]]*\]\([^)]*\)|playbooks/", "", parts(page)[0])
            assert not re.search(r"playbook|플레이북", prose, re.IGNORECASE), page


class _Sources(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        source = values.get("src") if tag != "link" else values.get("href")
        if source and values.get("rel") not in ("canonical", "alternate", "prev", "next"):
            self.loaded.append(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("material", reason="needs mkdocs-material, of the dev extra")
    folder = tmp_path_factory.mktemp("site") / "site"
    offline = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "HTTP", "HTTPS")}
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | offline,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_builds_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        parser = _Sources()
        parser.feed(page.read_text(encoding="utf-8"))
        assert [source for source in parser.loaded if re.match(r"(?:https?:)?//", source)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8"))


def test_the_site_has_search_in_both_languages_and_two_colour_schemes(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert '"location":"roll-back/' in index
    assert any("첫 한 시간" in entry["title"] for entry in json.loads(index)["docs"])
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'data-md-color-scheme="slate"' in home
    assert 'hreflang="ko"' in home


def test_files_outside_of_the_docs_are_pages_with_working_links(site: Path) -> None:
    runbook = site / "repository" / "alerts" / "runbook" / "index.html"
    assert "LowAcceptRatio" in runbook.read_text(encoding="utf-8")
    watch = (site / "watch" / "index.html").read_text(encoding="utf-8")
    assert 'href="../repository/alerts/runbook/"' in watch
    outside = [link for page in PAGES if page.parent.name == "docs" for link in links(page) if "../" in link]
    assert len(outside) > 10
