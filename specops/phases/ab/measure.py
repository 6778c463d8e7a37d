"""Starts the arms, makes the visits, stores what was measured, and has it judged.

Every visit is stored as soon as it is made, so that an interrupted comparison resumes where it stopped. An
arm that fails during the run ends its own visits, not the comparison: its failure is part of the answer.
Before the first visit, the arms are shown to be different servers, or, for an A/A, one server.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from specops import results
from specops.errors import EndpointError, FileError, ServerError, UsageError
from specops.hints import with_options
from specops.launch.servers import SERVED_AS, Server, check, serving
from specops.load import clock
from specops.load.answer import Failure, token_counter
from specops.load.arrivals import Pace, Watch
from specops.load.client import endpoint_error
from specops.load.record import CellRecord
from specops.load.runner import CellFailed
from specops.load.server_identity import moved_with, one_address, same_process
from specops.load.settings import BaselineSettings
from specops.load.target_server import TargetServer
from specops.load.workload import Prompt
from specops.phases.ab import judging
from specops.phases.ab.evidence import Evidence, margins_of, send_greedy, send_mixed, send_sustained
from specops.phases.ab.visits import (
    AbData,
    AbSettings,
    Arm,
    LookCounts,
    Visit,
    VisitRecord,
    measurements_of,
    schedule,
)
from specops.phases.inputs import inputs_of_arms
from specops.progress import Progress
from specops.results import Result, Verdict

PHASE = "ab"


def compare(
    arms: Sequence[Arm],
    requests: BaselineSettings,
    settings: AbSettings,
    progress: Progress,
    *,
    logs: Path,
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Compare every arm with the first, starting from what `previous` has of the same inputs.

    `requests` says what is sent to every arm; address and model are the arm's. The logs of servers that are
    started go to the folder `logs`. `on_partial` gets a valid result after every visit.

    Raises UsageError for arms that are missing, that the design cannot compare, or that are one server (with
    `settings.same_server`: that are not). PromptsError is raised for prompts that cannot be sent;
    EndpointError or ServerError where the standard, or an arm that has never answered, does not answer.
    """
    for arm in arms:
        check(arm.pool)  # before others have been started, which takes minutes
    fixed = [arm.name for arm in arms if arm.pool.endpoint is not None]
    if settings.design == "abba-restart" and fixed:
        raise UsageError(
            f"abba-restart starts its arms in turn, and {fixed[0]} is an endpoint that runs already: "
            "expected a command that starts it",
            hint=with_options({"--design": "interleaved"}),
        )
    check_addresses(arms, same_server=settings.same_server)
    run = _Comparison(arms, requests, settings, progress, logs, on_partial)
    run.resume(previous)
    run.make()
    return run.result()


class _Comparison:
    def __init__(
        self,
        arms: Sequence[Arm],
        requests: BaselineSettings,
        settings: AbSettings,
        progress: Progress,
        logs: Path,
        on_partial: Callable[[Result], None],
    ) -> None:
        self.pools = {arm.name: arm.pool for arm in arms}
        self.requests = requests
        self.settings = settings
        self.progress = progress
        self.logs = logs
        self.on_partial = on_partial
        self.prompts = requests.prompt_set()
        self.inputs = inputs_of_arms(arms, requests, settings, self.prompts)
        plan = schedule(
            settings.design,
            list(self.pools),
            requests.levels(),
            [(prompt.id, prompt.traffic_class) for prompt in self.prompts.prompts],
            rounds=requests.repeats,
            looks=settings.looks,
            seed=requests.seed,
        )
        self.found = Evidence(plan, list(self.pools), requests, settings, self._sent_before())
        self.period = 0
        self.facts: dict[str, Any] = {
            name: {"pool": pool.model_dump(mode="json")} for name, pool in self.pools.items()
        }
        self.count_tokens = token_counter(requests.tokenizer) if requests.tokenizer else None
        self.pace = Pace(requests.max_rps)
        self.watches = {name: Watch(requests.abort_rule()) for name in self.pools}

    def _sent_before(self) -> list[str]:
        """Ids of the prompts of probe and warm-up: a server that caches has their answers already."""
        return [prompt.id for prompt in self.prompts.prompts[: max(1, self.requests.warmup)]]

    def resume(self, previous: Result | None) -> None:
        if previous is None or previous.inputs != self.inputs:
            return
        earlier = measurements_of(previous, "the earlier result")
        self.found.take_over(earlier)
        self.facts |= previous.environment.get("arms", {})
        self.period = 1 + max((visit.period for visit in earlier.visits), default=-1)
        if self.found.visits:
            made, planned = len(self.found.visits), len(self.found.plan)
            self.progress.note(f"{made} of {planned} visits were made before")

    def make(self) -> None:
        """Measure what is missing, one period after the other."""
        while names := self._arms_needed():
            with ExitStack() as servers:
                up = {name: servers.enter_context(self._served(name)) for name in names}
                asyncio.run(self._measure(up))
            self.period += 1

    def _arms_needed(self) -> list[str]:
        """The arms that must be up next; none when all is measured."""
        visit, mixed = self.found.next_visit(), self.found.next_mixed()
        greedy = self.found.next_greedy(self.found.working)
        sustained = self.found.next_sustained(self.found.working)
        lacking = [visit.arm] if visit else mixed[1] if mixed else [greedy[0]] if greedy else []
        if lacking := lacking or ([sustained] if sustained else []):
            return self.found.working if self.settings.design == "interleaved" else lacking[:1]
        return [self.found.standard] if self.found.margins_needed() else []

    @contextmanager
    def _served(self, name: str) -> Iterator[Server]:
        """The arm's server. One that ends during the measurement has failed; one that does not come up
        raises."""
        pool, log = self.pools[name], self.logs / f"{name}.log"
        over = False
        try:
            with serving(pool, name, model=SERVED_AS, log=log, progress=self.progress) as server:
                yield server
                over = True
        except ServerError as error:
            if not over:
                raise
            self._fail(name, error.message)
            if error.log:
                self.progress.note(f"its log ends with:\n{error.log}")

    def _fail(self, name: str, why: str) -> None:
        self.found.failed[name] = why
        self.progress.note(f"{name} failed: {why}")

    async def _measure(self, servers: dict[str, Server]) -> None:
        """Send the arms that are up now all requests of this period."""
        try:
            async with AsyncExitStack() as clients:
                up = {
                    name: await clients.enter_async_context(self._client(name, server))
                    for name, server in servers.items()
                }
                await introduce_all(
                    up, lambda name: self._introduce(name, up[name]), same_server=self.settings.same_server
                )
                self.progress.start(f"comparing {' and '.join(up)}", self.found.requests_left())
                first = self.found.next_visit()
                while first and (visit := self.found.next_visit()) and visit.period == first.period:
                    await self._visit(up[visit.arm], visit)
                if self.settings.design == "abba-restart" or not self.found.next_visit():
                    await self._mixed_batches(up)
                    await self._greedy_requests(up)
                    await self._sustained_requests(up)
                if self.found.standard in up:
                    await self._margins(up[self.found.standard])
        except BaseException as stop:
            # A result without visits would replace an earlier one by nothing; and one that could not be
            # written a moment ago was saved elsewhere then.
            if self.found.visits and not isinstance(stop, FileError):
                self.on_partial(self.partial())
            if isinstance(stop, CellFailed) and stop.__cause__:
                raise stop.__cause__ from None
            raise

    def _client(self, name: str, server: Server) -> TargetServer:
        at = self.requests.at(server.base_url, server.model)
        return TargetServer(at, self.pace, self.watches[name], self.progress, self.count_tokens)

    async def _introduce(self, name: str, arm: TargetServer) -> None:
        try:
            self.facts[name] |= await arm.introduce(self.prompts.prompts[0])
        except EndpointError as error:
            if not self.found.answered(name):
                raise
            self._fail(name, error.message)

    async def _visit(self, arm: TargetServer, visit: Visit) -> None:
        def keep(cell: CellRecord) -> None:
            self.found.visits[visit.key] = VisitRecord(
                stage=visit.stage,
                block=visit.block,
                round=visit.round,
                order=visit.order,
                period=self.period,
                arm=visit.arm,
                began=began,
                cell=cell,
            )

        began = clock.now()
        prompts = self._prompts(visit.prompts)
        await arm.visit(prompts, visit.level, visit.round, warm_up_with=self.prompts.prompts, keep=keep)
        aborted = self.found.visits[visit.key].cell.aborted
        if aborted:
            self._fail(visit.arm, f"stopped at {visit.level}: {aborted}")
        self.on_partial(self.partial())

    async def _mixed_batches(self, up: dict[str, TargetServer]) -> None:
        needed = self.found.next_mixed()
        while needed and (names := [name for name in needed[1] if name in up]):
            round_, name = needed[0], names[0]
            began, prompts = clock.now(), self._prompts(self.found.mixed_prompts(round_))
            cell = await send_mixed(up[name], prompts, self.settings.mixed_temperature)
            self.found.mixed[name, round_] = self._outside_the_blocks(name, round_, began, cell)
            self.on_partial(self.partial())
            needed = self.found.next_mixed()

    async def _greedy_requests(self, up: dict[str, TargetServer]) -> None:
        while needed := self.found.next_greedy(up):
            name, level, round_ = needed
            prompts = self._prompts(self.found.greedy_prompts(level))
            self.progress.start(f"sending {name} requests at temperature 0, {level}", len(prompts))
            began = clock.now()
            cell = await send_greedy(up[name], prompts, level, round_, self.progress)
            self.found.greedy[needed] = self._outside_the_blocks(name, round_, began, cell)
            self.on_partial(self.partial())

    async def _sustained_requests(self, up: dict[str, TargetServer]) -> None:
        while name := self.found.next_sustained(up):
            prompts, level = self._prompts(self.found.sustained_prompts()), self.found.plan[0].level
            self.progress.start(f"sending {name} requests without a pause, {level}", len(prompts))
            began = clock.now()
            cell = await send_sustained(up[name], prompts, level, self.progress)
            self.found.sustained[name] = self._outside_the_blocks(name, 0, began, cell)
            self.on_partial(self.partial())

    def _outside_the_blocks(self, arm: str, round_: int, began: float, cell: CellRecord) -> VisitRecord:
        return VisitRecord(
            stage=0, block=0, round=round_, order=0, period=self.period, arm=arm, began=began, cell=cell
        )

    async def _margins(self, standard: TargetServer) -> None:
        characters: dict[str, list[int]] = defaultdict(list)
        for name, character in self.found.margins_needed():
            characters[name].append(character)
        if characters:
            self.progress.start(
                f"log-probabilities of {self.found.standard} where answers differ", len(characters)
            )
        for prompt in self._prompts(characters):
            for margin in await margins_of(standard, prompt, characters[prompt.id]):
                self.found.margins[margin.place] = margin
            self.progress.advance()

    def _prompts(self, ids: Iterable[str]) -> list[Prompt]:
        chosen = set(ids)
        return [prompt for prompt in self.prompts.prompts if prompt.id in chosen]

    def partial(self) -> Result:
        made = sum(visit.cell.complete for visit in self.found.visits.values())
        reason = f"stopped after {made} of {len(self.found.plan)} visits"
        return self._result("partial", reason, {}, {})

    def result(self) -> Result:
        found = self.found
        for name in self.pools:
            self._judge_failures(name)
        judged = judging.judge(
            list(found.visits.values()),
            list(found.mixed.values()),
            list(self.pools),
            self.settings,
            looks_done=max(1, len(found.decided)),
            looks=found.looks,
            failed=found.failed,
            temperature=self.requests.temperature,
            facts=self.facts,
            margins={place: one.margin for place, one in found.margins.items() if one.margin is not None},
            sent_before=found.sent_before,
            greedy=list(found.greedy.values()),
            sustained=list(found.sustained.values()),
        )
        return self._result(judged.verdict, judged.reason, judged.summary, judged.data)

    def _judge_failures(self, name: str) -> None:
        rows = [row for visit in self.found.visits.values() if visit.arm == name for row in visit.cell.rows]
        failures = [row for row in rows if row.error is not None]
        if failures and len(failures) == len(rows) and name == self.found.standard:
            message = f"all {len(rows)} requests failed; {failures[0].detail}"
            raise endpoint_error(name, Failure(str(failures[0].error), message))
        if len(failures) > self.requests.max_error_share * len(rows):
            message = f"{len(failures)} of {len(rows)} requests failed, such as: {failures[0].detail}"
            self.found.failed.setdefault(name, message)

    def _result(
        self, verdict: Verdict, reason: str, summary: dict[str, Any], judged: dict[str, Any]
    ) -> Result:
        found = self.found

        stored = AbData(
            prompts=self.prompts.provenance(),
            failed=found.failed,
            looks=LookCounts(done=len(found.decided), planned=found.looks),
            visits_planned=len(found.plan),
            visits=list(found.visits.values()),
            mixed=list(found.mixed.values()),
            margins=list(found.margins.values()),
            greedy=list(found.greedy.values()),
            sustained=list(found.sustained.values()),
        )
        arms = {name: pool.model_dump(mode="json") for name, pool in self.pools.items()}
        return Result(
            phase=PHASE,
            inputs=self.inputs,
            settings=self.requests.plan() | self.settings.model_dump(mode="json") | {"arms": arms},
            environment=results.environment() | {"arms": self.facts},
            verdict=verdict,
            reason=reason,
            summary=summary,
            data=judged | stored.model_dump(mode="json", by_alias=True),
        )


def check_addresses(arms: Sequence[Arm], *, same_server: bool) -> None:
    """Raise UsageError, before anything is started, for two arms with one address; with `same_server`, for an
    arm that is not a running server."""
    if same_server:
        started = next((arm.name for arm in arms if arm.pool.endpoint is None), None)
        if started is not None:
            raise UsageError(
                f"--same-server compares one running server with itself, and {started} would be started here",
                hint="specops ab --same-server --arm a=http://HOST:8000/v1 --arm b=http://HOST:8000/v1",
            )
        return
    running = [(arm.name, arm.pool.endpoint) for arm in arms if arm.pool.endpoint is not None]
    for (one, ours), (other, its) in combinations(running, 2):
        reason = one_address((ours.base_url, ours.model), (its.base_url, its.model))
        if reason is not None:
            raise _one_server(one, other, reason, ours.base_url)


async def introduce_all(
    arms: Mapping[str, TargetServer],
    send: Callable[[str], Awaitable[None]],
    *,
    same_server: bool,
) -> None:
    """Describe the arms that are up, one after the other; `send` sends one request to the arm of that name.

    Raises UsageError where two of them are one server; with `same_server`, where two are not shown to be one.
    """
    names = list(arms)
    shared = {pair: await _shown_at_rest(arms, *pair) for pair in combinations(names, 2)}
    _refuse(arms, {} if same_server else shared)
    for number, name in enumerate(names):
        open_ = [other for other in names[number + 1 :] if shared[name, other] is None]
        others = {other: arms[other].settings.base_url for other in open_}
        moved = await moved_with(arms[name].settings.base_url, others, partial(send, name))
        shared |= {(name, other): reason for other, reason in moved.items()}
        _refuse(arms, {} if same_server else shared)
    separate = next((pair for pair, reason in shared.items() if reason is None), None)
    if same_server and separate is not None:
        one, other = separate
        raise UsageError(
            f"--same-server needs one server, and nothing shows that {one} and {other} are one",
            hint=_same_server(separate, arms[one].settings.base_url),
        )


async def _shown_at_rest(arms: Mapping[str, TargetServer], one: str, other: str) -> str | None:
    ours, theirs = ((arms[name].settings.base_url, arms[name].settings.model) for name in (one, other))
    return one_address(ours, theirs) or await same_process(ours, theirs)


def _refuse(arms: Mapping[str, TargetServer], shared: Mapping[tuple[str, str], str | None]) -> None:
    for (one, other), reason in shared.items():
        if reason is not None:
            raise _one_server(one, other, reason, arms[one].settings.base_url)


def _one_server(one: str, other: str, reason: str, base_url: str) -> UsageError:
    return UsageError(
        f"the arms {one} and {other} are one server: {reason}; expected the address of a second server",
        hint=f"{_same_server((one, other), base_url)}  # measures this tool's own noise",
    )


def _same_server(names: tuple[str, str], base_url: str) -> str:
    one, other = names
    return f"specops ab --same-server --arm {one}={base_url} --arm {other}={base_url}"
