"""A verify-server under many bad clients: what starts them, kills some, watches the server, and judges.

soak_herd.py is the clients. Here are the herds of them, as processes, and the memory and files of the server.
"""

from __future__ import annotations

import json
import math
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERD = Path(__file__).parent / "soak_herd.py"
PAGE = resource.getpagesize()
GREW = 0.02
"""A last third above the first by more than this share, on a slope that is surely one, is a leak."""

SURE = 3.0  # standard errors


@dataclass(frozen=True)
class Texts:
    """Prompts, and what greedy decoding writes after each."""

    prompts: list[list[int]]
    outputs: list[list[int]]
    vocabulary: int


@dataclass(frozen=True)
class Server:
    """A `specops edge verify-server`, and its engine's process below it."""

    process: subprocess.Popen[str]
    port: int
    page: int

    def metrics(self) -> dict[str, float]:
        """Samples by name and labels, as the page writes them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        return {
            name: float(value)
            for line in lines
            if not line.startswith("#")
            for name, _, value in [line.rpartition(" ")]
        }

    def count(self, name: str) -> float:
        """Of all series of that name."""
        return sum(v for n, v in self.metrics().items() if n.partition("{")[0] == name)

    def processes(self) -> list[Path]:
        """Of it and all below it, in /proc."""
        found, pending = [], [self.process.pid]
        while pending:
            place = Path("/proc", str(pending.pop()))
            found.append(place)
            pending += map(int, (place / "task" / place.name / "children").read_text().split())
        return found

    def resident(self) -> int:
        """Bytes, of all its processes; pages that they share count for each."""
        return sum(int((place / "statm").read_text().split()[1]) for place in self.processes()) * PAGE

    def files(self) -> int:
        """Open descriptors, of all its processes."""
        return sum(len(list((place / "fd").iterdir())) for place in self.processes())


@contextmanager
def serving(log: Path, *words: str) -> Iterator[Server]:
    """`specops edge verify-server` with these options, on free ports; what it says goes to `log`."""
    command = [sys.executable, "-m", "specops", "edge", "verify-server", "--port", "0", "--metrics-port", "0"]
    with log.open("w") as said:
        process = subprocess.Popen([*command, *words], stderr=said, text=True)
    try:
        yield Server(process, *_ports(process, log))
    finally:
        process.terminate()
        process.wait()


def _ports(process: subprocess.Popen[str], log: Path) -> tuple[int, int]:
    while (found := re.search(r"^verifying for .*:(\d+) \(.*:(\d+)/metrics", log.read_text(), re.M)) is None:
        if process.poll() is not None:
            raise AssertionError(f"the server did not start: {log.read_text()}")
        time.sleep(0.05)
    return int(found[1]), int(found[2])


@dataclass
class Herd:
    """Clients in one process."""

    process: subprocess.Popen[str]
    told: list[dict[str, Any]] = field(default_factory=list)
    killed: bool = False
    reader: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._listen, daemon=True)
        self.reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                if line.endswith("\n"):  # not what a kill cut off
                    self.told.append(json.loads(line))


def start_herd(server: Server, texts: Texts, *, clients: int, sessions: int, seed: str) -> Herd:
    """sessions: of each client; -1: until it is killed."""
    process = subprocess.Popen(
        [sys.executable, str(HERD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    asked = {
        "port": server.port,
        "seed": seed,
        "clients": clients,
        "sessions": sessions,
        "vocabulary": texts.vocabulary,
        "prompts": texts.prompts,
        "outputs": texts.outputs,
    }
    with process.stdin as question:
        question.write(json.dumps(asked) + "\n")
    return Herd(process)


def kill(herd: Herd) -> None:
    """As a crash or a pulled plug does; what it had not told is not known."""
    herd.killed = True
    herd.process.kill()
    herd.process.wait()


@contextmanager
def ended(herds: Sequence[Herd]) -> Iterator[None]:
    """No herd outlives the block."""
    try:
        yield
    finally:
        for herd in herds:
            if herd.process.poll() is None:
                kill(herd)


@dataclass(frozen=True)
class Told:
    """What all herds said."""

    sessions: Counter[str]
    """By how the client behaved: those that were as they should be."""

    wrong: list[str]


def told_by(herds: Sequence[Herd]) -> Told:
    lines = [line for herd in herds for line in herd.told]
    wrong = [f"{line['kind']}: {line['why']}" for line in lines if not line["ok"]]
    return Told(Counter(line["kind"] for line in lines if line["ok"]), wrong)


@dataclass(frozen=True)
class Trend:
    """Of a quantity over a run."""

    first: float
    """The mean of the first third."""

    last: float
    slope: float
    """A minute, by least squares."""

    error: float
    """Of the slope; over the means of blocks, since neighbouring samples are alike."""

    @property
    def grows(self) -> bool:
        return self.last > (1 + GREW) * self.first and self.slope > SURE * self.error


def trend(samples: Sequence[tuple[float, float]], blocks: int = 12) -> Trend:
    """Of (seconds, value) samples, at least `blocks` of them."""
    times, values = (np.array(column, dtype=np.float64) for column in zip(*samples, strict=True))
    third = len(values) // 3
    at = np.array([part.mean() for part in np.array_split(times, blocks)]) / 60
    of = np.array([part.mean() for part in np.array_split(values, blocks)])
    centred = at - at.mean()
    slope = float(centred @ of / (centred @ centred))
    missed = of - of.mean() - slope * centred
    error = math.sqrt(float(missed @ missed) / (blocks - 2) / float(centred @ centred))
    return Trend(float(values[:third].mean()), float(values[-third:].mean()), slope, error)


@dataclass
class Watch:
    """Samples of a server, taken by whoever calls `look`."""

    server: Server
    began: float = field(default_factory=time.monotonic)
    resident: list[tuple[float, float]] = field(default_factory=list)
    files: list[tuple[float, float]] = field(default_factory=list)

    def look(self) -> None:
        at = time.monotonic() - self.began
        self.resident.append((at, self.server.resident()))
        self.files.append((at, self.server.files()))


class Chaos:
    """Herds of which one is killed every so often, and another started in its place."""

    def __init__(self, server: Server, texts: Texts, *, clients: int, herds: int, seed: int) -> None:
        self._server, self._texts = server, texts
        self._each = clients // herds
        self._random = random.Random(seed)
        self._started = 0
        self.all: list[Herd] = []
        self.alive = [self._start() for _ in range(herds)]

    def _start(self) -> Herd:
        self._started += 1
        herd = start_herd(
            self._server, self._texts, clients=self._each, sessions=-1, seed=f"herd {self._started}"
        )
        self.all.append(herd)
        return herd

    def kill_one(self) -> None:
        which = self._random.randrange(len(self.alive))
        kill(self.alive[which])
        self.alive[which] = self._start()

    def finish(self) -> None:
        """Let what runs come to its end, and wait for it."""
        for herd in self.alive:
            herd.process.terminate()
        for herd in self.alive:
            herd.process.wait()
            herd.reader.join()

    @property
    def died(self) -> list[Herd]:
        """By themselves. One that had not begun when `finish` came knew no better than to end at once."""
        fine = (None, 0, -signal.SIGTERM)
        return [herd for herd in self.all if not herd.killed and herd.process.poll() not in fine]
