"""A pool of a serving engine is started with the words that are rendered for it, and is gone afterwards.

The engine here is a program that only listens; vLLM itself is started in tests/vllm.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from specops.config import Pool
from specops.errors import ConfigError, EnvironmentFailure
from specops.launch.servers import check, serving
from specops.progress import SilentProgress
from specops.serving.argv import Words
from specops.serving.sglang.pool import SglangPool
from specops.serving.sglang.settings import SglangSpeculation
from specops.serving.vllm.pool import VllmPool
from specops.serving.vllm.settings import VllmSpeculation

LISTENS = """
import http.server, json, os, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps([sys.argv[2:], os.environ["GREETING"]]))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "fake"}]}).encode())
    def log_message(self, *args):
        pass

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def program(tmp_path: Path) -> dict[str, Any]:
    """What every pool here is made of: a program that writes down how it was called, and listens."""
    (tmp_path / "engine.py").write_text(LISTENS)
    words = [sys.executable, str(tmp_path / "engine.py"), str(tmp_path / "called.json")]
    return {"program": " ".join(words), "environment": {"GREETING": "two words"}}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_pool_is_up_inside_the_block_and_gone_after_it(tmp_path, program, engine) -> None:
    pool: Pool = (
        VllmPool(engine="vllm", model="org/m", speculation=VllmSpeculation(method="mtp"), **program)
        if engine == "vllm"
        else SglangPool(
            engine="sglang", model_path="org/m", speculation=SglangSpeculation(algorithm="NGRAM"), **program
        )
    )
    check(pool, "pool")
    with serving(pool, "fake", model="", log=tmp_path / "log", progress=SilentProgress()) as server:
        assert server.model == "fake"
        words, greeting = json.loads((tmp_path / "called.json").read_text())
    assert greeting == "two words"
    called = Words.parse(words)
    assert called.value("--host") == "127.0.0.1"
    assert called.value("--port") == server.base_url.split(":")[-1].split("/")[0]
    assert any(option.flag.startswith("--speculative-") for option in called.options)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{server.base_url}/models", timeout=2)


def test_what_cannot_be_started_is_said_before_anything_is(tmp_path) -> None:
    absent = VllmPool(engine="vllm", model="m", program="no-such-vllm serve")
    with pytest.raises(EnvironmentFailure, match="there is no program no-such-vllm"):
        check(absent, "pool")
    old = VllmPool(
        engine="vllm",
        model="m",
        version="0.12.0",
        program=sys.executable,
        speculation=VllmSpeculation(method="ngram", use_heterogeneous_vocab=False),
    )
    with pytest.raises(ConfigError, match=r"use_heterogeneous_vocab is not for vLLM 0\.12\.0"):
        check(old, "pool")
