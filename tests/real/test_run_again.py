"""`specops run` a second time: what is reused, what is measured anew, and where it goes on."""

from __future__ import annotations

import json

import yaml
from walking import MEASURE, PROMPTS, reused, walk

from specops import results
from specops.config import load
from specops.phases.playbook import Walk
from specops.phases.run_page.document import walk_document
from specops.render.report.terminal import terminal


def files(done: Walk) -> list[str]:
    """Of what was measured; what is rendered or judged from it is written anew each time."""
    measured = [step for step in done.steps if step.phase in ("baseline", "ab", "canary")]
    return [results.sha256(step.path) for step in measured]


def test_a_second_run_measures_nothing_again(walked, measured) -> None:
    assert reused(measured) == []
    second, notes = walk(walked, go_on=True)
    assert reused(second) == ["baseline", "ab", "canary"]
    assert files(second) == files(measured)
    assert notes.said("baseline", "inputs have not changed")
    shown = "\n".join(terminal(walk_document(second, load(walked), walked)))
    assert f"{second.steps[0].result.created:%Y-%m-%d %H:%M} UTC (baseline); --fresh" in shown
    assert "reused: " not in "\n".join(terminal(walk_document(measured, load(walked), walked)))
    third, _ = walk(walked, only="ab", fresh=True)
    assert reused(third) == []


def test_what_changed_is_named_and_measured_anew(written, walked) -> None:
    changed, notes = walk(written(prompts=PROMPTS[:12]), only="baseline")
    assert reused(changed) == []
    assert notes.said("baseline", "the prompts changed")
    again, notes = walk(written(measure=MEASURE | {"max_tokens": 3, "concurrency": [1]}), only="ab")
    assert reused(again) == []
    assert notes.said("ab", "the settings changed")


def test_more_repeats_keep_what_was_measured(written, walked, measured) -> None:
    path = written(measure=MEASURE | {"repeats": MEASURE["repeats"] + 1})
    more, _ = walk(path, only="baseline")
    assert reused(more) == []
    first = measured.steps[0].result.data["cells"][0]
    assert first in more.steps[0].result.data["cells"]
    assert len(more.steps[0].result.data["cells"]) > len(measured.steps[0].result.data["cells"])


def test_a_model_that_changed_on_disk_is_measured_anew(tiny_pair, tmp_path) -> None:
    from specops.phases.inputs import inputs_of, settings_of

    for model in ("target", "draft"):
        (tmp_path / model).mkdir()
        (tmp_path / model / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS))
    pool = {"engine": "embedded", "target": "target"}
    speculative = pool | {"speculation": {"draft": "draft"}}
    (tmp_path / "rollout.yaml").write_text(
        yaml.safe_dump(
            {
                "rollout": "x",
                "prompts": "prompts.json",
                "pools": {"standard": pool, "speculative": speculative},
            }
        )
    )
    rollout = load(tmp_path / "rollout.yaml")

    def inputs() -> dict[str, str]:
        return inputs_of(settings_of(rollout, rollout.pools.speculative), rollout.pools.speculative)

    before = inputs()
    assert inputs() == before
    (tmp_path / "draft" / "model.safetensors").write_bytes(b"other weights")
    assert {name for name, digest in inputs().items() if digest != before[name]} == {"draft"}


def test_a_partial_result_goes_on_at_the_first_cell_that_is_missing(walked) -> None:
    file = walked.parent / "run" / "baseline.json"
    whole = results.read(file)
    partial = whole.model_copy(
        update={"verdict": "partial", "data": whole.data | {"cells": whole.data["cells"][:3]}}
    )
    results.write(file, partial)
    second, notes = walk(walked, only="baseline")
    cells = second.steps[0].result.data["cells"]
    assert cells[:3] == whole.data["cells"][:3]
    assert len(cells) == 4
    assert notes.said("3 of 4 cells were measured before")
    assert second.steps[0].result.verdict in ("yes", "undecided"), "a busy machine is not steady"


def test_a_comparison_goes_on_at_the_first_pair_of_windows_that_is_missing(walked) -> None:
    """Half a pair is measured again: the other half would be of another session."""
    file = walked.parent / "run" / "ab.json"
    whole = results.read(file)
    windows = whole.data["windows"]
    results.write(
        file,
        whole.model_copy(update={"verdict": "partial", "data": whole.data | {"windows": windows[:3]}}),
    )
    second, notes = walk(walked, only="ab")
    again = second.steps[0].result.data["windows"]
    assert again[:2] == windows[:2]
    assert again[2] != windows[2]
    assert notes.said("windows measured before: 2")
    assert second.steps[0].result.verdict != "partial"
