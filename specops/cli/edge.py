"""`specops edge`: drafting here, verifying elsewhere."""

from __future__ import annotations

import typer

from specops.cli.edge_bench import bench
from specops.cli.edge_client import chat, edge_serve
from specops.cli.edge_server import verify_server
from specops.cli.edge_simulate import simulate

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
