"""One client of the bench: a process with a draft, and for each arm the engine that `edge serve` runs.

A process gets its prompts over a pipe, one block of one arm at a time, so that what an engine has learned of
its link and its draft stays from one window to the next."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from typing import Any

from specops.edge.client import EdgeEngine
from specops.edge.connection import Destination, connect
from specops.edge.fallback import Fallback
from specops.edge.settings import Drafting
from specops.engine.models.model import Model
from specops.engine.request import Sampling, Streaming
from specops.errors import SpecopsError
from specops.load.answer import Answer, Chunk, Failure
from specops.load.request_times import Observation
from specops.load.workload import Prompt
from specops.phases.edge_bench.records import ClientEffort


@dataclass(frozen=True)
class Block:
    """Prompts that one client sends to one arm, one after the other; their contents are token ids."""

    arm: str
    address: str
    drafting: Drafting | None
    """None: the server drafts, or nobody."""

    prompts: list[Prompt]
    sampling: Sampling


@dataclass(frozen=True)
class BlockResult:
    """Instants are of time.perf_counter, which all processes of a machine share."""

    observations: list[Observation]
    effort: ClientEffort


LINK_BYTES = ("up_bytes", "down_bytes")
"""What the link counts; the other figures of a client's effort are counters of its engine."""


def client_effort(engine: EdgeEngine) -> ClientEffort:
    """Return the work of a client up to now."""
    counters, traffic = engine.own, engine.extra.traffic
    counted = {name: getattr(counters, name) for name in ClientEffort.model_fields if name not in LINK_BYTES}
    return ClientEffort(**counted, up_bytes=traffic.sent, down_bytes=traffic.received)


def run_client(pipe: Pipe, number: int, draft: Model, tokenizer: Any) -> None:
    """Answer Blocks with BlockResult, or with the error that ends this client, until the pipe is closed."""
    engines: dict[str, EdgeEngine] = {}
    try:
        while True:
            block: Block = pipe.recv()
            if block.arm not in engines:
                link = connect(Destination(block.address))
                engines[block.arm] = (
                    EdgeEngine(link, tokenizer, draft, block.drafting)
                    if block.drafting is not None
                    else EdgeEngine(link, tokenizer, None, fallback=Fallback.always(server_drafts=True))
                )
            engine = engines[block.arm]
            before = client_effort(engine)
            observations = [
                observe(engine, prompt, block.sampling, tokenizer, connection=number + 1)
                for prompt in block.prompts
            ]
            pipe.send(BlockResult(observations, client_effort(engine).since(before)))
    except (EOFError, OSError):
        pass
    except SpecopsError as error:
        pipe.send(error)
    finally:
        for engine in engines.values():
            engine.close()


def observe(
    engine: Streaming, prompt: Prompt, sampling: Sampling, tokenizer: Any, *, connection: int
) -> Observation:
    """Send a prompt, and return what came back. What comes together was verified together."""
    temperature = sampling.temperature if prompt.temperature is None else prompt.temperature
    sampling = replace(sampling, temperature=temperature, seed=prompt.seed)
    ids = [token for token in prompt.content if isinstance(token, int)]
    chunks: list[Chunk] = []
    tokens: list[int] = []
    failure: Failure | None = None
    sent = time.perf_counter()
    for emission in engine.stream(ids, sampling):
        if emission.tokens:
            chunks.append(Chunk(time.perf_counter(), len(emission.tokens)))
            tokens += emission.tokens
        if emission.error:
            failure = Failure("stream_error", emission.error)
    if failure is None and not tokens:
        failure = Failure("empty", "the answer has no tokens")
    return Observation(
        prompt=prompt.id,
        traffic_class=prompt.traffic_class,
        scheduled=sent,
        first_sent=sent,
        sent=sent,
        ended=time.perf_counter(),
        answer=Answer(
            chunks=tuple(chunks),
            # Two sequences of tokens with one text are one answer to the user; counts are compared beside it.
            text=tokenizer.decode(tokens, skip_special_tokens=False),
            tokens=len(tokens),
            tokens_from="usage",
            prompt_tokens=len(ids),
            failure=failure,
        ),
        temperature=temperature,
        connection=connection,
    )
