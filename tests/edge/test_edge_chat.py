"""`specops edge chat`: what it says, on which stream, and how it ends."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the engine extra")
pytest.importorskip("aiohttp", reason="needs the serve extra")
pytest.importorskip("grpc", reason="needs the edge extra")

from calling import specops
from live_verifier import LiveVerifier

from specops.assets import asset
from specops.edge.client import EdgeEngine
from specops.edge.client_metrics import EdgeCounters
from specops.edge.conversation import Conversation, ConversationFigures
from specops.engine import load_engine
from specops.engine.request import Sampling
from specops.engine.text import load_tokenizer
from specops.errors import UsageError


@pytest.fixture(scope="module")
def verifier(tiny_pair: tuple[Path, Path]) -> Iterator[LiveVerifier]:
    live = LiveVerifier(tiny_pair[0], tokens={"chat": "a secret token"})
    live.start()
    yield live
    live.stop()
    live.close()


Chat = Callable[..., Any]


@pytest.fixture
def chat(verifier: LiveVerifier, tiny_pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Chat:
    """Runs `specops edge chat`; `typed` is what a person enters, a line at a time."""
    monkeypatch.setenv("SPECOPS_EDGE_TOKEN", "a secret token")

    def run(*words: str, typed: list[str] | None = None, piped: str | None = None) -> Any:
        lines = iter(typed or [])

        def enter(prompt: str) -> str:
            try:
                return next(lines)
            except StopIteration:
                raise EOFError from None

        stdin = io.StringIO(piped or "")
        monkeypatch.setattr(stdin, "isatty", lambda: typed is not None)
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr("builtins.input", enter)
        address, folder = f"127.0.0.1:{verifier.port}", str(tiny_pair[1])
        return specops("edge", "chat", "--server", address, "--draft", folder, "--max-tokens", "12", *words)

    return run


@pytest.fixture(scope="module")
def answers(tiny_pair: tuple[Path, Path]) -> Callable[..., str]:
    """What the target alone says to a conversation's messages."""
    engine = load_engine(tiny_pair[0], speculate=False)

    def answer(*messages: tuple[str, str]) -> str:
        text = engine.tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in messages],
            tokenize=False,
            add_generation_prompt=True,
        )
        return engine.generate(engine.tokenizer.encode(text), Sampling(max_tokens=12)).text

    return answer


def test_one_answer_to_an_argument_or_a_pipe(chat: Chat, answers: Callable[..., str]) -> None:
    wanted = answers(("user", "measure"))
    for end in (chat("measure"), chat(piped="measure")):
        assert end.returncode == 0, end.stderr
        assert end.stdout == wanted + "\n"
        assert "12 tokens, " in end.stderr
        assert " a verification" in end.stderr
        assert "round trip" in end.stderr


def test_as_json(chat: Chat, answers: Callable[..., str]) -> None:
    end = chat("measure", "--json", "--copy", "--drafting", "edge")
    said = json.loads(end.stdout)
    assert said["text"] == answers(("user", "measure"))
    assert (said["tokens"], said["finish_reason"]) == (12, "length")
    assert end.stderr == ""
    waits = json.loads(chat("measure", "--json", "--drafting", "edge", "--ahead", "0").stdout)
    assert waits["ahead_rate"] == 0
    assert waits["text"] == said["text"]
    refused = chat("--json", typed=[])
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["error"] == "--json is for one answer"


def test_a_chat_remembers_until_it_is_told_to_forget(chat: Chat, answers: Callable[..., str]) -> None:
    end = chat("--system", "be", "--quiet", typed=["measure", "", "again", "/new", "again"])
    assert end.returncode == 0, end.stderr
    system, first = ("system", "be"), ("user", "measure")
    one = answers(system, first)
    two = answers(system, first, ("assistant", one), ("user", "again"))
    three = answers(system, ("user", "again"))
    assert end.stdout == f"{one}\n{two}\n{three}\n\n"
    assert end.stderr == ""


def test_an_answer_that_fails_does_not_end_the_chat(chat: Chat, answers: Callable[..., str]) -> None:
    end = chat("--quiet", typed=["x" * 5000, "measure"])
    assert end.returncode == 0
    assert "error: a prompt of" in end.stderr
    assert end.stdout.endswith(answers(("user", "measure")) + "\n\n")


def test_ctrl_c_stops_an_answer_and_not_the_chat(
    chat: Chat, answers: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, step, steps = signal.getsignal(signal.SIGINT), EdgeEngine.step, [0]

    def pressed(engine: EdgeEngine) -> Any:
        steps[0] += 1
        if steps[0] == 1:
            signal.raise_signal(signal.SIGINT)
        return step(engine)

    monkeypatch.setattr(EdgeEngine, "step", pressed)
    end = chat("--quiet", "--max-tokens", "400", typed=["measure"])
    assert end.returncode == 0, end.stderr
    assert len(end.stdout) < 400
    assert signal.getsignal(signal.SIGINT) is before


def test_what_does_not_fit_is_refused_with_a_sentence(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    other = chat("a", "--draft", str(asset("playbooks", "embedded", "draft")))
    assert other.returncode == 3
    assert "could not draft for target with" in other.stderr
    assert "verify-draft" in other.stderr
    head = chat("a", "--draft", str(asset("playbooks", "embedded", "head")))
    assert head.returncode == 3
    assert "features, which stay on the server" in head.stderr
    missing = chat("a", "--draft", "nowhere")
    assert missing.returncode == 3
    assert "there is no such folder" in missing.stderr
    for words, said in (
        (("--drafting", "nobody"), "invalid --drafting 'nobody'"),
        (("--depth", "deep"), "invalid depth 'deep'"),
        (("--server", "nowhere"), "a server is named HOST:PORT"),
    ):
        end = chat("a", *words)
        assert end.returncode == 2
        assert said in end.stderr
        assert "Traceback" not in end.stderr
    monkeypatch.setenv("SPECOPS_EDGE_TOKEN", "another token")
    refused = chat("a")
    assert refused.returncode == 3
    assert "refuses the token" in refused.stderr


def test_without_a_template_texts_are_continued(tiny_pair: tuple[Path, Path]) -> None:
    tokenizer = load_tokenizer(tiny_pair[0])
    tokenizer.chat_template = None
    conversation = Conversation(tokenizer)
    assert not conversation.has_template
    asked = conversation.ask("the server")
    assert asked == tokenizer.encode("the server")
    conversation.answered("the server", " measures")
    assert conversation.ask("the server") == asked
    with pytest.raises(UsageError, match="--system is unsupported"):
        Conversation(tokenizer, "be brief")


def test_figures_are_differences() -> None:
    before = EdgeCounters(rounds=10, verdicts=12, hits=4, taken=3, network_s=1.0)
    after = EdgeCounters(rounds=14, verdicts=17, hits=7, taken=4, network_s=1.045)
    figures = ConversationFigures.between(before, after, tokens=20, seconds=2.0)
    assert (figures.rate, figures.per_verification, figures.hit_rate) == (10, 4, 0.75)
    assert figures.ahead_rate == 0.25
    assert figures.rtt_s == pytest.approx(0.015)  # of the three that were not sent ahead
    none = ConversationFigures.between(before, before, tokens=0, seconds=0.0)
    assert (none.rate, none.per_verification, none.hit_rate, none.rtt_s) == (None, None, None, None)
    assert none.ahead_rate is None
