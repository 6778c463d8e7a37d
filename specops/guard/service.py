"""The guard as a service: a turn every interval, and HTTP beside it.

GET /metrics, /health, /status; POST /alerts, Alertmanager's webhook; POST /override, with the token from the
lock's file, which only its owner can read. One thread takes the turns, so that nothing is decided twice at
once.

An alert starts an evaluation at once, yet not sooner than half an interval after the last one. That
evaluation decides. The alert is noted as evidence and is never itself a reason: the guard queries the same
Prometheus with more care, and anyone who can reach the port can post an alert. A resolved alert is not a
reason either.

SIGTERM and SIGINT end it after the turn that it is in; traffic stays as it is. A second one ends it at once,
and the next guard finishes what it had begun.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import os
import shlex
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, get_args

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from pydantic import ValidationError

from specops.errors import EnvironmentFailure, SpecopsError
from specops.guard.guard import Guard, OverrideRequest, Status, carry_out, status
from specops.guard.journal import Entry
from specops.guard.lock import Lock
from specops.guard.state import Evaluation, Verdict
from specops.prometheus import series
from specops.prometheus.series import ROLLOUT
from specops.validation import problem

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MODES = ("on", "fallen", "canary", "held")
VERDICTS = get_args(Verdict)


class GuardMetrics(Collector):
    """Reads the guard whenever it is scraped. Counters are of this process.

    A dry run exports no state and no percentage: alerts would take them for the real ones.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        state, tally = self._guard.state, self._guard.tally
        evaluations, actions = dict(tally.evaluations), dict(tally.actions)  # another thread counts on
        if not self._guard.dry_run:
            modes = GaugeMetricFamily(
                series.GUARD_STATE, "1 for the current state of the guard, else 0.", labels=["state"]
            )
            for mode in MODES:
                modes.add_metric([mode], state.mode == mode)
            yield modes
            meaning = "Speculative share decided by the guard, in percent."
            yield GaugeMetricFamily(series.GUARD_PERCENT, meaning, value=state.target_percent)
        verdicts = CounterMetricFamily(
            series.GUARD_EVALUATIONS, "Evaluations by verdict.", labels=["verdict"]
        )
        for verdict in VERDICTS:
            verdicts.add_metric([verdict], evaluations.get(verdict, 0))
        yield verdicts
        acted = CounterMetricFamily(series.GUARD_ACTIONS, "Targets switched.", labels=["action", "result"])
        for (name, result), count in actions.items():
            acted.add_metric([name, result], count)
        yield acted
        yield CounterMetricFamily(series.GUARD_FALLBACKS, "Fallbacks.", value=tally.fallbacks)
        for name, meaning, value in (
            (series.GUARD_BAD_IN_A_ROW, "Bad evaluations in a row.", state.bad_in_a_row),
            (
                series.GUARD_UNCONFIRMED,
                "1 while the decision is not confirmed, else 0.",
                self._guard.unconfirmed is not None,
            ),
            (series.GUARD_BOTH_SLOW, "1 while both pools are slow, else 0.", self._guard.both_slow),
            (series.GUARD_OVERRIDE, "1 while an override applies, else 0.", state.override is not None),
            (
                series.GUARD_BLIND,
                "Seconds for which the pool, or a replica, has not been judged.",
                self._guard.blind_s,
            ),
        ):
            yield GaugeMetricFamily(name, meaning, value=value)
        evaluation = self._guard.standing.evaluation
        if evaluation is not None:
            yield from _of_evaluation(evaluation)
        if self._guard.evaluated_at is not None:
            yield GaugeMetricFamily(
                series.GUARD_LAST,
                "Unix time of the last evaluation, in seconds.",
                value=self._guard.evaluated_at,
            )
        yield SummaryMetricFamily(
            series.GUARD_TOOK,
            "Duration of an evaluation in seconds, Prometheus queries included.",
            count_value=sum(evaluations.values()),
            sum_value=tally.seconds,
        )


def _of_evaluation(evaluation: Evaluation) -> Iterator[Metric]:
    current = GaugeMetricFamily(
        series.GUARD_VERDICT, "1 for the verdict of the last evaluation, else 0.", labels=["verdict"]
    )
    for verdict in VERDICTS:
        current.add_metric([verdict], evaluation.verdict == verdict)
    yield current
    parts = GaugeMetricFamily(
        series.GUARD_PART_BAD, "1 for each part of the pool that is bad, else 0.", labels=["part", "signal"]
    )
    bad: dict[tuple[str, str], bool] = {("all replicas", "drafting"): False}
    for finding in evaluation.findings:
        if finding.part is not None or finding.signal == "drafting":
            part = (finding.part or "all replicas", finding.signal)
            bad[part] = bad.get(part, False) or finding.verdict == "bad"
    for labels, value in bad.items():
        parts.add_metric(list(labels), value)
    yield parts
    effect = GaugeMetricFamily(
        series.GUARD_EFFECT, "Latency of the speculative group over the holdout.", labels=["latency", "end"]
    )
    for now in evaluation.effect:
        for end, ratio in (("low", now.low), ("estimate", now.ratio), ("high", now.high)):
            if ratio is not None:
                effect.add_metric([now.figure, end], ratio)
    yield effect
    yield GaugeMetricFamily(
        series.GUARD_NOT_COVERED,
        "Replicas and routers whose samples are missing.",
        value=len(evaluation.not_covered),
    )


HEALTHY_FOR = 3
"""Intervals after which a guard that finished no turn is not healthy."""
SOONEST = 0.55
"""Share of an interval after which an alert makes it look again. A little more than half, which counts."""
BODY_LIMIT = 2**20
MOST_PORT = 65535
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Settings:
    rollout: str
    interval_s: float


def bind(address: str) -> socket.socket:
    """Take HOST:PORT before anything begins. Raises EnvironmentFailure where it cannot be had."""
    host, _, port = address.rpartition(":")
    try:
        if int(port) > MOST_PORT:  # which some systems take modulo 65536
            raise OSError(errno.EINVAL, "there is no such port")
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = addresses[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
            bound.listen()
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise EnvironmentFailure(
            f"the guard could not listen on {address}: {error.strerror or error}",
            hint=f"ss -ltnp | grep -e {shlex.quote(f':{port} ')}  # stop it, or change guard.listen",
        ) from error
    return bound


def serve(
    guard: Guard, settings: Settings, bound: socket.socket, lock: Lock, tell: Callable[[str], None]
) -> None:
    """Guard until a signal comes. `tell` gets a line for each event that an operator should know."""
    asyncio.run(_Service(guard, settings, lock, tell).run(bound))


class _Service:
    def __init__(self, guard: Guard, settings: Settings, lock: Lock, tell: Callable[[str], None]) -> None:
        self._guard = guard
        self._settings = settings
        self._lock = lock
        self._tell = tell
        self._metrics = GuardMetrics(guard)
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="guard")
        self._alerts: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._began = self._finished = time.monotonic()
        self._fault: str | None = None
        self._reported: tuple[object, ...] = ()
        self._token = ""

    async def run(self, bound: socket.socket) -> None:
        events = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            events.add_signal_handler(number, self._stop, number)
        runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.SockSite(runner, bound).start()
            host, port = bound.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            self._token = self._lock.announce(url).token
            self._tell(f"guarding {self._settings.rollout} on {url}, every {self._settings.interval_s:g} s")
            await self._take_turns()
        finally:
            await runner.cleanup()
            self._turns.shutdown()

    async def _take_turns(self) -> None:
        await self._safely(self._guard.resume)
        while not self._stopping:
            self._began = time.monotonic()
            alerts, self._alerts = tuple(self._alerts), {}
            self._wake.clear()
            await self._safely(partial(self._guard.turn, alerts))
            await self._rest()

    async def _rest(self) -> None:
        """Wait until the next turn is due; less long where an alert comes."""
        interval = self._settings.interval_s
        while not self._stopping:
            due = self._began + interval * (SOONEST if self._alerts else 1)
            left = due - time.monotonic()
            if left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left)
            self._wake.clear()

    def _stop(self, number: signal.Signals) -> None:
        if self._stopping:
            os._exit(128 + number)
        self._stopping = True
        self._wake.set()

    async def _safely(self, do: Callable[[], Entry | None]) -> None:
        """A turn that fails is reported, and shows in /health; the next one comes all the same."""
        try:
            entry = await self._in_turn(do)
        except SpecopsError as error:
            self._failed(error.message)
        except Exception as error:  # a fault of ours must not leave the deployment without a guard
            self._failed(f"a fault in specops itself: {type(error).__name__}: {error}")
        else:
            self._fault, self._finished = None, time.monotonic()
            self._tell_of(entry)

    def _failed(self, why: str) -> None:
        if why != self._fault:
            self._tell(f"this turn failed: {why}")
        self._fault = why

    async def _in_turn(self, do: Callable[[], _Answer]) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(self._turns, do)

    def _tell_of(self, entry: Entry | None) -> None:
        """Print what is new about the evaluation."""
        unconfirmed = self._guard.unconfirmed
        if entry is None:
            return
        now = (entry.verdict, entry.state.mode, entry.state.percent, entry.state.bad_in_a_row, unconfirmed)
        if entry.evidence.events or entry.action is not None or now != self._reported:
            parts = [
                entry.evidence.why,
                entry.evidence.capacity,
                unconfirmed and f"not confirmed: {unconfirmed}",
                *(notification.error for notification in entry.notified),
            ]
            self._tell("; ".join(part for part in parts if part))
        self._reported = now

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=BODY_LIMIT)
        application.add_routes(
            [
                web.get("/metrics", self._on_metrics),
                web.get("/health", self._on_health),
                web.get("/status", self._on_status),
                web.post("/alerts", self._on_alerts),
                web.post("/override", self._on_override),
            ]
        )
        return application

    async def _on_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def _on_health(self, _: web.Request) -> web.Response:
        since = time.monotonic() - self._finished
        late = since > HEALTHY_FOR * self._settings.interval_s
        why = self._fault or (f"no turn was finished for {since:.0f} s" if late else None)
        unconfirmed = self._guard.unconfirmed
        if why is None and unconfirmed is not None:
            why = f"not confirmed: {unconfirmed}"
        body = {"healthy": why is None, "why": why, "state": self._guard.state.mode}
        return web.json_response(body, status=503 if why else 200)

    def _status(self) -> Status:
        return status(
            self._guard.standing,
            running=os.getpid(),
            unconfirmed=self._fault or self._guard.unconfirmed,
            dry_run=self._guard.dry_run,
        )

    async def _on_status(self, _: web.Request) -> web.Response:
        return web.Response(text=self._status().model_dump_json(), content_type="application/json")

    async def _on_alerts(self, request: web.Request) -> web.Response:
        names = firing(await _json(request), self._settings.rollout)
        self._alerts |= dict.fromkeys(names[: MOST - len(self._alerts)])
        if names:
            self._wake.set()
        return web.json_response({"noted": names})

    async def _on_override(self, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(authorization, f"Bearer {self._token}".encode()):
            raise web.HTTPForbidden(text="the token is the one in the guard's lock file")
        try:
            override = OverrideRequest.model_validate(await _json(request))
        except ValidationError as error:
            detail = error.errors()[0]
            key = ".".join(map(str, detail["loc"])) or "the body"
            raise web.HTTPBadRequest(text=f"{key} {problem(detail)}") from None
        try:
            entry = await self._in_turn(lambda: carry_out(self._guard, override))
        except SpecopsError as error:
            raise web.HTTPServiceUnavailable(text=error.message) from None
        self._tell_of(entry)
        return web.Response(text=self._status().model_dump_json(), content_type="application/json")


async def _json(request: web.Request) -> Any:
    try:
        return await request.json()
    except (ValueError, LookupError):  # no JSON; an encoding that nobody knows
        raise web.HTTPBadRequest(text="the body is not JSON") from None


MOST = 100
"""Names that are stored of one message, and characters of one."""


def firing(body: Any, rollout: str) -> list[str]:
    """Names of the alerts that fire, in the body of a webhook (version 4): the rollout's, and those that name
    none. A body of another shape has none."""
    alerts = body.get("alerts") if isinstance(body, dict) else None
    names = []
    for alert in alerts if isinstance(alerts, list) else []:
        labels = alert.get("labels") if isinstance(alert, dict) else None
        if not isinstance(labels, dict) or alert.get("status") != "firing":
            continue
        if labels.get(ROLLOUT, rollout) == rollout:
            names.append(str(labels.get("alertname", "an alert without a name"))[:MOST])
    return names[:MOST]
