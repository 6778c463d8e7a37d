"""Sends the probes of a search to both pools, in turn, and stores each block."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from specops.config import Pool
from specops.errors import EndpointError
from specops.experiment.arms import Arm
from specops.experiment.identity import check_addresses, introduce_all
from specops.experiment.storing import Storing
from specops.hints import with_options
from specops.launch.servers import SERVED_AS, Server, check, serving
from specops.load import clock
from specops.load.answer import token_counter
from specops.load.arrivals import AbortRule, Level, Pace, Watch
from specops.load.record import Cell, CellRecord, Row
from specops.load.request_times import Exchange, Objectives, behind_schedule
from specops.load.runner import CellFailed, Interrupted, run_cell
from specops.load.settings import BaselineSettings
from specops.load.target_server import TargetServer
from specops.load.workload import Prompt, PromptSet
from specops.phases.capacity.judge import blocks_of
from specops.phases.capacity.records import ARMS, ArmName, Objective, Probe, ProbePlan
from specops.phases.capacity.search import Search
from specops.progress import Progress

POLL_S = 0.05
HOPELESS_SHARE = 0.5
"""Share of the counted requests that surely missed the objective at which a probe is ended: whatever comes,
its share inside the objective is far below any that is looked for."""

ALL_AT_ONCE = "the answer came all at once"
"""`request_times.tpot_missing`: nobody waited between tokens."""


class Saturation(Watch):
    """Counts the requests of a probe that surely missed the objective, also while they are in flight."""

    def __init__(self, limits: Objectives, counted: int, before: int = 0) -> None:
        super().__init__(AbortRule())
        self._bounds = [
            limit / 1000 if limit is not None else float("inf") for limit in (limits.ttft_ms, limits.e2e_ms)
        ]
        self._most = HOPELESS_SHARE * counted
        self._counted = range(before, before + counted)
        self._arrived = 0
        self._in_flight: dict[int, Exchange] = {}
        self._missed = 0

    def begin(self, exchange: Exchange) -> None:
        if self._counts():
            self._in_flight[id(exchange)] = exchange

    def add(self, exchange: Exchange) -> None:
        begun = self._in_flight.pop(id(exchange), None) is not None
        overrun = exchange.failure is not None and exchange.failure.kind == "overrun"  # it never began
        if begun or (overrun and self._counts()):
            self._missed += exchange.failure is not None or self._late(exchange, exchange.ended)

    def _counts(self) -> bool:
        """Whether the request that arrives now is one of those that are counted; they arrive in order."""
        self._arrived += 1
        return self._arrived - 1 in self._counted

    def _late(self, exchange: Exchange, now: float) -> bool:
        ttft_s, e2e_s = self._bounds
        first = exchange.reads[0][0] if exchange.reads else now
        return first - exchange.scheduled > ttft_s or now - exchange.scheduled > e2e_s

    def ends(self, now: float) -> str | None:
        """Why the probe is to end now, in words; None where it goes on."""
        waiting = sum(self._late(exchange, now) for exchange in self._in_flight.values())
        if self._missed + waiting <= self._most:
            return None
        return (
            f"over-saturated: {self._missed + waiting} requests had missed the objective,"
            f" {waiting} of them still in flight"
        )


def attained(row: Row, limits: Objectives) -> bool | None:
    """Whether an answered or failed request met all limits; None where a figure is not known and no other
    limit was missed. Latencies begin when it was due: the client's lag and retries count."""
    if row.error is not None:
        return False
    waited_ms = row.lag_ms + row.e2e_with_retries_ms - row.e2e_ms
    tpot_ms = 0.0 if row.missing.get("tpot_ms") == ALL_AT_ONCE else row.tpot_ms
    figures = (
        (None if row.ttft_ms is None else row.ttft_ms + waited_ms, limits.ttft_ms),
        (tpot_ms, limits.tpot_ms),
        (row.lag_ms + row.e2e_with_retries_ms, limits.e2e_ms),
    )
    limited = [(figure, limit) for figure, limit in figures if limit is not None]
    if any(figure is not None and figure > limit for figure, limit in limited):
        return False
    return None if any(figure is None for figure, _ in limited) else True


def summarise(plan: ProbePlan, cell: Cell, began: float, ended_by: str | None, limits: Objectives) -> Probe:
    """The probe that `cell` was. Requests count by their place among the arrivals."""
    record = CellRecord.from_cell(cell, limits)
    rows = sorted(record.rows, key=lambda row: row.due_s)[plan.before : plan.before + plan.counted]
    met = [attained(row, limits) for row in rows]
    answered = [row for row in rows if row.error is None]
    failed = [row for row in rows if row.error not in (None, "interrupted", "overrun")]
    unread = [row for row, inside in zip(rows, met, strict=True) if inside is None]
    counts = [row.tokens for row in answered if row.tokens is not None]
    ends = [row.sent_s + row.e2e_with_retries_ms / 1000 for row in record.rows]
    spent_s = [(row.lag_ms + row.e2e_with_retries_ms) / 1000 for row in (answered or rows)]
    missing = next((row.missing.get("tpot_ms") or "the answer has no output" for row in unread), None)
    return Probe(
        plan=plan,
        attained=sum(inside is True for inside in met),
        unknown=len(unread),
        failed=len(failed),
        tokens=sum(counts) if len(counts) == len(answered) else None,
        answered=len(answered),
        mean_s=round(sum(spent_s) / max(1, len(spent_s)), 6),
        seconds=round(max(ends, default=0.0) - min((row.due_s for row in record.rows), default=0.0), 3),
        began=began,
        ended_by=ended_by,
        # What over-saturation left unsent was not late because of this client.
        client_bound=record.client_bound or (None if ended_by else behind_schedule(cell.counted)),
        missing=missing,
        detail=next((row.detail for row in failed), None),
    )


class CapacityRun:
    """A search on real servers that is under way."""

    def __init__(
        self,
        pools: Mapping[ArmName, Pool],
        requests: BaselineSettings,
        objective: Objective,
        search: Search,
        progress: Progress,
        logs: Path,
        store: Callable[[CapacityRun], None],
    ) -> None:
        """`store` is called as experiment/storing.py says. Raises UsageError for pools that are one server,
        or whose secrets are missing."""
        for arm, pool in pools.items():
            check(pool, arm)
        check_addresses([Arm(arm, pool) for arm, pool in pools.items()], same_server=False)
        self.pools = pools
        self.requests = requests
        self.objective = objective
        self.search = search
        self.prompts: PromptSet = requests.prompt_set()
        self.run = secrets.token_hex(4)
        self.probes: list[Probe] = []
        self.facts: dict[str, dict[str, Any]] = {}
        self._progress = progress
        self._logs = logs
        self._store = store
        self._pace = Pace(None)
        self._count_tokens = token_counter(requests.tokenizer) if requests.tokenizer else None

    def resume(self, probes: Sequence[Probe]) -> None:
        """Take over the probes of an earlier run, but not those of a block that is not whole: a block's
        probes are compared, and the machine may have changed since."""
        whole = blocks_of(probes)
        # `self.run` stays its own: what a probe that was cut short had sent may be in a cache
        self.probes = [
            probe for probe in probes if probe.plan.place in ("alone", "locate") or probe.plan.number in whole
        ]
        self._progress.note(f"probes measured before: {len(self.probes)}")

    def measure(self) -> None:
        """Measure what is missing. Raises EndpointError and ServerError as `serving` does."""
        if not self.search.next_probes(self.probes):
            return
        storing = Storing(lambda: self._store(self))
        with ExitStack() as servers:
            up = {
                arm: servers.enter_context(
                    serving(
                        pool,
                        arm,
                        model=SERVED_AS,
                        log=self._logs / f"capacity-{arm}.log",
                        progress=self._progress,
                    )
                )
                for arm, pool in self.pools.items()
            }
            with storing.at_a_stop():
                asyncio.run(self._measure(up, storing))

    async def _measure(self, servers: Mapping[ArmName, Server], storing: Storing) -> None:
        async with AsyncExitStack() as clients:
            up: dict[str, TargetServer] = {}
            for arm, server in servers.items():
                settings = self.requests.at(server, arm)
                target = TargetServer(
                    settings,
                    self._pace,
                    Watch(settings.abort_rule()),
                    self._progress,
                    self._count_tokens,
                )
                up[arm] = await clients.enter_async_context(target)
            await introduce_all(up, lambda arm: self._introduce(arm, up[arm]), same_server=False)
            for arm in ARMS:
                warm_up = self._prompts(f"warm-up.{arm}", self.requests.warmup)
                if warm_up:
                    await self._send(up[arm], Level(concurrency=1), 0, warm_up, None)
            while planned := self.search.next_probes(self.probes):
                for plan in planned:
                    probe = await self._probe(up[plan.arm], plan)
                    if probe.failed and not probe.answered and plan.place != "alone":
                        raise EndpointError(
                            f"every request of a probe to {plan.arm} failed: {probe.detail}",
                            hint=f"{with_options({})}  # goes on once it answers again",
                        )
                    self.probes.append(probe)
                    storing.measured()

    async def _introduce(self, arm: str, server: TargetServer) -> None:
        self.facts[arm] = await server.introduce(self._prompts(f"probe.{arm}", 1)[0])

    async def _probe(self, server: TargetServer, plan: ProbePlan) -> Probe:
        in_block = plan.place in ("low", "high")
        # Probes of a block have the same prompts. The nonce differs by place: a cache would have the second.
        count = plan.before + plan.counted + plan.after
        drawn = f"{plan.number}" if in_block else f"{plan.place}.{plan.number}"
        prompts = self._prompts(drawn, count, variant=f"{plan.place}.{plan.number}")
        level = Level(rate=plan.rate) if plan.rate else Level(concurrency=1)
        watch = Saturation(self.objective.limits, plan.counted, plan.before) if plan.rate else None
        rate = f" at {plan.rate:.3g} requests/s" if plan.rate else ""
        name = f"block {plan.number + 1}" if in_block else plan.place
        self._progress.start(f"{plan.arm}, {name}{rate}", count)
        began = clock.now()
        cell, ended_by = await self._send(server, level, plan.number, prompts, watch)
        return summarise(plan, cell, began, ended_by, self.objective.limits)

    async def _send(
        self,
        server: TargetServer,
        level: Level,
        number: int,
        prompts: Sequence[Prompt],
        watch: Saturation | None,
    ) -> tuple[Cell, str | None]:
        """Send the prompts, and end it early where `watch` says so; the reason is in words."""
        sending = asyncio.create_task(
            run_cell(
                server.client,
                prompts,
                level,
                number,
                seed=self.requests.seed,
                pace=self._pace,
                progress=self._progress,
                watch=watch,
                count_tokens=self._count_tokens,
            )
        )
        ended_by: str | None = None
        try:
            while not sending.done():
                await asyncio.wait({sending}, timeout=POLL_S)
                if watch is not None and ended_by is None and not sending.done():
                    ended_by = watch.ends(time.perf_counter())
                    if ended_by is not None:
                        sending.cancel()
            return await sending, ended_by
        except Interrupted as stop:
            if ended_by is None:
                raise
            return stop.cell, ended_by
        except CellFailed as stop:
            raise stop.__cause__ or stop from None
        finally:
            if not sending.done():  # Ctrl-C
                sending.cancel()
                await asyncio.wait({sending})

    def _prompts(self, drawn: str, count: int, variant: str = "") -> list[Prompt]:
        """`count` prompts in an order that `drawn` decides, each once before any again. A turn of a
        conversation is a prompt by itself: it has its history, and arrives when it is due."""
        chance = random.Random(f"{self.requests.seed}:{drawn}")
        order: list[Prompt] = []
        while len(order) < count:
            order += chance.sample(self.prompts.prompts, len(self.prompts.prompts))
        prompts = []
        for index, prompt in enumerate(order[:count]):
            alone = replace(prompt, session="", turn=1)
            if not self.requests.same_prompts:
                alone = alone.fresh(self.run, f"{variant or drawn}.{index}")
            prompts.append(replace(alone, seed=chance.getrandbits(31)))
        return prompts
