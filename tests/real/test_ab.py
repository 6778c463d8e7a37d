"""`compare` with servers that it starts: real ones, side by side or in turn, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from specops import results
from specops.config import Pool
from specops.errors import ServerError
from specops.experiment.arms import Arm
from specops.load.settings import BaselineSettings
from specops.phases.ab.earlier import measurements_of
from specops.phases.ab.measure import compare
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import NO_ADDRESS_YET
from specops.progress import SilentProgress
from specops.serving.command import CommandPool
from specops.serving.embedded import EmbeddedPool

PROMPTS = [
    {"id": f"{name}-{number}", "class": name, "text": f"the server measures {number}", "max_tokens": tokens}
    for name, tokens in {"short": 6, "long": 16}.items()
    for number in range(6)
]

FAKE_SERVER = """
import http.server, json, os, sys
left = int(sys.argv[2])  # answers until it ends, as if the kernel had killed it

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(json.dumps({"data": [{"id": "fake"}]}))
    def do_POST(self):
        global left
        self.rfile.read(int(self.headers["Content-Length"]))
        if left == 0:
            print("CUDA out of memory", file=sys.stderr, flush=True)
            os._exit(137)
        left -= 1
        chunks = [{"choices": [{"index": 0, "text": "word "}]}] * 3
        chunks.append({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        chunks.append({"choices": [], "usage": {"completion_tokens": 3}})
        self.answer("".join(f"data: {json.dumps(chunk)}\\n\\n" for chunk in chunks) + "data: [DONE]\\n\\n")
    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Notes(SilentProgress):
    """Keeps what a person would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)

    def addresses(self) -> list[tuple[str, str]]:
        """Each server that came up: the arm and where it listened."""
        return re.findall(r"the (\S+) server is up: \S+ on (\S+)", "\n".join(self.lines))


@pytest.fixture
def asked(tmp_path: Path) -> BaselineSettings:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(PROMPTS))
    return BaselineSettings(
        base_url=NO_ADDRESS_YET, model="", prompts=path, endpoint="completions", repeats=2, warmup=1
    )


@pytest.fixture
def fake(tmp_path: Path):
    """A pool whose server ends after so many answers; -1 never."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE_SERVER)

    def pool(answers: int = -1) -> CommandPool:
        return CommandPool(engine="command", command=f"{sys.executable} {script} {{port}} {answers}")

    return pool


def embedded(tiny_pair: tuple[Path, Path], tree: str | None) -> EmbeddedPool:
    target, draft = tiny_pair
    pool: dict[str, object] = {"engine": "embedded", "target": target, "threads": 1}
    if tree:
        pool["speculation"] = {"draft": draft, "tree": tree}
    return EmbeddedPool.model_validate(pool)


def serve(tiny_pair: tuple[Path, Path], *more: str) -> CommandPool:
    """The same as a command of one's own."""
    words = [sys.executable, "-m specops serve --port {port} --threads 1 --target", str(tiny_pair[0]), *more]
    return CommandPool(engine="command", command=" ".join(words))


def arms(**pools: Pool) -> list[Arm]:
    return [Arm(name, pool) for name, pool in pools.items()]


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) == 0


def test_arms_side_by_side_say_the_same(tiny_pair, asked, tmp_path) -> None:
    notes = Notes()
    pools = arms(
        none=serve(tiny_pair, "--no-speculation"),
        chain=embedded(tiny_pair, "chain:2"),
        ngram=embedded(tiny_pair, "ngram:4"),
    )
    found = compare(
        pools,
        asked,
        AbSettings(looks=2, mixed_prompts=4, requests=80, min_duration_s=0.0),
        notes,
        logs=tmp_path,
    )
    assert found.verdict in ("yes", "no", "undecided")
    kept = measurements_of(found, "it")
    mixed = {window.arm for window in kept.windows if window.kind == "mixed"}
    assert mixed == {"none", "chain", "ngram"}
    for arm in ("chain", "ngram"):
        for parity in found.data["challengers"][arm]["parity"]:
            assert parity["equal"] == parity["compared"] > 0
    for window in kept.windows:
        drafts = window.cell.drafts
        assert (drafts is not None and drafts.drafts > 0) == (window.arm == "chain") or window.arm == "ngram"
    assert set(found.inputs) == {
        *("prompts", "settings", "machine"),
        *("chain target", "chain draft", "ngram target"),
    }
    assert len(notes.addresses()) == 3
    assert not any(listens(url) for _, url in notes.addresses())


def test_one_arm_at_a_time_where_they_share_a_device(fake, asked, tmp_path) -> None:
    up: list[str] = []

    class Alone(Notes):
        def note(self, text: str) -> None:
            super().note(text)
            if self.addresses():
                up.append(self.addresses()[-1][1])
                assert sum(map(listens, set(up))) <= 1

    notes = Alone()
    pools = arms(none=fake(), chain=fake())
    settings = AbSettings(design="abba-restart", looks=1, mixed_prompts=2, requests=40, min_duration_s=0.0)
    found = compare(pools, asked, settings, notes, logs=tmp_path / "logs")
    assert [arm for arm, _ in notes.addresses()] == ["none", "chain", "chain", "none"]
    kept = measurements_of(found, "it")
    assert {window.period for window in kept.windows if window.arm == "none"} == {0, 3}
    assert {window.period for window in kept.windows if window.arm == "chain"} == {1, 2}
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["chain.log", "none.log"]
    assert not any(map(listens, up))


def test_a_server_that_ends_in_the_middle_is_a_no_with_its_last_words(fake, asked, tmp_path) -> None:
    notes = Notes()
    settings = asked.model_copy(update={"repeats": 6, "abort_window": 4, "retries": 0})
    found = compare(
        arms(old=fake(), new=fake(20)),
        settings,
        AbSettings(min_duration_s=0.0),
        notes,
        logs=tmp_path / "logs",
    )
    assert found.verdict == "no"
    assert "the new server ended while it was measured, with exit code 137" in found.reason
    assert any("CUDA out of memory" in line for line in notes.lines)
    assert not any(listens(url) for _, url in notes.addresses())


def test_a_server_that_does_not_come_up_is_the_environments_failure(fake, asked, tmp_path) -> None:
    pool = CommandPool(engine="command", command=f"{sys.executable} -c 'exit(\"no such flag\")' {{port}}")
    notes = Notes()
    with pytest.raises(ServerError, match="the new server ended before it was up") as caught:
        compare(arms(old=fake(), new=pool), asked, AbSettings(), notes, logs=tmp_path / "logs")
    assert "no such flag" in caught.value.log
    assert not any(listens(url) for _, url in notes.addresses())


def test_what_was_measured_before_a_server_did_not_come_up_is_kept(fake, asked, tmp_path) -> None:
    broken = CommandPool(engine="command", command=f"{sys.executable} -c exit(1) {{port}}")
    kept: list[results.Result] = []
    settings = AbSettings(design="abba-restart", looks=1, mixed_prompts=0, requests=40, min_duration_s=0.0)
    with pytest.raises(ServerError):
        compare(
            arms(old=fake(), new=broken),
            asked,
            settings,
            SilentProgress(),
            logs=tmp_path,
            on_partial=kept.append,
        )
    assert {window.arm for window in measurements_of(kept[-1], "it").windows} == {"old"}


def test_ctrl_c_stops_every_server(fake, asked, tmp_path) -> None:
    words = [sys.executable, "-m", "specops", "ab", "--endpoint", "completions", "--repeats", "500"]
    words += ["--arm", f"old=command:{fake().command}", "--arm", f"new=command:{fake().command}"]
    words += ["--prompts", str(asked.prompts), "--out", str(tmp_path / "ab.json"), "--looks", "1"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"}
    ) as specops:
        assert specops.stderr is not None
        said = ""
        while "comparing old and new" not in said:
            line = specops.stderr.readline()
            assert line, said
            said += line
        specops.send_signal(signal.SIGINT)
        out, _ = specops.communicate(timeout=60)
    assert (specops.returncode, out) == (130, "")
    urls = [url for _, url in re.findall(r"the (\S+) server is up: \S+ on (\S+)", said)]
    assert len(urls) == 2
    assert not any(map(listens, urls))
