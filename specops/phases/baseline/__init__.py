"""Phase 1: measure an endpoint. One cell for each level of load and repeat, stored as soon as it is done."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from specops import results, stats
from specops.errors import FileError
from specops.load import record, validity
from specops.load.answer import Failure, token_counter
from specops.load.arrivals import Level, Pace, Watch
from specops.load.client import DEFAULT_MAX_TOKENS, endpoint_error, only_model
from specops.load.record import CellRecord
from specops.load.replay import Replay
from specops.load.runner import CellFailed
from specops.load.settings import BaselineSettings
from specops.load.target_server import TargetServer
from specops.load.workload import (
    Prompt,
    PromptSet,
    conversations_sentence,
    load_prompts,
    repeated_sentence,
)
from specops.phases import measurement
from specops.progress import Progress
from specops.render.figures import count
from specops.results import Result, Verdict

PHASE = "baseline"

FILLERS = 3
"""Requests for each stream that may fill it: one at its start, others until the last stream ends."""

SAME_PROMPTS = "prompts were sent as they are (--same-prompts), so a cache may have answered"


def measure_into(out: Path, settings: BaselineSettings, progress: Progress, *, fresh: bool = False) -> Result:
    """`measure`, stored in the file `out` after every cell; an earlier result there is resumed, unless
    `fresh`.

    Raises UsageError where `out` holds another measurement, and what `measure` raises.
    """
    settings = with_model(settings)

    def inputs() -> dict[str, str]:
        return settings.inputs(load_prompts(settings.prompts).select(settings.classes))

    previous = measurement.resumable(out, "measurement", inputs, measurement.cells_of, fresh=fresh)
    with measurement.partial_results(out, progress, resumed=previous is not None) as keep:
        result = measure(settings, progress, previous, keep)
        keep(result)
    return result


def with_model(settings: BaselineSettings) -> BaselineSettings:
    """The settings with the name of the only model that is served, where they have no name."""
    if settings.model:
        return settings
    return settings.model_copy(update={"model": only_model(settings.target(), settings.decoding())})


def measure(
    settings: BaselineSettings,
    progress: Progress,
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Measure the endpoint, starting from what `previous` has of the same inputs.

    `on_partial` gets a valid result after every cell, and when the run ends early with anything measured.
    Raises PromptsError for prompts that cannot be sent, EndpointError when nothing at all could be measured.
    """
    prompts = settings.prompt_set()  # what the endpoint cannot take is found before the first request
    run = _Run(settings, prompts, progress, on_partial)
    run.resume(previous)
    if run.missing():
        asyncio.run(run.measure())
    elif previous is not None:
        progress.note("every cell was measured before; nothing to measure")
        run.endpoint = previous.data.get("endpoint", {})
        run.environment = previous.environment
    return run.result()


class _Run:
    def __init__(
        self,
        settings: BaselineSettings,
        prompts: PromptSet,
        progress: Progress,
        on_partial: Callable[[Result], None],
    ) -> None:
        self.settings = settings
        self.prompts = prompts
        self.progress = progress
        self.on_partial = on_partial
        self.inputs = settings.inputs(prompts)
        self.replay = settings.replay(prompts)
        self.cells: list[CellRecord] = []
        self.endpoint: dict[str, Any] = {}
        self.environment = results.environment()
        self.token = secrets.token_hex(4)
        """Names this run in the nonces of its prompts."""

    def plan(self) -> list[tuple[Level, int]]:
        """Repeats outside, levels inside: a drift of the machine touches every level alike. Each window of a
        replay has a cell."""
        repeats, levels = self.settings.repeats, self.settings.levels()
        if self.replay is not None:
            repeats, levels = repeats * len(self.replay), [self.replay.level]
        return [(level, repeat) for repeat in range(repeats) for level in levels]

    def resume(self, previous: Result | None) -> None:
        """Take over the cells that an earlier run of the same inputs measured whole and well."""
        if previous is None or previous.inputs != self.inputs:
            return
        if previous.verdict == "undecided":  # of cells that are all there: others have to decide it
            self.progress.note(f"measuring again what decided nothing: {previous.reason}")
            return
        cells = measurement.cells_of(previous, "the earlier result")
        stored = {
            (cell.level, cell.repeat): cell
            for cell in cells
            if cell.complete and cell.failed <= self.settings.max_error_share * len(cell.sent)
        }
        self.token = previous.data["run"]
        self.cells = [stored[planned] for planned in self.plan() if planned in stored]
        if self.cells:
            self.progress.note(f"{len(self.cells)} of {len(self.plan())} cells were measured before")

    def missing(self) -> list[tuple[Level, int]]:
        have = {(cell.level, cell.repeat) for cell in self.cells if cell.complete}
        return [cell for cell in self.plan() if cell not in have]

    async def measure(self) -> None:
        settings = self.settings
        count_tokens = token_counter(settings.tokenizer) if settings.tokenizer else None
        watch, pace = Watch(settings.abort_rule()), Pace(settings.max_rps)
        async with TargetServer(settings, pace, watch, self.progress, count_tokens) as server:
            facts = await server.introduce(self._fresh(self.prompts.prompts[:1], "probe")[0])
            self.environment["server"] = facts["server"]
            self.endpoint = server.client.capabilities.described(retokenised=count_tokens is not None)
            try:
                for level, repeat in self.missing():
                    await self._measure_cell(server, level, repeat)
                    if self.cells[-1].aborted:
                        break
            except BaseException as stop:
                # A result without cells would replace an earlier one by nothing; and one that could not be
                # written a moment ago was stored elsewhere then.
                if self.cells and not isinstance(stop, FileError):
                    self.on_partial(self.partial())
                if isinstance(stop, CellFailed) and stop.__cause__:
                    raise stop.__cause__ from None
                raise

    async def _measure_cell(self, server: TargetServer, level: Level, repeat: int) -> None:
        """Measure a cell, all of its streams full. With the same prompts nothing is sent beside them: it
        would put them into a cache."""
        before, same = list(self.cells), self.settings.same_prompts

        def keep(cell: CellRecord) -> None:
            self.cells = [*before, cell]

        variant = f"{repeat} {level}"
        prompts = (
            self._fresh(self.prompts.prompts, variant)
            if self.replay is None
            else self._replayed(self.replay, repeat)
        )
        last = self.plan()[-1][1]
        self.progress.start(f"{level}, repeat {repeat + 1} of {last + 1}", len(prompts))
        longest = [session[-1] for session in self.prompts.sessions]
        await server.visit(
            prompts,
            level,
            repeat,
            warm_up_with=self._fresh(longest, f"warm-up {level}"),
            keep=keep,
            fillers=[] if same else self._fillers(level, variant),
        )
        self.on_partial(self.partial())

    def _replayed(self, replay: Replay, cell: int) -> list[Prompt]:
        repeat, window = divmod(cell, len(replay))
        return [
            replay.prompt(request, self.token, f"replay.{cell}.{number}", repeat)
            for number, request in enumerate(replay.window(window))
        ]

    def _fillers(self, level: Level, variant: str) -> list[Prompt]:
        """Requests that keep all streams full, in an order of their own; none for an open loop."""
        sessions, fillers = self.prompts.sessions, []
        for number in range(FILLERS * (level.concurrency or 0)):
            copy, place = divmod(number, len(sessions))
            fillers += self._fresh(sessions[place], f"fill {variant} {copy}")
        return fillers

    def _fresh(self, prompts: Iterable[Prompt], variant: str) -> list[Prompt]:
        """The prompts in one variant, which no cache has; as they are where the settings say so."""
        if self.settings.same_prompts:
            return list(prompts)
        return [prompt.fresh(self.token, variant) for prompt in prompts]

    def partial(self) -> Result:
        plan = len(self.plan())
        done = plan - len(self.missing())
        return self._result("partial", f"stopped after {done} of {plan} cells")

    def result(self) -> Result:
        errors = record.errors(self.cells)
        requests, failed = errors.requests - errors.interrupted, errors.failed
        kinds = ", ".join(f"{count} {kind}" for kind, count in errors.by_kind.items())
        if requests == failed:
            kind, detail = next(iter(errors.examples.items()))
            failure = Failure(kind, f"all {requests} requests failed; {detail}")
            raise endpoint_error(
                self.settings.base_url, failure, credentials=self.settings.target().credentials
            )
        retried = f"; {errors.retried_requests} retried" if errors.retried_requests else ""
        aborted = [cell for cell in self.cells if cell.aborted]
        if aborted:
            named = f" ({kinds}, such as: {next(iter(errors.examples.values()))})" if failed else ""
            return self._result("no", f"stopped at {aborted[0].level}: {aborted[0].aborted}{named}{retried}")
        if failed > self.settings.max_error_share * requests:
            return self._result("no", f"{failed} of {requests} requests failed: {kinds}{retried}")
        remarks = [f"{failed} failed: {kinds}"] if failed else []
        remarks += [f"at {level}, {sentence}" for level, sentence in self._slow_tails()]
        left_out = repeated_sentence(self.prompts.repeated, len(self.prompts.prompts))
        doubts = [*filter(None, self._doubts()), *validity.cached(self.cells)]
        noted = (
            validity.unanswered(self.cells),
            validity.filtered(self.cells),
            validity.without_reasons([row for cell in self.cells for row in cell.rows]),
            None if self.replay else validity.limited(self.cells, self._limits()),
            SAME_PROMPTS if self.settings.same_prompts else None,
        )
        conversations = conversations_sentence(self.prompts.provenance())
        remarks += filter(None, (left_out, conversations, *(doubt.sentence for doubt in doubts), *noted))
        remarks += list(self.replay.facts.sentences())[1:] if self.replay else []
        starts = validity.slow_starts(self._steady_load)
        remarks += [start.sentence for start in starts if start.moved <= validity.DRIFT]
        also = "".join(f"; {remark}" for remark in remarks) + retried
        for cell in self.cells:
            if cell.client_bound:
                advice = "lower the load, or measure from a machine with more free CPU time"
                return self._result("undecided", f"at {cell.level}, {cell.client_bound}; {advice}{also}")
        drifts = [start.sentence for start in starts if start.moved > validity.DRIFT]
        drifts += [change.sentence for change in validity.changes(self._steady_load) if change.drift]
        unsteady = f"the server was not steady: {'; '.join(drifts)}" if drifts else ""
        grave = [doubt for doubt in doubts if doubt.share > self.settings.max_error_share]
        if grave:  # first: a cache looks like a server that changes
            advice = "; ".join(dict.fromkeys(doubt.advice for doubt in grave))
            rest = f"; {unsteady}" if unsteady else ""
            reason = f"not usable as a baseline{also}{rest}; {advice}, and measure again"
            return self._result("undecided", reason)
        if unsteady:
            return self._result("undecided", f"{unsteady}{also}")
        return self._result("yes", f"measured {requests} requests in {count(len(self.cells), 'cell')}{also}")

    @property
    def _steady_load(self) -> list[CellRecord]:
        """The cells in which the load does not change by itself: then a drift is the server's."""
        return [] if self.replay else self.cells

    def _limits(self) -> dict[str, int]:
        """The `max_tokens` of each prompt; in a replay, the largest of any request."""
        if self.replay and self.settings.max_tokens is None:
            own = (prompt.max_tokens or DEFAULT_MAX_TOKENS for prompt in self.prompts.prompts)
            return dict.fromkeys(
                (prompt.id for prompt in self.prompts.prompts),
                max(self.replay.facts.longest_answer, *own),
            )
        return {
            prompt.id: self.settings.max_tokens or prompt.max_tokens or DEFAULT_MAX_TOKENS
            for prompt in self.prompts.prompts
        }

    def _doubts(self) -> list[validity.Doubt | None]:
        miscounted = self.endpoint.get("miscount")
        return [
            validity.stock(self.cells),
            validity.undercounted(self.cells),
            validity.overcounted(self.cells, self._limits()),
            validity.Doubt(miscounted, 1.0, validity.COUNT_ADVICE) if miscounted else None,
        ]

    def _slow_tails(self) -> list[tuple[Level, str]]:
        """Return each level with slow requests, and the sentence that counts them."""
        levels = dict.fromkeys(cell.level for cell in self.cells)
        rows = {level: [r for c in self.cells if c.level == level for r in c.sent] for level in levels}
        sentences = {level: record.slow_tail(sent).sentence for level, sent in rows.items()}
        return [(level, sentence) for level, sentence in sentences.items() if sentence]

    def _result(self, verdict: Verdict, reason: str) -> Result:
        cells = sorted(self.cells, key=lambda cell: self.plan().index((cell.level, cell.repeat)))
        acceptance, missing = record.acceptance(cells)
        return Result(
            phase=PHASE,
            inputs=self.inputs,
            settings=self.settings.model_dump(mode="json"),
            environment=self.environment,
            verdict=verdict,
            reason=reason,
            summary=record.playbook_summary(cells) if any(cell.rows for cell in cells) else {},
            data=measurement.BaselineData(
                run=self.token,
                percentiles=stats.PERCENTILE_METHOD,
                prompts=self.prompts.provenance(),
                endpoint=self.endpoint,
                by_concurrency=record.by_level(cells),
                by_class=record.by_class(cells),
                acceptance=acceptance,
                acceptance_missing=missing,
                errors=record.errors(cells),
                steadiness=validity.changes(self._steady_load),
                replay=self.replay.facts if self.replay else None,
                cells=cells,
            ).model_dump(mode="json", by_alias=True),
        )
