"""The soak's own harness for a while: bad clients of every kind, with fewer rows than sessions, and one kill.

Nothing is timed: sessions are counted, and what must come to be is waited for.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from soak_herd import KINDS
from soaking import Herd, Server, Texts, Trend, ended, kill, serving, start_herd, told_by, trend

from specops.edge.server_engine import row_bytes
from specops.engine.load import load_engine
from specops.engine.models import load_model
from specops.engine.request import Sampling

if not Path("/proc/self/statm").exists():
    pytest.skip("reads memory and files of a process from /proc", allow_module_level=True)

PATIENCE_S = 300.0
"""For what comes at once on any machine that is not standing still."""

CLIENTS, SESSIONS = 6, 3
LENGTH, NODES = 96, 16


def wait_until(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def texts(tiny_pair: tuple[Path, Path]) -> Texts:
    engine = load_engine(tiny_pair[0], tree="none", threads=1)
    chance = random.Random(0)
    vocabulary = engine.target.shape.vocab
    prompts = [[chance.randrange(vocabulary) for _ in range(chance.randint(3, 40))] for _ in range(8)]
    sampling = Sampling(max_tokens=24, ignore_eos=True)
    return Texts(prompts, [engine.generate(prompt, sampling).tokens for prompt in prompts], vocabulary)


@pytest.fixture(scope="module")
def server(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Four rows, three rounds in a step."""
    target = tiny_pair[0]
    row = row_bytes(load_model(target).shape, LENGTH, NODES)
    options = {
        "target": target,
        "max-batch": 3,
        "kv-mb": 4.5 * row / 2**20,
        "max-length": LENGTH,
        "max-nodes": NODES,
        "resume-s": 5,
        "threads": 1,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with serving(tmp_path_factory.mktemp("soak") / "server.log", *words) as server:
        yield server


@pytest.mark.slow
def test_every_stream_is_whole_and_right_and_nothing_is_left(server: Server, texts: Texts) -> None:
    before = server.files()
    herds = [
        start_herd(server, texts, clients=CLIENTS, sessions=SESSIONS, seed=f"small {n}") for n in range(2)
    ]
    doomed = start_herd(server, texts, clients=CLIENTS, sessions=-1, seed="doomed")
    with ended([*herds, doomed]):
        wait_until(lambda: len(doomed.told) >= CLIENTS or doomed.process.poll() is not None)
        assert doomed.process.poll() is None
        kill(doomed)
        wait_until(lambda: all(herd.process.poll() is not None for herd in herds))
        assert [herd.process.returncode for herd in herds] == [0, 0]
        wait_until(lambda: all(len(herd.told) == CLIENTS * SESSIONS for herd in herds))
    told = told_by([*herds, doomed])
    assert told.wrong == []
    assert set(told.sessions) == set(KINDS)  # seeded: every kind was there
    assert server.count("vllm:num_preemptions_total") > 0  # rows were lent out
    assert server.count("specops_edge_server_resumed_sessions_total") > 0
    assert server.count("specops_edge_server_refusals_total") > 0
    wait_until(
        lambda: server.count("specops_edge_server_sessions") == 0
    )  # also those that nobody came back for
    wait_until(lambda: server.files() <= before + 1)  # the page's own connection


def test_a_wrong_token_would_be_seen(server: Server, texts: Texts) -> None:
    """The negative control: clients that expect something else say so, of every kind that reads answers."""
    wrong = [
        [*tokens[:1], *((token + 1) % texts.vocabulary for token in tokens[1:])] for tokens in texts.outputs
    ]
    herd = start_herd(
        server, Texts(texts.prompts, wrong, texts.vocabulary), clients=4, sessions=2, seed="control"
    )
    with ended([herd]):
        wait_until(lambda: herd.process.poll() is not None)
        wait_until(lambda: len(herd.told) == 8)
    kinds = {line["kind"] for line in herd.told if line["ok"]}
    assert kinds <= {"garbled", "gone"}
    assert told_by([herd]).wrong


@pytest.mark.parametrize(
    ("growth", "grows"), [(0.0, False), (2.0, True), (0.2, False)], ids=["flat", "a leak", "within its noise"]
)
def test_a_leak_is_told_from_noise(growth: float, grows: bool) -> None:
    """Per cent a minute, of ten, with noise of one per cent and a step at the beginning."""
    chance = random.Random(1)
    samples = [
        (second, 1e9 * (1 + growth / 100 * second / 60 + chance.gauss(0, 0.01))) for second in range(600)
    ]
    found = trend(samples)
    assert found.grows is grows
    assert found.slope == pytest.approx(growth * 1e7, abs=4 * found.error + 1)


def test_a_step_up_that_stays_is_seen() -> None:
    found = trend([(float(second), 1.0 if second < 300 else 2.0) for second in range(600)])
    assert (found.first, found.last) == (1.0, 2.0)
    assert found.grows


def test_what_a_kill_cut_off_is_not_read() -> None:
    process = subprocess.Popen(
        ["printf", r'{"kind": "steady", "ok": true, "why": null}\n{"kind": "st'],
        stdout=subprocess.PIPE,
        text=True,
    )
    herd = Herd(process)
    process.wait()
    herd.reader.join()
    assert told_by([herd]).sessions == {"steady": 1}
    assert Trend(1.0, 2.0, 1.0, 1.0).grows is False  # on a slope that may be none
