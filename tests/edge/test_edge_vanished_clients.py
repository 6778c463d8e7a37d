"""Over real gRPC and a real engine: what clients that have gone had asked to be read is not read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the engine extra")
pytest.importorskip("grpc", reason="needs the edge extra")

from calling_edge import Drafting, Stream, finish, until, within
from torch import Tensor

from specops.edge.relay import relay
from specops.edge.server import ServiceSettings, VerifyServer
from specops.edge.server_engine import EngineSettings, load_verifier
from specops.edge.stand_in import DelayedModel, PassCost
from specops.edge.verification_loop import verify_in_thread
from specops.edge.wire import open_request
from specops.engine.attention import Layout
from specops.engine.models.model import FeatureModel
from specops.engine.request import Sampling
from specops.serve.admission import bind

CHUNK, PROMPT = 16, 160
"""Tokens of a step, and of each prompt: reading one takes ten steps."""


class Gated(DelayedModel):
    """The target, each pass of which waits for the gate. `read` has the tokens of all passes."""

    def __init__(self, model: FeatureModel) -> None:
        super().__init__(model, PassCost(0.0, 0.0))
        self.gate, self.began = threading.Event(), threading.Event()
        self.read: list[int] = []

    def with_features(
        self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        self._pass(tokens)
        return super().with_features(tokens, layout, wanted)

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        self._pass(tokens)
        return super().forward(tokens, layout, wanted)

    def _pass(self, tokens: Tensor) -> None:
        self.read += tokens.tolist()
        self.began.set()
        assert self.gate.wait(60)


@asynccontextmanager
async def gated_server(target: Path) -> AsyncIterator[tuple[VerifyServer, Gated, int]]:
    models: list[Gated] = []

    def gated(model: FeatureModel) -> FeatureModel:
        models.append(Gated(model))
        return models[0]

    settings = EngineSettings(target, max_batch=1, rows=2, prefill_chunk=CHUNK)
    worker = verify_in_thread(load_verifier(settings, pace=gated), max_batch=1)
    server = VerifyServer(worker, ServiceSettings(model="target", tokenizer=b"t" * 32))
    with bind("127.0.0.1", 0) as bound:
        port = await server.start(bound)
        try:
            yield server, models[0], port
        finally:
            models[0].gate.set()
            await within(server.stop())


@pytest.mark.parametrize("how", ["cancels", "breaks"])
def test_queued_prompts_of_a_client_that_vanishes_are_not_read(
    how: str, tiny_pair: tuple[Path, Path]
) -> None:
    """Of the prompt that is being read, at most one more step is computed; of the others, no token."""

    async def scenario() -> None:
        async with gated_server(tiny_pair[0]) as (server, model, port):
            sessions = server.service.sessions
            with relay(port, delay_s=0.0) as path:
                gone = Stream(path.port)
                for token in range(10, 16):
                    await gone.say(
                        open_request(token, bytes([token]) * 16, [token] * PROMPT, Sampling(max_tokens=4))
                    )
                await until(lambda: len(sessions) == 6 and model.began.is_set(), "the first is being read")
                if how == "cancels":
                    gone.call.cancel()
                else:
                    path.cut()
                batch = server.service._gathering  # it sends commands after up to a millisecond
                await until(lambda: not len(sessions) and not batch._waiting, "the engine has been told")
                await asyncio.sleep(0.3)  # a thread takes it from the pipe, and nothing shows that it has
                model.gate.set()
                stays, session = Stream(port), Drafting(1, [20] * CHUNK, max_tokens=30)
                await session.open(stays)
                await finish(stays, session)
                assert len(session.output) == 30
                prompts = [token for token in model.read if token in range(10, 16)]
                first = model.read[:CHUNK]
                assert first == [10] * CHUNK
                read = {token: prompts.count(token) for token in range(11, 16)}
                assert max(read.values()) < CHUNK, read  # an output may have such a token
                assert prompts.count(10) < 3 * CHUNK
                await stays.cut()
                await gone.cut()

    asyncio.run(scenario())
