"""The examples of docs/python.md as doctests: against scripted servers, beside the files that they name."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import pytest
from stub import CHUNKS, Reply, Stub, stream

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
BLOCK = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def text(stub: Stub, other: Stub) -> str:
    """The page's examples, with the servers' own addresses, and without the wait that a proof needs."""
    stub.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=0.012)
    other.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=0.001)
    shown = "\n".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    changes = {
        "http://127.0.0.1:8000/v1": stub.base_url,
        "http://127.0.0.1:8001/v1": other.base_url,
        "min_duration_s=60": "min_duration_s=0, warmup=0, same_prompts=True",
    }
    for old, new in changes.items():
        assert shown.count(old) == 1, old
        shown = shown.replace(old, new)
    return shown


@pytest.mark.usefixtures("any_speed")
def test_the_examples_of_the_page_run(text, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("start.sh").write_text("#!/bin/sh\nvllm serve MODEL --num-speculative-tokens 3\n")
    prompts = [{"id": f"p{number}", "text": f"Prompt {number}"} for number in range(24)]
    Path("prompts.json").write_text(json.dumps(prompts))
    for name in ("target", "draft"):
        Path(name).symlink_to(ROOT / "playbooks" / "embedded" / name)
    examples = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(examples.examples) >= 15
    said: list[str] = []
    outcome = doctest.DocTestRunner().run(examples, out=said.append)
    assert outcome.failed == 0, "".join(said)
