"""Events of a stream, however its bytes were cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from specops.load.answer import Event, events


def data(pieces: list[bytes]) -> list[str]:
    return [event.data for event in events(list(enumerate(pieces)))]


def test_an_event_split_over_reads_has_the_stamp_of_the_one_that_ended_it() -> None:
    assert events([(1.0, b'data: {"a"'), (2.0, b": 1}\n"), (3.0, b"\ndata: x\n\n")]) == [
        Event(3.0, '{"a": 1}'),
        Event(3.0, "x"),
    ]


def test_several_events_in_one_read() -> None:
    assert data([b"data: 1\n\ndata: 2\n\ndata: 3\n\n"]) == ["1", "2", "3"]


def test_comments_other_fields_and_missing_spaces() -> None:
    assert data([b": ping\n\nevent: message\nid: 7\ndata:tight\n\nretry: 5\n\n"]) == ["tight"]


def test_lines_of_one_event_are_joined() -> None:
    assert data([b"data: one\ndata: two\n\n"]) == ["one\ntwo"]


def test_a_character_split_over_reads() -> None:
    whole = "data: Ω\n\n".encode()
    assert data([whole[:7], whole[7:]]) == ["Ω"]


def test_what_the_end_cuts_off_is_marked() -> None:
    found = events([(1.0, b"data: whole\n\ndata: [DONE]")])
    assert [(event.data, event.complete) for event in found] == [("whole", True), ("[DONE]", False)]


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 400)),
)
def test_no_cut_and_no_line_end_changes_the_events(texts: list[str], end: str, cuts: list[int]) -> None:
    stream = "".join(f"data: {text}{end}: comment{end}{end}" for text in texts).encode()
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert data(pieces) == texts
