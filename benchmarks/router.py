"""What the router costs: beside a plain proxy_pass, and beside one that keeps its connections.

    python benchmarks/router.py [--rounds 5] [--seconds 1] [--json FILE]

A server of NGINX's that answers at once, and three proxies of NGINX's before it, two workers each:

  plain   `proxy_pass` as NGINX has it by default: a connection to the server for each request, no log
  kept    the same over HTTP/1.1 with connections that are kept, as the router does; no log
  router  as `route render` writes it: reads the body, decides, counts, logs

`content` is the router with a class that goes by a regular expression. wrk asks them in turn, each round in
another order. Figures are medians over rounds, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from specops.config import Rollout
from specops.launch.servers import FixedAddress, free_port, running
from specops.phases.route import files_of, write
from specops.progress import SilentProgress
from specops.router.nginx import CONF, Nginx

CHAT = "/v1/chat/completions"
HARD: Mapping[str, str] = {
    "quotes": '"',
    "backslashes": "\\",
    "lines": "\n",
    "beyond ASCII": "\u00e9",
    "code": 'def sort(numbers: list[int]) -> list[int]:\n    """Sort."""\n    return sorted(numbers)\n',
}
"""Texts that are hard to read, repeated: most of their JSON is escapes."""
CLASSES = [
    {"name": "code", "content": r"```|\bdef \w+\("},
    {"name": "legal", "contains": ["confidential", "privileged"]},
]
RATIO, ADDED_US = 0.85, 100.0
"""To reach, over `plain`: requests a second at 32 × 1000 B, and added at 1 × 1000 B."""
CPU_AT_MOST = {
    "32 × 280 B": ("router", 1.3),
    "32 × 8000 B": ("router", 1.4),
    "32 × 100000 B": ("content", 2.0),
}
WORST_CPU_AT_MOST = 4.0
"""To reach, over `kept`: CPU time of NGINX's workers a request; of texts that are hard to read, at most."""
TURN = "what would be the best way to sort a list of numbers in place, and why? "


def body(size: int, turn: str = TURN) -> bytes:
    """A conversation of about so many bytes."""
    escaped = len(json.dumps(turn)) - 2
    said = turn * (max(size - 220, 0) // escaped) + TURN[: max(size - 220, 0) % escaped]
    messages = [{"role": "system", "content": "You are helpful."}, {"role": "user", "content": said}]
    fields = {"model": "m", "temperature": 0.7, "top_p": 0.9, "max_tokens": 300, "stream": True, "n": 1}
    return json.dumps({"messages": messages, **fields}).encode()


LOADS: Mapping[str, tuple[int, bytes]] = {
    **{
        f"{connections} × {size} B": (connections, body(size))
        for connections, size in (
            *((32, 1_000), (1, 1_000), (1, 20_000), (1, 200_000)),
            *((32, 280), (32, 8_000), (32, 100_000)),
        )
    },
    **{f"32 × 100000 B, {name}": (32, body(100_000, turn)) for name, turn in HARD.items()},
    "32 × 100000 B, many values": (32, json.dumps({"max_tokens": 300, "x": [[]] * 24_900}).encode()),
}
"""Connections and the body."""
WRK = """
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
wrk.body = io.open("%s"):read("*a")
done = function(summary, latency)
  local errors = summary.errors
  print(("{\\"per_s\\": %%f, \\"p50_us\\": %%f, \\"requests\\": %%d, \\"errors\\": %%d}"):format(
    summary.requests / summary.duration * 1e6, latency:percentile(50), summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""
HEAD = """
{user}
worker_processes 2;
pid nginx.pid;
error_log error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_buffer_size 1m;
    client_body_temp_path temp/body; proxy_temp_path temp/proxy; fastcgi_temp_path temp/fastcgi;
    scgi_temp_path temp/scgi; uwsgi_temp_path temp/uwsgi;
    {rest}
}}
"""
AT_ONCE = """server {{ listen 127.0.0.1:{port};
    location / {{ default_type application/json; return 200 '{{"data": [{{"id": "at once"}}]}}'; }} }}"""
PLAIN = """server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream}; }} }}"""
KEPT = """upstream at_once {{ server 127.0.0.1:{upstream}; keepalive 64; }}
server {{ listen 127.0.0.1:{port};
    location / {{ proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://at_once; }} }}"""


NGINX = Nginx()


@dataclass(frozen=True)
class Figures:
    per_s: float
    p50_us: float
    cpu_us: float
    """Of NGINX's workers, a request."""


@dataclass(frozen=True)
class Proxy:
    url: str
    pid: int
    """Of NGINX's master process."""

    def cpu_ns(self) -> int:
        """On-CPU time of its workers until now."""
        workers = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return sum(int(Path(f"/proc/{worker}/schedstat").read_text().split()[0]) for worker in workers)


@contextmanager
def serving(folder: Path, name: str, files: dict[str, str], port: int) -> Iterator[Proxy]:
    """NGINX with `files`, which listens on `port`."""
    prefix = folder / name
    write(NGINX, prefix, files)
    command = NGINX.start(NGINX.find_program(None), prefix)
    log = folder / f"{name}.log"
    with running(name, command, address=FixedAddress.on(port), log=log, progress=SilentProgress()) as up:
        yield Proxy(up.base_url.removesuffix("/v1"), int((prefix / "nginx.pid").read_text()))


def written(template: str, **values: int) -> dict[str, str]:
    user = "user root;" if os.geteuid() == 0 else ""
    return {CONF: HEAD.format(user=user, rest=template.format(**values))}


def rollout(port: int, *, standard: Sequence[str], speculative: Sequence[str], **route: object) -> Rollout:
    """With a limit in flight that is never met."""
    pool = {"engine": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    given: dict[str, object] = {"listen": f"127.0.0.1:{port}", "admin": f"127.0.0.1:{free_port()}"}
    given["nginx"] = {"workers": 2} | ({"user": "root"} if os.geteuid() == 0 else {})
    return Rollout.model_validate(
        {
            "rollout": "bench",
            "pools": {"standard": pool, "speculative": pool},
            "addresses": {"standard": list(standard), "speculative": list(speculative)},
            "route": given | {"max_in_flight": 1000} | route,
        }
    )


def rendered(settings: Rollout) -> dict[str, str]:
    return files_of(settings, Path("no", "such", "run"))


def wrk(proxy: Proxy, script: Path, connections: int, seconds: int) -> Figures:
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), f"{proxy.url}{CHAT}"]
    before = proxy.cpu_ns()
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=seconds + 60)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if found["errors"]:
        raise SystemExit(f"{found['errors']} requests to {proxy.url} failed")
    cpu_us = (proxy.cpu_ns() - before) / 1000 / found["requests"]
    return Figures(found["per_s"], found["p50_us"], cpu_us)


def measure(folder: Path, rounds: int, seconds: int, names: Collection[str]) -> dict[str, Rows]:
    """By load and proxy. `names`: the loads to measure."""
    upstream = free_port()
    at_once = [f"127.0.0.1:{upstream}"]
    with ExitStack() as stack:

        def start(name: str, files: dict[str, str], port: int) -> Proxy:
            return stack.enter_context(serving(folder, name, files, port))

        start("at-once", written(AT_ONCE, port=upstream), upstream)
        proxies = {}
        for name, template in (("plain", PLAIN), ("kept", KEPT)):
            port = free_port()
            proxies[name] = start(name, written(template, port=port, upstream=upstream), port)
        for name, route in (("router", {}), ("content", {"classes": CLASSES})):
            port = free_port()
            settings = rollout(port, standard=at_once, speculative=at_once, **route)
            proxies[name] = start(name, rendered(settings), port)
        rows = {}
        for name in names:
            connections, data = LOADS[name]
            (folder / "body.json").write_bytes(data)
            script = folder / "ask.lua"
            script.write_text(WRK % (folder / "body.json"))
            rows[name] = compare(proxies, script, connections, rounds, seconds)
        return rows


Rows = dict[str, dict[str, float]]
"""Figures by proxy."""


def compare(proxies: Mapping[str, Proxy], script: Path, connections: int, rounds: int, seconds: int) -> Rows:
    figures: dict[str, list[Figures]] = {name: [] for name in proxies}
    names = list(proxies)
    for number in range(-1, rounds):  # one more, to warm up
        for name in names[number % len(names) :] + names[: number % len(names)]:
            measured = wrk(proxies[name], script, connections, seconds)
            if number >= 0:
                figures[name].append(measured)
    return {name: relate(turns, figures["plain"], figures["kept"]) for name, turns in figures.items()}


def relate(turns: list[Figures], plain: list[Figures], kept: list[Figures]) -> dict[str, float]:
    median = statistics.median
    return {
        "per_s": median(one.per_s for one in turns),
        "p50_us": median(one.p50_us for one in turns),
        "cpu_us": median(one.cpu_us for one in turns),
        "over_plain": median(a.per_s / b.per_s for a, b in zip(turns, plain, strict=True)),
        "over_kept": median(a.per_s / b.per_s for a, b in zip(turns, kept, strict=True)),
        "cpu_over_kept": median(a.cpu_us / b.cpu_us for a, b in zip(turns, kept, strict=True)),
        "added_to_plain_us": median(a.p50_us - b.p50_us for a, b in zip(turns, plain, strict=True)),
        "added_to_kept_us": median(a.p50_us - b.p50_us for a, b in zip(turns, kept, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1, help="of one turn of wrk")
    parser.add_argument("--only", default="", help="loads whose name has this in it")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    names = [name for name in LOADS if options.only in name]
    with tempfile.TemporaryDirectory(prefix="specops-bench-") as folder:
        loads = measure(Path(folder), options.rounds, options.seconds, names)
    for load, proxies in loads.items():
        print(f"{load}")
        for name, row in proxies.items():
            print(
                f"  {name:8} {row['per_s']:7.0f}/s  p50 {row['p50_us']:5.0f} µs  CPU {row['cpu_us']:5.0f} µs"
                f"   over plain {row['over_plain']:.2f}×, {row['added_to_plain_us']:+.0f} µs"
                f"   over kept {row['over_kept']:.2f}×, {row['added_to_kept_us']:+.0f} µs,"
                f" CPU {row['cpu_over_kept']:.2f}×"
            )
    print(f"to reach, over plain: ≥ {RATIO}× at 32 × 1000 B, ≤ {ADDED_US:+.0f} µs at 1 × 1000 B")
    for load, (name, most) in CPU_AT_MOST.items():
        print(f"to reach, CPU over kept: ≤ {most}× of {name} at {load}")
    print(f"to reach, CPU over kept: ≤ {WORST_CPU_AT_MOST}× of any")
    if options.json is not None:
        reach = {
            "over_plain": RATIO,
            "added_us": ADDED_US,
            "cpu": CPU_AT_MOST,
            "worst_cpu": WORST_CPU_AT_MOST,
        }
        options.json.write_text(
            json.dumps({"loads": loads, "to_reach": reach}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
