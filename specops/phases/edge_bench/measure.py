"""Makes the visits of an edge bench, and the Result of them.

Servers, the link and the clients of a bench are processes of this machine, none of which outlives it. They
are forked from this one, which has the models' libraries loaded and has not spoken gRPC, that no process may
fork after. Every child ends when its pipe does, so none is left even where this process is killed.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from typing import Any

from specops import results
from specops.edge.relay import relay
from specops.edge.server import Ports
from specops.edge.server_engine import EngineSettings
from specops.edge.settings import Drafting, parse_depth
from specops.edge.stand_in import FIGURES, Pace
from specops.engine.load import compute_with
from specops.engine.models import load_model
from specops.engine.models.model import FeatureModel
from specops.engine.request import Sampling
from specops.engine.text import load_tokenizer
from specops.errors import EnvironmentFailure, SpecopsError, UsageError
from specops.hints import with_options
from specops.load.arrivals import Level
from specops.load.workload import Prompt, load_prompts
from specops.phases.edge_bench.client import ArmConnection, Block, run_client
from specops.phases.edge_bench.judging import Comparison, compare, summed, verdict
from specops.phases.edge_bench.plan import Visit, schedule
from specops.phases.edge_bench.records import Lateness, VisitRecord, Visits
from specops.phases.edge_bench.server import BenchServer, Totals, paced, run_server
from specops.phases.edge_bench.settings import SERVER_ONLY, Arm, EdgeBenchSettings, arms_of, stands_in
from specops.progress import Progress

STARTING_S = 300.0
ANSWERING_S = 1800.0
"""Longest time for a block, however slow what is declared."""

ENDING_S = 10.0

Paces = Sequence[Sequence[float]]
"""Paces of several models, as stand_in.py stores them."""


@dataclass(frozen=True)
class _Server:
    ports: Ports
    address: str  # where clients reach it: the relay
    target_pace: Sequence[float]
    draft_pace: Sequence[float]


class BenchTestbed:
    """Two servers of one target, and as many clients as ever work at a time."""

    def __init__(
        self,
        settings: EdgeBenchSettings,
        servers: Mapping[str, _Server],
        clients: Sequence[Pipe],
        draft_paces: Paces,
    ) -> None:
        self._settings = settings
        self._servers = servers  # by the tree that they draft themselves
        self._clients = clients
        self._draft_paces = draft_paces

    def visit(
        self, arm: Arm, clients: int, block: int, order: int, prompts: Sequence[tuple[str, list[int]]]
    ) -> VisitRecord:
        """Have `arm` answer the prompts, dealt out to so many clients."""
        settings = self._settings
        server = self._servers[_tree(arm, settings)]
        sampling = Sampling(
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=settings.seed,
            max_tokens=settings.tokens,
            ignore_eos=True,
        )
        way = ArmConnection(server.address, _drafting(arm, settings) if arm.kind == "edge" else None)
        pipes = self._clients[:clients]
        before, paces = Totals.of(server.ports), _paces(server, self._draft_paces)
        for number, pipe in enumerate(pipes):
            pipe.send(Block(arm.name, way, list(prompts[number::clients]), sampling))
        done = [_received(pipe, ANSWERING_S, "a client of the bench") for pipe in pipes]
        server_effort = Totals.of(server.ports).since(before)
        answers = [answer for each in done for answer in each.answers]
        began = min(answer.sent_s for answer in answers)
        ended = max(answer.sent_s + (answer.chunks[-1][0] if answer.chunks else 0) for answer in answers)
        target_pace, draft_pace = (
            _lateness(now, then) for now, then in zip(_paces(server, self._draft_paces), paces, strict=True)
        )
        declared = settings.edge.stand_in is not None
        return VisitRecord(
            arm=arm.name,
            clients=clients,
            block=block,
            order=order,
            seconds=ended - began,
            answers=[a.model_copy(update={"sent_s": a.sent_s - began}) for a in answers],
            server=server_effort,
            effort=summed([each.effort for each in done]),
            target_pace=target_pace if declared else None,
            draft_pace=draft_pace if declared else None,
        )


@contextmanager
def site(settings: EdgeBenchSettings, arms: Sequence[Arm], tokenizer: Any) -> Iterator[BenchTestbed]:
    """Everything started, and ended with the block. Raises SpecopsError where something cannot be."""
    compute_with(threads=1)  # before the fork: a pool of threads would not survive it
    draft, edge = load_model(settings.draft), settings.edge
    trees = sorted({_tree(arm, settings) for arm in arms})
    with ExitStack() as ending:
        host = _Host()
        ending.callback(host.end)
        hosted = {tree: _hosted(settings, tree) for tree in trees}
        servers = {tree: host.start(run_server, each) for tree, each in hosted.items()}
        paces = [_shared() for _ in range(max(edge.clients))]
        clients = [
            host.start(run_client, number, _at_edge(draft, settings, pace), tokenizer)
            for number, pace in enumerate(paces)
        ]
        made = {}
        for tree, pipe in servers.items():  # the relay's threads come after the last fork
            ports = _received(pipe, STARTING_S, "a server of the bench")
            way = ending.enter_context(relay(ports.service, edge.rtt_ms / 2000))
            each = hosted[tree]
            made[tree] = _Server(ports, f"127.0.0.1:{way.port}", each.target_pace, each.draft_pace)
        yield BenchTestbed(settings, made, clients, paces)


class _Host:
    """Starts processes, and ends them."""

    def __init__(self) -> None:
        self._started: list[tuple[BaseProcess, Pipe]] = []

    def start(self, work: Callable[..., None], *given: Any) -> Pipe:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        others = [ours, *(pipe for _, pipe in self._started)]
        # No daemon process: a daemon may have no children, and a server starts its engine.
        process = context.Process(target=_child, args=(work, theirs, others, given))
        process.start()
        theirs.close()
        self._started.append((process, ours))
        return ours

    def end(self) -> None:
        for process, pipe in self._started:
            pipe.close()
            process.terminate()
        for process, _ in self._started:
            process.join(ENDING_S)
            if process.is_alive():
                process.kill()
                process.join()


def _child(work: Callable[..., None], pipe: Pipe, others: Sequence[Pipe], given: Sequence[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's: the bench says when
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ends it here, where Ctrl-C is ignored
    for other in others:  # or an end that the bench closes would stay open here
        other.close()
    work(pipe, *given)


def _received(pipe: Pipe, patience_s: float, who: str) -> Any:
    until = time.monotonic() + patience_s
    try:
        if not pipe.poll(max(until - time.monotonic(), 0)):
            raise EnvironmentFailure(f"{who} gave no answer within {patience_s:g} s")
        said = pipe.recv()
    except (EOFError, OSError) as error:
        raise EnvironmentFailure(
            f"{who} ended without a message; the kernel may have killed it for its memory",
            hint="dmesg | tail -n 20",
        ) from error
    if isinstance(said, SpecopsError):
        raise said
    return said


def _tree(arm: Arm, settings: EdgeBenchSettings) -> str:
    """Return what the server of an arm drafts for itself."""
    return settings.server_tree if arm.kind == "server-only" else "none"


def _hosted(settings: EdgeBenchSettings, tree: str) -> BenchServer:
    edge = settings.edge
    server = EngineSettings(
        target=settings.target,
        tree=tree,
        draft=settings.draft if tree != "none" else None,
        verifier=settings.verifier,
        max_batch=settings.max_batch,
        max_nodes=edge.nodes,
        threads=1,
    )
    return BenchServer(server, edge.batching, edge.stand_in, _shared(), _shared())


def _at_edge(draft: FeatureModel, settings: EdgeBenchSettings, totals: Any) -> FeatureModel:
    stand_in = settings.edge.stand_in
    return draft if stand_in is None else paced(stand_in.edge_draft, totals)(draft)


def _drafting(arm: Arm, settings: EdgeBenchSettings) -> Drafting:
    return Drafting(
        nodes=settings.edge.nodes,
        beams=settings.edge.beams,
        heads=arm.heads,
        depth=parse_depth(arm.depth),
        ahead=arm.ahead,
        streams=1,
    )


def _shared() -> Any:
    return RawArray("d", FIGURES)


def _paces(server: _Server, edges: Paces) -> tuple[Pace, Pace]:
    """Return the paces of the target, and of the draft wherever it runs."""
    drafts = [server.draft_pace, *edges]
    return Pace(*server.target_pace), Pace(*(sum(column) for column in zip(*drafts, strict=True)))


def _lateness(now: Pace, then: Pace) -> Lateness:
    passed = now.since(then)
    return Lateness(
        passes=round(passed.passes),
        late=round(passed.late),
        over_s=passed.over_s,
        declared_s=passed.declared_s,
    )


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
    arms = arms_of(edge.heads, edge.depth, edge.ahead)
    by_name = {arm.name: arm for arm in arms}
    loaded = load_prompts(settings.prompts)
    chosen = loaded.spread(settings.count)
    tokenizer = load_tokenizer(settings.target)
    prompts = {prompt.id: _tokens(prompt, tokenizer, settings.prompt_tokens) for prompt in chosen}
    plan = _plan(list(by_name), edge.clients, chosen, settings.seed)
    for line in stands_in(edge.stand_in) if edge.stand_in else []:
        progress.note(f"stand-in costs: {line}")
    visits: list[VisitRecord] = []
    progress.start("starting two servers and their clients", 1)
    try:
        with site(settings, arms, tokenizer) as placed:
            for arm in arms:  # caches are touched, and the first path of an adaptive depth is found
                placed.visit(arm, 1, -1, 0, _of(prompts, [chosen[0].id]))
            progress.start("asking all arms in turn", len(plan))
            for visit in plan:
                clients = visit.level.concurrency or 1
                given = _of(prompts, visit.prompts)
                visits.append(placed.visit(by_name[visit.arm], clients, visit.block, visit.order, given))
                progress.advance()
    except (KeyboardInterrupt, SpecopsError):
        if visits and on_partial is not None:
            on_partial(_result(settings, arms, visits, len(plan), loaded.sha256))
        raise
    return _result(settings, arms, visits, len(plan), loaded.sha256)


def _result(
    settings: EdgeBenchSettings,
    arms: Sequence[Arm],
    visits: Sequence[VisitRecord],
    planned: int,
    prompts_sha256: str,
) -> results.Result:
    found = compare(
        arms,
        visits,
        settings.prices,
        greedy=settings.temperature == 0,
        confidence=settings.confidence,
    )
    said, why = verdict(found)
    if len(visits) < planned:
        said, why = "partial", f"ended after {len(visits)} of {planned} visits; so far {why}"
    return results.Result(
        phase="edge-bench",
        inputs={"prompts": prompts_sha256},
        settings=settings.recorded() | {"stand_in_costs": settings.edge.stand_in is not None},
        environment=results.environment()
        | {"torch": version("torch"), "grpcio": version("grpcio"), "threads": 1},
        verdict=said,
        reason=why,
        summary=_summary(found),
        data=found.model_dump(mode="json") | Visits(visits=tuple(visits)).model_dump(mode="json"),
    )


def comparison_of(result: results.Result) -> Comparison:
    """Return what a result of this phase holds, without its visits."""
    return Comparison.model_validate({key: result.data[key] for key in Comparison.model_fields})


def _plan(arms: Sequence[str], clients: Sequence[int], prompts: Sequence[Prompt], seed: int) -> list[Visit]:
    if max(clients) > len(prompts):
        raise UsageError(
            f"could not bench {max(clients)} clients on {len(prompts)} prompts: expected a prompt for each",
            hint=with_options({"--count": str(max(clients))}),
        )
    levels = [Level(concurrency=count) for count in sorted(set(clients))]
    named = [(prompt.id, prompt.traffic_class) for prompt in prompts]
    return schedule(arms, levels, named, rounds=1, looks=1, seed=seed)


def _tokens(prompt: Prompt, tokenizer: object, most: int) -> list[int]:
    text = prompt.completion_prompt()
    tokens: list[int] = text if isinstance(text, list) else tokenizer.encode(text)  # type: ignore[attr-defined]
    return tokens[-most:]


def _of(prompts: dict[str, list[int]], ids: Sequence[str]) -> list[tuple[str, list[int]]]:
    return [(name, prompts[name]) for name in ids]


def _summary(found: Comparison) -> dict[str, object]:
    """Return by the number of clients each arm's milliseconds a token, and the edge's best over
    server-only."""
    summary: dict[str, object] = {}
    for clients in sorted({figure.clients for figure in found.figures}):
        of_level = [figure for figure in found.figures if figure.clients == clients]
        ratios = [
            ratio
            for arm in found.arms
            if arm.kind == "edge"
            and (ratio := found.ratio("latency", arm.name, SERVER_ONLY, clients)) is not None
        ]
        best = max(ratios, key=lambda ratio: ratio.estimate, default=None)
        summary[f"clients_{clients}"] = {
            "itl_ms": {figure.arm: _rounded(figure.itl_ms) for figure in of_level},
            "tokens_per_s": {figure.arm: _rounded(figure.tokens_per_s) for figure in of_level},
            "server_idle": {figure.arm: _rounded(figure.idle) for figure in of_level},
            "best_edge_arm": None if best is None else best.arm,
            "latency_over_server_only": None if best is None else _rounded(best.estimate),
        }
    return summary


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
