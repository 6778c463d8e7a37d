"""A class that must stay off speculation, and that the router cannot recognise: everything says so, and the
block that is printed repairs it."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import specops
from made_rules import ab_result, group, kept, rollout, sweep_result
from made_runs import ROLLOUT, compared, run

from specops import results
from specops.config import load
from specops.phases.route import render
from specops.phases.route.thresholds import rules
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.document import document, walk_document, write_page
from specops.render.report.document import text_of
from specops.render.report.terminal import terminal


def short_is_slower(arm: str, name: str) -> float:
    return 1.0 if arm == "standard" else 0.5 if name == "short" else 2.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return run(tmp_path / "runs" / "demo", compared(short_is_slower))


def rollout_file(folder: Path) -> Path:
    return folder.parents[1] / "rollout.yaml"


def block(output: str) -> dict[str, Any]:
    """The block that is printed, as YAML."""
    lines = output.splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip() == "route:")
    margin = lines[first].index("route:")
    inside = takewhile(lambda line: line.startswith(" " * (margin + 1)), lines[first + 1 :])
    return yaml.safe_load("\n".join(line[margin:] for line in [lines[first], *inside]))


def test_render_is_undecided_until_the_block_is_pasted(folder: Path) -> None:
    path = rollout_file(folder)
    done = specops("route", "render", str(path))
    assert done.returncode == 4, done.stderr
    assert "The router cannot recognise short, which must stay off speculation" in done.stdout
    found = block(done.stdout)
    path.write_text(ROLLOUT + yaml.safe_dump(found))
    done = specops("route", "render", str(path))
    assert done.returncode == 0, done.stderr
    (one,) = json.loads((folder / "route.json").read_text())["data"]["rules"]["classes"]
    assert one["speculate"]["value"] is False


def test_the_block_keeps_the_classes_that_are_written(folder: Path) -> None:
    path = rollout_file(folder)
    written = {"route": {"classes": [{"name": "long", "contains": ["sum up"]}]}}
    path.write_text(ROLLOUT + yaml.safe_dump(written))
    done = specops("route", "render", str(path))
    names = [one["name"] for one in block(done.stdout)["route"]["classes"]]
    assert (done.returncode, names) == (4, ["long", "short"])
    assert block(done.stdout)["route"]["classes"][0]["contains"] == ["sum up"]


def test_the_run_its_page_and_the_checklist_say_so(folder: Path) -> None:
    path = rollout_file(folder)
    result = render(load(path), folder)
    results.write(folder / "route.json", result)
    assert result.verdict == "undecided"
    walk = RunFolder(folder).walk()
    shown = "\n".join(terminal(walk_document(walk, load(path), path)))
    said = "The router cannot recognise short, which must stay off speculation"
    assert said in " ".join(shown.split())
    assert block(shown)["route"]["classes"][0]["name"] == "short"
    found = document(RunFolder(folder))
    assert any(text_of(line).startswith(said) for line in found.summary)
    page = write_page(folder).read_text()
    assert said in page
    assert "X-Traffic-Class: short" in page
    done = specops("checklist", str(path), "--json")
    (item,) = [one for one in json.loads(done.stdout)["data"]["items"] if one["name"] == "routing"]
    assert item["status"] == "open"
    assert item["found"].startswith("the router cannot recognise short")
    assert '{"name": "short"' in item["change"]


def test_what_keeps_a_class_off_without_a_matcher(tmp_path: Path) -> None:
    kept(tmp_path, "ab", ab_result(lambda name: 0.5 if name == "short" else 2.0))
    assert rules(rollout(), tmp_path).unmatched.keys() == {"short"}
    assert rules(rollout(route={"speculate": False}), tmp_path).unmatched == {}
    of_class = [{"name": "short", "path": "/v1/completions"}]
    assert rules(rollout(route={"classes": of_class}), tmp_path).unmatched == {}
    (tmp_path / "ab.json").unlink()
    only = sweep_result(only_for=["long"], by_class={"long": group("yes"), "short": group("no")})
    kept(tmp_path, "sweep", only)
    assert rules(rollout(), tmp_path).unmatched == {}  # the others are standard


def test_prompts_without_a_class_are_kept_off_by_the_default(tmp_path: Path) -> None:
    by_class = {"default": group("no"), "long": group("yes")}
    kept(tmp_path, "sweep", sweep_result(by_class=by_class))
    found = rules(rollout(), tmp_path)
    assert found.table["default"]["speculate"]["value"] is False
    assert found.unmatched == {}
