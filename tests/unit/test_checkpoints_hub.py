"""A repository of the hub, asked by huggingface_hub itself: a server on loopback answers it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import prod
from pathlib import Path
from typing import Any

import made_pairs as made
import numpy as np
import pytest
from safetensors.numpy import save

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    url: str
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Repository -> status and the hub's error code."""

    sent: dict[str, int] = field(default_factory=dict)
    """Bytes of each file that went over the wire."""

    authorizations: set[str] = field(default_factory=set)


def answering(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            hub.authorizations.add(self.headers.get("authorization", ""))
            path = self.path.partition("?")[0].strip("/")
            name = path.removeprefix("api/models/").partition("/resolve/")[0].partition("/revision/")[0]
            if name in hub.refusals or name not in hub.repositories:
                status, code = hub.refusals.get(name, (401, "RepoNotFound"))
                return self.reply(status, b"{}", {"X-Error-Code": code, "X-Error-Message": "no"}, body)
            files = hub.repositories[name]
            if path.startswith("api/models/"):
                siblings = [{"rfilename": file} for file in files]
                told = {"id": name, "sha": COMMIT, "siblings": siblings}
                return self.reply(200, json.dumps(told).encode(), {}, body)
            file = path.partition("/resolve/")[2].partition("/")[2]
            content, headers = files[file], {"ETag": f'"{hash(files[file]):x}"', "X-Repo-Commit": COMMIT}
            asked = self.headers.get("range", "")
            if not asked:
                return self.reply(200, content, headers, body, file)
            first, last = (int(at) for at in asked.removeprefix("bytes=").split("-"))
            return self.reply(206, content[first : last + 1], headers, body, file)

        def reply(
            self, status: int, content: bytes, headers: dict[str, str], body: bool, file: str = ""
        ) -> None:
            self.send_response(status)
            for key, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                hub.sent[file] = hub.sent.get(file, 0) + len(content)
                self.wfile.write(content)

    return Handler


@pytest.fixture
def hub() -> Iterator[Hub]:
    found = Hub("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering(found))
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def weights(shapes: Mapping[str, Any], size: int, more: str = "model.rotary_emb.inv_freq") -> bytes:
    """Tensors, and one more so that they have `size` bytes in all."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + 2 * prod(shape)]}
        end += 2 * prod(shape)
    rest = size - end
    header[more] = {"dtype": "BF16", "shape": [rest // 2], "data_offsets": [end, size]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


def files(pair: made.Made, tmp_path: Path, size: int) -> dict[str, bytes]:
    folder = pair.write(tmp_path / "written")
    content = {file.name: file.read_bytes() for file in folder.iterdir()}
    return content | {"model.safetensors": weights(made.model_tensors(pair.config, 1), size)}


def verify(
    tmp_path: Path, url: str, target: str, draft: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    words = ("verify-draft", target, draft, "--json", "--quiet", "--gpu", "24")
    return called(tmp_path, url, *words, **environment)


def called(tmp_path: Path, url: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, "-m", "specops", *words],
        env=kept | {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "secret"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_only_small_files_and_headers_are_downloaded(hub: Hub, tmp_path: Path) -> None:
    target, draft = made.pair(0, made.dropped_merge)
    hub.repositories["org/target"] = files(target, tmp_path, 4_000_000)
    hub.repositories["org/draft"] = files(draft, tmp_path, 1_000_000)
    done = verify(tmp_path, hub.url, "org/target", "org/draft")
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert result["summary"]["verdict"] == "degraded"
    assert result["data"]["target"]["revision"] == COMMIT
    assert result["data"]["memory"]["target"]["weights_bytes"] == 4_000_000
    assert result["data"]["memory"]["blocks"]["with_draft"] > 0
    assert hub.sent["model.safetensors"] <= 2 * 100_001  # what huggingface_hub asks for at first, for each
    assert "Bearer secret" in hub.authorizations
    assert "secret" not in done.stdout + done.stderr

    # What was downloaded serves without the hub; the weights' headers were not kept.
    offline = verify(tmp_path, hub.url, "org/target", "org/draft", HF_HUB_OFFLINE="1")
    assert json.loads(offline.stdout)["summary"]["verdict"] == "unknown"  # which kind of draft it is
    assert (offline.returncode, json.loads(offline.stdout)["verdict"]) == (1, "no")  # degraded it is anyway
    assert json.loads(offline.stdout)["data"]["memory"]["target"]["weights_bytes"] is None


@pytest.mark.parametrize(("ids", "verdict"), [([1, 5, 9, 12], "compatible"), ([1, 5, 5, 12], "incompatible")])
def test_the_maps_of_a_heads_vocabulary_are_read_in_ranges(
    hub: Hub, tmp_path: Path, ids: list[int], verdict: str
) -> None:
    target = made.made(random.Random(1))
    hub.repositories["org/target"] = files(target, tmp_path, 4_000_000)
    rows = target.config["vocab_size"]
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 64}
    config |= {
        "vocab_size": rows,
        "draft_vocab_size": 4,
        "max_position_embeddings": 2048,
        "dtype": "bfloat16",
    }
    tensors = {name: np.zeros(shape, "f2") for name, shape in made.eagle3(4, 64).items()}
    tensors |= {"fc.weight": np.zeros((64, 192), "f2"), "d2t": np.array(ids, "i8") - np.arange(4)}
    head = {"config.json": json.dumps(config).encode(), "model.safetensors": save(tensors)}
    hub.repositories["org/head"] = head
    result = json.loads(verify(tmp_path, hub.url, "org/target", "org/head").stdout)
    (found,) = [one for one in result["data"]["findings"] if one["check"] == "reduced vocabulary"]
    assert found["verdict"] == verdict


@pytest.mark.parametrize(
    ("refusal", "environment", "told"),
    [
        ((401, "RepoNotFound"), {}, "the hub has no model of that name"),
        ((403, "GatedRepo"), {}, "its owners give access on request"),
        ((500, ""), {}, "could not read org/target from the hub"),
        ((200, ""), {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ((200, ""), {"HF_ENDPOINT": "http://127.0.0.1:9"}, "could not read org/target from the hub"),
    ],
)
def test_what_the_hub_does_not_give_is_a_sentence(
    hub: Hub, tmp_path: Path, refusal, environment, told
) -> None:
    hub.refusals["org/target"] = refusal
    done = verify(tmp_path, hub.url, "org/target", "ngram", **environment)
    assert done.returncode == 3, done.stderr
    answer = json.loads(done.stdout)
    assert told in answer["error"]
    assert answer["hint"]
    assert answer["code"] == 3
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("refusal", "environment", "code"),
    [
        ((401, "RepoNotFound"), {}, 3),  # a name that may be mistyped is not written
        ((403, "GatedRepo"), {}, 0),
        ((200, ""), {"HF_HUB_OFFLINE": "1"}, 0),
    ],
)
def test_init_writes_a_file_without_the_hub(hub: Hub, tmp_path: Path, refusal, environment, code) -> None:
    hub.refusals["org/target"] = refusal
    path = tmp_path / "r" / "rollout.yaml"
    words = ["--engine", "vllm", "--model", "org/target", "--draft", "org/eagle3"]
    done = called(tmp_path, hub.url, "init", str(path.parent), *words, "--json", **environment)
    assert done.returncode == code, done.stderr
    assert path.exists() == (code == 0)
    if code == 0:
        assert "the draft was not checked" in json.loads(done.stdout)["warnings"][0]


def test_a_repository_without_a_config_is_none_of_a_model(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/target"] = {"README.md": b"#"}
    done = verify(tmp_path, hub.url, "org/target", "ngram")
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"].startswith("could not read org/target: it has no config.json")


def test_a_sharded_checkpoints_shards_are_added_up(hub: Hub, tmp_path: Path) -> None:
    target = made.made(random.Random(0))
    repository = files(target, tmp_path, 100_000)
    del repository["model.safetensors"]
    shards = {f"model-0000{n}-of-00002.safetensors": weights({}, n * 300_000, f"w{n}") for n in (1, 2)}
    index = {"metadata": {"total_size": 1}, "weight_map": {f"w{n}": name for n, name in enumerate(shards)}}
    hub.repositories["org/target"] = (
        repository | shards | {"model.safetensors.index.json": json.dumps(index).encode()}
    )
    done = verify(tmp_path, hub.url, "org/target", "ngram")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"]["memory"]["target"]["weights_bytes"] == 900_000
    assert sum(hub.sent[name] for name in shards) <= 2 * 100_001
