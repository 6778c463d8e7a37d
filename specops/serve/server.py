"""A server's life: start, answer, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from specops.errors import ServerError
from specops.hints import with_options
from specops.serve.admission import Refusal, not_listening
from specops.serve.engine_loop import EngineLoop, Restart
from specops.serve.limits import DEFAULT, Limits
from specops.serve.metrics import ExtraSeries, ServerMetrics
from specops.serve.openai_api import Api
from specops.serve.worker_process import Worker

log = logging.getLogger(__name__)

# aiohttp logs a traceback for bytes that are not HTTP; openai_api.py logs what fails in a handler.
logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LAST_BYTES_S = 1.0  # in which handlers send their last bytes


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a server of an engine."""

    model: str  # the name that clients ask for
    capacity: int  # the most sequences that run or wait; a request above it is answered with 429
    speculative: bool
    places: int = 1  # sequences that one worker runs at a time
    api_key: str | None = None  # None: everyone may ask
    limits: Limits = DEFAULT
    grace: float = 30.0  # seconds for running requests to finish when the server drains
    extra_series: ExtraSeries | None = None  # beside vLLM's: series that only this kind of engine has


class Server:
    """An engine behind HTTP. Start it, drain it and stop it in one event loop."""

    def __init__(
        self,
        workers: list[Worker],
        tokenizer: Any,
        settings: ServeSettings,
        restart: Restart | None = None,
    ) -> None:
        """The server ends the workers when it stops. restart: starts one in place of one that died."""
        metrics = ServerMetrics(settings.model, speculative=settings.speculative, extra=settings.extra_series)
        limits = settings.limits
        capacity, places = settings.capacity, settings.places
        self.engine = EngineLoop(workers, metrics, capacity, limits, places=places, restart=restart)
        self._api = Api(
            model=settings.model,
            max_length=workers[0].ready.max_length,
            tokenizer=tokenizer,
            engine=self.engine,
            metrics=metrics,
            api_key=settings.api_key,
            limits=limits,
        )
        # handler_cancellation: a handler ends, and frees its place in the batch, when its client goes.
        self._runner = web.AppRunner(
            self._api.application(),
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=limits.headers_s,
            lingering_time=limits.linger_s,
            shutdown_timeout=_LAST_BYTES_S,
        )

    async def start(self, bound: socket.socket) -> str:
        """Answer on `bound` (from `admission.bind`); returns the base URL.

        Raises EnvironmentFailure if another process has taken the port since.
        """
        host, port = bound.getsockname()[:2]
        self.engine.start()
        await self._runner.setup()
        try:
            await web.SockSite(self._runner, bound).start()
        except OSError as error:  # another process took the port between bind and listen
            await self.stop()
            raise not_listening(host, port, error) from error
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def drain(self) -> None:
        """Refuse new requests and wait for the running ones to end."""
        self._api.gate.close()
        await self._api.gate.empty()

    async def stop(self) -> int:
        """End at once; returns the number of unfinished sequences."""
        self._api.gate.close()
        cut = self.engine.refuse_all(Refusal(503, "the server was shut down", code="shut_down"))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._api.gate.empty(), _LAST_BYTES_S)
        await self._runner.cleanup()
        await self.engine.stop()
        return cut


def serve_engine(
    workers: list[Worker],
    tokenizer: Any,
    settings: ServeSettings,
    bound: socket.socket,
    ready: Callable[[str], None],
    restart: Restart | None = None,
) -> None:
    """Serve until a signal comes. `ready` gets the base URL once requests are answered.

    SIGTERM and SIGINT drain: no new requests, and the running ones have `settings.grace` seconds. A second
    signal, or the end of the grace, ends the server at once.

    Raises ServerError if the engine failed, so that a supervisor starts the server again.
    """
    asyncio.run(_serve(workers, tokenizer, settings, bound, ready, restart))


async def _serve(
    workers: list[Worker],
    tokenizer: Any,
    settings: ServeSettings,
    bound: socket.socket,
    ready: Callable[[str], None],
    restart: Restart | None,
) -> None:
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    events = asyncio.get_running_loop()
    for number in _SIGNALS:
        events.add_signal_handler(number, signals.put_nowait, number)
    server = Server(workers, tokenizer, settings, restart)
    ready(await server.start(bound))
    failed, first = asyncio.create_task(server.engine.failed.wait()), asyncio.create_task(signals.get())
    tasks: set[asyncio.Task[Any]] = {failed, first}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if first.done():
        log.info("%s: no new requests; running ones may finish", first.result().name)
        tasks |= {asyncio.create_task(server.drain()), asyncio.create_task(signals.get())}
        await asyncio.wait(tasks - {first}, timeout=settings.grace, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    if cut := await server.stop():
        log.warning("ended before %d running sequences had finished", cut)
    if server.engine.failure is not None:
        raise ServerError(
            f"the engine failed: {server.engine.failure}; the log above has the cause",
            hint=f"{with_options({})}  # starts it again",
        )
