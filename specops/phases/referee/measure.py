"""The referee's measurement: all servers are up, and take turns by segment; judged and stored."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from specops import results
from specops.config import Referee, Rollout
from specops.errors import ConfigError, ServerError
from specops.experiment.arms import Arm, parse_arm
from specops.experiment.identity import check_addresses, introduce_all
from specops.experiment.storing import Storing
from specops.hints import in_rollout
from specops.launch.servers import SERVED_AS, Server, check, serving
from specops.load import clock
from specops.load.answer import token_counter
from specops.load.arrivals import Pace, Watch
from specops.load.record import CellRecord
from specops.load.runner import CellFailed
from specops.load.target_server import TargetServer
from specops.phases.ab.measure import with_models
from specops.phases.inputs import inputs_of_settings, settings_of
from specops.phases.measurement import checked
from specops.phases.referee.judging import Limits, Segment, judge
from specops.phases.referee.programme import Programme, programme_of
from specops.phases.referee.records import ADAPTIVE, OFF, Findings, RefereeData, SegmentRecord, Summary
from specops.phases.referee.sentences import reason_of
from specops.progress import Progress
from specops.render.figures import count
from specops.results import Result, Verdict
from specops.serving import Grid
from specops.trees import parse_tree

PHASE = "referee"

ADAPT = ("auto", "adaptive")
"""Kinds of trees whose size follows from what steps bring."""

VERDICTS: dict[str, Verdict] = {"pays": "yes", "loses": "no"}
"""The verdict of the result by the word of the findings; of other words undecided."""


def arms_of(rollout: Rollout) -> list[Arm]:
    """The server without speculation, the adaptive one, and one for each fixed setting. Raises ConfigError
    where the fixed settings cannot be made of the speculative pool, and UsageError for a wrong arm."""
    section, pools = rollout.referee or Referee(), rollout.pools
    if section.static is not None:
        statics = [parse_arm(f"{name}={spec}") for name, spec in section.static.items()]
    elif pools.speculative.endpoint is not None:
        raise ConfigError(
            "the speculative pool runs already, and its draft length is not specops's to set: expected the "
            "servers of fixed settings",
            hint=in_rollout("referee", "write static: {k3: http://HOST:8001/v1} into the section referee"),
        )
    else:
        adapting = next((tree for tree in section.trees or () if parse_tree(tree).kind in ADAPT), None)
        if adapting is not None:
            raise ConfigError(
                f"the referee compares fixed settings, and {adapting} adapts by itself",
                hint=in_rollout("referee", "write trees: [chain:3, chain:5] into the section referee"),
            )
        variants = pools.speculative.variants(Grid(section.k, section.trees, None, Path()))
        statics = [Arm(variant.name, variant.pool) for variant in variants]
    reserved = next((arm.name for arm in statics if arm.name in (OFF, ADAPTIVE)), None)
    if reserved is not None:
        raise ConfigError(
            f"a static setting of the referee is called {reserved}, as one of its other servers is",
            hint=in_rollout("static", "choose another name"),
        )
    return [Arm(OFF, pools.standard), Arm(ADAPTIVE, pools.speculative), *statics]


class Contest:
    """A referee's measurement that is under way."""

    def __init__(
        self,
        arms: Sequence[Arm],
        programme: Programme,
        limits: Limits,
        progress: Progress,
        logs: Path,
        inputs: dict[str, str],
        store: Callable[[Result], None],
    ) -> None:
        for arm in arms:
            check(arm.pool, arm.name)  # before others have been started, which takes minutes
        check_addresses(arms, same_server=False)
        self.pools = {arm.name: arm.pool for arm in arms}
        self.programme, self.limits, self.progress, self.logs = programme, limits, progress, logs
        self.inputs = inputs
        self.run = secrets.token_hex(4)
        self.segments: list[SegmentRecord] = []
        self.failed: dict[str, str] = {}
        self._sent: set[str] = set()
        self.facts: dict[str, Any] = {
            name: {"pool": pool.model_dump(mode="json")} for name, pool in self.pools.items()
        }
        self.duration_s = 0.0
        self._storing = Storing(lambda: store(self.result()))
        tokenizer = programme.settings.tokenizer
        self._count_tokens = token_counter(tokenizer) if tokenizer else None
        self._pace = Pace(programme.settings.max_rps)
        self._watches = {name: Watch(programme.settings.abort_rule()) for name in self.pools}

    def resume(self, earlier: Result) -> None:
        """Take over whole passes: servers are compared within one, and the machine may have changed. The
        other segments are sent again with nonces of this run, since some servers had their requests."""
        data = checked(RefereeData, earlier.data, "the earlier result is damaged: data")
        whole = len(self.pools) * len(self.programme.phases)
        numbers = [segment.pass_number for segment in data.segments if segment.cell.complete]
        passes = {number for number in numbers if numbers.count(number) == whole}
        self.segments = [segment for segment in data.segments if segment.pass_number in passes]
        self.duration_s = data.duration_s
        self.facts |= earlier.environment.get("arms", {})

    def measure(self) -> None:
        """Send the programme to all servers. Raises EndpointError and ServerError where one does not come up
        or never answers."""
        began = time.monotonic()
        before_s = self.duration_s
        with ExitStack() as servers:
            up = {name: servers.enter_context(self._running(name)) for name in self.pools}
            with self._storing.at_a_stop():
                try:
                    asyncio.run(self._measure(up, lambda: before_s + time.monotonic() - began))
                except CellFailed as stop:
                    raise (stop.__cause__ or stop) from None

    @contextmanager
    def _running(self, name: str) -> Iterator[Server]:
        """The arm's server; one that ends while it is measured has failed."""
        over = False
        log = self.logs / f"referee-{name}.log"
        try:
            with serving(self.pools[name], name, model=SERVED_AS, log=log, progress=self.progress) as server:
                yield server
                over = True
        except ServerError as error:
            if not over:
                raise
            self._fail(name, error.message)

    def _fail(self, name: str, message: str) -> None:
        self.failed[name] = message
        self.progress.note(f"{name} failed: {message}")

    async def _measure(self, servers: dict[str, Server], elapsed_s: Callable[[], float]) -> None:
        async with AsyncExitStack() as clients:
            up = {
                name: await clients.enter_async_context(self._client(name, server))
                for name, server in servers.items()
            }
            await introduce_all(up, partial(self._introduce, up), same_server=False)
            per_pass = sum(map(self.programme.count, self.programme.phases))
            self.progress.start("sending the load programme", self.programme.passes * per_pass * len(up))
            measured = {(segment.pass_number, segment.phase, segment.arm) for segment in self.segments}
            for place in self.programme.segments(list(self.pools)):
                if {OFF, ADAPTIVE} & self.failed.keys():
                    return
                if place not in measured and place[2] not in self.failed:
                    await self._send(up[place[2]], *place)
                    self.duration_s = round(elapsed_s(), 3)
                    self._storing.measured()

    def _client(self, name: str, server: Server) -> TargetServer:
        settings = self.programme.settings.at(server, name)
        return TargetServer(settings, self._pace, self._watches[name], self.progress, self._count_tokens)

    async def _introduce(self, up: dict[str, TargetServer], name: str) -> None:
        probe = self.programme.prompts.prompts[0].fresh(self.run, "probe")
        self.facts[name] |= await up[name].introduce(probe)

    async def _send(self, arm: TargetServer, pass_number: int, phase: int, name: str) -> None:
        load = self.programme.load(pass_number, phase, self.run)
        began = clock.now()
        cells: list[CellRecord] = []
        warm_up = [prompt.fresh(self.run, "warm-up") for prompt in self.programme.prompts.prompts[:4]]
        try:
            await arm.visit(
                load.prompts,
                load.level,
                pass_number * len(self.programme.phases) + phase,
                warm_up_with=warm_up,
                keep=cells.append,
                fillers=load.fillers,
                warm=name not in self._sent,  # later, a warm-up would be a load of its own
            )
        finally:
            self._sent.add(name)
            if cells:
                record = SegmentRecord(
                    pass_number=pass_number, phase=phase, arm=name, began=began, cell=cells[-1]
                )
                self.segments.append(record)
        if cells[-1].aborted:
            self._fail(name, f"stopped at {self.programme.phases[phase]}: {cells[-1].aborted}")

    # --- the result

    def findings(self) -> Findings:
        statics = [name for name in self.pools if name not in (OFF, ADAPTIVE, *self.failed)]
        segments = map(Segment.of_record, self.segments)
        findings = judge(segments, self.programme.phases, statics, self.limits)
        stopped = {name: why for name, why in self.failed.items() if name not in (OFF, ADAPTIVE)}
        phases = [
            phase.model_copy(update={"left_out": phase.left_out | stopped}) for phase in findings.phases
        ]
        findings = findings.model_copy(update={"phases": phases})
        if OFF in self.failed or not statics:
            return findings.model_copy(update={"verdict": "unknown"})
        return findings.model_copy(update={"verdict": "loses"}) if ADAPTIVE in self.failed else findings

    def result(self, findings: Findings | None = None) -> Result:
        """The result; without `findings` the partial one."""
        data = RefereeData(
            run=self.run,
            prompts=self.programme.prompts.provenance(),
            segments=self.segments,
            failed=self.failed,
            duration_s=self.duration_s,
        ).model_dump(mode="json", by_alias=True)
        pools = {name: pool.model_dump(mode="json") for name, pool in self.pools.items()}
        common: dict[str, Any] = {
            "phase": PHASE,
            "inputs": self.inputs,
            "settings": self.programme.settings.plan()
            | {"referee": _plan(self.programme), "arms": pools}
            | vars(self.limits),
            "environment": results.environment() | {"arms": self.facts},
        }
        if findings is None:
            reason = f"stopped after {count(len(self.segments), 'segment')}"
            return Result(**common, verdict="partial", reason=reason, data=data)
        summary = Summary(
            verdict=findings.verdict,
            against_off=findings.off,
            against_static=findings.static,
            collapses=findings.collapses,
            swings=[phase.load for phase in findings.phases if phase.swings],
            duration_s=self.duration_s,
        )
        stored = findings.model_dump(mode="json")
        return Result(
            **common,
            verdict=VERDICTS.get(findings.verdict, "undecided"),
            reason=reason_of(findings, self.failed, self.limits.margin),
            summary=dict(summary) | {name: stored[key] for name, key in _INTERVALS.items()},
            data=data | stored,
        )


_INTERVALS = {"against_off": "off", "against_static": "static"}


def _plan(programme: Programme) -> dict[str, Any]:
    return {
        "phases": [phase.model_dump(mode="json", exclude_none=True) for phase in programme.phases],
        "passes": programme.passes,
        "requests": programme.requests,
    }


def inputs_of_contest(arms: Sequence[Arm], programme: Programme, limits: Limits) -> dict[str, str]:
    """The hash of each input by name."""
    pools = {arm.name: arm.pool for arm in arms}
    grid = {"referee": _plan(programme), "limits": vars(limits)}
    return inputs_of_settings(pools, programme.settings, grid, programme.prompts)


def contest_of(rollout: Rollout) -> tuple[list[Arm], Programme, Limits]:
    """What the rollout file asks the referee to measure. Raises as `arms_of` and `programme_of` do."""
    section = rollout.referee or Referee()
    limits = Limits(
        confidence=rollout.ab.confidence,
        margin=section.margin,
        length_margin=rollout.ab.length_margin,
        max_error_share=rollout.measure.max_error_share,
        failure_margin=rollout.ab.failure_margin,
    )
    settings = settings_of(rollout, rollout.pools.standard)
    return arms_of(rollout), programme_of(rollout, settings), limits


def measure(
    rollout: Rollout,
    progress: Progress,
    *,
    logs: Path,
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Measure the adaptive pool beside off and fixed settings, starting from what `previous` has.

    Raises ConfigError and UsageError for settings that cannot be measured, EndpointError and ServerError
    where a server does not come up.
    """
    arms, programme, limits = contest_of(rollout)
    inputs = inputs_of_contest(arms, programme, limits)
    arms = with_models(arms, programme.settings)
    contest = Contest(arms, programme, limits, progress, logs, inputs, on_partial)
    if previous is not None:
        contest.resume(previous)
    contest.measure()
    return contest.result(contest.findings())
