"""A verify-server under 200 bad clients for ten minutes: every surviving stream whole and right, memory flat?

    python benchmarks/edge_soak.py [--minutes 10] [--clients 200] [--json FILE]

Greedy, the shipped target, 48 tokens after each of 32 prompts, which the embedded engine writes beforehand.
The clients (tests/edge/soak_herd.py) speak the protocol by themselves: trees of right and wrong tokens,
streams that break with a round out and are taken up again, clients that never come back, that switch who
drafts, that are slow, and nonsense of every kind beside sessions that are to go on. They live in eight
processes, of which one is killed (SIGKILL) every ten seconds and started anew. The server has rows for a
fifth of them, and places for fewer than there are, so that sessions are evicted, and refused a place.

At the end clients finish what they began; then no session and no connection may be left. Exit code 0 where
all holds, 1 where something does not. Linux.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from specops.assets import asset
from specops.edge.server_engine import row_bytes
from specops.engine.load import load_engine
from specops.engine.models import load_model
from specops.engine.request import Sampling
from specops.load.workload import load_prompts

# At the front: there is a soaking nowhere else.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "edge"))

from soaking import Chaos, Server, Texts, Watch, ended, serving, told_by, trend

PROMPTS, PROMPT_TOKENS, TOKENS = 32, 64, 48
LENGTH, NODES, MAX_BATCH, HERDS, RESUME_S = 128, 16, 16, 8, 10.0
KILL_EVERY_S, LOOK_EVERY_S = 10.0, 1.0
SETTLED = 0.1
"""Of the run, before memory is looked at: until then caches fill."""

ENDING_S = 120.0

COUNTED = {
    "rounds": "specops_edge_server_rounds_total",
    "tokens": "vllm:generation_tokens_total",
    "evicted": "vllm:num_preemptions_total",
    "taken up again": "specops_edge_server_resumed_sessions_total",
    "refused": "specops_edge_server_refusals_total",
}


def known_texts(target: Path) -> Texts:
    engine = load_engine(target, tree="none", max_batch=8, threads=1)
    texts = [str(prompt.content) for prompt in load_prompts(target.parent / "prompts.json").spread(PROMPTS)]
    prompts = [engine.tokenizer.encode(text)[-PROMPT_TOKENS:] for text in texts]
    sampling = Sampling(max_tokens=TOKENS, ignore_eos=True)
    return Texts(
        prompts, [engine.generate(prompt, sampling).tokens for prompt in prompts], engine.target.shape.vocab
    )


def soak(server: Server, texts: Texts, clients: int, seconds: float) -> tuple[Chaos, Watch]:
    watch = Watch(server)
    chaos = Chaos(server, texts, clients=clients, herds=HERDS, seed=0)
    with ended(chaos.all):
        killed = time.monotonic()
        while time.monotonic() < watch.began + seconds:
            time.sleep(LOOK_EVERY_S)
            watch.look()
            if time.monotonic() > killed + KILL_EVERY_S:
                chaos.kill_one()
                killed += KILL_EVERY_S
            print(f"\r{time.monotonic() - watch.began:5.0f} s", end="", file=sys.stderr, flush=True)
        chaos.finish()
    print(file=sys.stderr)
    return chaos, watch


def comes_to_be(what: Callable[[], bool]) -> bool:
    until = time.monotonic() + ENDING_S
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.2)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    target = asset("playbooks", "embedded", "target")
    texts = known_texts(target)
    rows = max(options.clients // 5, MAX_BATCH + 1)
    words = {
        "--target": target,
        "--max-batch": MAX_BATCH,
        "--kv-mb": (rows + 0.5) * row_bytes(load_model(target).shape, LENGTH, NODES) / 2**20,
        "--max-length": LENGTH,
        "--max-nodes": NODES,
        "--sessions": options.clients * 9 // 10,
        "--resume-s": RESUME_S,
        "--threads": 1,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(
            Path(folder) / "server.log", *(str(word) for pair in words.items() for word in pair)
        ) as server,
    ):
        files = server.files()
        chaos, watch = soak(server, texts, options.clients, 60 * options.minutes)
        if server.process.poll() is not None:
            sys.exit(f"NO   the server ended: {(Path(folder) / 'server.log').read_text()[-2000:]}")
        emptied = comes_to_be(lambda: server.count("specops_edge_server_sessions") == 0)
        closed = comes_to_be(lambda: server.files() <= files + 1)  # the page's own connection
        counted = server.metrics()
    told = told_by(chaos.all)
    memory = trend(watch.resident[int(SETTLED * len(watch.resident)) :])
    totals = {
        what: round(sum(value for key, value in counted.items() if key.partition("{")[0] == name))
        for what, name in COUNTED.items()
    }
    killed = sum(herd.killed for herd in chaos.all)
    print(f"{options.clients} clients, {options.minutes:g} minutes, {rows} rows, {killed} processes killed")
    print(", ".join(f"{count} {what}" for what, count in totals.items()))
    print(f"sessions as they should be: {dict(sorted(told.sessions.items()))}")
    checks = {
        "every stream that was not killed is whole and right": not told.wrong,
        "no client process died by itself": not chaos.died,
        "sessions were evicted, resumed and refused": min(totals.values()) > 0,
        "no session is left": emptied,
        "no descriptor is left": closed,
        "memory is flat": not memory.grows,
    }
    mega = 2**20
    print(
        f"memory of the server and its engine: {memory.first / mega:.1f} MiB in the first third, "
        f"{memory.last / mega:.1f} in the last, {memory.slope / mega:+.2f} ± {memory.error / mega:.2f} /min"
    )
    for check, held in checks.items():
        print(f"{'yes' if held else 'NO ':3}  {check}")
    for line in told.wrong[:20]:
        print(f"wrong: {line}")
    if options.json is not None:
        options.json.write_text(
            json.dumps(
                {
                    "checks": checks,
                    "totals": totals,
                    "sessions": told.sessions,
                    "wrong": told.wrong,
                    "killed": killed,
                    "resident": watch.resident,
                    "files": watch.files,
                },
                indent=1,
            )
        )
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
