"""What the router loses when it is switched, or its pool killed, under load; and whether it reads bodies as
`route explain` does.

    python benchmarks/router_faults.py [--times 5] [--bodies 10000] [--json FILE]

Two pools that stamp each request as it begins (tests/real/scripted_pool.py), the router between them and 32
clients in a closed loop, which start one after the other.

  switch   seconds from before the PUT to the last request that began on the speculative pool; failed requests
  kill     the speculative pool is killed with -9: of requests without a byte of an answer by then, the failed
  bodies   made-up bodies that the router answered 5xx, or otherwise than `route explain` says
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from router import CHAT, rendered, rollout, serving

from specops.launch.servers import free_port
from specops.phases.route.cases import fuzz
from specops.phases.route.check import ask, disagreement, trial
from specops.progress import SilentProgress

POOL = Path(__file__).parents[1] / "tests" / "real" / "scripted_pool.py"
CLIENTS = 32
SWITCH_S = 0.1  # to reach
STAGGER_S = 0.03


def bodies(count: int) -> dict[str, int]:
    settings = rollout(1, standard=["127.0.0.1:1"], speculative=["127.0.0.1:2"], max_in_flight=8)
    files, nginx = rendered(settings), settings.route.router
    judge = nginx.judge(nginx.stored_rules(files))
    server_errors = disagreeing = 0
    with trial(nginx, nginx.find_program(None), files, SilentProgress()) as connection:
        for request in islice(fuzz(7), count):
            answer = ask(connection, request)
            server_errors += answer.status >= 500
            disagreeing += disagreement(request, answer, judge) is not None
    return {"asked": count, "5xx": server_errors, "unlike_explain": disagreeing}


@dataclass
class Server:
    """scripted_pool.py; each request's beginning is a line of `log`."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def begun(self) -> list[tuple[float, str]]:
        rows = (line.split() for line in self.log.read_text().splitlines())
        return [(float(when), name) for when, name in rows]


@contextmanager
def pool(folder: Path, name: str) -> Iterator[Server]:
    port, log = free_port(), folder / f"{name}.requests"
    log.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, str(POOL), name, str(port), str(log)])
    try:
        deadline = time.monotonic() + 30
        while not answers(port):
            if time.monotonic() > deadline:
                raise SystemExit(f"the {name} pool did not come up")
            time.sleep(0.02)
        yield Server(port, process, log)
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/seen")
        connection.getresponse().read()
    except OSError:
        return False
    finally:
        connection.close()
    return True


@dataclass
class Asked:
    name: str
    began: float
    first_byte: float | None = None
    status: int = 0
    failed: bool = False


def clients(
    url: str, script: dict[str, object], stop: threading.Event, asked: list[Asked]
) -> list[threading.Thread]:
    """In a closed loop, each on a connection of its own; started."""

    def loop(client: int) -> None:
        host, count = urlsplit(url).netloc, 0
        time.sleep(client * STAGGER_S)
        while not stop.is_set():
            one = Asked(f"{client}-{count}", time.time())
            asked.append(one)
            count += 1
            what = {"id": one.name, "max_tokens": 300, "stream": True, "script": {"speculative": script}}
            connection = http.client.HTTPConnection(host, timeout=60)
            try:
                connection.request("POST", CHAT, json.dumps(what))
                answer = connection.getresponse()
                one.status = answer.status
                if answer.read(1):
                    one.first_byte = time.time()
                answer.read()
            except (OSError, http.client.HTTPException):
                one.failed = True
            finally:
                connection.close()
            one.failed |= one.status != 200

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    return threads


def under_load(
    folder: Path, number: int, script: dict[str, object], act: Callable[[str, Server], float]
) -> tuple[float, list[Asked], list[tuple[float, str]]]:
    """`act` while the load runs: when it decided, what was asked, and what began on the speculative pool."""
    name = f"load-{number}"
    (folder / name).mkdir(parents=True)
    with pool(folder / name, "standard") as standard, pool(folder / name, "speculative") as speculative:
        port = free_port()
        settings = rollout(
            port,
            standard=[f"127.0.0.1:{standard.port}"],
            speculative=[f"127.0.0.1:{speculative.port}"],
        )
        with serving(folder, f"router-{number}", rendered(settings), port) as url:
            stop, asked = threading.Event(), list[Asked]()
            threads = clients(url, script, stop, asked)
            try:
                time.sleep(CLIENTS * STAGGER_S + 0.5)
                decided = act(f"http://{settings.route.admin}", speculative)
                time.sleep(0.7)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            return decided, asked, speculative.begun()


def switch_off(admin: str, _: Server) -> float:
    connection = http.client.HTTPConnection(urlsplit(admin).netloc, timeout=10)
    decided = time.time()
    connection.request("PUT", "/specops/switch", '{"speculative_percent": 0}')
    if connection.getresponse().status != 200:
        raise SystemExit("the router did not take the switch")
    connection.close()
    return decided


def kill(_: str, speculative: Server) -> float:
    decided = time.time()
    speculative.process.kill()
    return decided


def switched(folder: Path, times: int) -> dict[str, object]:
    last, lost, total = [], 0, 0
    for number in range(times):
        decided, asked, begun = under_load(folder, number, {"wait_s": 0.02}, switch_off)
        last.append(max([when - decided for when, _ in begun if when > decided], default=0.0))
        lost += sum(one.failed for one in asked)
        total += len(asked)
    return {"times": times, "asked": total, "lost": lost, "last_begun_s": last, "worst_s": max(last)}


def killed(folder: Path, times: int) -> dict[str, int]:
    waiting = lost = streaming = broken = total = 0
    for number in range(times):
        script = {"wait_s": 0.3, "chunks": 6, "gap_s": 0.1}
        decided, asked, _ = under_load(folder, 100 + number, script, kill)
        total += len(asked)
        for one in asked:
            began_to_stream = one.first_byte is not None and one.first_byte <= decided
            if one.began > decided or not began_to_stream:
                waiting += one.began <= decided
                lost += one.failed
            elif one.failed:
                broken += 1
            streaming += began_to_stream
    return {"times": times, "asked": total, "waiting": waiting, "lost": lost, "streaming_broken": broken}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=5, help="that the switch is set, and the pool killed")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specops-bench-") as name:
        figures = {
            "switch": switched(Path(name), options.times),
            "kill": killed(Path(name), options.times),
            "bodies": bodies(options.bodies),
        }
    for what, found in figures.items():
        print(f"{what}: {json.dumps(found)}")
    print(f"to reach: nothing lost, no 5xx, none unlike; the last begun within {SWITCH_S} s")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
