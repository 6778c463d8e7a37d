"""Starts the arms, makes the visits, keeps what was measured, and has it judged.

Every visit is kept as soon as it is made, so that a comparison that was stopped goes on where it was. An
arm that fails on the way ends its own visits, not the comparison: that it failed is part of the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from specops import results
from specops.errors import EndpointError, FileError, ServerError, UsageError
from specops.launch.pools import SERVED_AS, check, serving
from specops.launch.process import Server
from specops.load.answer import Failure, token_counter
from specops.load.arrivals import Pace, Watch
from specops.load.record import CellRecord
from specops.load.runner import Broken
from specops.load.settings import BaselineSettings
from specops.load.target_server import TargetServer
from specops.load.transport_errors import endpoint_error
from specops.load.workload import Prompt
from specops.phases.ab import identity, judging
from specops.phases.ab.evidence import Evidence
from specops.phases.ab.questions import ask_greedy, ask_margins, ask_mixed
from specops.phases.ab.records import Margin, VisitRecord, kept_of
from specops.phases.ab.settings import AbSettings, Arm
from specops.phases.ab.visits import Visit, schedule
from specops.phases.inputs import inputs_of_arms
from specops.progress import Progress
from specops.results import Result, Verdict

PHASE = "ab"


def compare(
    arms: Sequence[Arm],
    asked: BaselineSettings,
    settings: AbSettings,
    progress: Progress,
    *,
    logs: Path,
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Compare every arm with the first, starting from what `previous` has of the same inputs.

    `asked` says what every arm is asked; its address and model are taken from the arms. The logs of servers
    that are started go to the folder `logs`. `on_partial` gets a valid result after every visit.

    Raises UsageError for arms that are not there, that the design cannot compare, or that are one server
    (with `settings.same_server`: that are not), PromptsError for
    prompts that cannot be sent, and EndpointError or ServerError when the standard, or an arm that has
    never answered, cannot be asked.
    """
    for arm in arms:
        check(arm.pool)  # before others have been started, which takes minutes
    fixed = [arm.name for arm in arms if arm.pool.endpoint is not None]
    if settings.design == "abba-restart" and fixed:
        raise UsageError(
            f"abba-restart starts its arms in turn, and {fixed[0]} is an endpoint that runs already",
            hint="give a command that starts it, or compare side by side with --design interleaved",
        )
    identity.check_addresses(arms, same_server=settings.same_server)
    run = _Comparison(arms, asked, settings, progress, logs, on_partial)
    run.resume(previous)
    run.make()
    return run.result()


class _Comparison:
    def __init__(
        self,
        arms: Sequence[Arm],
        asked: BaselineSettings,
        settings: AbSettings,
        progress: Progress,
        logs: Path,
        on_partial: Callable[[Result], None],
    ) -> None:
        self.pools = {arm.name: arm.pool for arm in arms}
        self.asked = asked
        self.settings = settings
        self.progress = progress
        self.logs = logs
        self.on_partial = on_partial
        self.prompts = asked.prompt_set()
        self.inputs = inputs_of_arms(arms, asked, settings, self.prompts)
        plan = schedule(
            settings.design,
            list(self.pools),
            asked.levels(),
            [(prompt.id, prompt.traffic_class) for prompt in self.prompts.prompts],
            rounds=asked.repeats,
            looks=settings.looks,
            seed=asked.seed,
        )
        self.found = Evidence(plan, list(self.pools), asked, settings, self._sent_before())
        self.period = 0
        self.facts: dict[str, Any] = {
            name: {"pool": pool.model_dump(mode="json")} for name, pool in self.pools.items()
        }
        self.count_tokens = token_counter(asked.tokenizer) if asked.tokenizer else None
        self.pace = Pace(asked.max_rps)
        self.watches = {name: Watch(asked.abort_rule()) for name in self.pools}

    def _sent_before(self) -> list[str]:
        """The prompts of the probe and of the warm-up: a server that caches has their answers already."""
        return [prompt.id for prompt in self.prompts.prompts[: max(1, self.asked.warmup)]]

    def resume(self, previous: Result | None) -> None:
        if previous is None or previous.inputs != self.inputs:
            return
        earlier = kept_of(previous, "the earlier result")
        self.found.take_over(earlier)
        self.facts |= previous.environment.get("arms", {})
        self.period = 1 + max((visit.period for visit in earlier.visits), default=-1)
        if self.found.visits:
            made, planned = len(self.found.visits), len(self.found.plan)
            self.progress.note(f"{made} of {planned} visits were made before")

    def make(self) -> None:
        """Find out what is missing, one period after the other."""
        while names := self._wanted():
            with ExitStack() as servers:
                up = {name: servers.enter_context(self._served(name)) for name in names}
                asyncio.run(self._ask(up))
            self.period += 1

    def _wanted(self) -> list[str]:
        """The arms that are to be up next; none when all is done."""
        visit, mixed = self.found.next_visit(), self.found.next_mixed()
        greedy = self.found.next_greedy(self.found.working)
        lacking = [visit.arm] if visit else mixed[1] if mixed else [greedy[0]] if greedy else []
        if lacking:
            return self.found.working if self.settings.design == "interleaved" else lacking[:1]
        return [self.found.standard] if self.found.margins_wanted() else []

    @contextmanager
    def _served(self, name: str) -> Iterator[Server]:
        """The arm's server. One that ends while it is asked has failed; one that does not come up raises."""
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
            if error.hint:
                self.progress.note(error.hint)

    def _fail(self, name: str, why: str) -> None:
        self.found.failed[name] = why
        self.progress.note(f"{name} failed: {why}")

    async def _ask(self, servers: dict[str, Server]) -> None:
        """Ask the arms that are up now what they are to be asked in this period."""
        try:
            async with AsyncExitStack() as clients:
                up = {
                    name: await clients.enter_async_context(self._client(name, server))
                    for name, server in servers.items()
                }
                await identity.introduce(
                    up, lambda name: self._introduce(name, up[name]), same_server=self.settings.same_server
                )
                self.progress.start(f"asking {' and '.join(up)}", self.found.requests_left())
                first = self.found.next_visit()
                while first and (visit := self.found.next_visit()) and visit.period == first.period:
                    await self._visit(up[visit.arm], visit)
                if self.settings.design == "abba-restart" or not self.found.next_visit():
                    await self._ask_mixed(up)
                    await self._ask_greedy(up)
                if self.found.standard in up:
                    await self._ask_margins(up[self.found.standard])
        except BaseException as stop:
            # A result without visits would replace an earlier one by nothing; and one that could not be
            # written a moment ago was kept elsewhere then.
            if self.found.visits and not isinstance(stop, FileError):
                self.on_partial(self.partial())
            if isinstance(stop, Broken) and stop.__cause__:
                raise stop.__cause__ from None
            raise

    def _client(self, name: str, server: Server) -> TargetServer:
        at = self.asked.at(server.base_url, server.model)
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

        began = time.time()
        prompts = self._prompts(visit.prompts)
        await arm.visit(prompts, visit.level, visit.round, warm_up_with=self.prompts.prompts, keep=keep)
        aborted = self.found.visits[visit.key].cell.aborted
        if aborted:
            self._fail(visit.arm, f"stopped at {visit.level}: {aborted}")
        self.on_partial(self.partial())

    async def _ask_mixed(self, up: dict[str, TargetServer]) -> None:
        wanted = self.found.next_mixed()
        while wanted and (names := [name for name in wanted[1] if name in up]):
            round_, name = wanted[0], names[0]
            began, prompts = time.time(), self._prompts(self.found.mixed_prompts(round_))
            cell = await ask_mixed(up[name], prompts, self.settings.mixed_temperature)
            self.found.mixed[name, round_] = VisitRecord(
                stage=0,
                block=0,
                round=round_,
                order=0,
                period=self.period,
                arm=name,
                began=began,
                cell=cell,
            )
            self.on_partial(self.partial())
            wanted = self.found.next_mixed()

    async def _ask_greedy(self, up: dict[str, TargetServer]) -> None:
        while wanted := self.found.next_greedy(up):
            name, level, round_ = wanted
            prompts = self._prompts(self.found.greedy_prompts(level))
            self.progress.start(f"sending {name} requests at temperature 0, {level}", len(prompts))
            began = time.time()
            cell = await ask_greedy(up[name], prompts, level, round_, self.progress)
            self.found.greedy[wanted] = VisitRecord(
                stage=0,
                block=0,
                round=round_,
                order=0,
                period=self.period,
                arm=name,
                began=began,
                cell=cell,
            )
            self.on_partial(self.partial())

    async def _ask_margins(self, standard: TargetServer) -> None:
        characters: dict[str, list[int]] = defaultdict(list)
        for name, character in self.found.margins_wanted():
            characters[name].append(character)
        if characters:
            self.progress.start(f"asking {self.found.standard} where answers part", len(characters))
        for prompt in self._prompts(characters):
            for margin in await ask_margins(standard, prompt, characters[prompt.id]):
                self.found.margins[margin.place] = margin
            self.progress.advance()

    def _prompts(self, ids: Iterable[str]) -> list[Prompt]:
        wanted = set(ids)
        return [prompt for prompt in self.prompts.prompts if prompt.id in wanted]

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
            temperature=self.asked.temperature,
            facts=self.facts,
            margins={place: told.margin for place, told in found.margins.items() if told.margin is not None},
            sent_before=found.sent_before,
            greedy=list(found.greedy.values()),
        )
        return self._result(judged.verdict, judged.reason, judged.summary, judged.data)

    def _judge_failures(self, name: str) -> None:
        rows = [row for visit in self.found.visits.values() if visit.arm == name for row in visit.cell.rows]
        failures = [row for row in rows if row.error is not None]
        if failures and len(failures) == len(rows) and name == self.found.standard:
            told = f"all {len(rows)} requests failed; {failures[0].detail}"
            raise endpoint_error(name, Failure(str(failures[0].error), told))
        if len(failures) > self.asked.max_error_share * len(rows):
            told = f"{len(failures)} of {len(rows)} requests failed, such as: {failures[0].detail}"
            self.found.failed.setdefault(name, told)

    def _result(
        self, verdict: Verdict, reason: str, summary: dict[str, Any], judged: dict[str, Any]
    ) -> Result:
        found = self.found

        def told(records: Iterable[VisitRecord | Margin]) -> list[dict[str, Any]]:
            return [record.model_dump(mode="json", by_alias=True) for record in records]

        arms = {name: pool.model_dump(mode="json") for name, pool in self.pools.items()}
        return Result(
            phase=PHASE,
            inputs=self.inputs,
            settings=self.asked.plan() | self.settings.model_dump(mode="json") | {"arms": arms},
            environment=results.environment() | {"arms": self.facts},
            verdict=verdict,
            reason=reason,
            summary=summary,
            data=judged
            | {
                "prompts": self.prompts.provenance(),
                "failed": found.failed,
                "looks": {"done": len(found.decided), "planned": found.looks},
                "visits_planned": len(found.plan),
                "visits": told(found.visits.values()),
                "mixed": told(found.mixed.values()),
                "margins": told(found.margins.values()),
                "greedy": told(found.greedy.values()),
            },
        )
