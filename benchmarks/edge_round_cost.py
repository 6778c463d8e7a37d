"""What a round costs a verification server's CPU beside the target's step.

    python benchmarks/edge_round_cost.py [--rounds 4000] [--sessions 1 8] [--nodes 32]
        [--batching dynamic static:8] [--json FILE]

A server with the shipped target, its engine in a process of its own as always, and clients on the same
machine over loopback, each with a connection and a session of its own, that have trees of `--nodes` nodes
verified: chains at temperature 0, and trees drawn without replacement, each node with a distribution over 32
tokens, at temperature 1. The tokens are arbitrary, so that nearly all are rejected and a step is as short as
it can be. A step takes the rounds that are there, or waits for eight of them (`specops edge verify-server
--batching`): the fuller the batches are, the less of what a step and a wake-up take falls to each round.

CPU time, not seconds that passed, so that other work on the machine adds little:

- service: all of the server's first process (gRPC, TLS off; reading, checking, the table, the pipe, metrics);
- engine: of the engine's process what is not spent in Engine.step() (the pipe, batching, holding sessions);
- draft: within Engine.step(), making trees of what came; wall time, as the engine counts it.

`beside` is their sum, in milliseconds a round. `bare` is what a server over grpc.aio takes that only sends an
answer of a verdict's size for each message, right after: what is in it cannot be saved here, and how fast the
machine is at the time shows in it. Beside the forward a step also walks the trees, as it would
for a server that drafts itself: that is `verify`. What children were drawn from is laid out then, node by
node; since nearly all is rejected, every node is looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import secrets
import time
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import Any

import grpc
import uvloop
from grpc import aio

from specops.edge.batching import Batching
from specops.edge.connection import OPTIONS as CLIENT
from specops.edge.link import Proposal, Verdict
from specops.edge.quantisation import WHOLE, Quantised, joined
from specops.edge.server import OPTIONS as SERVER
from specops.edge.wire import SERVICE, event_of, open_request, round_request
from specops.engine.request import Sampling
from specops.engine.tree import Draw

TARGET = Path(__file__).parents[1] / "playbooks" / "embedded" / "target"
PROMPT, OUTPUT, SUPPORT = list(range(100, 116)), 200, 32
MAX_BATCH, ANSWER = 8, 20  # bytes of a verdict


@dataclass(frozen=True)
class Cost:
    """Milliseconds a round."""

    trees: str
    batching: str
    sessions: int
    rounds: int
    bytes_up: float  # of a round's message
    service: float
    engine: float
    draft: float
    verify: float  # CPU within the step, walking the trees
    step: float  # CPU of the whole step, for comparison
    bare: float  # of a message and an answer over gRPC alone

    @property
    def beside(self) -> float:
        return self.service + self.engine + self.draft


def serve(ports: Any, spent: SynchronizedArray[Any], batching: Batching) -> None:
    """In a process of its own: a server whose engine notes what its steps take."""
    from specops.edge.link import tokenizer_digest
    from specops.edge.server import ServiceSettings, serve_verification
    from specops.edge.server_engine import EngineSettings, load_verifier
    from specops.edge.verification_loop import verify_in_process
    from specops.engine.step import Engine
    from specops.engine.text import load_tokenizer
    from specops.serve.admission import bind

    def make() -> Engine:
        engine = load_verifier(EngineSettings(TARGET, max_batch=MAX_BATCH, max_length=512, threads=1))
        step, verify = engine.step, engine._verify

        def verified(*asked: Any) -> Any:
            started = time.thread_time()
            found = verify(*asked)
            spent[2] += time.thread_time() - started
            return found

        def timed() -> Any:
            started = time.thread_time()
            emissions = step()
            spent[0] += time.thread_time() - started
            spent[1] = engine.counters.draft_seconds
            return emissions

        engine.step, engine._verify = timed, verified  # type: ignore[method-assign]
        return engine

    with (
        bind("127.0.0.1", 0) as bound,
        verify_in_process(make, [bound], max_batch=MAX_BATCH, batching=batching) as worker,
    ):
        settings = ServiceSettings(model="shipped", tokenizer=tokenizer_digest(load_tokenizer(TARGET)))
        serve_verification(worker, settings, bound, None, ports.send)


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, in itself and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def drive(port: int, sessions: int, nodes: int, drawn: bool, rounds: int) -> tuple[int, int]:
    """Have at least `rounds` rounds verified -> how many, and the bytes that their messages took."""
    proposal = drawn_tree(nodes) if drawn else chain(nodes)
    each = -(-rounds // sessions)
    found = await asyncio.gather(*(converse(port, proposal, each) for _ in range(sessions)))
    return sum(done for done, _ in found), sum(up for _, up in found)


async def converse(port: int, proposal: Proposal, rounds: int) -> tuple[int, int]:
    """One client's, one session after the other."""
    temperature = 0.0 if proposal.draw is Draw.DETERMINISTIC else 1.0
    sampling = Sampling(temperature=temperature, max_tokens=OUTPUT, ignore_eos=True)
    done = up = 0
    async with aio.insecure_channel(f"127.0.0.1:{port}", CLIENT) as channel:
        call = channel.stream_stream(f"/{SERVICE}/Verify")()

        async def begin() -> None:
            key = secrets.token_bytes(16)
            await call.write(open_request(0, key, PROMPT, sampling).SerializeToString())

        await begin()
        while done < rounds:
            verdict = event_of(await call.read(), 0.0)
            assert isinstance(verdict, Verdict), verdict
            done += verdict.number > 0
            if verdict.ended:
                await begin()
                continue
            message = round_request(0, verdict.number + 1, proposal).SerializeToString()
            up += len(message)
            await call.write(message)
        call.cancel()
    return done, up


def answer(ports: Any) -> None:
    """In a process of its own: a server that answers every message, and knows nothing of what it says."""

    async def verify(_: Any, context: Any) -> None:
        while await context.read() is not aio.EOF:
            await context.write(b"0" * ANSWER)

    async def run() -> None:
        server = aio.server(options=SERVER)
        method = grpc.stream_stream_rpc_method_handler(verify)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Bare", {"Verify": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        ports.send(port)
        await server.wait_for_termination()

    uvloop.run(run())


async def ask(port: int, message: bytes, rounds: int, pause_s: float) -> None:
    """As `converse`, of a server that only answers, as often as one that has steps to make."""
    async with aio.insecure_channel(f"127.0.0.1:{port}", CLIENT) as channel:
        call = channel.stream_stream("/Bare/Verify")()
        for _ in range(rounds):
            await call.write(message)
            await call.read()
            await asyncio.sleep(pause_s)
        call.cancel()


def bare(sessions: int, message: bytes, rounds: int, pause_s: float) -> float:
    """Milliseconds of CPU a message."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=answer, args=(theirs,))
    server.start()
    try:
        assert server.pid is not None
        port, each = ours.recv(), -(-rounds // sessions)

        async def all_ask(count: int) -> None:
            await asyncio.gather(*(ask(port, message, count, pause_s) for _ in range(sessions)))

        asyncio.run(all_ask(max(1, each // 10)))
        before = cpu_s(server.pid)
        asyncio.run(all_ask(each))
        return (cpu_s(server.pid) - before) * 1e3 / (sessions * each)
    finally:
        server.kill()
        server.join()


def chain(nodes: int) -> Proposal:
    return Proposal(tuple(range(200, 200 + nodes)), tuple(range(nodes)))


def drawn_tree(nodes: int) -> Proposal:
    tokens, parents = tuple(range(200, 200 + nodes)), tuple(node // 2 for node in range(nodes))
    support = tuple(sorted({*tokens, *range(1000, 1000 + SUPPORT)})[:SUPPORT])
    weights = tuple(WHOLE // SUPPORT + place for place in range(SUPPORT))
    drawn = joined(dict.fromkeys(sorted(set(parents)), Quantised(support, weights)))
    return Proposal(tokens, parents, Draw.WITHOUT_REPLACEMENT, drawn)


def measure(batching: str, sessions: int, nodes: int, drawn: bool, rounds: int) -> Cost:
    """On a server that is started for it, after a tenth of the rounds to warm up."""
    ours, theirs = multiprocessing.Pipe()
    spent = multiprocessing.Array("d", 3)
    given = theirs, spent, Batching.parse(batching)
    server = multiprocessing.get_context("fork").Process(target=serve, args=given)
    server.start()
    try:
        assert server.pid is not None
        port = ours.recv().service
        engine = child_of(server.pid)
        go = partial(drive, port, sessions, nodes, drawn)
        asyncio.run(go(max(1, rounds // 10)))
        before, began = [cpu_s(server.pid), cpu_s(engine), *spent], time.perf_counter()
        done, up = asyncio.run(go(rounds))
        pause_s = (time.perf_counter() - began) * sessions / done
        service, whole, step, draft, verify = (
            after - early
            for after, early in zip([cpu_s(server.pid), cpu_s(engine), *spent], before, strict=True)
        )
    finally:
        server.terminate()
        server.join()
    ms = 1e3 / done
    message = round_request(0, 1, drawn_tree(nodes) if drawn else chain(nodes)).SerializeToString()
    return Cost(
        trees="drawn" if drawn else "greedy",
        batching=batching,
        sessions=sessions,
        rounds=done,
        bytes_up=up / done,
        service=service * ms,
        engine=(whole - step) * ms,
        draft=draft * ms,
        verify=verify * ms,
        step=step * ms,
        bare=bare(sessions, message, rounds, pause_s),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--batching", nargs="+", default=["dynamic", f"static:{MAX_BATCH}"])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    costs = []
    print(
        "trees   batching  sessions  rounds  bytes "
        " service  engine   draft  beside (verify)  (step)  (bare)  ms"
    )
    for drawn, batching, sessions in product((False, True), asked.batching, asked.sessions):
        cost = measure(batching, sessions, asked.nodes, drawn, asked.rounds)
        costs.append(asdict(cost) | {"beside": cost.beside})
        print(
            f"{cost.trees:7} {cost.batching:9} {cost.sessions:8} {cost.rounds:7} {cost.bytes_up:6.0f} "
            f"{cost.service:8.3f} {cost.engine:7.3f} {cost.draft:7.3f} {cost.beside:7.3f} "
            f"{cost.verify:8.3f} {cost.step:7.3f} {cost.bare:7.3f}",
            flush=True,
        )
    if asked.json is not None:
        asked.json.write_text(json.dumps(costs, indent=1))


if __name__ == "__main__":
    main()
