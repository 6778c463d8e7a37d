"""The checklist for CI: JUnit XML and GitHub annotations, with what must be escaped."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from calling import specops
from made_checklists import Made

from specops.cli.checklist import github, junit
from specops.phases.checklist.evidence import ChecklistData, Item
from specops.results import Result

AWKWARD = "50% of <it>, & \x1b[1mmore\x1b[0m\nsecond: line"


def made(**statuses: str) -> Result:
    items = [
        Item(
            name=name, asks="it holds", origin="specops", status=status, found=AWKWARD, evidence=[],
            change="edit a.yaml", decide="specops run a.yaml",
        )
        for name, status in statuses.items()
    ]  # fmt: skip
    return Result(
        phase="checklist",
        settings={"rollout": "made"},
        verdict="no",
        reason="1 item failed",
        data=ChecklistData(rollout_file="a.yaml", items=items).model_dump(mode="json"),
    )


def test_junit_has_a_case_for_each_item() -> None:
    document = "\n".join(junit(made(speed="failed", canary="open", ab="passed", told="attested")))
    suite = ElementTree.fromstring(document)[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    outcomes = {case.get("name"): [child.tag for child in case] for case in suite}
    assert outcomes == {
        "speed": ["failure", "system-out"], "canary": ["skipped", "system-out"], "ab": ["system-out"],
        "told": ["system-out"],
    }  # fmt: skip
    failure = suite[0][0]
    assert failure.text == "change: edit a.yaml\nnext: specops run a.yaml"
    assert "50% of <it>, & [1mmore" in (suite[0][1].text or "")


def test_github_annotates_what_is_not_passed() -> None:
    lines = github(made(speed="failed", canary="open", ab="passed", told="attested"))
    assert [line.partition(" title=")[0] for line in lines] == [
        "::error", "::warning", "::notice", "1 item failed.",
    ]  # fmt: skip
    assert all("\n" not in line for line in lines)
    assert lines[0].startswith("::error title=speed failed::50%25 of <it>, & ")
    assert "%0Asecond: line%0Achange: edit a.yaml%0Anext: specops run a.yaml" in lines[0]


@pytest.mark.parametrize(("form", "begins"), [("junit", "<?xml version"), ("github", "::warning title=")])
def test_the_command_prints_it_with_the_exit_code_of_the_verdict(
    tmp_path: Path, form: str, begins: str
) -> None:
    rollout = Made(tmp_path)
    done = specops("checklist", str(rollout.path), "--out", str(rollout.folder), "--format", form)
    assert done.returncode == 4
    assert done.stdout.startswith(begins)
    refused = specops("checklist", str(rollout.path), "--format", form, "--json")
    assert refused.returncode == 2
    assert "exclude each other" in refused.stdout
