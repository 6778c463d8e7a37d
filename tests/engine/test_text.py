"""Streamed text: whatever the token borders, its pieces are the decoded tokens, cut at a stop string."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from specops.engine.text import TextStream

KOREAN, EMOJI = "서버는 측정하고, 초안은 제안한다", "go 🚀👩‍🚀 — 3×"


@pytest.fixture(scope="module")
def tokenizer(tiny_pair: tuple[Path, Path]) -> Tokenizer:
    """Byte-level, with merges for English only: every Korean character and emoji is several tokens."""
    return Tokenizer.from_file(str(tiny_pair[0] / "tokenizer.json"))


def pieces(stream: TextStream, tokens: list[int]) -> list[str]:
    """What each token made final, as far as the stream goes; the last piece is what was still held back."""
    found = []
    for token in tokens:
        found.append(stream.push(token))
        if stream.stopped_by is not None:
            return found
    return [*found, stream.finish()]


def whole_characters(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """The decoded text, without a last character of which bytes are missing."""
    for count in range(len(tokens), 0, -1):
        text = tokenizer.decode(tokens[:count])
        if not text.endswith("\ufffd"):
            return str(text)
    return ""


def streamed(tokenizer: Tokenizer, tokens: list[int], stop: list[str]) -> tuple[list[str], str | None]:
    """By definition: after each token, the text so far, less its longest end that may begin a stop string."""
    sent, found = "", []
    for count in range(1, len(tokens) + 1):
        text = whole_characters(tokenizer, tokens[:count])
        hits = [(text.index(s), -len(s), s) for s in stop if s in text]
        if hits:
            at, _, stopped_by = min(hits)
            return [*found, text[len(sent) : at]], stopped_by
        held = max((n for s in stop for n in range(len(s)) if text.endswith(s[:n])), default=0)
        found.append(text[len(sent) : len(text) - held])
        sent += found[-1]
    return [*found, tokenizer.decode(tokens)[len(sent) :]], None


# Few different characters, so that stop strings are met, nearly met, and overlap themselves.
texts = st.text("ab", max_size=20) | st.text("ab서🚀 ", max_size=20) | st.sampled_from([KOREAN, EMOJI])
stops = st.lists(
    st.text("ab", min_size=1, max_size=5) | st.text("ab서🚀 ", min_size=1, max_size=4), max_size=3
)


@given(text=texts, stop=stops)
def test_pieces_by_definition(tokenizer: Tokenizer, text: str, stop: list[str]) -> None:
    tokens = tokenizer.encode(text).ids
    stream = TextStream(tokenizer, tuple(stop))
    assert (pieces(stream, tokens), stream.stopped_by) == streamed(tokenizer, tokens, stop)


@given(tokens=st.lists(st.integers(0, 299), max_size=24), stop=stops)
def test_any_tokens_at_all(tokenizer: Tokenizer, tokens: list[int], stop: list[str]) -> None:
    """Broken characters and special tokens in the middle, as an untrained model emits them."""
    stream = TextStream(tokenizer, tuple(stop))
    assert (pieces(stream, tokens), stream.stopped_by) == streamed(tokenizer, tokens, stop)


@pytest.mark.parametrize("text", [KOREAN, EMOJI])
def test_a_character_of_several_tokens_comes_whole(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text).ids
    assert len(tokens) > len(text)
    found = pieces(TextStream(tokenizer, ()), tokens)
    assert "".join(found) == text
    assert not any("\ufffd" in piece for piece in found)


def test_a_character_cut_off_at_the_end_is_marked(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a🚀").ids[:-1]
    assert "".join(pieces(TextStream(tokenizer, ()), tokens)) == "a\ufffd"


def test_a_stop_string_across_token_borders(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("x서y").ids
    assert len(tokens) == 5
    stream = TextStream(tokenizer, ("서y",))
    assert pieces(stream, tokens) == ["x", "", "", "", ""]
    assert stream.stopped_by == "서y"


def test_a_stop_string_that_does_not_come_after_all(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, ("QX",))
    assert pieces(stream, tokenizer.encode("QQZ").ids) == ["", "Q", "QZ", ""]
    assert stream.stopped_by is None


def test_all_that_may_begin_a_stop_string_is_held_back(tokenizer: Tokenizer) -> None:
    """Of the ends of "XQXQ" that begin "QXQZ", the longest: had only "Q" been kept, "QX" would be out."""
    tokens = tokenizer.encode("XQXQ").ids
    assert len(tokens) == 4
    stream = TextStream(tokenizer, ("QXQZ",))
    assert [stream.push(token) for token in tokens] == ["X", "", "", ""]
    assert stream.push(tokenizer.encode("Z").ids[0]) == ""
    assert stream.stopped_by == "QXQZ"


def test_what_is_held_back_comes_at_the_end(tokenizer: Tokenizer) -> None:
    assert pieces(TextStream(tokenizer, ("QX",)), tokenizer.encode("ZQ").ids) == ["Z", "", "Q"]


def test_of_stop_strings_in_one_token_the_earliest_and_longest_counts(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("the").ids
    assert len(tokens) == 1
    stream = TextStream(tokenizer, ("e", "h", "he"))
    assert pieces(stream, tokens) == ["t"]
    assert stream.stopped_by == "he"


def test_special_tokens_and_empty_stop_strings_are_no_text(tokenizer: Tokenizer) -> None:
    end = tokenizer.token_to_id("<|end|>")
    stream = TextStream(tokenizer, ("",))
    assert "".join(pieces(stream, [*tokenizer.encode("a").ids, end])) == "a"
    assert stream.stopped_by is None


def sentencepiece_like() -> Tokenizer:
    """As Llama 2's: words begin with U+2581, and bytes stand for what the vocabulary lacks."""
    words = ["\u2581The", "\u2581capital", "\u2581is", "\u2581Paris", "<0xC3>", "<0xA9>", "<0xFF>"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0]))
    steps = [
        decoders.Replace("\u2581", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def test_the_first_token_keeps_the_space_that_parts_it_from_the_prompt() -> None:
    tokenizer = sentencepiece_like()
    assert pieces(TextStream(tokenizer, (), [0, 1, 2]), [3]) == [" Paris", ""]
    assert pieces(TextStream(tokenizer, ()), [3]) == ["Paris", ""]


def test_a_prompt_that_ends_within_a_character_is_not_repeated() -> None:
    found = "".join(pieces(TextStream(sentencepiece_like(), (), [3, 4]), [3]))
    assert "Paris" in found
    assert found.count("Paris") == 1


def test_a_byte_that_changes_the_text_before_it_does_not_end_the_stream() -> None:
    """tokenizers raises "Invalid prefix encountered" where a run of bytes turns out to be no character."""
    found = pieces(TextStream(sentencepiece_like(), (), [0]), [4, 5, 6, 3, 3])
    assert found[1].endswith("é")
    assert found[-2].endswith("Paris")
