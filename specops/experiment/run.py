"""Starts the arms, measures window after window, stores them, looks at the evidence, and ends.

An arm that fails during the run ends its own windows, not the experiment: its failure is part of the answer.
Before the first window, the arms are shown to be different servers, or, for an A/A, one server.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from specops.access import OPEN
from specops.config import Ab
from specops.errors import EndpointError, ServerError, UsageError
from specops.experiment import claims
from specops.experiment.arms import Arm
from specops.experiment.claims import Evidence
from specops.experiment.decide import Confidences, Judged, judge_challenger, over_all
from specops.experiment.identity import check_addresses, introduce_all
from specops.experiment.margins import places_needed, request_margins
from specops.experiment.plan import (
    BEHIND_PREFIX,
    EACH_TURN_NEW,
    LONG_RUN_FROM,
    MIXED_STREAMS,
    Key,
    Kind,
    Plan,
    Request,
    Window,
)
from specops.experiment.records import Margin, Measurements, Place, WindowRecord
from specops.experiment.storing import Storing
from specops.hints import with_options, with_value
from specops.launch.servers import SERVED_AS, Server, check, serving
from specops.load import clock
from specops.load.answer import Failure, token_counter
from specops.load.arrivals import Level, Pace, Watch
from specops.load.client import endpoint_error
from specops.load.record import NOT_THE_SERVERS, CellRecord, Row
from specops.load.runner import CellFailed
from specops.load.settings import BaselineSettings
from specops.load.shared_prefix import shared_prefix
from specops.load.target_server import TargetServer
from specops.load.workload import OWN_HISTORY, Prompt, PromptSet
from specops.progress import Progress

FIRST_LOOK = 0.4
"""Share of the planned requests before the first look: the bounds on rare events need about 300 of 750."""

FEWEST_CYCLES = 24
"""Pairs of windows at a load. Fewer know too little of noise that lasts (test_stats_lasting.py)."""

FEWEST_REQUESTS = 30
"""Requests for each cycle: who allows fewer in all gets fewer cycles, too."""

LONG_RUN = 6
"""Cycles in which each arm is measured without a pause, where there are so many. The first look waits for
their end."""

OPEN_LOOP_LOAD = 0.7
"""Rate of an open loop, as a share of what the standard answers at its heaviest load."""

MOST_WINDOW_S = 60.0
"""An open window at a lower rate would take longer."""


class Experiment:
    """A comparison of arms that is under way: what was measured, what is next, what it means."""

    def __init__(
        self,
        arms: Sequence[Arm],
        requests: BaselineSettings,
        settings: Ab,
        prompts: PromptSet,
        progress: Progress,
        logs: Path,
        *,
        mixed_temperature: float,
        same_server: bool,
        store: Callable[[Experiment], None],
    ) -> None:
        """`requests` says what is sent to every arm; address and model are the arm's. `store` is called as
        storing.py says.

        Raises UsageError for arms that the design cannot compare, or that are one server (with `same_server`:
        that are not).
        """
        for arm in arms:
            check(arm.pool, arm.name)  # before others have been started, which takes minutes
        fixed = [arm.name for arm in arms if arm.pool.endpoint is not None]
        if settings.design == "abba-restart" and fixed:
            raise UsageError(
                f"abba-restart starts its arms in turn, and {fixed[0]} is an endpoint that runs already: "
                "expected a command that starts it",
                hint=with_options({"--design": "interleaved"}),
            )
        check_addresses(arms, same_server=same_server)
        self.pools = {arm.name: arm.pool for arm in arms}
        self.requests = requests
        self.settings = settings
        self.prompts = prompts
        self.progress = progress
        self.logs = logs
        self.same_server = same_server
        self.store = store
        self.plan = plan_of(list(self.pools), requests, settings, prompts, mixed_temperature)
        self.run = secrets.token_hex(4)
        self._storing = Storing(self._store)
        self.windows: dict[Key, WindowRecord] = {}
        self._measured_again: dict[Key, tuple[Row, ...]] = {}
        """Requests of windows that an earlier run did not finish; those that it stopped say nothing."""

        self.margins: dict[Place, Margin] = {}
        self.failed: dict[str, str] = {}
        """Why an arm failed, by its name."""

        self.period = 0
        self.facts: dict[str, Any] = {
            name: {"pool": pool.model_dump(mode="json")} for name, pool in self.pools.items()
        }
        self._looks: dict[int, bool] = {}
        """Whether the look before a cycle settled the comparison, by cycle."""

        self._coming = self.plan.windows()
        self._next: Window | None = next(self._coming)
        self._first_cycle = list(takewhile(lambda window: window.cycle == 0, self.plan.windows()))
        self._prompts_by_id = {prompt.id: prompt for prompt in prompts.prompts}
        self._count_tokens = token_counter(requests.tokenizer) if requests.tokenizer else None
        if settings.prefix_share:
            _ = self._prefix  # before anything is started: it may be impossible
        self._pace = Pace(requests.max_rps)
        self._watches = {name: Watch(requests.abort_rule()) for name in self.pools}

    # --- what was measured

    @property
    def standard(self) -> str:
        return next(iter(self.pools))

    @property
    def working(self) -> list[str]:
        return [name for name in self.pools if name not in self.failed]

    @property
    def measurements(self) -> Measurements:
        return Measurements(
            run=self.run, windows=list(self.windows.values()), margins=list(self.margins.values())
        )

    def resume(self, earlier: Measurements, facts: Mapping[str, Any]) -> None:
        """Take over what an earlier run of the same plan measured whole.

        Failed requests count: a resumed experiment must not repeat requests until they succeed. What was
        sent in a window that is measured again stands beside it. Only windows of an arm that was stopped are
        measured again where they failed, without that.
        """
        stopped = {window.arm for window in earlier.windows if window.cell.aborted}
        bound = self.requests.max_error_share
        valid = [
            window
            for window in earlier.windows
            if window.arm not in stopped or window.cell.failed <= bound * len(window.cell.sent)
        ]
        self.windows = {window.key: window for window in valid if window.cell.complete}
        if self.settings.design == "interleaved":
            self._drop_halves()
        self._measured_again = {
            window.key: tuple(
                row.model_copy(update={"part": "warm-up"})
                for row in window.cell.sent
                if row.error not in NOT_THE_SERVERS
            )
            for window in valid
            if window.key not in self.windows
        }
        self.run = earlier.run
        self.__dict__.pop("_prefix", None)  # it has the nonce of the run
        self.margins = {margin.place: margin for margin in earlier.margins}
        self.facts |= facts
        self.period = 1 + max((window.period for window in earlier.windows), default=-1)
        if self.windows:
            self.progress.note(f"windows measured before: {len(self.windows)}")

    def _drop_halves(self) -> None:
        """Drop windows that would be compared with windows of another session, on a machine that may have
        become faster: those that an arm lacks, and a long run that is not whole."""
        arms = Counter(key[:3] for key in self.windows)
        halves = {place for place, number in arms.items() if number < len(self.pools)}
        long_run: set[tuple[int, Kind, Level]] = {
            (cycle, "measured", level)
            for cycle in self.plan.cycles_without_pause
            for level in self.plan.levels
        }
        if halves & long_run or not long_run <= arms.keys():
            halves |= long_run
        self.windows = {key: window for key, window in self.windows.items() if key[:3] not in halves}

    @property
    def duration_s(self) -> float:
        """How long the arms were observed, in seconds, all arms together."""
        return sum(map(_seconds, self.windows.values()))

    @property
    def cycles(self) -> int:
        """The number of cycles that are planned: for the requests, for an interval over windows, and for the
        least duration. 1 before the first cycle is complete."""
        fixed = fixed_cycles(self.plan, self.settings)
        if fixed is not None:
            return fixed
        first = [
            self.windows.get(window.key) for window in self._first_cycle if window.arm not in self.failed
        ]
        measured = [window for window in first if window is not None]
        if len(measured) < len(first) or not measured:
            return 1
        sent = max(
            sum(row.part != "warm-up" for w in measured if w.arm == arm for row in w.cell.sent)
            for arm in self.pools
        )
        by_requests = math.ceil(self.settings.requests / max(1, sent))
        seconds = max(sum(map(_seconds, measured)), 1e-3)
        by_time = math.ceil(self.settings.min_duration_s / (FIRST_LOOK * seconds))
        return max(1, by_requests, by_time, _fewest_cycles(self.settings))

    @property
    def looks(self) -> tuple[float, ...]:
        """The looks' shares of the planned requests. A part of a replay is not what was to be compared."""
        single = self.settings.design == "abba-restart" or self.plan.replay is not None
        number = 1 if single else self.settings.looks
        if number == 1:
            return (1.0,)
        return tuple(FIRST_LOOK + (1 - FIRST_LOOK) * index / (number - 1) for index in range(number))

    @property
    def looks_done(self) -> int:
        return max(1, len(self._looks))

    @property
    def final_look(self) -> int:
        """The look at which it ended, from 1: where nothing was settled before, the last."""
        return self.looks_done if any(self._looks.values()) else len(self.looks)

    # --- what is next

    def next_window(self) -> Window | None:
        """The first window that is missing; None when all are there, or the evidence settles it."""
        while (window := self._next) is not None:
            if self.standard in self.failed or len(self.working) < 2:
                return None
            cycles = self.cycles
            if window.cycle >= cycles or (
                window.cycle in self._look_cycles(cycles) and self._settled(window.cycle)
            ):
                return None
            if window.key not in self.windows and window.arm not in self.failed:
                return window
            self._next = next(self._coming, None)
        return None

    def _look_cycles(self, cycles: int) -> set[int]:
        """The cycles before which there is a look; the look at the end needs none."""
        first = self.plan.cycles_without_pause.stop if self.plan.long_run else 0
        return {max(first, math.ceil(share * cycles)) for share in self.looks[:-1]}

    def _settled(self, cycle: int) -> bool:
        if cycle not in self._looks:
            if self.places_needed():
                return False  # the look waits for the margins, which `_measure` requests
            windows = [window for window in self.windows.values() if window.cycle < cycle]
            judged = [self.judge(name, windows, len(self._looks) + 1) for name in self.working[1:]]
            enough = sum(map(_seconds, windows)) >= self.settings.min_duration_s
            self._looks[cycle] = all(
                challenger.settled and (enough or challenger.decision.verdict == "no")
                for challenger in judged
            )
        return self._looks[cycle]

    def places_needed(self) -> list[Place]:
        """Where greedy answers differ and the standard's margin is not known yet."""
        windows = list(self.windows.values())
        return places_needed(windows, self.standard, self.working[1:], self.margins)

    def judge(self, name: str, windows: Sequence[WindowRecord], look: int) -> Judged:
        evidence = self.evidence(name, windows)
        challengers = max(1, len(self.pools) - 1)
        confidences = Confidences.at(
            self.settings.confidence, len(evidence.classes), challengers, look, self.looks
        )
        return over_all(judge_challenger(evidence, confidences))

    def evidence(self, name: str, windows: Sequence[WindowRecord]) -> Evidence:
        return Evidence(
            windows=windows,
            standard=self.standard,
            challenger=name,
            settings=self.settings,
            temperature=self.requests.temperature,
            timeout_ms=1000 * self.requests.timeout_s,
            objectives=self.requests.slo,
            margins={place: margin.nats for place, margin in self.margins.items()},
        )

    # --- measuring

    def measure(self) -> None:
        """Measure what is missing, one period after the other."""
        while names := self._arms_needed():
            with ExitStack() as servers:
                up = {name: servers.enter_context(self._served(name)) for name in names}
                with self._storing.at_a_stop():
                    asyncio.run(self._measure(up))
            self.period += 1
        for name in self.pools:
            self._judge_failures(name)

    def _arms_needed(self) -> list[str]:
        """The arms that must be up next; none when all is measured."""
        window = self.next_window()
        if window is not None:
            return self.working if self.settings.design == "interleaved" else [window.arm]
        return [self.standard] if self.standard not in self.failed and self.places_needed() else []

    @contextmanager
    def _served(self, name: str) -> Iterator[Server]:
        """The arm's server. One that ends during the measurement has failed; one that does not come up
        raises."""
        log = self.logs / f"{name}.log"
        over = False
        try:
            with serving(self.pools[name], name, model=SERVED_AS, log=log, progress=self.progress) as server:
                yield server
                over = True
                if name in self.failed:  # raised in here, `serving` finds out whether the server ended
                    raise EndpointError(self.failed[name])
        except EndpointError:
            if not over:
                raise
        except ServerError as error:
            if not over:
                raise
            self._fail(name, error.message)
            if error.log:
                self.progress.note(f"its log ends with:\n{error.log}")

    def _fail(self, name: str, message: str) -> None:
        self.failed[name] = message
        self.progress.note(f"{name} failed: {message}")

    async def _measure(self, servers: dict[str, Server]) -> None:
        """Send the arms that are up now all requests of this period."""
        try:
            async with AsyncExitStack() as clients:
                up = {
                    name: await clients.enter_async_context(self._client(name, server))
                    for name, server in servers.items()
                }
                await introduce_all(
                    up, lambda name: self._introduce(name, up[name]), same_server=self.same_server
                )
                planned = self.settings.requests * len(self.pools)
                self.progress.start(f"comparing {' and '.join(up)}", planned)
                if self.windows and self.standard in up:
                    await self._request_margins(up[self.standard])  # of an earlier session: a look needs them
                first = self.next_window()
                cycle = first.cycle if first else 0
                while True:
                    window = self.next_window()
                    if window is None or (first and window.period != first.period):
                        break
                    if window.cycle > cycle and self.standard in up:
                        cycle = window.cycle
                        if cycle in self._look_cycles(self.cycles):
                            await self._request_margins(up[self.standard])  # the look before it needs them
                            continue
                    await self._measure_window(up[window.arm], window)
                if self.standard in up:
                    await self._request_margins(up[self.standard])
        except CellFailed as stop:
            if stop.__cause__:
                raise stop.__cause__ from None
            raise

    def _client(self, name: str, server: Server) -> TargetServer:
        settings = self.requests.at(server, name)
        return TargetServer(settings, self._pace, self._watches[name], self.progress, self._count_tokens)

    async def _introduce(self, name: str, arm: TargetServer) -> None:
        try:
            self.facts[name] |= await arm.introduce(
                self._prompt(Request(self.prompts.prompts[0].id, "probe"))
            )
        except EndpointError as error:
            if not any(window.arm == name for window in self.windows.values()):
                raise
            self._fail(name, error.message)

    async def _measure_window(self, arm: TargetServer, window: Window) -> None:
        def keep(cell: CellRecord) -> None:
            beside = (*self._measured_again.get(window.key, ()), *cell.beside)
            cell = cell.model_copy(update={"beside": beside})
            self.windows[window.key] = WindowRecord(
                cycle=window.cycle,
                kind=window.kind,
                level=window.level,
                order=window.order,
                period=self.period,
                arm=window.arm,
                began=began,
                cell=cell,
            )

        began = clock.now()
        streams = window.level.concurrency or 1
        # Half of the connections stay, and the others are new; a single one stays in every second window.
        arm.client.renew_connections(streams // 2 if streams > 1 else window.cycle % 2)
        level = window.level
        if window.kind == "open":
            level = Level(rate=self._open_rate(window))
        elif window.kind == "mixed":
            level = Level(concurrency=max(MIXED_STREAMS, streams))
        longest = [session[-1] for session in self.prompts.sessions]
        variant = f"warm-up.{BEHIND_PREFIX}" if self.plan.prefix_share else "warm-up"
        warm_up = [Request(prompt.id, variant) for prompt in longest[: self.requests.warmup]]
        await arm.visit(
            [self._prompt(request, window.cycle) for request in window.requests],
            level,
            window.cycle,
            warm_up_with=[self._prompt(request) for request in warm_up],
            keep=keep,
            fillers=[self._prompt(request, window.cycle) for request in window.fillers],
            warm=window.kind == "measured",
            live_answers=self.plan.live_answers,
        )
        aborted = self.windows[window.key].cell.aborted
        if aborted:
            self._fail(window.arm, f"stopped at {window.level}: {aborted}")
        self._storing.measured()

    def _store(self) -> None:
        if self.windows:  # a result without windows would replace an earlier one by nothing
            self.store(self)

    def _open_rate(self, window: Window) -> float:
        """Requests a second, the same for all arms: a share of what the standard answered at that load in the
        first cycle."""
        first = next(
            (
                record.cell
                for key, record in self.windows.items()
                if key[1:] == ("measured", window.level, self.standard) and record.cell.wall_s > 0
            ),
            None,
        )
        rate = OPEN_LOOP_LOAD * len(first.rows) / first.wall_s if first else 1.0
        rate = max(rate, len(window.requests) / MOST_WINDOW_S)
        return round(min(rate, self.requests.max_rps or rate), 4)

    def _prompt(self, request: Request, cycle: int = 0) -> Prompt:
        prompt = self._prompts_by_id[request.prompt]
        if self.plan.replay is not None and request.replayed is not None:
            prompt = self.plan.replay.prompt(request.replayed, self.run, request.variant, request.repeat)
        elif not self.plan.same_prompts:
            mark = request.variant.rpartition(".")[2]
            if mark == EACH_TURN_NEW:
                prompt = replace(prompt, session="")
            prompt = prompt.fresh(self.run, request.variant)
            if mark == BEHIND_PREFIX:
                prompt = prompt.behind(self._prefix)
        # A sampled answer to the same prompt with the same seed would not be another sample.
        seed = random.Random(f"{self.plan.seed}:{prompt.id}:{request.variant}:{cycle}").getrandbits(31)
        return replace(prompt, temperature=request.temperature, seed=seed)

    @cached_property
    def _prefix(self) -> str:
        tokens = self.settings.prefix_tokens
        return shared_prefix(self.prompts, tokens, self.run, self._count_tokens)

    def _turn_sent(self, prompt: str, variant: str) -> Prompt:
        """The greedy request that the standard was sent with this variant, on its own answers where the
        variant has them."""
        planned = variant.partition(OWN_HISTORY)[0]
        sent = self._prompt(self.plan.request(prompt, planned))
        if sent.variant == variant:
            return sent
        session = next(turns for turns in self.prompts.sessions if any(turn.id == prompt for turn in turns))
        rows = next(
            window.cell.sent
            for window in self.windows.values()
            if window.arm == self.standard
            and any((row.prompt, row.variant) == (prompt, variant) for row in window.cell.sent)
        )
        answers = {
            row.prompt: row.text[row.reasoning :]
            for row in rows
            if row.variant.partition(OWN_HISTORY)[0] == planned and row.error is None
        }
        before = sent = self._prompt(self.plan.request(session[0].id, planned))
        for turn in session[1:]:
            if before.id == prompt:
                break
            recorded = self._prompt(self.plan.request(turn.id, planned))
            sent = recorded.continuing(before, sent, answers.get(before.id))
            before = recorded
        return sent

    async def _request_margins(self, standard: TargetServer) -> None:
        async for margin in request_margins(standard, self.places_needed(), self._turn_sent):
            self.margins[margin.place] = margin

    def _judge_failures(self, name: str) -> None:
        rows = [row for window in self.windows.values() if window.arm == name for row in window.cell.sent]
        failures = [row for row in rows if row.error is not None]
        if failures and len(failures) == len(rows) and name == self.standard:
            message = f"all {len(rows)} requests failed; {failures[0].detail}"
            endpoint = self.pools[name].endpoint
            credentials = (OPEN if endpoint is None else endpoint.access).credentials(
                "", self.requests.api_key_env
            )
            raise endpoint_error(name, Failure(str(failures[0].error), message), credentials=credentials)
        hopeless = claims.always_failing(list(self.windows.values()), name)
        failures = [row for row in failures if (row.prompt, row.temperature) not in hopeless]
        if len(failures) > self.requests.max_error_share * len(rows):
            message = f"{len(failures)} of {len(rows)} requests failed, such as: {failures[0].detail}"
            self.failed.setdefault(name, message)


def plan_of(
    arms: Sequence[str],
    requests: BaselineSettings,
    settings: Ab,
    prompts: PromptSet,
    mixed_temperature: float,
) -> Plan:
    replay = requests.replay(prompts, for_comparison=True)
    share = settings.prefix_share or settings.cold_share
    if share and (replay is not None or requests.same_prompts):
        kind = "replayed requests" if replay is not None else "prompts that are sent as they are"
        raise UsageError(
            f"prefix_share and cold_share are not for {kind}, which decide themselves what a cache knows: "
            "expected 0",
            hint=with_value(f"{share:g}", "0"),
        )
    return Plan(
        arms=tuple(arms),
        levels=(replay.level,) if replay else tuple(requests.levels()),
        prompts=tuple((first.id, first.traffic_class) for first, *_ in prompts.sessions),
        design=settings.design,
        seed=requests.seed,
        temperature=requests.temperature,
        mixed_prompts=settings.mixed_prompts,
        mixed_temperature=mixed_temperature,
        same_prompts=requests.same_prompts,
        rounds=max(2, requests.repeats),
        long_run=LONG_RUN if _fewest_cycles(settings) >= LONG_RUN_FROM + LONG_RUN else 0,
        later_turns={
            first.id: tuple(turn.id for turn in later) for first, *later in prompts.sessions if later
        },
        replay=replay,
        prefix_share=settings.prefix_share,
        cold_share=settings.cold_share,
        live_answers=settings.live_answers,
    )


def _fewest_cycles(settings: Ab) -> int:
    return min(FEWEST_CYCLES, settings.requests // FEWEST_REQUESTS)


def fixed_cycles(plan: Plan, settings: Ab) -> int | None:
    """The number of cycles that is known before the first: of abba-restart, and of a replay, which is sent
    whole as often as the evidence needs. None for the others."""
    once = plan.cycles_of_a_round
    if settings.design == "abba-restart":
        return plan.rounds * once
    if plan.replay is None:
        return None
    replay_s = max(1.0, len(plan.arms) * plan.replay.facts.duration_s)
    return once * math.ceil(max(1, _fewest_cycles(settings) / once, settings.min_duration_s / replay_s))


def _seconds(window: WindowRecord) -> float:
    """How long a window took, without the warm-up."""
    ends = [row.sent_s + row.e2e_ms / 1000 for row in window.cell.sent if row.part != "warm-up"]
    starts = [row.sent_s for row in window.cell.sent if row.part != "warm-up"]
    return max(ends, default=0.0) - min(starts, default=0.0)
