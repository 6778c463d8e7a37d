"""A server of the bench: what `specops edge verify-server` runs, in a process of its own, at declared
speed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, MutableSequence
from functools import partial
from multiprocessing.connection import Connection as Pipe

from specops.config import DeclaredPass, StandIn
from specops.edge.batching import Batching
from specops.edge.link import tokenizer_digest
from specops.edge.server import ServiceSettings, serve_verification
from specops.edge.server_engine import EngineSettings, load_verifier
from specops.edge.stand_in import DelayedModel, PassCost
from specops.edge.verification_loop import verify_in_process
from specops.engine.models.model import FeatureModel
from specops.engine.step import Engine
from specops.engine.text import load_tokenizer
from specops.errors import SpecopsError
from specops.phases.edge_bench.records import ServerEffort
from specops.prometheus.exposition import Scrape
from specops.serve.admission import bind

GRACE_S = 1.0
"""Seconds for sessions that run when the bench ends: all of them are cut short."""


def paced(declared: DeclaredPass, totals: MutableSequence[float]) -> Callable[[FeatureModel], FeatureModel]:
    """Return what wraps a model so that its passes take what is declared."""
    cost = PassCost(declared.pass_ms / 1000, declared.token_ms / 1000)
    return partial(DelayedModel, cost=cost, totals=totals)


def run_server(
    pipe: Pipe,
    settings: EngineSettings,
    batching: str,
    stand_in: StandIn | None,
    paces: tuple[MutableSequence[float], MutableSequence[float]],
) -> None:
    """Serve until the pipe is closed; it gets the Ports, or the error that there is.

    paces: of the target and its draft, shared with the process that measures (stand_in.py).
    """

    def load_engine() -> Engine:
        if stand_in is None:
            return load_verifier(settings)
        return load_verifier(
            settings,
            pace=paced(stand_in.verify, paces[0]),
            # A model, and no head: the edge has loaded it as one by now.
            pace_draft=paced(stand_in.server_draft, paces[1]),
        )

    try:
        with (
            bind("127.0.0.1", 0) as bound,
            bind("127.0.0.1", 0) as page,
            verify_in_process(
                load_engine,
                [bound, page],
                max_batch=settings.max_batch,
                batching=Batching.parse(batching),
            ) as worker,
        ):
            threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
            service = ServiceSettings(
                model=str(settings.target),
                tokenizer=tokenizer_digest(load_tokenizer(settings.target)),
                own_tree=settings.tree,
                max_nodes=settings.max_nodes,
                grace=GRACE_S,
            )
            serve_verification(worker, service, bound, page, pipe.send)
    except SpecopsError as error:
        pipe.send(error)


def _end_with(pipe: Pipe) -> None:
    """Whoever started this server is gone when its end of the pipe is."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


def server_effort(metrics: Scrape) -> ServerEffort:
    """Return the work of a server up to now."""

    def total(name: str, state: str = "") -> float:
        return sum(
            value
            for (series, labels), value in metrics.items()
            if series == f"specops_edge_server_{name}" and (not state or ("state", state) in labels)
        )

    return ServerEffort(
        steps=total("batch_trees_count"),
        rounds=total("batch_trees_sum"),
        busy_s=total("engine_seconds_total", "busy"),
        starved_s=total("engine_seconds_total", "starved"),
    )
