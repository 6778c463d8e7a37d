"""`specops edge verify-server` and `specops edge serve` as processes, and OpenAI's own client before them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the engine extra")
pytest.importorskip("aiohttp", reason="needs the serve extra")
pytest.importorskip("grpc", reason="needs the edge extra")

import openai
from calling import specops

from specops.engine import load_engine
from specops.engine.request import Sampling
from specops.errors import install_command

Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `specops edge WORDS…`, and gives the address in the line that announces it."""
    started: list[subprocess.Popen[str]] = []

    def run(announced: str, *words: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "specops", "edge", *words, "--port", "0", "--threads", "1"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.match(announced, line)
        assert found, line + process.stderr.read()
        return process, found[1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.mark.timeout(600)  # four processes load PyTorch
def test_from_the_command_line_to_a_chat_client(start: Start, tiny_pair: tuple[Path, Path]) -> None:
    target, draft = tiny_pair
    verifier, address = start(
        r"verifying for target on (127\.0\.0\.1:\d+) ", "verify-server", "--target", str(target)
    )
    edge, url = start(
        rf"serving target on (http://127\.0\.0\.1:\d+) \(verified at {address}\)$",
        *("serve", "--server", address, "--draft", str(draft)),
    )
    alone = load_engine(target, speculate=False)
    wanted = alone.generate("the server measures", Sampling(max_tokens=300, ignore_eos=True)).text
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        stream = client.completions.create(
            model="target",
            prompt="the server measures",
            max_tokens=300,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        pieces = [next(stream).choices[0].text]
        edge.send_signal(signal.SIGTERM)  # running answers may finish
        pieces += [chunk.choices[0].text for chunk in stream]
    assert "".join(pieces) == wanted
    assert len(pieces) > 5
    assert edge.wait(60) == 0
    verifier.send_signal(signal.SIGTERM)
    assert verifier.wait(60) == 0


@pytest.mark.parametrize("command", ["chat", "serve"])
def test_without_the_edge_extra(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("specops.edge.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    end = specops("edge", command, *(["a"] if command == "chat" else []))
    assert end.returncode == 3
    assert end.stderr == (
        f"error: could not draft here: grpc is not installed\nhint: {install_command('edge')}\n"
    )
