"""What the commands that draft here have in common: their options, and how an edge client is made of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.assets import asset
from specops.cli.extras import extra
from specops.errors import UsageError

if TYPE_CHECKING:
    from specops.edge.client import EdgeEngine

TOKEN = "SPECOPS_EDGE_TOKEN"
SERVER = "127.0.0.1:8500"  # where a verify-server listens unless it is told otherwise

ServerOption = Annotated[str, typer.Option(help="HOST:PORT of a `specops edge verify-server`.")]
DraftOption = Annotated[
    Path | None, typer.Option(help="Folder of the draft model and its tokenizer; default: the shipped draft.")
]
CopyFlag = Annotated[
    bool,
    typer.Option("--copy", help="Draft by copying from the text; of --draft the tokenizer alone is read."),
]
TlsCaOption = Annotated[
    str | None,
    typer.Option(help="Speak TLS: a PEM file of authorities to trust, or system for this machine's own."),
]
InsecureFlag = Annotated[bool, typer.Option("--insecure", help="Send the token without TLS all the same.")]
DraftingOption = Annotated[
    str,
    typer.Option(
        help="Who drafts: edge, server, or auto, which leaves it to the server where that gives more tokens "
        "a second, as over a bad link."
    ),
]
NodesOption = Annotated[int, typer.Option(min=1, help="Nodes of a tree at most.")]
BeamsOption = Annotated[int, typer.Option(min=1, help="Nodes that one pass of the draft runs.")]
DepthOption = Annotated[
    str, typer.Option(help="When a tree is sent: adaptive, included:D or excluded:D passes.")
]
HeadsOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="Outcomes of a tree to draft ahead for while it is away. 0: none; 1: as SpecEdge does.",
    ),
]
AheadOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="Of these outcomes, those whose next trees are sent before it is known which it is. 0: none.",
    ),
]


def draft_folder(draft: Path | None) -> Path:
    return draft or asset("playbooks", "embedded", "draft")


def client_maker(
    *,
    server: str,
    draft: Path | None,
    copy: bool,
    tls_ca: str | None,
    insecure: bool,
    drafting: str,
    nodes: int,
    beams: int,
    depth: str,
    heads: int,
    ahead: int,
    streams: int,
    threads: int | None,
) -> Callable[[], EdgeEngine]:
    """What makes the client, wherever it is called; what is wrong with the options is said at once."""
    with extra("edge", "draft here"):
        from specops.edge.depth import parse_depth
        from specops.edge.destination import Destination
        from specops.edge.fallback import Fallback
        from specops.edge.opening import open_client
        from specops.edge.settings import Drafting
    fallbacks = {
        "auto": Fallback(),
        "edge": Fallback.always(server_drafts=False),
        "server": Fallback.always(server_drafts=True),
    }
    if drafting not in fallbacks:
        raise UsageError(f"--drafting {drafting} is nobody", hint=f"give one of {', '.join(fallbacks)}")
    destination = Destination(server, os.environ.get(TOKEN) or None, tls_ca, insecure)
    settings = Drafting(
        nodes=nodes, beams=beams, depth=parse_depth(depth), heads=heads, ahead=ahead, streams=streams
    )
    folder = draft_folder(draft)

    return partial(
        open_client, destination, folder, settings, fallbacks[drafting], copies=copy, threads=threads
    )
