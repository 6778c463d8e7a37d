"""`measure` starting from an earlier result: what is taken over, and what is measured anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from measuring import run, settings
from stub import CHUNKS, Reply, Stub, fault, stream

from specops.errors import FileError
from specops.load.workload import load_prompts
from specops.phases.baseline import measure
from specops.progress import SilentProgress
from specops.results import Result

pytestmark = pytest.mark.usefixtures("any_speed")


def test_an_interrupted_run_goes_on_with_the_cells_it_lacks(stub: Stub, prompts_file: Path) -> None:
    partials: list[Result] = []
    whole = measure(settings(stub, prompts_file, repeats=3), SilentProgress(), None, partials.append)
    assert [len(p.data["cells"]) for p in partials] == [1, 2, 3]
    assert partials[0].verdict == "partial"
    assert partials[0].reason == "stopped after 1 of 3 cells"
    stub.requests.clear()
    found = run(stub, prompts_file, partials[0], repeats=3)
    assert len(stub.requests) == 1 + 2 * 13
    assert found.data["run"] == whole.data["run"] == partials[0].data["run"]
    assert found.verdict == "yes"
    assert found.data["cells"][0] == whole.data["cells"][0]


def test_a_whole_run_is_not_measured_again(stub: Stub, prompts_file: Path) -> None:
    whole = run(stub, prompts_file)
    stub.requests.clear()
    again = run(stub, prompts_file, whole)
    assert stub.requests == []
    assert again.summary == whole.summary


def test_other_settings_or_prompts_are_measured_anew(stub: Stub, prompts_file: Path, tmp_path: Path) -> None:
    whole = run(stub, prompts_file)
    other = tmp_path / "other.json"
    other.write_text(json.dumps([{"text": "Other"}]))
    for file, chosen in ((prompts_file, {"temperature": 0.5}), (other, {})):
        stub.requests.clear()
        run(stub, file, whole, **chosen)
        assert stub.requests


def test_an_identity_stands_for_an_address_that_changes(stub: Stub, prompts_file: Path) -> None:
    one = settings(stub, prompts_file, identity="pool")
    two = one.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
    whole = measure(one, SilentProgress())
    assert measure(two, SilentProgress(), whole).summary == whole.summary
    bare = [s.model_copy(update={"identity": None}) for s in (one, two)]
    hashes = [s.inputs(load_prompts(prompts_file))["settings"] for s in bare]
    assert hashes[0] != hashes[1]


def test_cells_that_failed_are_measured_again(stub: Stub, prompts_file: Path) -> None:
    stub.answer = lambda body: fault(500, "x") if len(stub.requests) > 7 else Reply(stream(body, CHUNKS))
    failed = run(stub, prompts_file)
    assert failed.verdict == "no"
    stub.answer = lambda body: Reply(stream(body, CHUNKS))
    assert run(stub, prompts_file, failed).verdict == "yes"


def test_a_damaged_earlier_result_is_refused(stub: Stub, prompts_file: Path) -> None:
    whole = run(stub, prompts_file)
    del whole.data["cells"][0]["rows"][0]["ttft_ms"]
    with pytest.raises(FileError, match=r"damaged: data\.cells\.0\.rows\.0\.ttft_ms"):
        run(stub, prompts_file, whole)
