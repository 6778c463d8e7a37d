"""One job: its server is started, sent the requests of the job's cells, and stopped; and jobs on this
machine.

`measure_job` is a plain function of arguments that can be pickled, so it runs on another machine as it does
here. `Local` runs jobs on this machine, one after the other; `machines` selects it or a Ray cluster.
`Footprint` reads what a server takes: of its devices by NVML, of the host by /proc. It reads between cells
only: nothing of it runs while a request is stamped.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specops.errors import EndpointError, ServerError
from specops.experiment.margins import request_margins
from specops.experiment.plan import MIXED_TEMPERATURE
from specops.gpus import GIB, NvmlUnavailable, devices, open_nvml
from specops.launch.servers import SERVED_AS, Server, check, serving, tail
from specops.load import clock
from specops.load.answer import token_counter
from specops.load.arrivals import Level, Pace, Watch
from specops.load.record import CellRecord
from specops.load.runner import CellFailed, run_cell
from specops.load.settings import BaselineSettings
from specops.load.target_server import TargetServer
from specops.load.workload import Prompt
from specops.phases.sweep.plan import (
    ALWAYS,
    Executor,
    FailedJob,
    Job,
    Keep,
    Memory,
    PlannedCell,
    Rung,
    SweptCell,
)
from specops.phases.sweep.spec import SweepSpec
from specops.progress import Progress, SilentProgress

AGAIN, GREEDY_AGAIN = 16, 0.25
"""Prompts that a confirmation sends a second time at each load, sampled where its requests are greedy, and
greedy where they are sampled; more where the load has more streams. The greedy ones are a share of all, since
only they show other answers: with the default margins that takes a fifth of the requests that failures
take."""

LOG_LINES = 20
"""The last lines of the log of a failed server that are stored."""

LOOK_S = 0.1
"""Seconds between two looks at whether the server's process has ended."""


def measure_job(
    job: Job,
    turn: int,
    *,
    machine: str,
    requests: BaselineSettings,
    prompts: Sequence[Prompt],
    logs: Path,
    keep: Keep,
    progress: Progress | None = None,
) -> bool:
    """Measure the job's cells; False where not all of them could be measured.

    `requests` says how every prompt is sent, except the temperature, which is the cell's; `prompts` has those
    that the cells name. The server's log goes to the folder `logs`. `keep` gets every cell as soon as it is
    measured, and again with the server's counters, which replaces the first. It also gets the part of a cell
    that was measured before a stop. A server that does not come up, dies or fails is a FailedJob with the end
    of its log, and no exception.

    Raises ConfigError for a program that is missing, and FileError where the log cannot be written.
    """
    running = _Running(job, turn, machine, requests, prompts, keep, progress or SilentProgress())
    log = logs / f"{job.rung}-{re.sub(r'[^A-Za-z0-9._=-]+', '-', job.setting.name)}-{turn}.log"
    started = job.setting.pool.endpoint is None
    try:
        with serving(
            job.setting.pool, job.setting.name, model=SERVED_AS, log=log, progress=running.progress
        ) as server:
            asyncio.run(running.measure(server))
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
        requests: BaselineSettings,
        prompts: Sequence[Prompt],
        keep: Keep,
        progress: Progress,
    ) -> None:
        self.job = job
        self.turn = turn
        self.machine = machine
        self.requests = requests
        self.prompts = {prompt.id: prompt for prompt in prompts}
        self.keep = keep
        self.progress = progress
        self.count_tokens = token_counter(requests.tokenizer) if requests.tokenizer else None
        self.pace = Pace(requests.max_rps)
        self.watch = Watch(requests.abort_rule())
        self.server: str | None = None
        self.began = time.monotonic()
        self.up_s = 0.0

    async def measure(self, server: Server) -> None:
        """Measure all cells. A server whose process ends gets no further requests."""
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
                clients_by_temperature: dict[float, TargetServer] = {}
                for planned in self.job.cells:
                    temperature = planned.load.temperature
                    if temperature not in clients_by_temperature:
                        clients_by_temperature[temperature] = await clients.enter_async_context(
                            self._client(server, temperature)
                        )
                        await self._introduce(clients_by_temperature[temperature], planned)
                        if len(clients_by_temperature) == 1 and server.group is not None:
                            self.up_s = time.monotonic() - self.began
                    await self._cell(clients_by_temperature[temperature], planned, footprint)
                if self.job.places:
                    greedy = await clients.enter_async_context(self._client(server, 0.0))
                    async for margin in request_margins(greedy, self.job.places, self._prompt_sent):
                        self.keep(margin)
        except CellFailed as stop:
            if stop.__cause__:
                raise stop.__cause__ from None
            raise

    def _client(self, server: Server, temperature: float) -> TargetServer:
        requests = self.requests.at(server, self.job.setting.name).model_copy(
            update={"temperature": temperature}
        )
        return TargetServer(requests, self.pace, self.watch, self.progress, self.count_tokens)

    async def _introduce(self, server: TargetServer, planned: PlannedCell) -> None:
        """Send the first request: a server may be healthy and die of it."""
        facts = await server.introduce(self._warming(planned)[0])
        self.server = facts["server"]

    def _warming(self, planned: PlannedCell) -> list[Prompt]:
        """The prompts to warm up with: no start of a server has those that another is warmed up with."""
        variant = f"warm-up {self.job.setting.name} {self.turn}"
        return [self._prompt(name, variant) for name in planned.warm_up or planned.prompts]

    def _prompt(self, name: str, variant: str) -> Prompt:
        """A prompt in its variant for this rung."""
        return self._prompt_sent(name, f"{self.job.rung} {variant}")

    def _prompt_sent(self, name: str, variant: str) -> Prompt:
        """A prompt in its variant; as it is where the job has no run."""
        prompt = self.prompts[name]
        # A sampled answer to the same prompt with the same seed would not be another sample.
        seed = random.Random(f"{self.requests.seed}:{name}:{variant}:{self.turn}").getrandbits(31)
        prompt = replace(prompt, seed=seed)
        return prompt.fresh(self.job.run, variant) if self.job.run else prompt

    async def _cell(self, server: TargetServer, planned: PlannedCell, footprint: Footprint) -> None:
        load, records = planned.load, []

        def keep(cell: CellRecord, again: CellRecord | None = None) -> None:
            records.append(cell)
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
                    again=again,
                )
            )

        # All temperatures and turns of a rung have one variant: answers to it are compared with each other.
        sent: Counter[str] = Counter()
        prompts = []
        for name in planned.prompts:
            number = f" {sent[name]}" if sent[name] else ""
            prompts.append(self._prompt(name, f"{load.concurrency}{number}"))
            sent[name] += 1
        self.progress.start(f"{self.job.setting.name} at {load}", len(prompts))
        footprint.reset()
        began = clock.now()
        await server.visit(
            prompts, load.level, planned.repeat, warm_up_with=self._warming(planned), keep=keep
        )
        self._refuse_failing(records[-1])
        if self.job.stage == "confirmation":
            count, temperature = max(AGAIN, load.concurrency), MIXED_TEMPERATURE
            if load.temperature:
                count, temperature = max(count, round(GREEDY_AGAIN * len(prompts))), 0.0
            again = [replace(prompt, temperature=temperature) for prompt in prompts[:count]]
            keep(records[-1], await _send_once(server, again, load.level, planned.repeat, self.progress))

    def _refuse_failing(self, cell: CellRecord) -> None:
        failures = [row for row in cell.sent if row.error is not None]
        if cell.aborted:
            such = f", such as: {failures[0].detail}" if failures else ""
            raise EndpointError(f"stopped at {cell.level}: {cell.aborted}{such}")
        if len(failures) > self.requests.max_error_share * len(cell.sent):
            failed = f"{len(failures)} of {len(cell.sent)} requests failed, such as: {failures[0].detail}"
            raise EndpointError(f"stopped at {cell.level}: {failed}")


MACHINE = "here"


@dataclass(frozen=True)
class Local:
    """Jobs on this machine, one after the other."""

    requests: BaselineSettings
    prompts: Sequence[Prompt]
    logs: Path
    progress: Progress

    def run(self, rung: Rung, keep: Keep) -> None:
        """Run the rung as `Executor.run` says. Without its standard a rung compares nothing, so it ends
        there."""
        began = clock.now()
        if MACHINE not in rung.begun and not self._measure(rung.standard, 0, keep):
            return
        longest_s = clock.now() - began
        failed: set[str] = set()
        for number, job in enumerate(rung.jobs):
            if job.setting.name in failed:
                continue
            began = clock.now()
            if number >= ALWAYS and not rung.has_time_for(job, began, longest_s):
                break
            if not self._measure(job, job.turn, keep):
                failed.add(job.setting.name)
            longest_s = max(longest_s, clock.now() - began)
        if rung.jobs or MACHINE in rung.begun:
            self._measure(rung.standard, 1, keep)

    def _measure(self, job: Job, turn: int, keep: Keep) -> bool:
        return measure_job(
            job,
            turn,
            machine=MACHINE,
            requests=self.requests,
            prompts=self.prompts,
            logs=self.logs,
            keep=keep,
            progress=self.progress,
        )


@contextmanager
def machines(spec: SweepSpec, on: str | None, logs: Path, progress: Progress) -> Iterator[Executor]:
    """Return what measures the jobs of `spec`: the Ray cluster `on`, else this machine.

    Raises ConfigError for pools that cannot be started here, and what `ray_cluster.connected` raises.
    """
    if on is None:
        for setting in spec.settings:
            check(setting.pool, setting.name)
        yield Local(spec.requests, spec.prompts.prompts, logs, progress)
        return
    from specops.phases.sweep.ray_executor import RayExecutor

    with RayExecutor(on, spec.settings, spec.requests, spec.prompts.prompts, progress) as cluster:
        yield cluster


PROC = Path("/proc")
VISIBLE = "CUDA_VISIBLE_DEVICES"
RESET_PEAK = "5"
"""Written to a process's clear_refs: its VmHWM begins anew (proc(5))."""


class Footprint:
    """The memory of the server whose processes are in `group`; without a group, nothing."""

    def __init__(self, group: int | None) -> None:
        self._group = group
        self._nvml: Any | None = None
        if group is not None:
            with suppress(NvmlUnavailable):
                self._nvml = open_nvml()
        self._gpu_bytes: int | None = None

    def reset(self) -> None:
        """Begin a new peak."""
        for process in self._processes():
            with suppress(OSError):  # it ended, or the kernel does not let us: then since its start
                (process / "clear_refs").write_text(RESET_PEAK)
        gpu = self._gpu()
        self._gpu_bytes = gpu[0] if gpu else None

    def most(self) -> Memory:
        """The most since `reset`: each process's peak resident memory, summed, pages that several share
        counted for each; and the larger of what the devices had in use then and now. Serving engines keep
        what they once took of a device, so that the two ends show what was taken between them."""
        if self._group is None:
            return Memory()
        gpu = self._gpu()
        peaks = [peak for process in self._processes() if (peak := _peak_bytes(process)) is not None]
        return Memory(
            gpu_gib=_gib(max(gpu[0], self._gpu_bytes or 0)) if gpu else None,
            gpu_total_gib=_gib(gpu[1]) if gpu else None,
            resident_gib=_gib(sum(peaks)) if peaks else None,
        )

    def _processes(self) -> Iterator[Path]:
        if self._group is None or not PROC.is_dir():
            return
        for process in PROC.glob("[0-9]*"):
            if _group_of(process) == self._group:
                yield process

    def _gpu(self) -> tuple[int, int] | None:
        """Bytes in use and in all of the devices on which the group's processes run. Where NVML names none of
        them (in a container it has other process ids), of the devices that the server may use."""
        if self._nvml is None:
            return None
        process_ids = {int(process.name) for process in self._processes()}
        try:
            handles = devices(self._nvml)
            mine = [handle for handle in handles if process_ids & self._pids(handle)] or self._visible(
                handles
            )
            memory = [self._nvml.nvmlDeviceGetMemoryInfo(handle) for handle in mine]
        except self._nvml.NVMLError:
            return None
        if not memory:
            return None
        return sum(int(device.used) for device in memory), sum(int(device.total) for device in memory)

    def _pids(self, handle: Any) -> set[int]:
        assert self._nvml is not None
        return {int(process.pid) for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}

    def _visible(self, handles: list[Any]) -> list[Any]:
        """The devices in CUDA_VISIBLE_DEVICES of the group's leader, which names indices or beginnings of
        ids."""
        assert self._nvml is not None
        named = _variable(PROC / str(self._group), VISIBLE)
        if named is None:
            return handles
        ids = [str(self._nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        return [
            handle
            for index, (handle, name) in enumerate(zip(handles, ids, strict=True))
            if any(part == str(index) or (part and name.startswith(part)) for part in named.split(","))
        ]


def _group_of(process: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[2])
    return None


def _variable(process: Path, name: str) -> str | None:
    with suppress(OSError):
        for setting in (process / "environ").read_text(errors="replace").split("\0"):
            if setting.startswith(f"{name}="):
                return setting.partition("=")[2]
    return None


def _peak_bytes(process: Path) -> int | None:
    with suppress(OSError, ValueError):
        for line in (process / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return None


def _gib(count: int) -> float:
    return round(count / GIB, 3)


async def _send_once(
    arm: TargetServer, prompts: Sequence[Prompt], level: Level, repeat: int, progress: Progress
) -> CellRecord:
    """Send each prompt once, without a warm-up, at the load of the measurement."""
    cell = await run_cell(
        arm.client,
        prompts,
        level,
        repeat,
        seed=arm.settings.seed,
        pace=arm.pace,
        progress=progress,
        count_tokens=arm.count_tokens,
    )
    return CellRecord.from_cell(cell, arm.settings.slo)
