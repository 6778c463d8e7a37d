"""Measures the windows of an edge bench, and makes the Result of them.

The experiment's plan says what is sent; its own runner speaks HTTP to servers that are up. Here servers, the
link and the clients are processes of this machine, none of which outlives it. They are forked from this one,
which has the models' libraries loaded and has not spoken gRPC, that no process may fork after. Every child
ends when its pipe does, so none remains even where this process is killed.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from itertools import takewhile
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from typing import Any

from specops import results
from specops.edge.relay import relay
from specops.edge.server import Ports
from specops.edge.server_engine import EngineSettings
from specops.edge.settings import Drafting, parse_depth
from specops.edge.stand_in import FIGURES, TimingDeviation
from specops.engine.load import compute_with
from specops.engine.models import load_model
from specops.engine.request import Sampling
from specops.engine.text import load_tokenizer
from specops.errors import EnvironmentFailure, SpecopsError, UsageError
from specops.experiment.plan import Plan, Request, Window, window_size
from specops.hints import with_options
from specops.load import clock, counters
from specops.load.arrivals import Level
from specops.load.record import Cell, CellRecord
from specops.load.request_times import Objectives
from specops.load.workload import Prompt, load_prompts
from specops.phases.edge_bench.client import Block, BlockResult, run_client
from specops.phases.edge_bench.judging import EdgeComparison, compare
from specops.phases.edge_bench.records import ClientEffort, EdgeWindow, EdgeWindows, Lateness
from specops.phases.edge_bench.sentences import verdict
from specops.phases.edge_bench.server import paced, run_server, server_effort
from specops.phases.edge_bench.settings import SERVER_ONLY, Arm, EdgeBenchSettings, arms_of, stands_in
from specops.progress import Progress
from specops.prometheus.exposition import scrape

STARTING_S = 300.0
ANSWERING_S = 1800.0
"""Longest time for a block, however slow what is declared."""

ENDING_S = 10.0


class BenchTestbed:
    """Two servers of one target behind a relay, and as many clients as ever work at a time."""

    def __init__(self, settings: EdgeBenchSettings, arms: Sequence[Arm], tokenizer: Any, host: Host) -> None:
        """Starts all of them, in processes of `host`. Raises SpecopsError where something cannot be."""
        compute_with(threads=1)  # before the fork: a pool of threads would not survive it
        edge, stand_in = settings.edge, settings.edge.stand_in
        draft = load_model(settings.draft)
        self._settings = settings
        self._server_paces: dict[str, tuple[Any, Any]] = {}
        """Of each server's target and draft, by the tree that it drafts itself."""

        starting = {}
        for tree in sorted({arm.tree(settings.server_tree) for arm in arms}):
            engine = EngineSettings(
                target=settings.target,
                tree=tree,
                draft=settings.draft if tree != "none" else None,
                verifier=settings.verifier,
                max_batch=settings.max_batch,
                max_nodes=edge.nodes,
                threads=1,
            )
            paces = self._server_paces[tree] = RawArray("d", FIGURES), RawArray("d", FIGURES)
            starting[tree] = host.start(run_server, engine, edge.batching, stand_in, paces)
        self._client_paces = [RawArray("d", FIGURES) for _ in range(max(edge.clients))]
        self._clients = [
            host.start(
                run_client, number, paced(stand_in.edge_draft, pace)(draft) if stand_in else draft, tokenizer
            )
            for number, pace in enumerate(self._client_paces)
        ]
        self._ports: dict[str, Ports] = {
            tree: received(pipe, STARTING_S, "a server of the bench") for tree, pipe in starting.items()
        }
        self._relays = {  # their threads come after the last fork
            tree: host.ending.enter_context(relay(ports.service, edge.rtt_ms / 2000)).port
            for tree, ports in self._ports.items()
        }

    def measure(self, arm: Arm, window: Window, prompts: Mapping[str, Prompt]) -> EdgeWindow:
        """Have `arm` answer the requests of `window`, dealt out to its number of clients.

        The contents of `prompts` are token ids. No requests fill the streams of a client that has answered
        its share: the window ends below its full load, in all arms alike.
        """
        settings, edge = self._settings, self._settings.edge
        tree = arm.tree(settings.server_tree)
        sampling = Sampling(
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=settings.tokens,
            ignore_eos=True,
        )
        drafting = (
            Drafting(
                nodes=edge.nodes,
                beams=edge.beams,
                heads=arm.heads,
                depth=parse_depth(arm.depth),
                ahead=arm.ahead,
                streams=1,
            )
            if arm.kind == "edge"
            else None
        )
        page, address = f"http://127.0.0.1:{self._ports[tree].page}", f"127.0.0.1:{self._relays[tree]}"
        requests = [
            _seeded(request, number, window, prompts, settings.seed)
            for number, request in enumerate(window.requests)
        ]
        pipes = self._clients[: window.level.concurrency]
        began, before, late = clock.now(), scrape(page), self._lateness(tree)
        for number, pipe in enumerate(pipes):
            share = requests[number :: len(pipes)]
            pipe.send(Block(arm.name, address, drafting, share, sampling))
        blocks: list[BlockResult] = [received(pipe, ANSWERING_S, "a client of the bench") for pipe in pipes]
        after, late = scrape(page), self._lateness(tree).since(late)
        observations = sorted((o for block in blocks for o in block.observations), key=lambda o: o.ended)
        cell = CellRecord.from_cell(Cell(window.level, window.cycle, tuple(observations), True), Objectives())
        cell = counters.counted(cell, before, after, str(settings.target))
        return EdgeWindow(
            cycle=window.cycle,
            kind=window.kind,
            level=window.level,
            order=window.order,
            period=window.period,
            arm=arm.name,
            began=began,
            cell=cell.model_copy(update={"client_bound": late.bottleneck or cell.client_bound}),
            server=server_effort(after).since(server_effort(before)),
            effort=ClientEffort.sum(block.effort for block in blocks),
            late=late,
        )

    def _lateness(self, tree: str) -> Lateness:
        paces = [TimingDeviation(*pace) for pace in (*self._server_paces[tree], *self._client_paces)]
        return Lateness.sum(
            Lateness(passes=p.passes, late=p.late, over_s=p.over_s, declared_s=p.declared_s) for p in paces
        )


def _seeded(
    request: Request, number: int, window: Window, prompts: Mapping[str, Prompt], seed: int
) -> Prompt:
    """The prompt of a request. A sampled answer to the same prompt with the same seed would not be another
    sample, so only the arms share a seed."""
    drawn = random.Random(f"{seed}:{window.cycle}:{window.kind}:{window.level}:{number}").getrandbits(31)
    return replace(prompts[request.prompt], temperature=request.temperature, seed=drawn)


@contextmanager
def site(settings: EdgeBenchSettings, arms: Sequence[Arm], tokenizer: Any) -> Iterator[BenchTestbed]:
    """Everything started, and ended with the block. Raises SpecopsError where something cannot be."""
    with ExitStack() as ending:
        yield BenchTestbed(settings, arms, tokenizer, Host(ending))


class Host:
    """Starts processes, which end with `ending`."""

    def __init__(self, ending: ExitStack) -> None:
        self.ending = ending
        self._started: list[tuple[BaseProcess, Pipe]] = []
        ending.callback(self._end)

    def start(self, work: Callable[..., None], *arguments: Any) -> Pipe:
        context = multiprocessing.get_context("fork")
        bench_end, child_end = context.Pipe()
        bench_ends = [bench_end, *(pipe for _, pipe in self._started)]
        # No daemon process: a daemon may have no children, and a server starts its engine.
        process = context.Process(target=_child, args=(work, child_end, bench_ends, arguments))
        process.start()
        child_end.close()
        self._started.append((process, bench_end))
        return bench_end

    def _end(self) -> None:
        for process, pipe in self._started:
            pipe.close()
            process.terminate()
        for process, _ in self._started:
            process.join(ENDING_S)
            if process.is_alive():
                process.kill()
                process.join()


def _child(
    work: Callable[..., None], pipe: Pipe, bench_ends: Sequence[Pipe], arguments: Sequence[Any]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's: the bench says when
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ends it here, where Ctrl-C is ignored
    for bench_end in bench_ends:  # or an end that the bench closes would stay open here
        bench_end.close()
    work(pipe, *arguments)


def received(pipe: Pipe, patience_s: float, who: str) -> Any:
    try:
        if not pipe.poll(patience_s):
            raise EnvironmentFailure(f"{who} gave no answer within {patience_s:g} s")
        message = pipe.recv()
    except (EOFError, OSError) as error:
        raise EnvironmentFailure(
            f"{who} ended without a message; the kernel may have killed it for its memory",
            hint="dmesg | tail -n 20",
        ) from error
    if isinstance(message, SpecopsError):
        raise message
    return message


def measure(
    settings: EdgeBenchSettings,
    progress: Progress,
    on_partial: Callable[[results.Result], None] | None = None,
) -> results.Result:
    """Every arm, at every number of clients, on the same prompts in turn. Raises SpecopsError.

    on_partial: called with what was measured where an interruption or an error ends it early, before that
    goes on; not where nothing was.
    """
    edge = settings.edge
    arms = {arm.name: arm for arm in arms_of(edge.heads, edge.depth, edge.ahead)}
    loaded = load_prompts(settings.prompts).as_text(progress.note)
    tokenizer = load_tokenizer(settings.target)
    prompts = {
        prompt.id: tokenized(prompt, tokenizer, settings.prompt_tokens)
        for prompt in loaded.spread(settings.count)
    }
    windows = planned(settings, list(arms), prompts)
    measured: list[EdgeWindow] = []

    def result() -> results.Result:
        comparison = compare(list(arms.values()), measured, settings)
        answer, reason = verdict(comparison)
        if len(measured) < len(windows):
            answer = "partial"
            reason = f"ended after {len(measured)} of {len(windows)} windows; so far {reason}"
        stored = EdgeWindows(windows=tuple(measured)).model_dump(mode="json", by_alias=True)
        return results.Result(
            phase="edge-bench",
            inputs={"prompts": loaded.sha256},
            settings=settings.recorded() | {"stand_in_costs": edge.stand_in is not None},
            environment=results.environment()
            | {"torch": version("torch"), "grpcio": version("grpcio"), "threads": 1},
            verdict=answer,
            reason=reason,
            summary=_summary(comparison),
            data=comparison.model_dump(mode="json") | stored,
        )

    for line in stands_in(edge.stand_in) if edge.stand_in else []:
        progress.note(f"stand-in costs: {line}")
    progress.start("starting two servers and their clients", 1)
    try:
        with site(settings, list(arms.values()), tokenizer) as testbed:
            for arm in arms.values():  # caches are touched, and the first path of an adaptive depth is found
                testbed.measure(arm, warm_up(arm.name, next(iter(prompts))), prompts)
            progress.start("measuring all arms in turn", len(windows))
            for window in windows:
                measured.append(testbed.measure(arms[window.arm], window, prompts))
                progress.advance()
    except (KeyboardInterrupt, SpecopsError):
        if measured and on_partial is not None:
            on_partial(result())
        raise
    return result()


def planned(settings: EdgeBenchSettings, arms: Sequence[str], prompts: Mapping[str, Prompt]) -> list[Window]:
    """Every window in its order: as many cycles as send each arm `count` requests at each load.

    The windows in an open loop are left out: a client of the bench answers one prompt after another. Where
    answers are sampled, there are windows with greedy requests among them, or nothing would show that greedy
    answers are right. Raises UsageError for more clients than prompts.
    """
    most = max(settings.edge.clients)
    if most > settings.count:
        raise UsageError(
            f"could not bench {most} clients on {settings.count} prompts: expected a prompt for each",
            hint=with_options({"--count": str(most)}),
        )
    plan = Plan(
        arms=tuple(arms),
        levels=tuple(Level(concurrency=clients) for clients in sorted(set(settings.edge.clients))),
        prompts=tuple((prompt.id, prompt.traffic_class) for prompt in prompts.values()),
        design="interleaved",
        seed=settings.seed,
        temperature=settings.temperature,
        mixed_prompts=settings.margins.mixed_prompts if settings.temperature > 0 else 0,
        mixed_temperature=settings.temperature,
        same_prompts=True,  # no session reads the cache of another, and a nonce would change the drafts
        rounds=1,
    )
    cycles = max(-(-settings.count // window_size(level)) for level in plan.levels)
    coming = takewhile(lambda window: window.cycle < cycles, plan.windows())
    return [window for window in coming if window.kind != "open"]


def warm_up(arm: str, prompt: str) -> Window:
    """One request that counts for nothing."""
    return Window(-1, "measured", Level(concurrency=1), 0, 0, arm, (Request(prompt, ""),))


def tokenized(prompt: Prompt, tokenizer: Any, most: int) -> Prompt:
    """Return the prompt as token ids, the last `most` of them."""
    text = prompt.completion_prompt()
    tokens: list[int] = text if isinstance(text, list) else tokenizer.encode(text)
    return replace(prompt, content=tuple(tokens[-most:]))


def _summary(comparison: EdgeComparison) -> dict[str, object]:
    """Return by the number of clients each arm's milliseconds a token, and the edge's best over
    server-only."""
    summary: dict[str, object] = {}
    for clients in comparison.clients:
        figures = [figure for figure in comparison.figures if figure.clients == clients]
        ratios = [comparison.ratio("latency", arm, SERVER_ONLY, clients) for arm in comparison.edges]
        best = max(filter(None, ratios), key=lambda ratio: ratio.estimate, default=None)
        summary[f"clients_{clients}"] = {
            "itl_ms": {figure.arm: figure.tpot_ms.mean for figure in figures},
            "tokens_per_s": {figure.arm: round(figure.tokens_per_s, 3) for figure in figures},
            "server_idle": {figure.arm: round(figure.server.idle, 3) for figure in figures},
            "best_edge_arm": best.arm if best else None,
            "latency_over_server_only": round(best.estimate, 3) if best else None,
        }
    return summary
