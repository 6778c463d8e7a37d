"""The four formats of prompts, and what is said of a file that is none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specops.errors import FileError, PromptsError
from specops.load.workload import Prompt, load_prompts
from specops.results import sha256


def write(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "prompts"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def lines(*items: Any) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def test_the_playbooks_list(tmp_path: Path) -> None:
    path = write(tmp_path, [{"text": "Hi", "max_tokens": 5}, {"id": "x", "class": "edit", "text": "Yo"}])
    found = load_prompts(path)
    assert found.prompts == (Prompt("0", "all", "Hi", 5), Prompt("x", "edit", "Yo"))
    assert found.provenance() == {
        "path": str(path),
        "format": "playbook",
        "sha256": sha256(path),
        "count": 2,
        "classes": {"all": 1, "edit": 1},
        "ignored_fields": [],
        "repeated": 0,
        "samples": False,
    }


def test_openai_batch(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    path = write(
        tmp_path,
        lines(
            {"custom_id": "a", "body": {"model": "m", "messages": messages, "max_completion_tokens": 9}},
            {"custom_id": "b", "body": {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0.5}},
            {"custom_id": "c", "body": {"prompt": "Hi"}},
        ),
    )
    found = load_prompts(path)
    assert [(p.id, p.max_tokens) for p in found.prompts] == [("a", 9), ("b", 4), ("c", None)]
    assert found.prompts[0].messages() == messages
    assert found.prompts[1].completion_prompt() == [1, 2, 3]
    assert found.format == "openai-batch"
    assert found.ignored == ("temperature",)


def test_sharegpt(tmp_path: Path) -> None:
    turns = [
        {"from": "system", "value": "…"},
        {"from": "human", "value": "Hi"},
        {"from": "gpt", "value": "Yo"},
    ]
    found = load_prompts(write(tmp_path, [{"id": "s_0", "conversations": turns}]))
    assert found.prompts == (Prompt("s_0", "all", "Hi"),)


def test_spec_bench(tmp_path: Path) -> None:
    line = {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}
    found = load_prompts(write(tmp_path, lines(line)))
    assert found.prompts == (Prompt("81", "writing", "Write."),)


def test_classes_are_selected(prompts_file: Path) -> None:
    found = load_prompts(prompts_file)
    assert found.classes == ["long", "short"]
    assert {p.traffic_class for p in found.select(["long"]).prompts} == {"long"}
    assert found.select([]).prompts == found.prompts
    with pytest.raises(PromptsError, match="no prompts of class tall: expected long, short") as caught:
        found.select(["tall"])
    assert str(caught.value.hint).endswith("# write long in place of tall")


def test_classes_from_elsewhere_take_the_files_place(prompts_file: Path) -> None:
    assert load_prompts(prompts_file, class_of=lambda p: p.id[0]).classes == ["p"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no prompts"),
        ("[]", "has no prompts"),
        ('[{"text": "Hi"},\n {"text": ]', "damaged at line 2"),
        (lines({"turns": ["a"]}) + '{"turns": ["b"\n', "damaged at line 2"),
        ([{"prompt": "Hi"}], "item 1: unknown prompt format"),
        (["Hi"], "item 1: unknown prompt format"),
        ([{"text": "Hi"}, {"text": 7}], "item 2: text must be text"),
        ([{"text": "Hi"}, {"text": ""}], "item 2: text must be text"),
        ([{"text": "Hi"}, 3], "item 2: expected an object, not int"),
        ([{"text": "Hi", "max_tokens": 0}], "max_tokens must be a whole number above 0"),
        ([{"text": "Hi", "max_tokens": "9"}], "max_tokens must be a whole number"),
        ([{"text": "Hi", "max_tokens": True}], "max_tokens must be a whole number"),
        ([{"text": "Hi", "class": 4}], "class must be text"),
        ([{"id": "a", "text": "Hi"}, {"id": "a", "text": "Yo"}], "item 2: the id a is item 1's already"),
        (lines({"body": {}}), "line 1: body needs messages"),
        (lines({"body": []}), "line 1: body must be an object"),
        (lines({"body": {"messages": ["x"]}}), "must be an object with a role"),
        (lines({"body": {"prompt": [1, True]}}), "body needs messages"),
        ([{"conversations": [{"from": "gpt", "value": "x"}]}], "no human turn"),
        (lines({"text": "x"}, {"text": "\ud83d"}), r"line 2: '.ud83d' is half a surrogate pair"),
        ('[{"text": "x", "max_tokens": ' + "9" * 5000 + "}]", "cannot be read as JSON"),
        ('{"text": "x"}\n' + "[" * 100_000, "line 2 cannot be read as JSON"),
        ([{"conversations": "x"}], "conversations must be a list"),
        (lines({"turns": [""]}), "turns must be a list of text"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(PromptsError, match=message) as caught:
        load_prompts(write(tmp_path, content))
    assert caught.value.hint


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there are no prompts at"):
        load_prompts(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PromptsError, match="could not read the prompts"):
        load_prompts(tmp_path / "binary")
    with pytest.raises(PromptsError, match="could not read the prompts"):
        load_prompts(tmp_path)


def test_prompts_that_an_endpoint_cannot_take() -> None:
    with pytest.raises(PromptsError, match="list of token ids"):
        Prompt("p", "all", (1, 2)).messages()
    two = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
    with pytest.raises(PromptsError, match="is a conversation"):
        Prompt("p", "all", two).completion_prompt()
    assert Prompt("p", "all", two[:1]).completion_prompt() == "a"
