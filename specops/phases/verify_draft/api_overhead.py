"""What the API adds to the engine's own time, by the request and by the chunk: measured, not assumed.

A chunk costs the same whether it carries one token or four, so that it weighs on autoregressive decoding
most: leaving it out would understate speculation. The server is `specops serve` as it is deployed, and the
client the one that measures endpoints, each in a process of its own. Requests alternate with the same text
decoded without the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from specops.errors import EnvironmentFailure
from specops.launch.process import Announced, running
from specops.load.client import Client
from specops.load.settings import Decoding, Endpoint
from specops.load.workload import Prompt
from specops.progress import Progress, Silent
from specops.serving import OWN, Startable, pool_of

if TYPE_CHECKING:  # the client's process imports this module, and needs no torch
    from specops.engine import Engine
    from specops.engine.load import Pair

MODEL = "target"
TOKENS = 48


@dataclass(frozen=True)
class Overhead:
    """Seconds."""

    request: float
    chunk: float


def overhead(
    pair: Pair, prompts: Sequence[list[int]], temperature: float, progress: Progress
) -> list[Overhead]:
    """One for each prompt, autoregressive, at one stream. Raises EnvironmentFailure."""
    alone = pair.engine("none", max(map(len, prompts)) + TOKENS)
    found = []
    with (
        _serving(pair) as base_url,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as client,
    ):
        progress.start("API", len(prompts) + 1)
        for prompt in [prompts[0], *prompts]:  # the first one warms up
            try:
                requested = client.submit(_ask, base_url, tuple(prompt), temperature).result()
            except BrokenExecutor as error:
                raise EnvironmentFailure(
                    "could not measure what the API costs: the process of its client ended",
                    hint="is there memory enough for another process?",
                ) from error
            decoded = _decode(alone, prompt, temperature)
            progress.advance()
            # Less than nothing is a moment in which the machine was busier without the server.
            found.append(Overhead(*(max(0.0, a - b) for a, b in zip(requested, decoded, strict=True))))
    return found[1:]


def _decode(engine: Engine, prompt: list[int], temperature: float) -> tuple[float, float]:
    """Seconds to the first token, and of a further one."""
    from specops.engine import Sampling

    sampling = Sampling(temperature=temperature, seed=0, max_tokens=TOKENS, ignore_eos=True)
    started = perf_counter()
    instants = [perf_counter() for _ in engine.stream(prompt, sampling)]
    return _pace(started, instants[0], instants[-1])


def _ask(base_url: str, prompt: tuple[int, ...], temperature: float) -> tuple[float, float]:
    """The same, over HTTP."""

    async def ask() -> tuple[float, float]:
        endpoint = Endpoint(base_url, MODEL, "completions")
        decoding = Decoding(temperature, seed=0, ignore_eos=True, max_tokens=TOKENS)
        async with Client(endpoint, decoding) as client:
            await client.probe(Prompt("probe", "", prompt[:1]))
            exchange = await client.send(Prompt("requested", "", prompt))
        observation = exchange.observe(None)
        if observation.answer.failure is not None:
            raise EnvironmentFailure(
                f"could not measure what the API costs: {observation.answer.failure.detail}",
                hint="try again; if it goes on, report it as a bug",
            )
        answer = observation.answer
        return _pace(observation.sent, answer.chunks[0].at, answer.finished or observation.ended)

    return asyncio.run(ask())


def _pace(started: float, first: float, last: float) -> tuple[float, float]:
    """Not by the chunks: a token within a character has none."""
    return first - started, (last - first) / (TOKENS - 1)


@contextmanager
def _serving(pair: Pair) -> Iterator[str]:
    """The base URL of a server over the target alone, which loads it once more."""
    settings = {"engine": OWN.name, "target": pair.folder, "threads": pair.threads, "max_batch": 1}
    pool = pool_of(settings)
    assert isinstance(pool, Startable)
    start = pool.start(0, MODEL)
    with (
        TemporaryDirectory() as folder,
        running(
            MODEL,
            start.words,
            address=Announced(start.announced or ""),
            log=Path(folder) / "server.log",
            progress=Silent(),
        ) as server,
    ):
        yield server.base_url
