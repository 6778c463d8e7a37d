"""One row of the table, tried: its servers are started, its command is run, and its verdict is judged."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import yaml
from calling import specops
from zoo_host import ZOO, Host
from zoo_knobs import Server, knobs_of

Command = Literal["ab", "sweep", "baseline"]
Right = Literal["deploy", "no", "undecided", "not deploy", "yes", "not yes", "refused", "any verdict"]

EXIT_CODES: dict[Right, set[int]] = {
    "deploy": {0},
    "yes": {0},
    "no": {1},
    "undecided": {4},
    "not deploy": {1, 4},
    "not yes": {1, 4},
    "refused": {2, 3},
    "any verdict": {0, 1, 4},
}
WORDS = {0: "yes", 1: "no", 2: "refused as wrong usage", 3: "refused by the environment", 4: "undecided"}
KS = (0, 3, 5, 2, 4, 6, 7, 8)
"""What a sweep calls its servers, in the order of the row."""

ATTEMPTS = 3
STARVED = r"client was the bottleneck"
STREAMS = 2
"""Where a row does not say how many: half the time of one, in blocks of the same size."""

NEVER = (r"Traceback", r"\bnan\b", r"[+-]?\binf\b", r"(?-i:\bNone\b)")

Figures = Callable[[dict[str, Any]], Sequence[str]]
"""From a command's result to what is wrong with its figures."""


@dataclass(frozen=True)
class Row:
    """A fault, and what the tool must say of it."""

    name: str
    fault: str
    command: Command
    servers: tuple[Server, ...]
    """The standard first. `baseline` measures the first."""

    right: Right
    says: tuple[str, ...] = ()
    """Regular expressions that the page, or the error, must match; upper and lower case are equal."""

    never: tuple[str, ...] = ()
    """Those that it must not match."""

    options: tuple[str, ...] = ()
    urls: tuple[int, ...] = ()
    """Which server each arm is; by default each its own."""

    prompts: int = 48
    texts: int = 0
    """So many different texts, which come again and again; 0: each prompt has its own."""

    turns: int = 1
    """Of each conversation; of one that has more, `prompts` is the number of conversations."""

    classes: tuple[str, ...] = ("chat", "code")
    figures: Figures | None = None
    rollout: tuple[tuple[str, Any], ...] = ()
    """Further keys of the rollout file of a sweep, such as measure.timeout_s."""

    started: bool = False
    """A sweep starts its servers by a command, in place of endpoints that run already."""

    clock_step_s: float = 0.0
    """The wall clock of the client's process is set back and forth by so much, twice a second."""

    busy_threads: int = 0
    """Threads that compute in the client's process meanwhile."""

    again: bool = False
    """The same command has run before: what a cache knows of it, it knows."""

    fast: bool = False
    """In the default suite too, with one seed."""


@dataclass(frozen=True)
class Outcome:
    words: tuple[str, ...]
    code: int
    out: str
    err: str
    result: dict[str, Any] | None

    def __str__(self) -> str:
        return f"specops {' '.join(self.words)}\n{self.out}\n{self.err}"


def tried(row: Row, seed: int, host: Host, folder: Path) -> tuple[Outcome, list[str]]:
    """What the command said, and what is wrong with it.

    A client that had to wait for a busy machine says so, and decides nothing: then the row is tried again.
    On a machine that is not busy, that sentence is wrong like any other.
    """
    servers = [replace(server, seed=server.seed + 101 * seed) for server in row.servers]
    for attempt in range(ATTEMPTS):
        inside = folder / str(attempt)
        inside.mkdir()
        with host.up([] if row.started else servers) as up:
            urls = [up.urls[at] for at in row.urls or range(len(up.urls))]
            outcome = _run(row, servers, seed, urls, inside)
        wrong = complaints(row, outcome)
        busy = os.getloadavg()[0] > (os.cpu_count() or 1)
        if not (wrong and busy and _matches(STARVED, outcome.out)):
            break
    return outcome, wrong


def complaints(row: Row, outcome: Outcome) -> list[str]:
    """What is wrong with an outcome; nothing where it is right."""
    found = []
    text = outcome.out + "\n" + outcome.err
    if outcome.code not in EXIT_CODES[row.right]:
        found.append(f"the verdict is {WORDS.get(outcome.code, outcome.code)}, right is {row.right}")
    found += [f"it does not say {wanted!r}" for wanted in row.says if not _matches(wanted, text)]
    found += [f"it says {wrong!r}" for wrong in row.never if _matches(wrong, text)]
    found += [f"it shows {wrong!r}" for wrong in NEVER if _matches(wrong, text)]
    if row.command == "ab" and row.right in ("no", "undecided", "not deploy"):
        rows = [line for line in outcome.out.splitlines() if re.search(r"  deploy(  |$)", line)]
        found += [f"the verdict of a row is deploy: {line.strip()!r}" for line in rows]
    if outcome.code in (0, 1, 4) and (outcome.result or {}).get("verdict") != WORDS[outcome.code]:
        found.append("its result has another verdict than its exit code")
    if row.figures and outcome.result is not None:
        found += row.figures(outcome.result)
    elif row.figures:
        found.append("it wrote no result")
    return found


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _run(row: Row, servers: Sequence[Server], seed: int, urls: Sequence[str], folder: Path) -> Outcome:
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps(_conversations(row, seed) if row.turns > 1 else _prompts(row, seed)))
    out = folder / f"{row.command}.json"
    if row.command == "sweep":
        words = _sweep_words(row, servers, seed, urls, folder)
    elif row.command == "baseline":
        words = [f"--base-url={urls[0]}", f"--prompts={prompts}", f"--out={out}", f"--seed={seed}"]
    else:
        names = ["standard", "challenger", "third", "fourth"]
        words = [f"--arm={name}={url}" for name, url in zip(names, urls, strict=False)]
        words += [
            f"--prompts={prompts}",
            f"--out={out}",
            f"--seed={seed}",
            "--warmup=2",
            "--min-duration=0",
        ]
        words.append(f"--concurrency={STREAMS}")
    words = [row.command, *words, *row.options]
    with computing(row.busy_threads), clock_set(row.clock_step_s):
        for fresh in ([], ["--fresh"])[: 1 + row.again]:
            done = specops(*words, *fresh)
    result = json.loads(out.read_text()) if out.exists() else None
    return Outcome(tuple(words), done.returncode, done.stdout, done.stderr, result)


@contextmanager
def computing(threads: int) -> Iterator[None]:
    """So many threads hold the interpreter whenever they get it."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    running = [threading.Thread(target=compute) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in running:
            thread.join()


@contextmanager
def clock_set(step_s: float) -> Iterator[None]:
    """The wall clock is `step_s` ahead in every second half of a second."""
    wall = time.time

    def set_wall() -> float:
        return wall() + (step_s if time.monotonic() % 1 < 0.5 else 0.0)

    with patch("time.time", set_wall) if step_s else nullcontext():
        yield


def _prompts(row: Row, seed: int) -> list[dict[str, Any]]:
    """The class is the first word, which the servers read."""
    classes = [row.classes[number % len(row.classes)] for number in range(row.prompts)]
    return [
        {
            "id": f"p{number}",
            "class": name,
            "text": f"{name}: question {number % (row.texts or row.prompts)} of the set {seed}",
            "max_tokens": 64,
        }
        for number, name in enumerate(classes)
    ]


def _conversations(row: Row, seed: int) -> list[dict[str, Any]]:
    """The first turn says the class, as a prompt by itself does; the others are alike in all."""
    later = [
        {"text": f"and point {turn}", "answer": f"about {turn}", "max_tokens": 64}
        for turn in range(2, row.turns + 1)
    ]
    return [
        {"session": prompt["id"], "class": prompt["class"], "turns": [prompt | {"answer": "about 1"}, *later]}
        for prompt in _prompts(row, seed)
    ]


def _sweep_words(
    row: Row, servers: Sequence[Server], seed: int, urls: Sequence[str], folder: Path
) -> list[str]:
    pools: dict[str, Any] = {}
    if row.started:
        by_k = folder / "servers.json"
        by_k.write_text(json.dumps({k: knobs_of(server) for k, server in zip(KS, servers, strict=False)}))
        command = f"{sys.executable} {ZOO} {{port}} {by_k}"
        for name, k in (("standard", "0"), ("speculative", "{k}")):
            pools[name] = {"engine": "command", "command": f"{command} {k}", "model": "zoo"}
    else:
        endpoint = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "zoo"}
        pools = {"standard": endpoint, "speculative": endpoint}
    fields: dict[str, Any] = {
        "rollout": "zoo",
        "prompts": "prompts.json",
        "pools": pools,
        "measure": {"concurrency": [STREAMS], "repeats": 2, "warmup": 2, "timeout_s": 20.0, "seed": seed},
    }
    for name, value in row.rollout:
        section, _, key = name.partition(".")
        fields[section] = {**fields.get(section, {}), key: value}
    if row.started:
        fields["sweep"] = {**fields.get("sweep", {}), "k": list(KS[1 : len(servers)])}
    path = folder / "rollout.yaml"
    path.write_text(yaml.safe_dump(fields))
    attached = [f"--attach={k}={url}" for k, url in zip(KS, urls, strict=False)]
    return [str(path), f"--out={folder}", *attached]
