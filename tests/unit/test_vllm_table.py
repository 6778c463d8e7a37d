"""How the table of vLLM's releases is made: what is read from sources, and how a wheel is read over HTTP."""

from __future__ import annotations

import ast
import http.server
import io
import re
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import vllm_table  # noqa: E402
import wheels  # noqa: E402

ARGUMENTS = """
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        group.add_argument("--speculative-config", "-sc", type=json.loads)
        group.add_argument("--enable-lora", action="store_true")
        group.add_argument("--old", deprecated=True)
        group.add_argument("positional")
        warn("--enable-lora is deprecated and will be removed in v9. ")
"""
FRONTEND = """
@config
class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    api_server_count: int = 1
    @staticmethod
    def add_cli_args(parser): ...
"""
CONFIG = """
Deep = Literal["mtp", "deepseek_mtp"]
Method = Literal["ngram", Deep, "[ngram]"]

class SpeculativeConfig:
    method: Method | None = None
    num_speculative_tokens: int = Field(default=None)
    draft_sample_method: Literal["greedy"] = "greedy"
    target_model_config: ModelConfig = None
    tensor_parallel_size: int | None = None
"""


@pytest.fixture
def sources() -> dict[str, ast.Module]:
    texts = {
        "vllm/engine/arg_utils.py": ARGUMENTS,
        "vllm/entrypoints/openai/cli_args.py": FRONTEND,
        "vllm/config/speculative.py": CONFIG,
    }
    return {path: ast.parse(text) for path, text in texts.items()}


def test_flags_are_those_of_add_argument_and_of_the_frontends_fields(sources) -> None:
    assert vllm_table.flags(sources) == {
        "--speculative-config",
        "-sc",
        "--enable-lora",
        "--old",
        "--host",
        "--api-server-count",
        "--config",
        "--help",
    }
    assert vllm_table.deprecated(sources) == {"--old", "--enable-lora"}


def test_a_parser_that_pairs_switches_knows_the_other_name(sources) -> None:
    sources["vllm/utils/argparse_utils.py"] = ast.parse("class EnableDisableAction: ...")
    assert "--disable-lora" in vllm_table.flags(sources)


def test_keys_are_what_an_operator_sets_and_methods_what_the_type_names(sources) -> None:
    assert vllm_table.keys(sources) == {"method", "num_speculative_tokens", "draft_sample_method"}
    assert vllm_table.methods(sources) == {"ngram", "mtp", "deepseek_mtp"}
    assert vllm_table.choices(sources) == {"draft_sample_method=greedy"}
    del sources["vllm/engine/arg_utils.py"]
    assert vllm_table.keys(sources) == vllm_table.methods(sources) == set()


def test_runs_of_releases_become_ranges() -> None:
    versions = ["0.8.0", "0.8.1", "0.9.0", "0.10.0"]
    assert wheels.ranges([0, 1, 3], versions) == "0.8.0-0.8.1,0.10.0-0.10.0"


class Ranges(http.server.BaseHTTPRequestHandler):
    body = b""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert asked is not None
        self.send_response(206)
        self.end_headers()
        self.wfile.write(self.body[int(asked[1]) : int(asked[2]) + 1])

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/vllm.whl"
        server.shutdown()


def test_a_file_of_a_wheel_is_read_without_the_wheel(url, monkeypatch) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        wheel.writestr("vllm/_C.so", bytes(5 * wheels.BLOCK))
        wheel.writestr("vllm/engine/arg_utils.py", ARGUMENTS)
    monkeypatch.setattr(Ranges, "body", packed.getvalue())
    with wheels.opened(url) as wheel:
        assert wheel.read("vllm/engine/arg_utils.py").decode() == ARGUMENTS
        remote = wheel.fp.raw  # type: ignore[union-attr]
    assert len(remote.blocks) < 3
