"""`specops edge serve`: an OpenAI-compatible API on this machine, in front of an edge client."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from specops.cli.edge_options import (
    SERVER,
    AheadOption,
    BeamsOption,
    CopyFlag,
    DepthOption,
    DraftingOption,
    DraftOption,
    HeadsOption,
    InsecureFlag,
    NodesOption,
    ServerOption,
    TlsCaOption,
    client_maker,
    draft_folder,
)
from specops.cli.extras import extra
from specops.cli.output import DebugFlag, QuietFlag
from specops.cli.serve import API_KEY
from specops.cli.serve_options import (
    GraceOption,
    HostOption,
    MaxQueueOption,
    PortOption,
    ThreadsOption,
    log_to_stderr,
)
from specops.edge.settings import DEFAULT


def serve(
    server: ServerOption = SERVER,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    draft: DraftOption = None,
    copy: CopyFlag = False,
    tls_ca: TlsCaOption = None,
    insecure: InsecureFlag = False,
    drafting: DraftingOption = "auto",
    nodes: NodesOption = DEFAULT.nodes,
    beams: BeamsOption = DEFAULT.beams,
    depth: DepthOption = "adaptive",
    heads: HeadsOption = DEFAULT.heads,
    ahead: AheadOption = DEFAULT.ahead,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Sequences that run at the same time, over one connection.")
    ] = 4,
    max_queue: MaxQueueOption = 256,
    served_model_name: Annotated[
        str | None, typer.Option(help="What clients call the model; default: what the server calls it.")
    ] = None,
    threads: ThreadsOption = None,
    grace: GraceOption = 30.0,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Serve an OpenAI API here that drafts for a verify-server.

    The API and the metrics are those of `specops serve`, with specops_edge_* beside them. SPECOPS_EDGE_TOKEN
    is shown to the verify-server; where SPECOPS_API_KEY is set, clients must send it. Answers that were
    begun outlive a break of the connection of up to 30 seconds; after 10 without one, new requests get 503.
    """
    make = client_maker(
        server=server,
        draft=draft,
        copy=copy,
        tls_ca=tls_ca,
        insecure=insecure,
        drafting=drafting,
        nodes=nodes,
        beams=beams,
        depth=depth,
        heads=heads,
        ahead=ahead,
        streams=max_batch,
        threads=threads,
    )
    with extra("edge", "start the server"):
        from specops.edge.client_metrics import edge_series
        from specops.engine.tokenizer import load_tokenizer
        from specops.serve.admission import bind
        from specops.serve.engine_worker import in_process
        from specops.serve.server import ServeSettings, serve_engine

    def announce(url: str) -> None:
        print(f"serving {settings.model} on {url} (verified at {server})", file=sys.stderr, flush=True)

    log_to_stderr(quiet=quiet)
    with bind(host, port) as bound, in_process(make, [bound]) as worker:
        settings = ServeSettings(
            model=served_model_name or worker.ready.model,
            capacity=max_batch + max_queue,
            speculative=True,
            api_key=os.environ.get(API_KEY) or None,
            grace=grace,
            extra_series=edge_series,
        )
        serve_engine(worker, load_tokenizer(draft_folder(draft)), settings, bound, announce)
