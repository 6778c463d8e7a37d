"""The four formats of prompts, and what is said of a file that is none of them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from specops.errors import FileError, PromptsError
from specops.load.workload import Prompt, conversations_sentence, load_prompts, sessions_of, stage
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
        "sessions": 2,
        "later_turns_left_out": 0,
        "separate_turns": 0,
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
    lone = [{"from": "gpt", "value": "Welcome!"}, *turns[1:]]
    prompts = load_prompts(write(tmp_path, [{"id": "s_0", "conversations": lone}])).prompts
    assert prompts == (Prompt("s_0", "all", "Hi"),)
    turns += [{"from": "user", "value": "More"}, {"from": "observation", "value": "5"}]
    prompts = load_prompts(write(tmp_path, [{"id": "s_0", "conversations": turns}])).prompts
    assert [(prompt.id, prompt.session, prompt.turn) for prompt in prompts] == [
        ("s_0", "s_0", 1),
        ("s_0#2", "s_0", 2),
    ]
    assert [message["role"] for message in prompts[1].messages()] == [
        "system",
        "user",
        "assistant",
        "user",
        "tool",
    ]


def test_spec_bench(tmp_path: Path) -> None:
    line: dict[str, Any] = {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}
    first, second = load_prompts(write(tmp_path, lines(line))).prompts
    assert (first.id, first.traffic_class, first.content) == ("81", "writing", "Write.")
    assert second.content == "Write.\n\nAgain."  # no answer was recorded between them
    _, second = load_prompts(write(tmp_path, lines(line | {"reference": ["Once."]}))).prompts
    assert [message["content"] for message in second.messages()] == ["Write.", "Once.", "Again."]
    assert (second.traffic_class, second.turn) == ("writing", 2)


def test_a_conversation_of_the_playbook(tmp_path: Path) -> None:
    turns = [
        {"text": "Hi", "answer": "Yo", "think_s": 9},
        {"text": "More", "answer": "Less", "think_s": 2.5, "max_tokens": 7},
        {"text": "End", "answer": "Bye"},
    ]
    item = {"session": "s", "class": "chat", "system": "Be short.", "turns": turns, "max_tokens": 4}
    prompt_set = load_prompts(write(tmp_path, [item, {"text": "Lone"}]))
    assert [(p.id, p.turn, p.max_tokens, p.think_s) for p in prompt_set.prompts] == [
        ("s", 1, 4, 0.0),
        ("s#2", 2, 7, 2.5),
        ("s#3", 3, 4, 0.0),
        ("1", 1, None, 0.0),
    ]
    contents = [[m["content"] for m in prompt.messages()] for prompt in prompt_set.prompts]
    assert contents[2] == ["Be short.", "Hi", "Yo", "More", "Less", "End"]
    assert all(earlier == later[: len(earlier)] for earlier, later in pairwise(contents[:3]))
    assert [len(session) for session in prompt_set.sessions] == [3, 1]
    assert prompt_set.provenance()["sessions"] == 2
    assert "4 turns of 2 conversations" in conversations_sentence(prompt_set.provenance())
    assert prompt_set.classes == ["all", "chat"]


def test_each_answer_of_an_agents_tools_is_one_request(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}, {"id": "b"}]}
    messages = [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather?"},
        call,
        {"role": "tool", "tool_call_id": "a", "content": "20"},
        {"role": "tool", "tool_call_id": "b", "content": "30"},
        {"role": "assistant", "content": "Warm."},
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "content": "Welcome."},
    ]
    prompts = load_prompts(write(tmp_path, lines({"custom_id": "t", "body": {"messages": messages}}))).prompts
    assert [prompt.messages() for prompt in prompts] == [messages[:2], messages[:5], messages[:7]]


def test_a_log_with_a_line_for_each_turn_holds_each_once(tmp_path: Path) -> None:
    dialogue = [
        {"role": role, "content": text}
        for role, text in (
            ("user", "a"),
            ("assistant", "b"),
            ("user", "c"),
            ("assistant", "d"),
            ("user", "e"),
        )
    ]
    bodies = [{"body": {"messages": dialogue[:end]}} for end in (1, 3, 5)]
    unlike = {"body": {"messages": [{"role": "user", "content": "x"}]}}
    read = load_prompts(write(tmp_path, lines(*bodies, unlike, unlike)))
    distinct = read.distinct()
    assert [prompt.messages() for prompt in distinct.prompts] == [
        dialogue[:1],
        dialogue[:3],
        dialogue,
        unlike["body"]["messages"],
    ]
    assert distinct.repeated == len(read.prompts) - 4


def test_all_turns_of_a_session_have_one_nonce(tmp_path: Path) -> None:
    item = {"session": "s", "turns": [{"text": "Hi", "answer": "Yo"}, {"text": "More"}]}
    prompts = load_prompts(write(tmp_path, [item, item | {"session": "t"}])).prompts
    starts = [prompt.fresh("run", "1").messages()[0]["content"] for prompt in prompts]
    assert starts[0] == starts[1] != starts[2] == starts[3]
    assert starts[0] != prompts[0].fresh("run", "2").messages()[0]["content"]
    assert prompts[1].messages()[0]["content"] == "Hi"  # and what was read is as it was


def test_a_session_that_begins_again_is_another(tmp_path: Path) -> None:
    item = {"session": "s", "turns": [{"text": "Hi", "answer": "Yo"}, {"text": "More"}]}
    first, second = load_prompts(write(tmp_path, [item])).prompts
    again = [replace(prompt, variant="again") for prompt in (first, second)]
    in_turn = [first, again[0], second, again[1], first, second]
    sessions = [[prompt.turn for prompt in session] for session in sessions_of(in_turn)]
    assert sessions == [[1, 2], [1, 2], [1, 2]]
    assert [len(session) for session in sessions_of([Prompt("p", "all", "x")] * 2)] == [1, 1]


def test_what_cannot_send_messages_sends_the_first_turns_and_says_so(tmp_path: Path) -> None:
    item = {"session": "s", "turns": [{"text": "Hi", "answer": "Yo"}, {"text": "More"}]}
    read = load_prompts(write(tmp_path, [item, {"text": "Lone"}]))
    notes: list[str] = []
    assert [prompt.id for prompt in read.as_text(notes.append).prompts] == ["s", "1"]
    assert "left out: 1" in notes[0]
    assert "left out: 1" in conversations_sentence(read.as_text().provenance())
    separate = read.with_separate_turns()
    assert [len(session) for session in separate.sessions] == [1, 1, 1]
    assert len({prompt.fresh("run", "1").messages()[0]["content"] for prompt in separate.prompts}) == 3
    assert "sent separately, with their messages: 1" in conversations_sentence(separate.provenance())


def test_late_turns_are_judged_together() -> None:
    assert [stage(turn) for turn in (1, 2, 4, 5, 8, 9, 16, 17)] == [1, 2, 4, 5, 5, 9, 9, 17]


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
        (lines({"turns": ["a", ""]}), "turns must be a list of text"),
        ([{"turns": [{"text": ""}]}], "text must be text"),
        ([{"turns": [{"text": "a"}, 3]}], "expected an object, not int"),
        ([{"turns": [{"text": "a"}, {"text": "b", "think_s": -1}]}], "think_s must be a number of seconds"),
        ('[{"turns": [{"text": "a"}, {"text": "b", "think_s": NaN}]}]', "think_s must be a number"),
        ([{"turns": [{"text": "a"}, {"text": "b"}]}, {"id": "0#2", "text": "c"}], "the id 0#2 is item 1's"),
        ([{"conversations": [{"from": "narrator", "value": "x"}]}], "unknown speaker 'narrator'"),
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
