"""One job: its server is started, asked what the job's cells say, and stopped.

`measure_job` is a plain function of arguments that can be pickled, so that it runs on another machine as it
does here.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from specops.errors import EndpointError, ServerError
from specops.launch.pools import SERVED_AS, serving
from specops.launch.process import Server, tail
from specops.load.answer import token_counter
from specops.load.arrivals import Pace, Watch
from specops.load.record import CellRecord
from specops.load.runner import Broken
from specops.load.settings import BaselineSettings
from specops.load.target_server import TargetServer
from specops.load.workload import Prompt
from specops.phases.sweep.jobs import Job, Keep, PlannedCell
from specops.phases.sweep.memory import Footprint
from specops.phases.sweep.records import FailedJob, SweptCell
from specops.progress import Progress, Silent

LOG_LINES = 20
"""Kept of the log of a server that failed."""

LOOK_S = 0.1
"""Seconds between two looks at whether the server's process has ended."""


def measure_job(
    job: Job,
    turn: int,
    *,
    machine: str,
    asked: BaselineSettings,
    prompts: Sequence[Prompt],
    logs: Path,
    keep: Keep,
    progress: Progress | None = None,
) -> bool:
    """Measure the job's cells, and say whether all of them could be.

    `asked` says how every prompt is asked, but for the temperature, which is the cell's; `prompts` has those
    that the cells name. The server's log goes to the folder `logs`. `keep` gets every cell as soon as it is
    measured, and again with the server's counters, which takes the first one's place; what a stop leaves of
    a cell is kept as well. A server that does not come up, dies or fails is a FailedJob, with the end of its
    log, and no exception.

    Raises ConfigError for a program that is not there, and FileError where the log cannot be written.
    """
    running = _Running(job, turn, machine, asked, prompts, keep, progress or Silent())
    log = logs / f"{job.rung}-{re.sub(r'[^A-Za-z0-9._=-]+', '-', job.setting.name)}-{turn}.log"
    started = job.setting.pool.endpoint is None
    try:
        with serving(
            job.setting.pool, job.setting.name, model=SERVED_AS, log=log, progress=running.progress
        ) as server:
            asyncio.run(running.ask(server))
    except (ServerError, EndpointError) as error:
        keep(
            FailedJob(
                rung=job.rung,
                setting=job.setting.name,
                turn=turn,
                machine=machine,
                why=error.message,
                log=tail(log, LOG_LINES) if started else "",
            )
        )
        return False
    return True


class _Running:
    def __init__(
        self,
        job: Job,
        turn: int,
        machine: str,
        asked: BaselineSettings,
        prompts: Sequence[Prompt],
        keep: Keep,
        progress: Progress,
    ) -> None:
        self.job = job
        self.turn = turn
        self.machine = machine
        self.asked = asked
        self.prompts = {prompt.id: prompt for prompt in prompts}
        self.keep = keep
        self.progress = progress
        self.count_tokens = token_counter(asked.tokenizer) if asked.tokenizer else None
        self.pace = Pace(asked.max_rps)
        self.watch = Watch(asked.abort_rule())
        self.server: str | None = None
        self.began = time.monotonic()
        self.up_s = 0.0

    async def ask(self, server: Server) -> None:
        """Measure all cells. A server whose process ends is not sent the rest of the requests."""
        work = asyncio.create_task(self._cells(server))
        try:
            while not server.ended() and not work.done():
                await asyncio.wait([work], timeout=LOOK_S)
        finally:
            stopped = work.cancel()
            await asyncio.wait([work])
            error = None if work.cancelled() else work.exception()
        if stopped:
            raise EndpointError("its server ended") from error
        if error is not None:
            raise error

    async def _cells(self, server: Server) -> None:
        footprint = Footprint(server.group)
        try:
            async with AsyncExitStack() as clients:
                at: dict[float, TargetServer] = {}
                for planned in self.job.cells:
                    temperature = planned.load.temperature
                    if temperature not in at:
                        at[temperature] = await clients.enter_async_context(self._client(server, temperature))
                        await self._introduce(at[temperature], planned)
                        if len(at) == 1 and server.group is not None:
                            self.up_s = time.monotonic() - self.began
                    await self._cell(at[temperature], planned, footprint)
        except Broken as stop:
            if stop.__cause__:
                raise stop.__cause__ from None
            raise

    def _client(self, server: Server, temperature: float) -> TargetServer:
        asked = self.asked.at(server.base_url, server.model).model_copy(update={"temperature": temperature})
        return TargetServer(asked, self.pace, self.watch, self.progress, self.count_tokens)

    async def _introduce(self, server: TargetServer, planned: PlannedCell) -> None:
        """Its first answer: a server may be healthy and die of it."""
        facts = await server.introduce(self.prompts[(planned.warm_up or planned.prompts)[0]])
        self.server = facts["server"]

    async def _cell(self, server: TargetServer, planned: PlannedCell, footprint: Footprint) -> None:
        load, kept = planned.load, []

        def keep(cell: CellRecord) -> None:
            kept.append(cell)
            self.keep(
                SweptCell(
                    rung=self.job.rung,
                    setting=self.job.setting.name,
                    turn=self.turn,
                    stage=self.job.stage,
                    machine=self.machine,
                    temperature=load.temperature,
                    length=load.length,
                    began=began,
                    up_s=round(self.up_s, 3),
                    server=self.server,
                    memory=footprint.most(),
                    cell=cell,
                )
            )

        prompts = [self.prompts[name] for name in planned.prompts]
        others = [self.prompts[name] for name in planned.warm_up]
        self.progress.start(f"{self.job.setting.name} at {load}", len(prompts))
        footprint.reset()
        began = time.time()
        await server.visit(prompts, load.level, planned.repeat, warm_up_with=others or prompts, keep=keep)
        self._refuse_failing(kept[-1])

    def _refuse_failing(self, cell: CellRecord) -> None:
        if cell.aborted:
            raise EndpointError(f"stopped at {cell.level}: {cell.aborted}")
        failures = [row for row in cell.rows if row.error is not None]
        if len(failures) > self.asked.max_error_share * len(cell.rows):
            told = f"{len(failures)} of {len(cell.rows)} requests failed, such as: {failures[0].detail}"
            raise EndpointError(f"stopped at {cell.level}: {told}")
