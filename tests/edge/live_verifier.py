"""A verification server over the tiny target, in a thread, and the API in front of a client of it."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))

from live import DEADLINE, Live

from specops.edge.client import open_client
from specops.edge.client_metrics import edge_series
from specops.edge.connection import Destination
from specops.edge.fallback import Fallback
from specops.edge.link import tokenizer_digest
from specops.edge.server import ServiceSettings, VerifyServer
from specops.edge.server_engine import EngineSettings, load_verifier
from specops.edge.settings import Drafting
from specops.edge.verification_loop import verify_in_thread
from specops.serve.admission import bind


class LiveVerifier:
    """Answers on `port` between `start` and `stop`; a new start has a new engine and no sessions."""

    def __init__(
        self, target: Path, *, max_batch: int = 4, verifier: str | None = None, **settings: Any
    ) -> None:
        self._engine = EngineSettings(target, max_batch=max_batch, verifier=verifier)
        self._settings = settings
        self.port, self.up = 0, False
        self._events = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._events.run_forever, name="live verifier")
        self._thread.start()

    def start(self) -> None:
        engine = load_verifier(self._engine)
        settings = ServiceSettings(
            model="target", tokenizer=tokenizer_digest(engine.tokenizer), **self._settings
        )
        with bind("127.0.0.1", self.port) as bound:
            self.server, self.port = self.call(self._start(engine, settings, bound))
        self.up = True

    async def _start(self, engine: Any, settings: ServiceSettings, bound: Any) -> tuple[VerifyServer, int]:
        server = VerifyServer(verify_in_thread(engine, max_batch=self._engine.max_batch), settings)
        return server, await server.start(bound)

    def stop(self) -> None:
        if self.up:
            self.call(self.server.stop())
        self.up = False

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._events).result(DEADLINE)

    def close(self) -> None:
        self._events.call_soon_threadsafe(self._events.stop)
        self._thread.join(DEADLINE)
        self._events.close()


def serve_edge(
    port: int, draft: Path, drafting: Drafting | None = None, fallback: Fallback | None = None
) -> Live:
    """`specops edge serve` in threads."""
    engine = open_client(
        Destination(f"127.0.0.1:{port}"),
        draft,
        drafting or Drafting(streams=3),
        fallback or Fallback.always(server_drafts=False),
    )
    return Live(engine, model="target", extra_series=edge_series)
