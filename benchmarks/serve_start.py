"""How long a user waits for `specops serve`: from the command to /health, and to the first token.

    python benchmarks/serve_start.py [--starts 9] [--json FILE]

The shipped pair, each start a new process with warm caches: one start before the first that counts compiles
what is not stored yet. Medians over the starts, with the smallest and the largest; CPU is user and system
time of the server and the engine's process, from the command to their end after the first answer.

Required: 3 s to the first /health that answers 200, on two cores that do nothing else.
`slow_imports`: which of transformers, Numba and torch._dynamo a start imports (required: none).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

REQUIRED_S = 3.0
SLOW = ("numba", "torch._dynamo", "transformers")
BODY = {
    "model": "specops-embedded",
    "messages": [{"role": "user", "content": "def main("}],
    "max_tokens": 8,
    "temperature": 0.7,
    "stream": True,
}
COMMAND = [sys.executable, "-m", "specops", "serve", "--port", "0"]


def opened(address: str, body: dict[str, Any] | None = None) -> Any:
    """An answer to GET, or to POST where there is a body; never through a proxy."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60)


def started() -> dict[str, float]:
    """One start: seconds to /health and to the first chunk with text, and seconds of CPU."""
    began = time.perf_counter()
    server = subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        found = None
        for line in server.stderr:
            if found := re.match(r"serving .* on (http://\S+)", line):
                break
        if found is None:
            raise SystemExit(f"the server ended with exit code {server.wait()} before it was up")
        with opened(f"{found[1]}/health"):
            health = time.perf_counter() - began
        with opened(f"{found[1]}/v1/chat/completions", BODY) as answer:
            for line in answer:
                if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                    break
            token = time.perf_counter() - began
            answer.read()
        server.send_signal(signal.SIGTERM)
        _, _, usage = os.wait4(server.pid, 0)  # with those that it has waited for: the engine's process
        server.returncode = 0
    finally:
        server.stderr.close()
        if server.returncode is None:
            server.kill()
            server.wait()
    return {"health_s": health, "first_token_s": token, "cpu_s": usage.ru_utime + usage.ru_stime}


def slow_imports() -> list[str]:
    """Of SLOW, what the engine's process or the server's imports. Python prints every import of both."""
    command = [COMMAND[0], "-X", "importtime", *COMMAND[1:]]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    imported = set()
    for line in server.stderr:
        if line.startswith("import time:"):
            imported.add(line.rpartition("|")[2].strip())
        elif line.startswith("serving "):
            server.terminate()
    server.wait()
    server.stderr.close()
    return [name for name in SLOW if name in imported]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    started()  # compiles, and reads the files into the system's cache
    rows = [started() for _ in range(asked.starts)]
    figures: dict[str, Any] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        figures[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    figures |= {"starts": asked.starts, "required_s": REQUIRED_S, "slow_imports": slow_imports()}
    for name, label in (
        ("health_s", "to /health"),
        ("first_token_s", "to the first token"),
        ("cpu_s", "CPU"),
    ):
        of = figures[name]
        print(
            f"{label:20} {of['median']:5.2f} s  ({of['min']:.2f} to {of['max']:.2f}, {asked.starts} starts)"
        )
    print(
        f"required: {REQUIRED_S:g} s to /health; slow imports: {', '.join(figures['slow_imports']) or 'none'}"
    )
    if asked.json is not None:
        asked.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
