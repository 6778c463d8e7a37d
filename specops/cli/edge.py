"""`specops edge`: drafting here, verifying elsewhere. The group of its commands, and `edge verify-server`."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import TypedDict

from specops.assets import asset
from specops.cli.call import (
    Call,
    HostOption,
    PortOption,
    ThreadsOption,
    extra,
    log_to_stderr,
    shared_options,
)
from specops.cli.edge_bench import bench
from specops.cli.edge_client import TOKEN, chat, edge_serve
from specops.cli.edge_simulate import simulate
from specops.cli.serve import EMBEDDED
from specops.errors import UsageError
from specops.hints import with_options
from specops.net import is_loopback
from specops.quantities import SECONDS
from specops.trees import VERIFIER_NAMES, parse_tree

if TYPE_CHECKING:
    from specops.edge.server import Ports, Tls


class ListeningServer(TypedDict):
    address: str
    model: str
    metrics: str | None
    """URL of its metrics, if they are served."""


@shared_options()
def verify_server(
    call: Call,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8500,
    target: Annotated[
        Path | None, typer.Option(help="Folder of the model to verify with; without it, the shipped one.")
    ] = None,
    tree: Annotated[
        str, typer.Option(help="Tree that the server drafts where a client does not, such as ngram:8.")
    ] = "none",
    draft: Annotated[Path | None, typer.Option(help="Folder of the draft for that tree.")] = None,
    verifier: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(VERIFIER_NAMES)}; default: the best that is lossless."),
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Maximum number of clients' trees in one step.")] = 8,
    batching: Annotated[
        str,
        typer.Option(
            help="Batching: dynamic runs the waiting rounds; static:N[:WAIT_MS] waits up to WAIT_MS for N."
        ),
    ] = "dynamic",
    sessions: Annotated[int, typer.Option(min=1, help="Limit on concurrent sessions of all clients.")] = 256,
    sessions_per_client: Annotated[
        int,
        typer.Option(
            min=1,
            help="Limit on concurrent sessions of one client (a token name, or a connection without tokens).",
        ),
    ] = 64,
    kv_mb: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="KV cache in MiB; evicted sessions are read again. Default: 4 sessions per --max-batch.",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=2, help="Tokens of one session, prompt and output; default: the model's."),
    ] = None,
    max_nodes: Annotated[
        int, typer.Option(min=1, max=4096, help="Maximum number of nodes in a client's tree.")
    ] = 64,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Clients' tokens, a line name=token each; limits and shares go by the names."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate, PEM.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen without TLS on an address that others reach.")
    ] = False,
    resume_s: Annotated[
        float,
        SECONDS,
        typer.Option(
            min=0,
            help="Seconds for which a session can be resumed after its connection or the session has ended.",
        ),
    ] = 60.0,
    grace: Annotated[
        float,
        SECONDS,
        typer.Option(min=0, help="Grace period for running sessions at shutdown, in seconds or as 5m."),
    ] = 30.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of /metrics and /health on the same address; 0: free."),
    ] = None,
    threads: ThreadsOption = None,
) -> None:
    """Verify the drafts of many clients with one model (gRPC).

    SIGTERM or Ctrl-C lets the running sessions finish; a second one ends the server at once. Where
    SPECOPS_EDGE_TOKEN is set in the environment, or --token-file is given, clients must send a token.
    """
    with extra("edge", "start the server"):
        from specops.edge.batching import Batching
        from specops.edge.link import tokenizer_digest
        from specops.edge.server import ServiceSettings, serve_verification
        from specops.edge.server_engine import EngineSettings, load_verifier
        from specops.edge.service import own_token, read_tokens
        from specops.edge.verification_loop import verify_in_process
        from specops.engine.text import load_tokenizer
        from specops.serve.admission import bind
    own = os.environ.get(TOKEN)
    if own and token_file is not None:
        raise UsageError(f"--token-file and {TOKEN} exclude each other", hint=f"unset {TOKEN}")
    tls = _tls(host, tls_cert, tls_key, insecure)
    tokens = read_tokens(token_file) if token_file is not None else own_token(own) if own else {}
    name = EMBEDDED if target is None else target.resolve().name
    if target is None:
        target = asset("playbooks", "embedded", "target")
        if draft is None and parse_tree(tree).needs_draft:
            draft = asset("playbooks", "embedded", "draft")
    engine = EngineSettings(
        target=target,
        tree=tree,
        draft=draft,
        verifier=verifier,
        max_batch=max_batch,
        kv_mb=kv_mb,
        max_length=max_length,
        max_nodes=max_nodes,
        threads=threads,
    )

    def announce(ports: Ports) -> None:
        address = _address(host, ports.service)
        metrics = None if ports.page is None else f"http://{_address(host, ports.page)}/metrics"
        page = "" if metrics is None else f", metrics on {metrics}"
        secured = "insecure" if tls is None else "TLS"
        call.announce(
            ListeningServer(address=address, model=name, metrics=metrics),
            f"verifying for {name} on {address} ({secured}, batch {max_batch}){page}",
        )

    log_to_stderr(quiet=call.quiet)
    if not tokens and not is_loopback(f"//{_address(host, 0)}"):
        logging.warning("no token is required: anyone who reaches %s can use this server", host)
    chosen = Batching.parse(batching)
    with ExitStack() as stack:
        bound = stack.enter_context(bind(host, port))  # the addresses first: loading is slow
        page = None if metrics_port is None else stack.enter_context(bind(host, metrics_port))
        inherited = [bound] if page is None else [bound, page]
        load = partial(load_verifier, engine)
        worker = stack.enter_context(verify_in_process(load, inherited, max_batch=max_batch, batching=chosen))
        settings = ServiceSettings(
            model=name,
            tokenizer=tokenizer_digest(load_tokenizer(target)),
            own_tree=tree,
            max_nodes=max_nodes,
            sessions=sessions,
            sessions_per_client=sessions_per_client,
            resume_s=resume_s,
            tokens=tokens,
            tls=tls,
            grace=grace,
        )
        serve_verification(worker, settings, bound, page, announce)


def _tls(host: str, certificate: Path | None, key: Path | None, insecure: bool) -> Tls | None:
    from specops.edge.server import Tls

    if (certificate is None) != (key is None):
        missing = {"--tls-cert": "cert.pem"} if certificate is None else {"--tls-key": "key.pem"}
        raise UsageError("--tls-cert and --tls-key go together", hint=with_options(missing))
    if certificate is not None and key is not None:
        tls = Tls(certificate, key)
        tls.credentials()  # says now what is wrong with them
        return tls
    if not insecure and not is_loopback(f"//{_address(host, 0)}"):
        raise UsageError(
            f"could not serve on {host} without TLS: prompts, output and tokens could be read on the way",
            hint=with_options({"--tls-cert": "cert.pem", "--tls-key": "key.pem"}),
        )
    return None


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


edge = typer.Typer(
    help="The method is SpecEdge's.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

edge.command()(verify_server)
edge.command()(chat)
edge.command("serve")(edge_serve)
edge.command()(bench)
edge.command()(simulate)
